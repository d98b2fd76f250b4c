//! Label and field selectors of lists and watches.

use crate::{
    key::{Key, KeyRange},
    kind::{Conversion, Kind},
    object::PartialObject,
    status_error::StatusError,
};
use plimsoll_select::labels;
use serde_json::Value;

/// Selects the objects of a list or watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: labels::Selector,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    path: String,
    value: String,
    equal: bool,
}

impl Selector {
    pub fn parse(labels: &str, fields: &str, kind: &Kind) -> Result<Self, StatusError> {
        let labels = labels::Selector::parse(labels)
            .map_err(|error| StatusError::bad_request(format!("unable to parse requirement: {error}")))?;
        Ok(Self { labels, fields: parse_fields(fields, kind)? })
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The range of keys that can match: a single key, if the selector names one.
    pub fn range(&self, kind: &Kind, namespace: Option<&str>) -> KeyRange {
        let named = self.fields.iter().find(|field| field.equal && field.path == "metadata.name");
        match named {
            Some(field) if namespace.is_some() || !kind.namespaced => {
                KeyRange::single(&kind.key(namespace.unwrap_or_default(), &field.value))
            }
            _ => kind.range(namespace),
        }
    }

    pub fn matches(&self, kind: &Kind, key: &Key, stored: &[u8]) -> bool {
        (self.labels.is_empty() || self.labels.matches(&PartialObject::of(stored).metadata.labels))
            && self.fields_match(kind, key, stored)
    }

    fn fields_match(&self, kind: &Kind, key: &Key, stored: &[u8]) -> bool {
        let mut parsed: Option<Value> = None;
        self.fields.iter().all(|field| {
            let actual = match field.path.as_str() {
                "metadata.name" => key.name.clone(),
                "metadata.namespace" => key.namespace.clone(),
                path => field_value(parsed.get_or_insert_with(|| parse_stored(kind, stored)), path),
            };
            (actual == field.value) == field.equal
        })
    }
}

fn parse_stored(kind: &Kind, stored: &[u8]) -> Value {
    let mut object = serde_json::from_slice(stored).unwrap_or_default();
    if kind.conversion != Conversion::Identity {
        kind.convert_to_version(&mut object);
    }
    object
}

fn field_value(object: &Value, path: &str) -> String {
    let pointer = format!("/{}", path.trim_start_matches('.').replace('.', "/"));
    match object.pointer(&pointer) {
        // An event's source is a structure; its component is what the selector means.
        Some(Value::Object(source)) if path == "source" => {
            source.get("component").and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => default_field(path).to_owned(),
        Some(other) => other.to_string(),
    }
}

/// The value of an absent field, where the typed API has a default.
fn default_field(path: &str) -> &'static str {
    match path {
        "spec.unschedulable" | "spec.hostNetwork" => "false",
        "status.replicas" | "status.successful" => "0",
        _ => "",
    }
}

fn parse_fields(text: &str, kind: &Kind) -> Result<Vec<FieldRequirement>, StatusError> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| parse_field(part, kind)).collect()
}

fn parse_field(text: &str, kind: &Kind) -> Result<FieldRequirement, StatusError> {
    let split = [("!=", false), ("==", true), ("=", true)];
    let found = split.iter().find_map(|(sign, equal)| text.split_once(sign).map(|(path, value)| (path, value, *equal)));
    let Some((path, value, equal)) = found else {
        return Err(StatusError::bad_request(format!("invalid selector: '{text}'; can't understand '{text}'")));
    };
    let known =
        matches!(path, "metadata.name" | "metadata.namespace") || kind.selectable.iter().any(|known| known == path);
    if !known {
        return Err(StatusError::bad_request(format!("field label not supported: {path}")));
    }
    Ok(FieldRequirement { path: path.to_owned(), value: value.to_owned(), equal })
}
