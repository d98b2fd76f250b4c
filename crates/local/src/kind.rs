//! Kinds: what the API knows of a type of object. A kind is data; no code is written for one except where
//! `admission` says so.

use crate::{
    failure::{About, Failure},
    key::{Key, Span},
    table::Column,
};
use bytes::Bytes;
use plimsoll_select::{names::NameRule, schema::Schema};
use serde_json::{Value, json};
use std::sync::Arc;

/// How a version of a kind differs from what is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum View {
    /// Not at all.
    #[default]
    Stored,
    /// Only `apiVersion` differs, and the schema may have changed since an object was written.
    Versioned,
    /// `events.k8s.io/v1`, a renaming of the core events that are stored.
    NewEvent,
}

/// The fields that the two kinds of events call differently: core name, new name.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// One version of one kind.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a column of the table of kinds")]
#[expect(clippy::struct_field_names, reason = "a kind has a kind: that is what Kubernetes calls it")]
pub(crate) struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Has a `status` subresource.
    pub status: bool,
    /// Has a `scale` subresource.
    pub scale: bool,
    /// Counts its changes in `metadata.generation`.
    pub generation: bool,
    pub name_rule: NameRule,
    /// Field selectors beside name and namespace.
    pub selectable: Vec<String>,
    pub columns: Vec<Column>,
    /// What is stored: `pods`, `backups.velero.io`.
    pub storage: Option<Arc<str>>,
    pub view: View,
    /// Version that objects are stored in.
    pub storage_version: String,
    /// Present for custom resources only.
    pub custom: Option<Custom>,
}

/// What only custom resources have.
#[derive(Debug, Default)]
pub(crate) struct Custom {
    pub schema: Option<Schema>,
    /// The definition is being deleted: no new objects.
    pub terminating: bool,
}

impl Kind {
    pub fn api_version(&self) -> String {
        join_version(&self.group, &self.version)
    }

    pub fn resource(&self) -> Arc<str> {
        self.storage.clone().unwrap_or_else(|| self.group_resource().into())
    }

    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub fn key(&self, namespace: &str, name: &str) -> Key {
        Key::new(&self.resource(), if self.namespaced { namespace } else { "" }, name)
    }

    pub fn span(&self, namespace: Option<&str>) -> Span {
        Span::of(&self.resource(), namespace)
    }

    pub fn about<'a>(&'a self, name: &'a str) -> About<'a> {
        About { group: &self.group, kind: &self.plural, name }
    }

    /// As `about`, for refusals of invalid objects, which name the kind.
    pub fn about_kind<'a>(&'a self, name: &'a str) -> About<'a> {
        About { group: &self.group, kind: &self.kind, name }
    }

    pub fn is_custom(&self) -> bool {
        self.custom.is_some()
    }

    pub fn is(&self, resource: &str) -> bool {
        self.storage.is_none() && self.custom.is_none() && self.group_resource() == resource
    }

    pub fn schema(&self) -> Option<&Schema> {
        self.custom.as_ref()?.schema.as_ref()
    }

    /// A stored object as this version shows it.
    pub fn present(&self, stored: &Bytes) -> Result<Bytes, Failure> {
        if self.view == View::Stored {
            return Ok(stored.clone());
        }
        let mut object = serde_json::from_slice(stored)?;
        self.show(&mut object);
        Ok(serde_json::to_vec(&object)?.into())
    }

    /// Turns a stored object into this version.
    pub fn show(&self, object: &mut Value) {
        match self.view {
            View::Stored => return,
            View::NewEvent => rename(object, EVENT_FIELDS.map(|(core, new)| (core, new))),
            View::Versioned => {
                if let Some(schema) = self.schema() {
                    schema.prune(object);
                    schema.default(object);
                }
            }
        }
        object["apiVersion"] = json!(self.api_version());
    }

    /// Turns an object of this version into what is stored.
    pub fn hide(&self, object: &mut Value) {
        let group = if self.view == View::NewEvent {
            rename(object, EVENT_FIELDS.map(|(core, new)| (new, core)));
            ""
        } else {
            &self.group
        };
        object["apiVersion"] = json!(join_version(group, &self.storage_version));
    }
}

pub(crate) fn join_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn rename(object: &mut Value, fields: [(&str, &str); 7]) {
    let Some(object) = object.as_object_mut() else { return };
    for (from, to) in fields {
        if let Some(value) = object.remove(from) {
            object.insert(to.to_owned(), value);
        }
    }
}
