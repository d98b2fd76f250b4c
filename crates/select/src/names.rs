//! Which names, labels and annotations are valid.

use crate::schema::Cause;
use serde_json::{Value, json};

const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Nothing, or what is wrong.
pub type Verdict = Result<(), &'static str>;

/// Which names are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameRule {
    /// Lower case letters, digits, `-` and `.`
    #[default]
    Subdomain,
    /// One label of a domain name.
    Label,
    /// A label that starts with a letter.
    Service,
    /// Whatever can stand in a path.
    PathSegment,
}

fn check(valid: bool, why: &'static str) -> Verdict {
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

/// A DNS label.
pub fn label(text: &str) -> Verdict {
    check(text.len() <= 63, "must be no more than 63 characters")?;
    check(
        is_label(text),
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
         with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
    )
}

/// A DNS subdomain.
pub fn subdomain(text: &str) -> Verdict {
    check(text.len() <= 253, "must be no more than 253 characters")?;
    check(
        text.split('.').all(is_label),
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
         and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    )
}

fn service(text: &str) -> Verdict {
    check(text.len() <= 63, "must be no more than 63 characters")?;
    check(
        is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase()),
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
         character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation \
         is '[a-z]([-a-z0-9]*[a-z0-9])?')",
    )
}

fn path_segment(text: &str) -> Verdict {
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

/// A label key, an annotation key or a finalizer.
pub fn qualified_name(text: &str) -> Verdict {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    check(
        name_part(name),
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    )?;
    prefix.map_or(Ok(()), subdomain)
}

/// The value of a label.
pub fn label_value(text: &str) -> Verdict {
    check(text.len() <= 63, "must be no more than 63 characters")?;
    check(
        text.is_empty() || name_part(text),
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
         and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
         validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    )
}

fn named(rule: NameRule, name: &str) -> Verdict {
    match rule {
        NameRule::Subdomain => subdomain(name),
        NameRule::Label => label(name),
        NameRule::Service => service(name),
        NameRule::PathSegment => path_segment(name),
    }
}

/// Everything that is wrong with an object's metadata.
pub fn metadata_causes(object: &Value, rule: NameRule) -> Vec<Cause> {
    let metadata = &object["metadata"];
    let mut causes = Vec::new();
    match metadata["name"].as_str().unwrap_or_default() {
        "" => causes.push(Cause::required("metadata.name", "name or generateName is required")),
        name => reject(&mut causes, "metadata.name", &metadata["name"], named(rule, name)),
    }
    labels(&mut causes, &metadata["labels"]);
    annotations(&mut causes, &metadata["annotations"]);
    owners(&mut causes, &metadata["ownerReferences"]);
    finalizers(&mut causes, &metadata["finalizers"]);
    causes
}

fn reject(causes: &mut Vec<Cause>, field: &str, value: &Value, verdict: Verdict) {
    if let Err(why) = verdict {
        causes.push(Cause::invalid(field, value, why));
    }
}

fn labels(causes: &mut Vec<Cause>, labels: &Value) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        reject(causes, "metadata.labels", &json!(key), qualified_name(key));
        reject(causes, "metadata.labels", value, label_value(value.as_str().unwrap_or_default()));
    }
}

fn annotations(causes: &mut Vec<Cause>, annotations: &Value) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        reject(causes, "metadata.annotations", &json!(key), qualified_name(&key.to_lowercase()));
    }
    if size > ANNOTATIONS_LIMIT {
        causes.push(Cause::invalid("metadata.annotations", &json!("..."), "may not be more than 262144 bytes"));
    }
}

fn owners(causes: &mut Vec<Cause>, owners: &Value) {
    for owner in owners.as_array().into_iter().flatten() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let path = format!("metadata.ownerReferences.{field}");
                causes.push(Cause::invalid(path, &json!(""), "must not be empty"));
            }
        }
    }
}

fn finalizers(causes: &mut Vec<Cause>, finalizers: &Value) {
    for finalizer in finalizers.as_array().into_iter().flatten() {
        reject(causes, "metadata.finalizers", finalizer, qualified_name(finalizer.as_str().unwrap_or_default()));
    }
}

/// The metadata fields with a type of their own. A wrong one is a request that cannot be read, not an invalid object.
pub fn metadata_types(object: &Value) -> Verdict {
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
