//! Comparison functions: `eq`, `lt` and others.

use std::cmp::Ordering;

use super::eval_error::EvalError;
use super::limits;
use super::scope::Scope;
use super::value::Value;

pub(super) fn eq(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    if values.len() < 2 {
        return Err(EvalError::new("missing argument for comparison"));
    }
    for other in &values[1..] {
        if equal(&values[0], other)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

pub(super) fn ne(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    Ok(Value::Bool(!equal(&values[0], &values[1])?))
}

pub(super) fn lt(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    Ok(Value::Bool(ordered(values)? == Some(Ordering::Less)))
}

pub(super) fn le(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    Ok(Value::Bool(matches!(ordered(values)?, Some(Ordering::Less | Ordering::Equal))))
}

pub(super) fn gt(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    // Go computes "not less or equal", which is true for unordered values.
    Ok(Value::Bool(!matches!(ordered(values)?, Some(Ordering::Less | Ordering::Equal))))
}

pub(super) fn ge(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    Ok(Value::Bool(ordered(values)? != Some(Ordering::Less)))
}

#[expect(clippy::float_cmp, reason = "this is Go's ==")]
fn equal(one: &Value, other: &Value) -> Result<bool, EvalError> {
    match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => Ok(one == other),
        (Value::Int(one, _), Value::Int(other, _)) => Ok(one == other),
        (Value::Float(one), Value::Float(other)) => Ok(one == other),
        (Value::Text(one), Value::Text(other)) => Ok(one == other),
        (Value::Time(one), Value::Time(other)) => Ok(one == other),
        (one, other) if basic(one) != basic(other) && !is_nil(one) && !is_nil(other) => {
            Err(EvalError::new("incompatible types for comparison"))
        }
        (one, other) if is_nil(one) || is_nil(other) => Ok(is_nil(one) && is_nil(other)),
        _ => Err(EvalError::new(format!("non-comparable types {}, {}", one.type_name(), other.type_name()))),
    }
}

fn is_nil(value: &Value) -> bool {
    matches!(value, Value::Nil | Value::NilPointer(_))
}

fn basic(value: &Value) -> Option<u8> {
    match value {
        Value::Bool(_) => Some(0),
        Value::Int(..) => Some(1),
        Value::Float(_) => Some(2),
        Value::Text(_) => Some(3),
        _ => None,
    }
}

fn ordered(values: &[Value]) -> Result<Option<Ordering>, EvalError> {
    match (&values[0], &values[1]) {
        (Value::Int(one, _), Value::Int(other, _)) => Ok(Some(one.cmp(other))),
        (Value::Float(one), Value::Float(other)) => Ok(one.partial_cmp(other)),
        (Value::Text(one), Value::Text(other)) => Ok(Some(one.cmp(other))),
        (one, other) if basic(one).is_none() || basic(other).is_none() || basic(one) == basic(other) => {
            Err(EvalError::new("invalid type for comparison"))
        }
        _ => Err(EvalError::new("incompatible types for comparison")),
    }
}

/// Go's `DeepEqual`: the same types, the same content.
pub(super) fn deeply_equal(scope: &mut Scope, one: &Value, other: &Value, depth: usize) -> Result<bool, EvalError> {
    scope.budget.steps(1 + one.weight())?;
    if depth > limits::MAX_VALUE_NESTING {
        return Err(EvalError::too_much("120 values in each other"));
    }
    if one.type_of() != other.type_of() {
        return Ok(false);
    }
    match (one, other) {
        (Value::List(one), Value::List(other)) => {
            let same = one.items.len() == other.items.len();
            Ok(same && all_equal(scope, one.items.iter().zip(other.items.iter()), depth)?)
        }
        (Value::Map(one), Value::Map(other)) => {
            let (one, other) = (one.entries().clone(), other.entries().clone());
            let same = one.keys().eq(other.keys());
            Ok(same && all_equal(scope, one.values().zip(other.values()), depth)?)
        }
        (Value::Struct(one), Value::Struct(other)) => {
            all_equal(scope, one.fields.iter().zip(other.fields.iter()), depth)
        }
        (Value::Bytes(one), Value::Bytes(other)) => Ok(one == other),
        (Value::Nil, Value::Nil) | (Value::NilPointer(_), Value::NilPointer(_)) => Ok(true),
        (Value::Version(one), Value::Version(other)) => Ok(one.shown() == other.shown()),
        _ => equal(one, other),
    }
}

fn all_equal<'a>(
    scope: &mut Scope,
    pairs: impl Iterator<Item = (&'a Value, &'a Value)>,
    depth: usize,
) -> Result<bool, EvalError> {
    for (one, other) in pairs {
        if !deeply_equal(scope, one, other, depth + 1)? {
            return Ok(false);
        }
    }
    Ok(true)
}
