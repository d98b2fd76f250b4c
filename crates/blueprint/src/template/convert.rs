//! Converts JSON to values with Go's types.

use std::rc::Rc;

use base64::Engine;
use serde_json::{Map as JsonMap, Value as Json};

use super::eval_error::EvalError;
use super::limits;
use super::scope::Scope;
use super::struct_type::{PARAMS, StructType};
use super::value::{Struct, Type, Value};

/// The root value of a rendering. An object has Kanister's typed fields; other keys are unchanged.
pub(super) fn root(scope: &mut Scope, params: &Json) -> Result<Value, EvalError> {
    let Json::Object(fields) = params else { return convert(scope, params, &Type::Any, 0) };
    let map = scope.map(Type::Any);
    for field in PARAMS.fields {
        if let Some(json) = fields.get(field.json) {
            map.insert(field.name, convert(scope, json, &field.holds.as_type(), 1)?);
        }
    }
    for (key, json) in fields.iter().filter(|(key, _)| !PARAMS.fields.iter().any(|field| field.json == key.as_str())) {
        map.insert(key, convert(scope, json, &Type::Any, 1)?);
    }
    Ok(Value::Map(map))
}

fn convert(scope: &mut Scope, json: &Json, wanted: &Type, depth: usize) -> Result<Value, EvalError> {
    if depth > limits::MAX_VALUE_NESTING {
        return Err(EvalError::too_much("120 values in each other"));
    }
    match (json, wanted) {
        (Json::Null, _) => Ok(wanted.zero()),
        (Json::String(text), Type::List(of)) if **of == Type::Uint8 => Ok(Value::Bytes(decoded(text)?)),
        (Json::Array(items), _) => {
            let of = if let Type::List(of) = wanted { (**of).clone() } else { Type::Any };
            let items = items.iter().map(|item| convert(scope, item, &of, depth + 1));
            let items = items.collect::<Result<Vec<_>, _>>()?;
            scope.list_of(of, items)
        }
        (Json::Object(fields), Type::Struct(shape)) => structure(scope, fields, shape, false, depth),
        (Json::Object(fields), Type::Pointer(shape)) => structure(scope, fields, shape, true, depth),
        (Json::Object(fields), _) => {
            let of = if let Type::Map(of) = wanted { (**of).clone() } else { Type::Any };
            let map = scope.map(of.clone());
            for (key, json) in fields {
                map.insert(key, convert(scope, json, &of, depth + 1)?);
            }
            Ok(Value::Map(map))
        }
        (json, _) => Ok(scalar(json, wanted)),
    }
}

fn scalar(json: &Json, wanted: &Type) -> Value {
    match json {
        Json::Bool(flag) => Value::Bool(*flag),
        Json::String(text) => Value::text(text),
        Json::Number(number) => match number.as_i64() {
            Some(number) if *wanted == Type::Int => Value::int(number),
            Some(number) => Value::int64(number),
            None => Value::Float(number.as_f64().unwrap_or_default()),
        },
        _ => Value::Nil,
    }
}

/// Data of a Secret: text in base64, as Kubernetes has it.
fn decoded(text: &str) -> Result<Rc<[u8]>, EvalError> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text);
    bytes.map(Rc::from).map_err(|_| EvalError::new("the data of a secret is not base64"))
}

fn structure(
    scope: &mut Scope,
    json: &JsonMap<String, Json>,
    shape: &'static StructType,
    pointer: bool,
    depth: usize,
) -> Result<Value, EvalError> {
    let mut fields = Vec::with_capacity(shape.fields.len());
    for field in shape.fields {
        let wanted = field.holds.as_type();
        fields.push(match find(json, field.json, field.name) {
            Some(json) => convert(scope, json, &wanted, depth + 1)?,
            None => wanted.zero(),
        });
    }
    Ok(Value::Struct(Struct { shape, fields: Rc::new(fields), pointer }))
}

/// Finds a key, ignoring case as Go does; an exact match takes precedence.
fn find<'a>(json: &'a JsonMap<String, Json>, key: &str, name: &str) -> Option<&'a Json> {
    let loosely = || json.iter().find(|(other, _)| other.eq_ignore_ascii_case(key)).map(|(_, value)| value);
    json.get(key).or_else(|| json.get(name)).or_else(loosely)
}
