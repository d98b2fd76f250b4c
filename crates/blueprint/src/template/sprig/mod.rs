//! sprig's functions, in the version that Kanister uses.

use std::borrow::Cow;

use super::eval_error::EvalError;
use super::format::shown;
use super::functions::Function;
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

/// All functions by topic.
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

/// An `int` argument.
fn int(value: &Value) -> i64 {
    match value {
        Value::Int(number, _) => *number,
        _ => 0,
    }
}

/// Converts any value to a string; bytes are text.
fn stringed(value: &Value) -> Result<Vec<u8>, EvalError> {
    match value {
        Value::Text(bytes) | Value::Bytes(bytes) => Ok(bytes.to_vec()),
        other => shown(other),
    }
}

/// The elements of a list, or the panic message of Go.
fn elements(value: &Value, doing: &str) -> Result<Vec<Value>, EvalError> {
    value.elements().ok_or_else(|| EvalError::new(format!("cannot {doing} on type {}", value.type_name())))
}
