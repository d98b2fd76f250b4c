//! Go's built-in functions.

use super::compare;
use super::eval_error::EvalError;
use super::format::sprint;
use super::functions::Function;
use super::printf::sprintf;
use super::scope::Scope;
use super::value::{Map, Value, Width};

pub(super) const FUNCTIONS: &[Function] = &[
    // Implemented in the evaluator, which stops at the first deciding argument.
    Function { name: "and", takes: "aa*", run: |_, _| Ok(Value::Nil) },
    Function { name: "or", takes: "aa*", run: |_, _| Ok(Value::Nil) },
    Function { name: "not", takes: "a", run: |_, values| Ok(Value::Bool(!values[0].is_true())) },
    Function { name: "len", takes: "a", run: len },
    Function { name: "index", takes: "aa*", run: index },
    Function { name: "html", takes: "a*", run: html },
    Function { name: "js", takes: "a*", run: js },
    Function { name: "urlquery", takes: "a*", run: urlquery },
    Function { name: "print", takes: "a*", run: print },
    Function { name: "println", takes: "a*", run: println },
    Function { name: "printf", takes: "sa*", run: printf },
    Function { name: "eq", takes: "aa*", run: compare::eq },
    Function { name: "ne", takes: "aa", run: compare::ne },
    Function { name: "lt", takes: "aa", run: compare::lt },
    Function { name: "le", takes: "aa", run: compare::le },
    Function { name: "gt", takes: "aa", run: compare::gt },
    Function { name: "ge", takes: "aa", run: compare::ge },
];

fn len(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let length = match &values[0] {
        Value::Text(bytes) | Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.items.len(),
        Value::Map(map) => map.entries().len(),
        other => return Err(EvalError::new(format!("len of type {}", other.type_name()))),
    };
    Ok(Value::int(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn index(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    if matches!(values[0], Value::Nil) {
        return Err(EvalError::new("index of untyped nil"));
    }
    let mut item = values[0].clone();
    for by in &values[1..] {
        item = match &item {
            Value::Map(map) => of_map(map, by)?,
            Value::Text(bytes) | Value::Bytes(bytes) => {
                Value::Int(i64::from(bytes[place(by, bytes.len())?]), Width::Uint8)
            }
            Value::List(list) => list.items[place(by, list.items.len())?].clone(),
            Value::Nil => return Err(EvalError::new("index of nil pointer")),
            other => return Err(EvalError::new(format!("can't index item of type {}", other.type_name()))),
        };
    }
    Ok(item)
}

/// A missing key gives the zero value of the element type.
fn of_map(map: &Map, by: &Value) -> Result<Value, EvalError> {
    let Value::Text(key) = by else {
        return Err(EvalError::new(format!("value has type {}; should be string", by.type_name())));
    };
    let key = String::from_utf8_lossy(key);
    Ok(map.get(&key).unwrap_or_else(|| map.of.zero()))
}

fn place(by: &Value, length: usize) -> Result<usize, EvalError> {
    match by {
        Value::Int(at, _) => {
            let place = usize::try_from(*at).ok().filter(|place| *place < length);
            place.ok_or_else(|| EvalError::new(format!("index out of range: {at}")))
        }
        other => Err(EvalError::new(format!("cannot index slice/array with type {}", other.type_name()))),
    }
}

/// Arguments are formatted as by `print`; nil is `<no value>`.
fn joined(values: &[Value]) -> Result<String, EvalError> {
    let values: Vec<Value> = values
        .iter()
        .map(|value| if matches!(value, Value::Nil) { Value::text("<no value>") } else { value.clone() })
        .collect();
    Ok(String::from_utf8_lossy(&sprint(&values)?).into_owned())
}

fn html(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut text = String::new();
    for character in joined(values)?.chars() {
        match character {
            '\0' => text.push('\u{fffd}'),
            '"' => text.push_str("&#34;"),
            '\'' => text.push_str("&#39;"),
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            other => text.push(other),
        }
    }
    scope.text(text)
}

fn js(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut text = String::new();
    for character in joined(values)?.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\'' => text.push_str("\\'"),
            '"' => text.push_str("\\\""),
            '<' => text.push_str("\\u003C"),
            '>' => text.push_str("\\u003E"),
            '&' => text.push_str("\\u0026"),
            '=' => text.push_str("\\u003D"),
            ' '..='~' => text.push(character),
            other if u32::from(other) >= 0x80 && super::quote::is_printable(other) => text.push(other),
            other => text.push_str(&format!("\\u{:04X}", u32::from(other))),
        }
    }
    scope.text(text)
}

fn urlquery(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut text = String::new();
    for byte in joined(values)?.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => text.push(char::from(byte)),
            b' ' => text.push('+'),
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    scope.text(text)
}

fn print(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let text = sprint(values)?;
    scope.text(text)
}

fn println(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut out = super::format::FormatBuffer::default();
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            out.push(" ")?;
        }
        super::format::print(&mut out, value, 'v', super::format::Spec::default(), 0)?;
    }
    out.push("\n")?;
    scope.text(out.bytes)
}

fn printf(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let Value::Text(format) = &values[0] else { return Err(EvalError::new("the format is no string")) };
    let text = sprintf(format, &values[1..])?;
    scope.text(text)
}
