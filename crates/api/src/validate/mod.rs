//! What is wrong with an object, in words its author can act on: the path of the field, what was found, what is allowed.
//!
//! ```text
//!   raw JSON ──► shape (the CRD's own schema: types, enums, unknown fields) ──► rules (what the schema cannot say) ──► faults
//! ```
//!
//! The API server checks the shape too, but not on every road an object takes: stock CRDs drop fields, buckets hold objects no
//! API server has seen.

mod kanister;
mod shape;
mod velero;

use std::fmt;

use serde_json::Value;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path of the field: `spec.hooks.resources[0].pre[1].exec.timeout`.
    pub path: String,
    /// What was found there.
    pub found: String,
    /// What may be there.
    pub allowed: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}, allowed is {}", self.path, self.found, self.allowed)
    }
}

/// An object that cannot be worked with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Not a kind of ours.
    #[error("no kind {kind:?} in {api_version:?} is known")]
    UnknownKind {
        /// The object's `apiVersion`.
        api_version: String,
        /// The object's `kind`.
        kind: String,
    },
    /// The object has faults; there is at least one.
    #[error("{kind} {name:?} is not valid: {}", join(.faults))]
    Faults {
        /// The object's kind.
        kind: String,
        /// The object's name.
        name: String,
        /// What is wrong, in the order of the fields.
        faults: Vec<Fault>,
    },
}

impl Invalid {
    /// Stable name for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownKind { .. } => "UnknownKind",
            Self::Faults { .. } => "FailedValidation",
        }
    }

    /// Never: somebody has to change the object.
    pub fn is_retryable(&self) -> bool {
        false
    }

    /// One line for each fault, as `status.validationErrors` wants them.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::UnknownKind { .. } => vec![self.to_string()],
            Self::Faults { faults, .. } => faults.iter().map(Fault::to_string).collect(),
        }
    }
}

fn join(faults: &[Fault]) -> String {
    faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("; ")
}

/// Checks an object of any of our kinds, given as the JSON that the API server or a file holds.
///
/// A typed object can be checked too: serialized, it still has the fields and durations nobody could read.
pub fn check(object: &Value) -> Result<(), Invalid> {
    let api_version = text_at(object, "/apiVersion");
    let kind = text_at(object, "/kind");
    let Some(schema) = shape::schema_of(api_version, kind) else {
        return Err(Invalid::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() });
    };
    let mut faults = Faults::default();
    shape::check(object, schema, &mut faults);
    check_rules(kind, object, &mut faults);
    if faults.0.is_empty() {
        return Ok(());
    }
    let name = text_at(object, "/metadata/name").to_owned();
    Err(Invalid::Faults { kind: kind.to_owned(), name, faults: faults.0 })
}

fn check_rules(kind: &str, object: &Value, faults: &mut Faults) {
    match kind {
        "Backup" => velero::check_backup_spec("spec", &object["spec"], faults),
        "Schedule" => velero::check_schedule(&object["spec"], faults),
        "Restore" => velero::check_restore(object, faults),
        "BackupStorageLocation" => velero::check_storage_location(&object["spec"], faults),
        "DeleteBackupRequest" => {
            faults.require_text("spec.backupName", &object["spec"]["backupName"], "the name of a backup");
        }
        "DownloadRequest" => {
            faults.require_text(
                "spec.target.name",
                &object["spec"]["target"]["name"],
                "the name of a backup or restore",
            );
        }
        "ActionSet" => kanister::check_action_set(&object["spec"], faults),
        "Blueprint" => kanister::check_blueprint(object, faults),
        "Profile" => kanister::check_profile(object, faults),
        _ => {}
    }
}

/// Collects faults.
#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add(&mut self, path: impl Into<String>, found: impl Into<String>, allowed: impl Into<String>) {
        self.0.push(Fault { path: path.into(), found: found.into(), allowed: allowed.into() });
    }

    /// A text that is there must say something. That it is missing where it must not be, the schema says.
    fn require_text(&mut self, path: &str, value: &Value, allowed: &str) {
        if value.as_str().is_some_and(|text| text.trim().is_empty()) {
            self.add(path, "an empty string", allowed);
        }
    }

    fn require_one_of(&mut self, path: &str, value: &Value, allowed: &[&str]) {
        if let Some(text) = value.as_str()
            && !allowed.contains(&text)
        {
            self.add(path, describe(value), one_of(allowed));
        }
    }
}

/// A value in words, short enough for a line.
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

/// Foreign text may be of any length; a status line may not.
fn shorten(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    let start: String = text.chars().take(LONGEST).collect();
    format!("{start}…")
}

fn one_of(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("one of {}", quoted.join(", "))
}

fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Whether there is something: not absent, not `null`, not empty.
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
