//! kopia's snapshot manifest.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::outcome::{Problems, SnapshotInfo};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    #[serde(default)]
    pub id: String,
    pub source: Source,
    pub start_time: String,
    #[serde(default)]
    pub end_time: Option<String>,
    /// Why it is incomplete; empty if it is complete.
    #[serde(default)]
    pub incomplete: String,
    pub root_entry: Option<Entry>,
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Source {
    #[serde(default)]
    pub path: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    #[serde(default, rename = "summ")]
    pub summary: Option<Summary>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Summary {
    pub size: u64,
    pub files: u64,
    pub symlinks: u64,
    pub dirs: u64,
    pub errors: Option<Vec<FileError>>,
    #[serde(rename = "numFailed")]
    pub failed: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct FileError {
    pub path: String,
    pub error: String,
}

impl Manifest {
    pub(super) fn summary(&self) -> Summary {
        self.root_entry.as_ref().and_then(|root| root.summary.clone()).unwrap_or_default()
    }

    /// A tag, as written by Velero or by kopia's command line.
    pub(super) fn tag(&self, key: &str) -> Option<&str> {
        self.tags.get(key).or_else(|| self.tags.get(&format!("tag:{key}"))).map(String::as_str)
    }

    pub(super) fn time(&self) -> Option<Timestamp> {
        self.start_time.parse().ok()
    }

    pub(super) fn info(&self) -> Option<SnapshotInfo> {
        let without_prefix =
            |(key, value): (&String, &String)| (key.trim_start_matches("tag:").to_owned(), value.clone());
        Some(SnapshotInfo {
            id: self.id.clone(),
            time: self.time()?,
            ended: self.end_time.as_deref().and_then(|time| time.parse().ok()),
            tags: self.tags.iter().map(without_prefix).collect(),
            source: self.source.path.clone(),
            bytes: Some(self.summary().size),
        })
    }
}

impl Summary {
    pub(super) fn problems(&self) -> Problems {
        let mut problems = Problems::default();
        for failed in self.errors.iter().flatten() {
            problems.add(failed.path.clone(), failed.error.clone());
        }
        // kopia lists ten errors and counts all.
        problems.count = problems.count.max(self.failed);
        problems
    }
}
