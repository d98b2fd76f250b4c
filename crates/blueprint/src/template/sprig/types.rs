//! Defaults, types and JSON.

#![expect(clippy::unnecessary_wraps, reason = "all functions of the table have one shape")]

use super::super::compare::deeply_equal;
use super::super::eval_error::EvalError;
use super::super::functions::Function;
use super::super::json;
use super::super::scope::Scope;
use super::super::value::Value;
use super::text;

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "default", takes: "aa*", run: default },
    Function { name: "empty", takes: "a", run: |_, values| Ok(Value::Bool(is_empty(&values[0]))) },
    Function {
        name: "coalesce",
        takes: "a*",
        run: |_, values| Ok(values.iter().find(|value| !is_empty(value)).cloned().unwrap_or(Value::Nil)),
    },
    Function { name: "ternary", takes: "aab", run: |_, values| Ok(values[usize::from(!values[2].is_true())].clone()) },
    Function { name: "toJson", takes: "a", run: |scope, values| to_json(scope, &values[0], None) },
    Function { name: "toPrettyJson", takes: "a", run: |scope, values| to_json(scope, &values[0], Some("  ")) },
    Function { name: "typeOf", takes: "a", run: |scope, values| scope.text(values[0].type_name()) },
    Function {
        name: "typeIs",
        takes: "sa",
        run: |_, values| Ok(Value::Bool(*text(&values[0]) == *values[1].type_name())),
    },
    Function { name: "typeIsLike", takes: "sa", run: type_is_like },
    Function { name: "kindOf", takes: "a", run: |scope, values| scope.text(kind(&values[0])) },
    Function { name: "kindIs", takes: "sa", run: |_, values| Ok(Value::Bool(*text(&values[0]) == *kind(&values[1]))) },
    Function {
        name: "deepEqual",
        takes: "aa",
        run: |scope, values| Ok(Value::Bool(deeply_equal(scope, &values[0], &values[1], 0)?)),
    },
];

/// Whether `default` replaces the value.
pub(super) fn is_empty(value: &Value) -> bool {
    !value.is_true()
}

fn default(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    match values.get(1) {
        Some(given) if !is_empty(given) => Ok(given.clone()),
        _ => Ok(values[0].clone()),
    }
}

/// JSON; empty for a value that cannot be encoded, as in Go, where the error is ignored.
fn to_json(scope: &mut Scope, value: &Value, indent: Option<&'static str>) -> Result<Value, EvalError> {
    match json::written(value, indent) {
        Ok(text) => scope.text(text),
        Err(EvalError::Message(_)) => Ok(Value::text("")),
        Err(fault) => Err(fault),
    }
}

fn type_is_like(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let (wanted, found) = (text(&values[0]), values[1].type_name());
    Ok(Value::Bool(*wanted == *found || format!("*{wanted}") == found))
}

fn kind(value: &Value) -> &'static str {
    value.type_of().map_or("invalid", |found| found.kind())
}
