//! Reads and changes the fields of an object that the API itself uses.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Finalizer of a deletion that waits for dependents.
pub(crate) const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// Finalizer of a deletion that leaves dependents behind.
pub(crate) const ORPHAN_FINALIZER: &str = "orphan";

/// The text at a JSON pointer, or nothing.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The metadata of an object, created if absent.
pub(crate) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    field(object, "metadata")
}

/// The object below a field, created if absent.
pub(crate) fn field<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let slot = &mut object[name];
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut().expect("set to an object above")
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    if finalizers.is_empty() {
        metadata(object).remove("finalizers");
    } else {
        metadata(object).insert("finalizers".to_owned(), json!(finalizers));
    }
}

pub(crate) fn is_terminating(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Whether finalizers or a grace period still prevent the removal of a deleted object.
pub(crate) fn is_removal_blocked(object: &Value) -> bool {
    let namespace_held = object["kind"] == "Namespace"
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let ending = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64);
    namespace_held || ending.is_some_and(|seconds| seconds > 0) || !finalizers(object).is_empty()
}

/// The current time in the format of `metadata.creationTimestamp`.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The metadata that selectors and garbage collection need, without parsing the rest of an object.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct PartialObject {
    #[serde(default)]
    pub metadata: PartialMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PartialMetadata {
    pub uid: String,
    pub labels: Option<BTreeMap<String, String>>,
    pub owner_references: Option<Vec<OwnerReference>>,
    pub deletion_timestamp: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub block_owner_deletion: Option<bool>,
}

impl OwnerReference {
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

impl PartialObject {
    /// A stored object always parses: it was validated when it was written.
    pub fn of(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    pub fn owners(&self) -> &[OwnerReference] {
        self.metadata.owner_references.as_deref().unwrap_or_default()
    }
}
