//! The resource list of a backup or restore: `{"v1/Pod": ["demo/web-0"], "v1/Namespace": ["demo"]}`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// The result of restoring an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RestoreResult {
    /// Created.
    Created,
    /// Existed and was updated.
    Updated,
    /// Failed.
    Failed,
    /// Existed and was not changed, or was excluded.
    Skipped,
}

impl fmt::Display for RestoreResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        })
    }
}

/// The list; serialized in the order of kinds and entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceList {
    kinds: BTreeMap<String, Vec<String>>,
}

impl ResourceList {
    /// Adds an item of a backup. `kind` is `v1/Pod` or `apps/v1/Deployment`.
    pub fn add(&mut self, kind: &str, namespace: Option<&str>, name: &str) {
        self.push(kind, entry(namespace, name));
    }

    /// Adds an item of a restore and its result.
    pub fn add_restored(&mut self, kind: &str, namespace: Option<&str>, name: &str, result: RestoreResult) {
        self.push(kind, format!("{}({result})", entry(namespace, name)));
    }

    /// Number of items.
    pub fn count(&self) -> usize {
        self.kinds.values().map(Vec::len).sum()
    }

    fn push(&mut self, kind: &str, entry: String) {
        match self.kinds.get_mut(kind) {
            Some(entries) => entries.push(entry),
            None => drop(self.kinds.insert(kind.to_owned(), vec![entry])),
        }
    }
}

impl Serialize for ResourceList {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.kinds.iter().map(|(kind, entries)| {
            let mut sorted: Vec<&str> = entries.iter().map(String::as_str).collect();
            sorted.sort_unstable();
            (kind, sorted)
        }))
    }
}

/// `namespace/name`, or the name alone.
pub fn entry(namespace: Option<&str>, name: &str) -> String {
    match namespace.filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
