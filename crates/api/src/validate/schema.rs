//! Validation against the schema of the CRD: types, enums, formats, required and unknown fields.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Map, Value};

use super::{FieldErrors, describe, one_of};
use crate::go::GoDuration;

/// Fields that are durations in every Velero kind. Their schema is `string`, as upstream's is.
const DURATION_FIELDS: &[&str] = &[
    "ttl",
    "csiSnapshotTimeout",
    "itemOperationTimeout",
    "timeout",
    "execTimeout",
    "waitTimeout",
    "backupSyncPeriod",
    "validationFrequency",
    "maintenanceFrequency",
    "operationTimeout",
];
const SELECTOR_OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist"];

type Schemas = BTreeMap<(String, String), JSONSchemaProps>;

static SCHEMAS: LazyLock<Schemas> = LazyLock::new(|| crate::crds().into_iter().flat_map(schemas_by_kind).collect());

fn schemas_by_kind(crd: CustomResourceDefinition) -> Vec<((String, String), JSONSchemaProps)> {
    let (group, kind) = (crd.spec.group, crd.spec.names.kind);
    let versions = crd.spec.versions.into_iter();
    versions
        .filter_map(|version| {
            let schema = version.schema?.open_api_v3_schema?;
            Some(((format!("{group}/{}", version.name), kind.clone()), schema))
        })
        .collect()
}

pub(super) fn schema_of(api_version: &str, kind: &str) -> Option<&'static JSONSchemaProps> {
    SCHEMAS.get(&(api_version.to_owned(), kind.to_owned()))
}

pub(super) fn check(object: &Value, schema: &JSONSchemaProps, errors: &mut FieldErrors) {
    let fields = object.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(name, _)| name.as_str() != "metadata") {
        let strictness = if name == "status" { Strictness::Status } else { Strictness::Spec };
        let mut check = SchemaCheck { strictness, errors };
        match property(schema, name) {
            Some(property) => check.value(name, name, value, property),
            None => check.unknown_field(name, schema),
        }
    }
    let mut check = SchemaCheck { strictness: Strictness::Spec, errors };
    // A missing spec is validated as an empty one, so that errors name the missing fields.
    if let (None, Some(spec)) = (object.get("spec"), property(schema, "spec")) {
        check.value("spec", "spec", &Value::Object(Map::new()), spec);
    }
}

/// Which schema violations are errors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strictness {
    /// User input: unknown fields and values are errors, because ignoring them would go unnoticed.
    Spec,
    /// Written by a controller: types are checked; fields and values of a newer version are accepted.
    Status,
}

struct SchemaCheck<'a> {
    strictness: Strictness,
    errors: &'a mut FieldErrors,
}

impl SchemaCheck<'_> {
    fn value(&mut self, path: &str, name: &str, value: &Value, schema: &JSONSchemaProps) {
        if value.is_null() && schema.nullable == Some(true) {
            return;
        }
        let type_ = schema.type_.as_deref().unwrap_or("object");
        match (type_, value) {
            ("object", Value::Object(fields)) => self.object(path, fields, schema),
            ("array", Value::Array(items)) => self.array(path, name, items, schema),
            ("string", Value::String(text)) => self.string(path, name, text, schema),
            ("integer", Value::Number(number)) if number.is_i64() => self.integer(path, value),
            ("boolean", Value::Bool(_)) => {}
            _ => self.errors.add_invalid(path, describe(value), describe_type(type_)),
        }
    }

    fn object(&mut self, path: &str, fields: &Map<String, Value>, schema: &JSONSchemaProps) {
        for name in schema.required.iter().flatten() {
            if fields.get(name).is_none_or(Value::is_null) && self.strictness == Strictness::Spec {
                let type_ = property(schema, name).and_then(|schema| schema.type_.as_deref()).unwrap_or("object");
                self.errors.add_missing(format!("{path}.{name}"), describe_type(type_));
            }
        }
        for (name, value) in fields.iter().filter(|(name, value)| !(is_required(schema, name) && value.is_null())) {
            let field_path = format!("{path}.{name}");
            match (property(schema, name), &schema.additional_properties) {
                (Some(property), _) => self.value(&field_path, name, value, property),
                (None, Some(JSONSchemaPropsOrBool::Schema(values))) => self.value(&field_path, "", value, values),
                // A map of any values, such as the arguments of a function.
                (None, _) if schema.properties.is_none() && path != "spec" => {}
                (None, _) => self.unknown_field(&field_path, schema),
            }
        }
    }

    fn array(&mut self, path: &str, name: &str, items: &[Value], schema: &JSONSchemaProps) {
        let min_items = usize::try_from(schema.min_items.unwrap_or(0)).unwrap_or(0);
        if items.len() < min_items {
            self.errors.add_invalid(
                path,
                format!("a list of {}", items.len()),
                format!("a list of {min_items} or more"),
            );
        }
        let Some(JSONSchemaPropsOrArray::Schema(item_schema)) = &schema.items else { return };
        for (index, item) in items.iter().enumerate() {
            self.value(&format!("{path}[{index}]"), name, item, item_schema);
        }
    }

    fn string(&mut self, path: &str, name: &str, text: &str, schema: &JSONSchemaProps) {
        if schema.format.as_deref() == Some("date-time") && text.parse::<jiff::Timestamp>().is_err() {
            self.errors.add_invalid(path, describe(&text.into()), "a timestamp such as \"2006-01-02T15:04:05Z\"");
        }
        if self.strictness == Strictness::Status {
            return;
        }
        if let Some(values) = &schema.enum_ {
            let known: Vec<&str> = values.iter().filter_map(|value| value.0.as_str()).collect();
            self.errors.require_one_of(path, &text.into(), &known);
        } else if path.starts_with("spec.") && DURATION_FIELDS.contains(&name) {
            self.duration(path, text);
        } else if name == "operator" && path.contains("matchExpressions[") {
            self.errors.require_one_of(path, &text.into(), SELECTOR_OPERATORS);
        }
    }

    fn duration(&mut self, path: &str, text: &str) {
        const EXPECTED: &str = "a duration of zero or more such as \"4h0m0s\" (units: ns, us, ms, s, m, h)";
        let duration = text.parse::<GoDuration>().ok();
        if duration.is_none_or(|duration| duration.as_std().is_none()) {
            self.errors.add_invalid(path, describe(&text.into()), EXPECTED);
        }
    }

    /// No number in a spec may be negative.
    fn integer(&mut self, path: &str, value: &Value) {
        if self.strictness == Strictness::Spec && value.as_i64().is_some_and(|number| number < 0) {
            self.errors.add_invalid(path, describe(value), "a whole number of zero or more");
        }
    }

    fn unknown_field(&mut self, path: &str, schema: &JSONSchemaProps) {
        if self.strictness == Strictness::Spec {
            let known: Vec<&str> = schema.properties.iter().flatten().map(|(name, _)| name.as_str()).collect();
            let expected = if known.is_empty() { "no fields".to_owned() } else { one_of(&known) };
            self.errors.add(path, "unknown field", expected);
        }
    }
}

fn property<'a>(schema: &'a JSONSchemaProps, name: &str) -> Option<&'a JSONSchemaProps> {
    schema.properties.as_ref()?.get(name)
}

fn is_required(schema: &JSONSchemaProps, name: &str) -> bool {
    schema.required.iter().flatten().any(|required| required == name)
}

fn describe_type(type_: &str) -> &'static str {
    match type_ {
        "array" => "a list",
        "boolean" => "true or false",
        "integer" => "a whole number",
        "string" => "a string",
        _ => "an object",
    }
}
