//! Tags: restic has plain strings, a PodVolumeBackup has keys and values.

use std::collections::BTreeMap;

use crate::{MoverError, Result};

/// Formats tags as `key=value`, like Velero.
pub(crate) fn format_tags(tags: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let format = |(key, value): (&String, &String)| {
        if key.contains(',') || value.contains(',') {
            // restic separates tags with commas.
            return Err(MoverError::InvalidJob { cause: format!("tag {key:?} contains a comma") });
        }
        Ok(format!("{key}={value}"))
    };
    tags.iter().map(format).collect()
}

/// Parses `key=value` tags. A tag without a value becomes a key with an empty value.
pub(crate) fn parse_tags<'t>(tags: impl IntoIterator<Item = &'t String>) -> BTreeMap<String, String> {
    let parse = |tag: &'t String| {
        let (key, value) = tag.split_once('=').unwrap_or((tag, ""));
        (key.to_owned(), value.to_owned())
    };
    tags.into_iter().map(parse).collect()
}
