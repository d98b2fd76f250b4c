//! Objects as the API server returned them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::kind::Kind;

/// The identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// The kind.
    pub kind: Kind,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.word(), self.name)
    }
}

impl Serialize for Reference {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One object, as the API server returned it. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    kind: Kind,
    value: Arc<Value>,
}

impl Object {
    /// An object of a kind.
    pub fn new(kind: Kind, value: Value) -> Self {
        Self { kind, value: Arc::new(value) }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its identity.
    pub fn reference(&self) -> Reference {
        Reference { kind: self.kind, namespace: self.namespace().to_owned(), name: self.name().to_owned() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Its namespace; empty for what has none.
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// The value at a JSON pointer.
    pub fn at(&self, pointer: &str) -> Option<&Value> {
        self.value.pointer(pointer).filter(|value| !value.is_null())
    }

    /// A string, or an empty one.
    pub fn text(&self, pointer: &str) -> &str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// A string that is not empty.
    pub fn some_text(&self, pointer: &str) -> Option<&str> {
        Some(self.text(pointer)).filter(|text| !text.is_empty())
    }

    /// A number that is not negative.
    pub fn number(&self, pointer: &str) -> Option<u64> {
        self.at(pointer).and_then(Value::as_u64)
    }

    /// Whether the value is `true`.
    pub fn flag(&self, pointer: &str) -> bool {
        self.at(pointer).and_then(Value::as_bool).unwrap_or(false)
    }

    /// A list, or an empty one.
    pub fn list(&self, pointer: &str) -> &[Value] {
        self.at(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The strings of a list.
    pub fn texts(&self, pointer: &str) -> Vec<&str> {
        self.list(pointer).iter().filter_map(Value::as_str).collect()
    }

    /// A timestamp.
    pub fn time(&self, pointer: &str) -> Option<Timestamp> {
        self.at(pointer).and_then(time)
    }

    /// A duration in Go's format.
    pub fn duration(&self, pointer: &str) -> Option<Duration> {
        self.some_text(pointer)?.parse::<plimsoll_api::go::GoDuration>().ok()?.as_std()
    }

    /// A label.
    pub fn label(&self, key: &str) -> &str {
        self.at("/metadata/labels").and_then(|labels| labels.get(key)).and_then(Value::as_str).unwrap_or_default()
    }

    /// The phase; `New` before a controller has set one.
    pub fn phase(&self) -> &str {
        self.some_text("/status/phase").unwrap_or("New")
    }

    /// When it was created.
    pub fn created(&self) -> Option<Timestamp> {
        self.time("/metadata/creationTimestamp")
    }

    /// The time of the last change by any field manager.
    pub fn last_write(&self) -> Option<Timestamp> {
        let writes = self.list("/metadata/managedFields").iter().filter_map(|entry| entry.get("time").and_then(time));
        writes.max().or_else(|| self.created())
    }

    /// Whether it is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.at("/metadata/deletionTimestamp").is_some()
    }
}

/// A timestamp in JSON.
pub(crate) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
