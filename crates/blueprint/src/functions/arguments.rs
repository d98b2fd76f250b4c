//! The arguments of a call, read as leniently as Kanister reads them: `"3"` is a number, one text is a list of one.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_api::go::GoDuration;
use plimsoll_api::kanister::v1alpha1::ObjectReference;
use serde_json::{Map, Value};

use crate::Error;

/// The arguments of one call.
#[derive(Clone, Debug, Default)]
pub struct Arguments(Map<String, Value>);

impl Arguments {
    /// These arguments.
    pub fn new(arguments: Map<String, Value>) -> Self {
        Self(arguments)
    }

    /// All of them.
    pub fn all(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Whether it is given and not empty.
    pub fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null() && value.as_str() != Some(""))
    }

    /// A text that has to be there.
    pub fn text(&self, name: &str) -> Result<String, Error> {
        self.optional_text(name)?.ok_or_else(|| Error::argument(name, "is missing or empty"))
    }

    /// A text that may be there.
    pub fn optional_text(&self, name: &str) -> Result<Option<String>, Error> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => scalar(value)
                .map(|text| Some(text).filter(|text| !text.is_empty()))
                .ok_or_else(|| Error::argument(name, format!("is not a text but {}", word(value)))),
        }
    }

    /// A list of texts that has to be there.
    pub fn list(&self, name: &str) -> Result<Vec<String>, Error> {
        let value = self.0.get(name).filter(|value| !value.is_null());
        let list = match value.ok_or_else(|| Error::argument(name, "is missing"))? {
            Value::Array(items) => items.iter().map(scalar).collect::<Option<Vec<_>>>(),
            one => scalar(one).map(|one| vec![one]),
        };
        let list = list.ok_or_else(|| Error::argument(name, "is not a list of texts"))?;
        if list.is_empty() { Err(Error::argument(name, "is empty")) } else { Ok(list) }
    }

    /// Words between blanks: names of pods or containers.
    pub fn words(&self, name: &str) -> Result<Vec<String>, Error> {
        let words: Vec<String> = match self.0.get(name) {
            Some(Value::Array(_)) => self.list(name)?,
            _ => self.text(name)?.split_whitespace().map(str::to_owned).collect(),
        };
        if words.is_empty() { Err(Error::argument(name, "is empty")) } else { Ok(words) }
    }

    /// True or false.
    pub fn flag(&self, name: &str, otherwise: bool) -> Result<bool, Error> {
        match self.optional_text(name)?.as_deref() {
            None => Ok(otherwise),
            Some("true" | "True" | "TRUE" | "t" | "1") => Ok(true),
            Some("false" | "False" | "FALSE" | "f" | "0") => Ok(false),
            Some(other) => Err(Error::argument(name, format!("is {other:?}, not true or false"))),
        }
    }

    /// A number of things.
    pub fn count(&self, name: &str) -> Result<u32, Error> {
        let text = self.text(name)?;
        text.trim().parse().map_err(|_| Error::argument(name, format!("is {text:?}, not a number of things")))
    }

    /// A time such as `5m`.
    pub fn duration(&self, name: &str) -> Result<Duration, Error> {
        let text = self.text(name)?;
        let wrong = || Error::argument(name, format!("is {text:?}, not a time such as 5m"));
        let duration: GoDuration = serde_json::from_value(Value::String(text.clone())).map_err(|_| wrong())?;
        duration.as_std().ok_or_else(wrong)
    }

    /// Texts by name.
    pub fn map(&self, name: &str) -> Result<BTreeMap<String, String>, Error> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(BTreeMap::new()),
            Some(Value::Object(fields)) => {
                let one = |(key, value): (&String, &Value)| {
                    let text =
                        scalar(value).ok_or_else(|| Error::argument(format!("{name}.{key}"), "is not a text"))?;
                    Ok((key.clone(), text))
                };
                fields.iter().map(one).collect()
            }
            Some(other) => Err(Error::argument(name, format!("is not a map but {}", word(other)))),
        }
    }

    /// Anything with fields.
    pub fn object(&self, name: &str) -> Result<Option<Value>, Error> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value @ Value::Object(_)) => Ok(Some(value.clone())),
            Some(other) => Err(Error::argument(name, format!("is not a map but {}", word(other)))),
        }
    }

    /// An object of the cluster.
    pub fn reference(&self, name: &str) -> Result<ObjectReference, Error> {
        let value = self.object(name)?.ok_or_else(|| Error::argument(name, "is missing"))?;
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

fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}
