//! The arguments of a call, parsed as leniently as in Kanister: `"3"` is a number, a string is a list of one.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_api::go::GoDuration;
use plimsoll_api::kanister::v1alpha1::ObjectReference;
use plimsoll_select::json_type;
use serde_json::{Map, Value};

use crate::Error;

/// The arguments of one call.
#[derive(Clone, Debug, Default)]
pub struct Arguments(Map<String, Value>);

impl Arguments {
    /// Wraps rendered arguments.
    pub fn new(arguments: Map<String, Value>) -> Self {
        Self(arguments)
    }

    /// All arguments.
    pub fn all(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Whether the argument is set and not empty.
    pub fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null() && value.as_str() != Some(""))
    }

    /// A required string.
    pub fn text(&self, name: &str) -> Result<String, Error> {
        self.optional_text(name)?.ok_or_else(|| Error::argument(name, "missing or empty"))
    }

    /// An optional string.
    pub fn optional_text(&self, name: &str) -> Result<Option<String>, Error> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => scalar(value)
                .map(|text| Some(text).filter(|text| !text.is_empty()))
                .ok_or_else(|| Error::argument(name, format!("expected a string, found {}", json_type(value)))),
        }
    }

    /// A required list of strings.
    pub fn list(&self, name: &str) -> Result<Vec<String>, Error> {
        let value = self.0.get(name).filter(|value| !value.is_null());
        let list = match value.ok_or_else(|| Error::argument(name, "missing"))? {
            Value::Array(items) => items.iter().map(scalar).collect::<Option<Vec<_>>>(),
            one => scalar(one).map(|one| vec![one]),
        };
        let list = list.ok_or_else(|| Error::argument(name, "expected a list of strings"))?;
        if list.is_empty() { Err(Error::argument(name, "empty")) } else { Ok(list) }
    }

    /// A space-separated list: names of pods or containers.
    pub fn words(&self, name: &str) -> Result<Vec<String>, Error> {
        let words: Vec<String> = match self.0.get(name) {
            Some(Value::Array(_)) => self.list(name)?,
            _ => self.text(name)?.split_whitespace().map(str::to_owned).collect(),
        };
        if words.is_empty() { Err(Error::argument(name, "empty")) } else { Ok(words) }
    }

    /// A boolean.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool, Error> {
        match self.optional_text(name)?.as_deref() {
            None => Ok(default),
            Some("true" | "True" | "TRUE" | "t" | "1") => Ok(true),
            Some("false" | "False" | "FALSE" | "f" | "0") => Ok(false),
            Some(other) => Err(Error::argument(name, format!("expected true or false, found {other:?}"))),
        }
    }

    /// A count.
    pub fn count(&self, name: &str) -> Result<u32, Error> {
        let text = self.text(name)?;
        text.trim().parse().map_err(|_| Error::argument(name, format!("expected a number, found {text:?}")))
    }

    /// A duration such as `5m`.
    pub fn duration(&self, name: &str) -> Result<Duration, Error> {
        let text = self.text(name)?;
        let invalid = || Error::argument(name, format!("expected a duration such as 5m, found {text:?}"));
        let duration: GoDuration = serde_json::from_value(Value::String(text.clone())).map_err(|_| invalid())?;
        duration.as_std().ok_or_else(invalid)
    }

    /// A map of strings.
    pub fn map(&self, name: &str) -> Result<BTreeMap<String, String>, Error> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(BTreeMap::new()),
            Some(Value::Object(fields)) => {
                let one = |(key, value): (&String, &Value)| {
                    let text =
                        scalar(value).ok_or_else(|| Error::argument(format!("{name}.{key}"), "expected a string"))?;
                    Ok((key.clone(), text))
                };
                fields.iter().map(one).collect()
            }
            Some(other) => Err(Error::argument(name, format!("expected a map, found {}", json_type(other)))),
        }
    }

    /// An optional map of any values.
    pub fn object(&self, name: &str) -> Result<Option<Value>, Error> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value @ Value::Object(_)) => Ok(Some(value.clone())),
            Some(other) => Err(Error::argument(name, format!("expected a map, found {}", json_type(other)))),
        }
    }

    /// A required object reference.
    pub fn reference(&self, name: &str) -> Result<ObjectReference, Error> {
        let value = self.object(name)?.ok_or_else(|| Error::argument(name, "missing"))?;
        serde_json::from_value(value).map_err(|error| Error::argument(name, error.to_string()))
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}
