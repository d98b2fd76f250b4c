//! Structural schemas of custom resources: pruning, defaults and validation.

use regex::Regex;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// One cause of an `Invalid` status (`metav1.StatusCause`).
#[derive(Clone, Debug)]
pub struct StatusCause {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: &'static str,
    /// Path of the field.
    pub field: String,
    /// Human-readable message.
    pub message: String,
}

impl StatusCause {
    /// An invalid value.
    pub fn invalid(field: impl Into<String>, value: &Value, why: impl AsRef<str>) -> Self {
        let shown = match value {
            Value::Object(_) | Value::Array(_) => "{...}".to_owned(),
            other => other.to_string(),
        };
        Self::new("FieldValueInvalid", field, format!("Invalid value: {shown}: {}", why.as_ref()))
    }

    /// A value of the wrong type.
    pub fn type_invalid(field: impl Into<String>, value: &Value, why: impl AsRef<str>) -> Self {
        Self { reason: "FieldValueTypeInvalid", ..Self::invalid(field, value, why) }
    }

    /// A missing value.
    pub fn required(field: impl Into<String>, why: impl AsRef<str>) -> Self {
        let why = why.as_ref();
        let message = if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self::new("FieldValueRequired", field, message)
    }

    /// A value outside an enum.
    pub fn not_supported(field: impl Into<String>, value: &Value, allowed: &[Value]) -> Self {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", allowed.join(", "));
        Self::new("FieldValueNotSupported", field, message)
    }

    /// A duplicate value.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {value}"))
    }

    /// A forbidden field.
    pub fn forbidden(field: impl Into<String>, why: impl AsRef<str>) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {}", why.as_ref()))
    }

    fn new(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self { reason, field: field.into(), message }
    }
}

/// One node of a structural schema.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of an OpenAPI schema")]
pub struct Schema {
    #[serde(rename = "type")]
    type_name: String,
    properties: BTreeMap<String, Schema>,
    additional_properties: Option<AdditionalProperties>,
    items: Option<Box<Schema>>,
    required: Vec<String>,
    #[serde(rename = "enum")]
    allowed: Vec<Value>,
    #[serde(deserialize_with = "deserialize_pattern")]
    pattern: Option<Regex>,
    default: Option<Value>,
    nullable: bool,
    minimum: Option<f64>,
    maximum: Option<f64>,
    exclusive_minimum: bool,
    exclusive_maximum: bool,
    multiple_of: Option<f64>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    min_items: Option<usize>,
    max_items: Option<usize>,
    min_properties: Option<usize>,
    max_properties: Option<usize>,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    preserve: bool,
    #[serde(rename = "x-kubernetes-int-or-string")]
    int_or_string: bool,
    #[serde(rename = "x-kubernetes-embedded-resource")]
    embedded: bool,
    #[serde(rename = "x-kubernetes-list-type")]
    list_type: String,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    list_map_keys: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum AdditionalProperties {
    Allowed(bool),
    Of(Box<Schema>),
}

/// A pattern that the regex engine does not support is not enforced.
fn deserialize_pattern<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Regex>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()).and_then(|text| Regex::new(&text).ok()))
}

impl Schema {
    /// Parses the schema of a CustomResourceDefinition.
    pub fn parse(schema: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(schema)
    }

