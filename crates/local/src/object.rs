//! Reading and changing the few fields of an object that the API itself cares about.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Finalizer of a deletion that waits for dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of a deletion that leaves dependents behind.
pub(crate) const ORPHAN: &str = "orphan";

/// The text at a JSON pointer, or nothing.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The metadata of an object, made if it is not there.
pub(crate) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    field(object, "metadata")
}

/// The object below a field, made if it is not there.
pub(crate) fn field<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let slot = &mut object[name];
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut().expect("was just made an object")
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

/// Whether something still holds back the removal of a deleted object.
pub(crate) fn is_held(object: &Value) -> bool {
    let namespace_held = object["kind"] == "Namespace"
        && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let ending = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64);
    namespace_held || ending.is_some_and(|seconds| seconds > 0) || !finalizers(object).is_empty()
}

/// Now, as objects carry it.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What selection and garbage collection need of a stored object, without parsing the rest.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Head {
    #[serde(default)]
    pub metadata: Meta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub uid: String,
    pub labels: Option<BTreeMap<String, String>>,
    pub owner_references: Option<Vec<Owner>>,
    pub deletion_timestamp: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub block_owner_deletion: Option<bool>,
}

impl Owner {
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

impl Head {
    /// A stored object always parses: it was validated when it was written.
    pub fn of(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    pub fn owners(&self) -> &[Owner] {
        self.metadata.owner_references.as_deref().unwrap_or_default()
    }
}
