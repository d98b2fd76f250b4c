//! sprig's functions, in the version that Kanister gives its templates.

use std::borrow::Cow;

use super::fault::Fault;
use super::functions::Function;
use super::show::shown;
use super::value::Value;

mod dates;
mod encodings;
mod lists;
mod maps;
mod numbers;
mod paths;
mod patterns;
mod random;
mod strings;
mod types;
mod urls;
mod versions;
mod words;

/// All of them, by subject.
pub(super) const FUNCTIONS: &[&[Function]] = &[
    strings::FUNCTIONS,
    words::FUNCTIONS,
    numbers::FUNCTIONS,
    lists::FUNCTIONS,
    maps::FUNCTIONS,
    types::FUNCTIONS,
    dates::FUNCTIONS,
    encodings::FUNCTIONS,
    paths::FUNCTIONS,
    patterns::FUNCTIONS,
    random::FUNCTIONS,
    urls::FUNCTIONS,
    versions::FUNCTIONS,
];

/// The bytes of a string argument.
fn bytes(value: &Value) -> &[u8] {
    match value {
        Value::Text(bytes) => bytes,
        _ => b"",
    }
}

/// A string argument as text.
fn text(value: &Value) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes(value))
}

/// An argument whose place wants an `int`.
fn int(value: &Value) -> i64 {
    match value {
        Value::Int(number, _) => *number,
        _ => 0,
    }
}

/// Any value as a string: bytes are text here.
fn stringed(value: &Value) -> Result<Vec<u8>, Fault> {
    match value {
        Value::Text(bytes) | Value::Bytes(bytes) => Ok(bytes.to_vec()),
        other => shown(other),
    }
}

/// The elements of a list, or what Go would panic with.
fn elements(value: &Value, doing: &str) -> Result<Vec<Value>, Fault> {
    value.elements().ok_or_else(|| Fault::new(format!("cannot {doing} on type {}", value.type_name())))
}
