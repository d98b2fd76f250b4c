//! Validation of names, labels and annotations, with the messages of the API server.

use crate::schema::StatusCause;
use serde_json::{Value, json};

const MAX_ANNOTATIONS_SIZE: usize = 256 * 1024;

/// `Ok`, or the message of the API server.
pub type NameCheck = Result<(), &'static str>;

/// The rule for the name of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain: lower case letters, digits, `-` and `.`.
    #[default]
    Subdomain,
    /// DNS-1123 label.
    Label,
    /// DNS-1035 label: starts with a letter.
    Service,
    /// Path segment: no `/` and `%`.
    PathSegment,
}

fn check(valid: bool, why: &'static str) -> NameCheck {
    if valid { Ok(()) } else { Err(why) }
}

fn is_label(text: &str) -> bool {
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    !bytes.is_empty()
        && bytes.iter().all(|byte| lower(*byte) || *byte == b'-')
        && bytes.first().copied().is_some_and(lower)
        && bytes.last().copied().is_some_and(lower)
}

/// Checks a DNS-1123 label.
pub fn label(text: &str) -> NameCheck {
    check(text.len() <= 63, "must be no more than 63 characters")?;
    check(
        is_label(text),
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
         with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
    )
}

/// Checks a DNS-1123 subdomain.
pub fn subdomain(text: &str) -> NameCheck {
    check(text.len() <= 253, "must be no more than 253 characters")?;
    check(
        text.split('.').all(is_label),
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
         and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    )
}

fn service(text: &str) -> NameCheck {
    check(text.len() <= 63, "must be no more than 63 characters")?;
    check(
        is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase()),
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
         character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation \
         is '[a-z]([-a-z0-9]*[a-z0-9])?')",
    )
}

fn path_segment(text: &str) -> NameCheck {
    check(text != "." && text != "..", "may not be '.' or '..'")?;
    check(!text.contains(['/', '%']), "may not contain '/' or '%'")
}

fn name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

/// Checks a label key, an annotation key or a finalizer.
pub fn qualified_name(text: &str) -> NameCheck {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    check(
        name_part(name),
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    )?;
    prefix.map_or(Ok(()), subdomain)
}

/// Checks the value of a label.
pub fn label_value(text: &str) -> NameCheck {
    check(text.len() <= 63, "must be no more than 63 characters")?;
    check(
        text.is_empty() || name_part(text),
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
         and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
         validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    )
}

fn check_name(rule: NameRule, name: &str) -> NameCheck {
    match rule {
        NameRule::Subdomain => subdomain(name),
        NameRule::Label => label(name),
        NameRule::Service => service(name),
        NameRule::PathSegment => path_segment(name),
    }
}

/// Validates the metadata of an object; returns all causes.
pub fn validate_metadata(object: &Value, rule: NameRule) -> Vec<StatusCause> {
    let metadata = &object["metadata"];
    let mut causes = Vec::new();
    match metadata["name"].as_str().unwrap_or_default() {
        "" => causes.push(StatusCause::required("metadata.name", "name or generateName is required")),
        name => push_invalid(&mut causes, "metadata.name", &metadata["name"], check_name(rule, name)),
    }
    validate_labels(&mut causes, &metadata["labels"]);
    validate_annotations(&mut causes, &metadata["annotations"]);
    validate_owners(&mut causes, &metadata["ownerReferences"]);
    validate_finalizers(&mut causes, &metadata["finalizers"]);
    causes
}

fn push_invalid(causes: &mut Vec<StatusCause>, field: &str, value: &Value, verdict: NameCheck) {
    if let Err(why) = verdict {
        causes.push(StatusCause::invalid(field, value, why));
    }
}

fn validate_labels(causes: &mut Vec<StatusCause>, labels: &Value) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        push_invalid(causes, "metadata.labels", &json!(key), qualified_name(key));
        push_invalid(causes, "metadata.labels", value, label_value(value.as_str().unwrap_or_default()));
    }
}

fn validate_annotations(causes: &mut Vec<StatusCause>, annotations: &Value) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        push_invalid(causes, "metadata.annotations", &json!(key), qualified_name(&key.to_lowercase()));
    }
    if size > MAX_ANNOTATIONS_SIZE {
        causes.push(StatusCause::invalid("metadata.annotations", &json!("..."), "may not be more than 262144 bytes"));
    }
}

fn validate_owners(causes: &mut Vec<StatusCause>, owners: &Value) {
    for owner in owners.as_array().into_iter().flatten() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let path = format!("metadata.ownerReferences.{field}");
                causes.push(StatusCause::invalid(path, &json!(""), "must not be empty"));
            }
        }
    }
}

fn validate_finalizers(causes: &mut Vec<StatusCause>, finalizers: &Value) {
    for finalizer in finalizers.as_array().into_iter().flatten() {
        push_invalid(causes, "metadata.finalizers", finalizer, qualified_name(finalizer.as_str().unwrap_or_default()));
    }
}

/// Checks the types of the metadata fields. A wrong type is a bad request, not an invalid object.
pub fn check_metadata_types(object: &Value) -> NameCheck {
    let metadata = &object["metadata"];
    let texts = ["name", "generateName", "namespace", "uid", "resourceVersion"];
    let text_map = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(|value| value.is_string() || value.is_null()),
        _ => false,
    };
    let list_of = |value: &Value, test: fn(&Value) -> bool| match value {
        Value::Null => true,
        Value::Array(items) => items.iter().all(test),
        _ => false,
    };
    check(metadata.is_null() || metadata.is_object(), "metadata must be an object")?;
    check(
        texts.iter().all(|field| metadata[field].is_null() || metadata[field].is_string()),
        "metadata has a field that is not a string",
    )?;
    check(text_map(&metadata["labels"]), "metadata.labels must be a map of strings")?;
    check(text_map(&metadata["annotations"]), "metadata.annotations must be a map of strings")?;
    check(list_of(&metadata["finalizers"], Value::is_string), "metadata.finalizers must be a list of strings")?;
    check(list_of(&metadata["ownerReferences"], Value::is_object), "metadata.ownerReferences must be a list of objects")
}
