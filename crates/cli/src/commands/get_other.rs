//! `plimsoll get` of kinds that have commands of their own, as in Velero: snapshot locations, repositories, plugins.

use std::time::Duration;

use anyhow::bail;

use super::{plugin, repo, snapshot_location};
use crate::args::Global;
use crate::args::names::ResourceKind;
use crate::args::options::{GetOptions, ListFormat, ObjectFormat};
use crate::args::plugins::{GetPlugins, GetSnapshotLocations, Plugin, SnapshotLocation};
use crate::args::repo::{Repo, RepoGet};
use crate::errors::UsageError;
use crate::exit::Outcome;

/// How long a server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A kind with a list command of its own.
#[derive(Debug)]
pub enum OtherKind {
    Plugins(GetPlugins),
    Repositories(RepoGet),
    SnapshotLocations(GetSnapshotLocations),
}

/// The requested kind, if it is one of these.
pub fn requested(words: &[String], options: &GetOptions) -> anyhow::Result<Option<OtherKind>> {
    let Some((kind, names)) = words.split_first() else { return Ok(None) };
    let names = names.to_vec();
    let found = match kind.to_lowercase().as_str() {
        "plugin" | "plugins" => {
            OtherKind::Plugins(GetPlugins { timeout: ANSWER_TIMEOUT, output: object_format(kind, options)? })
        }
        "repo" | "repos" | "repository" | "repositories" | "backuprepositories" => {
            OtherKind::Repositories(RepoGet { names, output: options.output })
        }
        "snapshot-location" | "snapshot-locations" | "vsl" => {
            OtherKind::SnapshotLocations(GetSnapshotLocations { names, output: object_format(kind, options)? })
        }
        text => match text.split('/').next().unwrap_or_default().parse::<ResourceKind>() {
            Ok(_) => return Ok(None),
            Err(UsageError(error)) => bail!(UsageError(format!("{error}, repository, snapshot-location, plugin"))),
        },
    };
    if options.selector.is_some() || options.show_labels || !options.label_columns.is_empty() {
        bail!(UsageError(format!("--selector, --show-labels and --label-columns are not supported for {kind}")));
    }
    Ok(Some(found))
}

fn object_format(kind: &str, options: &GetOptions) -> Result<Option<ObjectFormat>, UsageError> {
    match options.output {
        ListFormat::Table => Ok(None),
        ListFormat::Json => Ok(Some(ObjectFormat::Json)),
        ListFormat::Yaml => Ok(Some(ObjectFormat::Yaml)),
        ListFormat::Name => Err(UsageError(format!("-o name is not supported for {kind}; use -o json"))),
    }
}

/// Lists it.
pub async fn run(global: &Global, kind: OtherKind) -> anyhow::Result<Outcome> {
    match kind {
        OtherKind::Plugins(options) => plugin::run(global, Plugin::Get(options)).await,
        OtherKind::Repositories(options) => repo::run(global, Repo::Get(options)).await,
        OtherKind::SnapshotLocations(options) => snapshot_location::run(global, SnapshotLocation::Get(options)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(output: ListFormat) -> GetOptions {
        GetOptions { selector: None, output, label_columns: Vec::new(), show_labels: false }
    }

    fn parse(words: &[&str], options: &GetOptions) -> anyhow::Result<Option<OtherKind>> {
        requested(&words.iter().map(ToString::to_string).collect::<Vec<_>>(), options)
    }

    #[test]
    fn the_kinds_of_velero_are_known_by_its_names() {
        let table = options(ListFormat::Table);
        assert!(matches!(parse(&["plugins"], &table), Ok(Some(OtherKind::Plugins(_)))));
        assert!(matches!(parse(&["repo", "a"], &table), Ok(Some(OtherKind::Repositories(get))) if get.names == ["a"]));
        assert!(matches!(parse(&["snapshot-locations"], &table), Ok(Some(OtherKind::SnapshotLocations(_)))));
        assert!(matches!(parse(&["backups"], &table), Ok(None)));
    }

    #[test]
    fn options_without_a_meaning_are_refused() {
        let labelled = GetOptions { selector: Some("a=b".into()), ..options(ListFormat::Table) };
        let unknown = parse(&["pods"], &labelled).unwrap_err().to_string();
        assert!(
            unknown.starts_with("unknown kind \"pods\"") && unknown.ends_with("snapshot-location, plugin"),
            "{unknown}"
        );
        assert!(parse(&["repos"], &labelled).unwrap_err().to_string().contains("--selector"));
        assert!(parse(&["plugins"], &options(ListFormat::Name)).unwrap_err().to_string().contains("-o json"));
    }
}
