//! Number functions; integers unless stated otherwise.

#![expect(clippy::unnecessary_wraps, reason = "all functions of the table have one shape")]

use super::super::eval_error::EvalError;
use super::super::format::shown;
use super::super::functions::Function;
use super::super::scope::Scope;
use super::super::value::{Type, Value};
use super::{int, text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "atoi", takes: "s", run: |_, values| Ok(Value::int(digits(&text(&values[0]), 10).unwrap_or(0))) },
    Function { name: "int64", takes: "a", run: |_, values| Ok(Value::int64(whole(&values[0]))) },
    Function { name: "int", takes: "a", run: |_, values| Ok(Value::int(whole(&values[0]))) },
    Function { name: "float64", takes: "a", run: |_, values| Ok(Value::Float(real(&values[0]))) },
    Function { name: "toDecimal", takes: "a", run: to_decimal },
    Function { name: "until", takes: "i", run: until },
    Function {
        name: "untilStep",
        takes: "iii",
        run: |scope, values| count(scope, int(&values[0]), int(&values[1]), int(&values[2])),
    },
    Function { name: "add1", takes: "a", run: |_, values| Ok(Value::int64(whole(&values[0]).wrapping_add(1))) },
    Function { name: "add", takes: "a*", run: |_, values| fold(values, i64::wrapping_add, 0) },
    Function {
        name: "sub",
        takes: "aa",
        run: |_, values| Ok(Value::int64(whole(&values[0]).wrapping_sub(whole(&values[1])))),
    },
    Function { name: "div", takes: "aa", run: |_, values| divided(values, i64::wrapping_div) },
    Function { name: "mod", takes: "aa", run: |_, values| divided(values, i64::wrapping_rem) },
    Function { name: "mul", takes: "aa*", run: |_, values| fold(values, i64::wrapping_mul, 1) },
    Function { name: "biggest", takes: "aa*", run: |_, values| fold(values, i64::max, i64::MIN) },
    Function { name: "max", takes: "aa*", run: |_, values| fold(values, i64::max, i64::MIN) },
    Function { name: "min", takes: "aa*", run: |_, values| fold(values, i64::min, i64::MAX) },
    Function { name: "ceil", takes: "a", run: |_, values| Ok(Value::Float(real(&values[0]).ceil())) },
    Function { name: "floor", takes: "a", run: |_, values| Ok(Value::Float(real(&values[0]).floor())) },
    Function { name: "round", takes: "aif*", run: round },
];

/// Go's `ParseInt`: no spaces, no underscores, an optional sign.
fn digits(text: &str, radix: u32) -> Option<i64> {
    i64::from_str_radix(text, radix).ok()
}

/// Converts any value to an integer; 0 if it is not a number.
#[expect(clippy::cast_possible_truncation, reason = "Go cuts the same way")]
pub(super) fn whole(value: &Value) -> i64 {
    match value {
        Value::Text(_) => digits(&text(value), 10).unwrap_or(0),
        Value::Int(number, _) => *number,
        Value::Float(number) => *number as i64,
        Value::Bool(flag) => i64::from(*flag),
        _ => 0,
    }
}

#[expect(clippy::cast_precision_loss, reason = "Go loses the same digits")]
fn real(value: &Value) -> f64 {
    match value {
        Value::Text(_) => text(value).parse().unwrap_or(0.0),
        Value::Int(number, _) => *number as f64,
        Value::Float(number) => *number,
        Value::Bool(flag) => f64::from(u8::from(*flag)),
        _ => 0.0,
    }
}

fn to_decimal(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let text = shown(&values[0])?;
    Ok(Value::int64(digits(&String::from_utf8_lossy(&text), 8).unwrap_or(0)))
}

fn until(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let end = int(&values[0]);
    count(scope, 0, end, if end < 0 { -1 } else { 1 })
}

fn count(scope: &mut Scope, start: i64, stop: i64, step: i64) -> Result<Value, EvalError> {
    let goes_up = stop >= start;
    let mut items = Vec::new();
    if step == 0 || goes_up != (step > 0) {
        return scope.list_of(Type::Int, items);
    }
    let span = u64::try_from((i128::from(stop) - i128::from(start)).unsigned_abs()).unwrap_or(u64::MAX);
    let length = usize::try_from(span.div_ceil(step.unsigned_abs())).unwrap_or(usize::MAX);
    Scope::room(length.saturating_mul(size_of::<Value>()))?;
    let mut at = start;
    for _ in 0..length {
        items.push(Value::int(at));
        at = at.saturating_add(step);
    }
    scope.list_of(Type::Int, items)
}

fn fold(values: &[Value], with: fn(i64, i64) -> i64, start: i64) -> Result<Value, EvalError> {
    Ok(Value::int64(values.iter().map(whole).fold(start, with)))
}

fn divided(values: &[Value], with: fn(i64, i64) -> i64) -> Result<Value, EvalError> {
    match whole(&values[1]) {
        0 => Err(EvalError::new("integer divide by zero")),
        divisor => Ok(Value::int64(with(whole(&values[0]), divisor))),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "places are few")]
fn round(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let up_from = if let Some(Value::Float(limit)) = values.get(2) { *limit } else { 0.5 };
    let power = 10f64.powi(int(&values[1]).clamp(-400, 400) as i32);
    let shifted = power * real(&values[0]);
    let rounded = if shifted.fract() >= up_from { shifted.ceil() } else { shifted.floor() };
    Ok(Value::Float(rounded / power))
}
