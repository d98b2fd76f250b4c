//! Errors and warnings of a backup or restore: the results file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::codec::null_as_default;

/// The results file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Results {
    /// Errors.
    #[serde(deserialize_with = "null_as_default")]
    pub errors: Messages,
    /// Warnings.
    #[serde(deserialize_with = "null_as_default")]
    pub warnings: Messages,
}

/// Messages by scope; empty fields are omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Messages {
    /// About the server: storage, archive, plugins.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub velero: Vec<String>,
    /// About cluster-scoped objects.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub cluster: Vec<String>,
    /// About namespaced objects, by namespace.
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

    /// Adds a message about the server.
    pub fn add_velero(&mut self, message: impl Into<String>) {
        self.velero.push(message.into());
    }

    /// Number of messages.
    pub fn count(&self) -> usize {
        self.velero.len() + self.cluster.len() + self.namespaces.values().map(Vec::len).sum::<usize>()
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }
}
