//! Label and field selectors of lists and watches.

use crate::{
    failure::Failure,
    key::{Key, Span},
    kind::{Kind, View},
    names,
    object::Head,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Which objects of a list or watch are wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    path: String,
    value: String,
    equal: bool,
}

impl Selector {
    pub fn parse(labels: &str, fields: &str, kind: &Kind) -> Result<Self, Failure> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(fields, kind)? })
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Where objects that match can be: a single key, if the selector names one.
    pub fn span(&self, kind: &Kind, namespace: Option<&str>) -> Span {
        let named = self.fields.iter().find(|field| field.equal && field.path == "metadata.name");
        match named {
            Some(field) if namespace.is_some() || !kind.namespaced => {
                Span::only(&kind.key(namespace.unwrap_or_default(), &field.value))
            }
            _ => kind.span(namespace),
        }
    }

    pub fn matches(&self, kind: &Kind, key: &Key, stored: &[u8]) -> bool {
        (self.labels.is_empty() || self.labels_match(stored)) && self.fields_match(kind, key, stored)
    }

    fn labels_match(&self, stored: &[u8]) -> bool {
        let labels = Head::of(stored).metadata.labels.unwrap_or_default();
        self.labels.iter().all(|requirement| requirement.matches(&labels))
    }

    fn fields_match(&self, kind: &Kind, key: &Key, stored: &[u8]) -> bool {
        let mut parsed: Option<Value> = None;
        self.fields.iter().all(|field| {
            let actual = match field.path.as_str() {
                "metadata.name" => key.name.clone(),
                "metadata.namespace" => key.namespace.clone(),
                path => shown(parsed.get_or_insert_with(|| parse_stored(kind, stored)), path),
            };
            (actual == field.value) == field.equal
        })
    }
}

fn parse_stored(kind: &Kind, stored: &[u8]) -> Value {
    let mut object = serde_json::from_slice(stored).unwrap_or_default();
    if kind.view != View::Stored {
        kind.show(&mut object);
    }
    object
}

fn shown(object: &Value, path: &str) -> String {
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

/// What a field that is absent counts as, where the typed API has a value.
fn default_field(path: &str) -> &'static str {
    match path {
        "spec.unschedulable" | "spec.hostNetwork" => "false",
        "status.replicas" | "status.successful" => "0",
        _ => "",
    }
}

impl Requirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Greater(bound) => number().is_some_and(|number| number > *bound),
            Test::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, Failure> {
    let parts = split_outside_parentheses(text);
    parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()).map(parse_requirement).collect()
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let separator = move |character: char| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    };
    text.split(separator).collect()
}

fn parse_requirement(text: &str) -> Result<Requirement, Failure> {
    let broken = |why: &str| Failure::bad_request(format!("unable to parse requirement: {why}"));
    let (key, test) =
        split_requirement(text).ok_or_else(|| broken(&format!("found '{text}', expected: a selector")))?;
    names::qualified_name(&key).map_err(|why| broken(&format!("<nil>: Invalid value: \"{key}\": {why}")))?;
    if let Test::In(values) | Test::NotIn(values) = &test {
        for value in values {
            names::label_value(value)
                .map_err(|why| broken(&format!("values[0][{key}]: Invalid value: \"{value}\": {why}")))?;
        }
    }
    Ok(Requirement { key, test })
}

fn split_requirement(text: &str) -> Option<(String, Test)> {
    if let Some(key) = text.strip_prefix('!') {
        return Some((key.trim().to_owned(), Test::Absent));
    }
    for (sign, make) in [("!=", Test::NotIn as fn(Vec<String>) -> Test), ("==", Test::In), ("=", Test::In)] {
        if let Some((key, value)) = text.split_once(sign) {
            return Some((key.trim().to_owned(), make(vec![value.trim().to_owned()])));
        }
    }
    for (sign, make) in [('>', Test::Greater as fn(i64) -> Test), ('<', Test::Less)] {
        if let Some((key, value)) = text.split_once(sign) {
            return Some((key.trim().to_owned(), make(value.trim().parse().ok()?)));
        }
    }
    let mut words = text.splitn(2, char::is_whitespace);
    let (key, rest) = (words.next()?.to_owned(), words.next().map(str::trim));
    let Some(rest) = rest else { return Some((key, Test::Exists)) };
    let make = if rest.starts_with("notin") { Test::NotIn as fn(Vec<String>) -> Test } else { Test::In };
    let set = rest.strip_prefix("notin").or_else(|| rest.strip_prefix("in"))?.trim();
    let inner = set.strip_prefix('(')?.strip_suffix(')')?;
    Some((key, make(inner.split(',').map(|value| value.trim().to_owned()).collect())))
}

fn parse_fields(text: &str, kind: &Kind) -> Result<Vec<FieldRequirement>, Failure> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| parse_field(part, kind)).collect()
}

fn parse_field(text: &str, kind: &Kind) -> Result<FieldRequirement, Failure> {
    let split = [("!=", false), ("==", true), ("=", true)];
    let found = split.iter().find_map(|(sign, equal)| text.split_once(sign).map(|(path, value)| (path, value, *equal)));
    let Some((path, value, equal)) = found else {
        return Err(Failure::bad_request(format!("invalid selector: '{text}'; can't understand '{text}'")));
    };
    let known =
        matches!(path, "metadata.name" | "metadata.namespace") || kind.selectable.iter().any(|known| known == path);
    if !known {
        return Err(Failure::bad_request(format!("field label not supported: {path}")));
    }
    Ok(FieldRequirement { path: path.to_owned(), value: value.to_owned(), equal })
}
