//! Kinds: what the API knows about a type of object. A kind is data; only `admission` has code for single kinds.

use crate::{
    key::{Key, KeyRange},
    status_error::{StatusDetails, StatusError},
    table::Column,
};
use bytes::Bytes;
use plimsoll_select::{names::NameRule, schema::Schema};
use serde_json::{Value, json};
use std::sync::Arc;

/// How a version of a kind is converted from what is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// Objects are returned as they are stored.
    #[default]
    Identity,
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
    /// The name in the database: `pods`, `backups.velero.io`.
    pub storage: Option<Arc<str>>,
    pub conversion: Conversion,
    /// Version that objects are stored in.
    pub storage_version: String,
    /// Present for custom resources only.
    pub custom: Option<CustomResource>,
}

/// Properties of custom resources only.
#[derive(Debug, Default)]
pub(crate) struct CustomResource {
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

    pub fn range(&self, namespace: Option<&str>) -> KeyRange {
        KeyRange::of(&self.resource(), namespace)
    }

    pub fn details_for<'a>(&'a self, name: &'a str) -> StatusDetails<'a> {
        StatusDetails { group: &self.group, kind: &self.plural, name }
    }

    /// As `details_for`, for errors about invalid objects, which name the kind.
    pub fn details_for_kind<'a>(&'a self, name: &'a str) -> StatusDetails<'a> {
        StatusDetails { group: &self.group, kind: &self.kind, name }
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

    /// Encodes a stored object in this version.
    pub fn encode_version(&self, stored: &Bytes) -> Result<Bytes, StatusError> {
        if self.conversion == Conversion::Identity {
            return Ok(stored.clone());
        }
        let mut object = serde_json::from_slice(stored)?;
        self.convert_to_version(&mut object);
        Ok(serde_json::to_vec(&object)?.into())
    }

    /// Converts a stored object to this version.
    pub fn convert_to_version(&self, object: &mut Value) {
        match self.conversion {
            Conversion::Identity => return,
            Conversion::NewEvent => rename(object, EVENT_FIELDS.map(|(core, new)| (core, new))),
            Conversion::Versioned => {
                if let Some(schema) = self.schema() {
                    schema.prune(object);
                    schema.default(object);
                }
            }
        }
        object["apiVersion"] = json!(self.api_version());
    }

    /// Converts an object of this version to the storage version.
    pub fn convert_to_storage(&self, object: &mut Value) {
        let group = if self.conversion == Conversion::NewEvent {
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