    /// Removes unknown fields from an object; returns their paths.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut pruned = Vec::new();
        self.prune_at(object, "", true, &mut pruned);
        pruned
    }

    fn prune_at(&self, value: &mut Value, path: &str, is_object: bool, pruned: &mut Vec<String>) {
        match value {
            Value::Object(fields) => self.prune_fields(fields, path, is_object || self.embedded, pruned),
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    if let Some(schema) = &self.items {
                        schema.prune_at(item, &format!("{path}[{index}]"), false, pruned);
                    }
                }
            }
            _ => {}
        }
    }

    fn prune_fields(&self, fields: &mut Map<String, Value>, path: &str, is_object: bool, pruned: &mut Vec<String>) {
        fields.retain(|name, value| {
            let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if is_object && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                return true;
            }
            if let Some(schema) = self.child(name) {
                schema.prune_at(value, &inner, false, pruned);
                return true;
            }
            let kept = self.preserve || matches!(self.additional_properties, Some(AdditionalProperties::Allowed(true)));
            if !kept {
                pruned.push(inner);
            }
            kept
        });
    }

    fn child(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(match &self.additional_properties {
            Some(AdditionalProperties::Of(schema)) => Some(schema),
            _ => None,
        })
    }

    /// Sets defaults.
    pub fn default(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => self.default_fields(fields),
            Value::Array(items) => {
                for item in items {
                    if let Some(schema) = &self.items {
                        schema.default(item);
                    }
                }
            }
            _ => {}
        }
    }

    fn default_fields(&self, fields: &mut Map<String, Value>) {
        for (name, schema) in &self.properties {
            let Some(default) = &schema.default else { continue };
            // A null where null is not allowed counts as absent.
            let absent = fields.get(name).is_none_or(|value| value.is_null() && !schema.nullable);
            if absent {
                fields.insert(name.clone(), default.clone());
            }
        }
        for (name, value) in fields {
            if let Some(schema) = self.child(name) {
                schema.default(value);
            }
        }
    }

    /// Validates an object; returns all causes.
    pub fn validate(&self, object: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        self.validate_at(object, "", &mut causes);
        causes
    }

    fn validate_at(&self, value: &Value, path: &str, causes: &mut Vec<StatusCause>) {
        if value.is_null() && self.nullable {
            return;
        }
        if let Some(expected) = self.mismatched_type(value) {
            let shown = if path.is_empty() { "<nil>" } else { path };
            let actual = type_of(value);
            let why = format!("{shown} in body must be of type {expected}: {actual:?}");
            causes.push(StatusCause::type_invalid(shown, &Value::from(actual), why));
            return;
        }
        if !self.allowed.is_empty() && !self.allowed.contains(value) {
            causes.push(StatusCause::not_supported(path, value, &self.allowed));
        }
        match value {
            Value::Object(fields) => self.validate_fields(fields, path, causes),
            Value::Array(items) => self.validate_items(items, path, causes),
            Value::String(text) => self.validate_text(text, value, path, causes),
            Value::Number(number) => self.validate_number(number.as_f64().unwrap_or_default(), value, path, causes),
            _ => {}
        }
        self.validate_combinations(value, path, causes);
    }

    fn mismatched_type(&self, value: &Value) -> Option<&str> {
        if self.int_or_string {
            let matches = value.is_string() || is_integer(value);
            return (!matches).then_some("integer,string");
        }
        let matches = match self.type_name.as_str() {
            "" => true,
            "integer" => is_integer(value),
            "number" => value.is_number(),
            expected => expected == type_of(value),
        };
        (!matches).then_some(self.type_name.as_str())
    }

    fn validate_fields(&self, fields: &Map<String, Value>, path: &str, causes: &mut Vec<StatusCause>) {
        let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for name in self.required.iter().filter(|name| !fields.contains_key(*name)) {
            causes.push(StatusCause::required(join(name), ""));
        }
        check_count(fields.len(), self.min_properties, self.max_properties, "properties", path, causes);
        for (name, value) in fields {
            let typed_elsewhere = path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
            if let Some(schema) = self.child(name).filter(|_| !typed_elsewhere) {
                schema.validate_at(value, &join(name), causes);
            }
        }
    }

    fn validate_items(&self, items: &[Value], path: &str, causes: &mut Vec<StatusCause>) {
        check_count(items.len(), self.min_items, self.max_items, "items", path, causes);
        let identity = |item: &Value| match self.list_type.as_str() {
            "set" => Some(item.clone()),
            "map" => Some(self.list_map_keys.iter().map(|key| item[key].clone()).collect()),
            _ => None,
        };
        let identities: Vec<_> = items.iter().map(identity).collect();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if identities[index].is_some() && identities[..index].contains(&identities[index]) {
                causes.push(StatusCause::duplicate(&path, item));
            }
            if let Some(schema) = &self.items {
                schema.validate_at(item, &path, causes);
            }
        }
    }

    fn validate_text(&self, text: &str, value: &Value, path: &str, causes: &mut Vec<StatusCause>) {
        let mut invalid = |why: String| causes.push(StatusCause::invalid(path, value, why));
        let length = text.chars().count();
        if let Some(min) = self.min_length.filter(|min| length < *min) {
            invalid(format!("{path} in body should be at least {min} chars long"));
        }
        if let Some(max) = self.max_length.filter(|max| length > *max) {
            invalid(format!("may not be more than {max} bytes"));
        }
        if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            invalid(format!("{path} in body should match '{pattern}'"));
        }
    }

    fn validate_number(&self, number: f64, value: &Value, path: &str, causes: &mut Vec<StatusCause>) {
        let mut invalid = |why: String| causes.push(StatusCause::invalid(path, value, why));
        let child = |min: f64| if self.exclusive_minimum { number <= min } else { number < min };
        if let Some(min) = self.minimum.filter(|min| child(*min)) {
            invalid(format!("{path} in body should be greater than or equal to {min}"));
        }
        let above = |max: f64| if self.exclusive_maximum { number >= max } else { number > max };
        if let Some(max) = self.maximum.filter(|max| above(*max)) {
            invalid(format!("{path} in body should be less than or equal to {max}"));
        }
        if let Some(step) = self.multiple_of.filter(|step| (number / step).fract() != 0.0) {
            invalid(format!("{path} in body should be a multiple of {step}"));
        }
    }

    fn validate_combinations(&self, value: &Value, path: &str, causes: &mut Vec<StatusCause>) {
        for schema in &self.all_of {
            schema.validate_at(value, path, causes);
        }
        let count_matching = |schemas: &[Schema]| schemas.iter().filter(|schema| schema.accepts(value)).count();
        let mut invalid = |why: &str| causes.push(StatusCause::invalid(path, value, format!("{path} in body {why}")));
        if !self.any_of.is_empty() && count_matching(&self.any_of) == 0 {
            invalid("must validate at least one schema (anyOf)");
        }
        if !self.one_of.is_empty() && count_matching(&self.one_of) != 1 {
            invalid("must validate one and only one schema (oneOf)");
        }
        if self.not.as_ref().is_some_and(|schema| schema.accepts(value)) {
            invalid("must not validate the schema (not)");
        }
    }

    fn accepts(&self, value: &Value) -> bool {
        let mut causes = Vec::new();
        self.validate_at(value, "", &mut causes);
        causes.is_empty()
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_count(
    count: usize,
    min: Option<usize>,
    max: Option<usize>,
    what: &str,
    path: &str,
    causes: &mut Vec<StatusCause>,
) {
    if let Some(min) = min.filter(|min| count < *min) {
        causes.push(StatusCause::invalid(
            path,
            &count.into(),
            format!("{path} in body should have at least {min} {what}"),
        ));
    }
    if let Some(max) = max.filter(|max| count > *max) {
        causes.push(StatusCause::invalid(path, &count.into(), format!("must have at most {max} {what}")));
    }
}
