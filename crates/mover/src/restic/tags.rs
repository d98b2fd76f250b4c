//! Tags: restic has words, a PodVolumeBackup has keys and values.

use std::collections::BTreeMap;

use crate::{MoverError, Result};

/// `key=value` for each, as Velero wrote them.
pub(crate) fn to_words(tags: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let word = |(key, value): (&String, &String)| {
        if key.contains(',') || value.contains(',') {
            // restic takes a comma for the end of a tag.
            return Err(MoverError::InvalidJob { cause: format!("tag {key:?} has a comma in it") });
        }
        Ok(format!("{key}={value}"))
    };
    tags.iter().map(word).collect()
}

/// Back again. A word without a value is kept as a key.
pub(crate) fn from_words<'w>(words: impl IntoIterator<Item = &'w String>) -> BTreeMap<String, String> {
    let pair = |word: &'w String| {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        (key.to_owned(), value.to_owned())
    };
    words.into_iter().map(pair).collect()
}
