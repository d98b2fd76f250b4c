//! Validation of objects. Every error names the path of the field, what was found and what is expected.
//!
//! ```text
//!   raw JSON ──► schema (of the CRD: types, enums, unknown fields) ──► rules (that a schema cannot express) ──► errors
//! ```
//!
//! The API server validates the schema too, but not every object: upstream's CRDs drop unknown fields, and objects in buckets
//! were not validated by this cluster.

mod kanister;
mod schema;
mod velero;

use std::fmt;

use serde_json::Value;

/// One invalid field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field: `spec.hooks.resources[0].pre[1].exec.timeout`.
    pub path: String,
    /// What is wrong: `found the number 7`, `unknown field`, `missing`.
    pub problem: String,
    /// Which values are valid.
    pub expected: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, expected {}", self.path, self.problem, self.expected)
    }
}

/// The error of validating an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValidationError {
    /// Not a kind that Plimsoll defines.
    #[error("no matches for kind {kind:?} in version {api_version:?}")]
    UnknownKind {
        /// The object's `apiVersion`.
        api_version: String,
        /// The object's `kind`.
        kind: String,
    },
    /// Fields of the object are invalid.
    #[error("{kind} {name:?} is invalid: {}", join(.errors))]
    InvalidFields {
        /// The object's kind.
        kind: String,
        /// The object's name.
        name: String,
        /// The errors in the order of the fields; at least one.
        errors: Vec<FieldError>,
    },
}

impl ValidationError {
    /// Stable name for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownKind { .. } => "UnknownKind",
            Self::InvalidFields { .. } => "FailedValidation",
        }
    }

    /// Always false: the object has to be changed.
    pub fn is_retryable(&self) -> bool {
        false
    }

    /// One line for each error, for `status.validationErrors`.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::UnknownKind { .. } => vec![self.to_string()],
            Self::InvalidFields { errors, .. } => errors.iter().map(FieldError::to_string).collect(),
        }
    }
}

fn join(errors: &[FieldError]) -> String {
    errors.iter().map(FieldError::to_string).collect::<Vec<_>>().join("; ")
}

/// Validates an object of any of the defined kinds, given as JSON.
///
/// A typed object can be validated too: serialized, it still has its unknown fields and invalid durations.
pub fn check(object: &Value) -> Result<(), ValidationError> {
    let api_version = text_at(object, "/apiVersion");
    let kind = text_at(object, "/kind");
    let Some(schema) = schema::schema_of(api_version, kind) else {
        return Err(ValidationError::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() });
    };
    let mut errors = FieldErrors::default();
    schema::check(object, schema, &mut errors);
    check_rules(kind, object, &mut errors);
    if errors.0.is_empty() {
        return Ok(());
    }
    let name = text_at(object, "/metadata/name").to_owned();
    Err(ValidationError::InvalidFields { kind: kind.to_owned(), name, errors: errors.0 })
}

fn check_rules(kind: &str, object: &Value, errors: &mut FieldErrors) {
    match kind {
        "Backup" => velero::check_backup_spec("spec", &object["spec"], errors),
        "Schedule" => velero::check_schedule(&object["spec"], errors),
        "Restore" => velero::check_restore(object, errors),
        "BackupStorageLocation" => velero::check_storage_location(&object["spec"], errors),
        "DeleteBackupRequest" => {
            errors.require_text("spec.backupName", &object["spec"]["backupName"], "the name of a backup");
        }
        "DownloadRequest" => {
            errors.require_text(
                "spec.target.name",
                &object["spec"]["target"]["name"],
                "the name of a backup or restore",
            );
        }
        "ActionSet" => kanister::check_action_set(&object["spec"], errors),
        "Blueprint" => kanister::check_blueprint(object, errors),
        "Profile" => kanister::check_profile(object, errors),
        _ => {}
    }
}

/// Collects field errors.
#[derive(Default)]
struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    fn add(&mut self, path: impl Into<String>, problem: impl Into<String>, expected: impl Into<String>) {
        self.0.push(FieldError { path: path.into(), problem: problem.into(), expected: expected.into() });
    }

    fn add_invalid(&mut self, path: impl Into<String>, found: impl fmt::Display, expected: impl Into<String>) {
        self.add(path, format!("found {found}"), expected);
    }

    fn add_missing(&mut self, path: impl Into<String>, expected: impl Into<String>) {
        self.add(path, "missing", expected);
    }

    /// Rejects an empty string. Whether the field may be absent is a matter of the schema.
    fn require_text(&mut self, path: &str, value: &Value, expected: &str) {
        if value.as_str().is_some_and(|text| text.trim().is_empty()) {
            self.add_invalid(path, "an empty string", expected);
        }
    }

    fn require_one_of(&mut self, path: &str, value: &Value, expected: &[&str]) {
        if let Some(text) = value.as_str()
            && !expected.contains(&text)
        {
            self.add_invalid(path, describe(value), one_of(expected));
        }
    }
}

/// Describes a value on one short line.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(text) => format!("the string {:?}", shorten(text)),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Limits the length of user-supplied text in an error.
fn shorten(text: &str) -> String {
    const MAX_LENGTH: usize = 60;
    if text.chars().count() <= MAX_LENGTH {
        return text.to_owned();
    }
    let start: String = text.chars().take(MAX_LENGTH).collect();
    format!("{start}…")
}

fn one_of(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("one of {}", quoted.join(", "))
}

fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Whether the value is not absent, `null` or empty.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(_) | Value::Bool(_) | Value::Number(_) => true,
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
