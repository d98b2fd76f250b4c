//! Errors and warnings of a backup or restore, as its results file has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::codec::null_as_default;

/// The results file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Results {
    /// What failed.
    #[serde(deserialize_with = "null_as_default")]
    pub errors: Messages,
    /// What was odd.
    #[serde(deserialize_with = "null_as_default")]
    pub warnings: Messages,
}

/// Messages by where they belong; what is empty is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Messages {
    /// About the program itself: storage, archive, plugins.
    #[serde(rename = "velero", deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<String>,
    /// About objects without a namespace.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub cluster: Vec<String>,
    /// About objects in a namespace.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub namespaces: BTreeMap<String, Vec<String>>,
}

impl Messages {
    /// Adds a message about an object, by its namespace.
    pub fn add(&mut self, namespace: Option<&str>, message: impl Into<String>) {
        match namespace.filter(|namespace| !namespace.is_empty()) {
            None => self.cluster.push(message.into()),
            Some(namespace) => self.namespaces.entry(namespace.to_owned()).or_default().push(message.into()),
        }
    }

    /// Adds a message about the program itself.
    pub fn add_own(&mut self, message: impl Into<String>) {
        self.own.push(message.into());
    }

    /// How many messages there are.
    pub fn count(&self) -> usize {
        self.own.len() + self.cluster.len() + self.namespaces.values().map(Vec::len).sum::<usize>()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }
}
