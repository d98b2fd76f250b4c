//! List functions.

use super::super::compare::deeply_equal;
use super::super::eval_error::EvalError;
use super::super::functions::Function;
use super::super::scope::Scope;
use super::super::value::{List, Value};
use super::elements;
use super::numbers::whole;
use super::types::is_empty;

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "list", takes: "a*", run: |scope, values| scope.list(values.to_vec()) },
    Function { name: "tuple", takes: "a*", run: |scope, values| scope.list(values.to_vec()) },
    Function { name: "append", takes: "aa", run: push },
    Function { name: "push", takes: "aa", run: push },
    Function { name: "prepend", takes: "aa", run: prepend },
    Function {
        name: "first",
        takes: "a",
        run: |_, values| Ok(elements(&values[0], "find first")?.first().cloned().unwrap_or(Value::Nil)),
    },
    Function {
        name: "last",
        takes: "a",
        run: |_, values| Ok(elements(&values[0], "find last")?.last().cloned().unwrap_or(Value::Nil)),
    },
    Function { name: "rest", takes: "a", run: |scope, values| part(scope, &values[0], |items| items.get(1..)) },
    Function {
        name: "initial",
        takes: "a",
        run: |scope, values| part(scope, &values[0], |items| items.len().checked_sub(1).map(|end| &items[..end])),
    },
    Function { name: "reverse", takes: "a", run: reverse },
    Function { name: "compact", takes: "a", run: compact },
    Function { name: "uniq", takes: "a", run: uniq },
    Function { name: "without", takes: "aa*", run: without },
    Function { name: "has", takes: "aa", run: has },
    Function { name: "slice", takes: "aa*", run: slice },
    Function { name: "concat", takes: "a*", run: concat },
];

fn push(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut items = elements(&values[0], "push")?;
    items.push(values[1].clone());
    scope.list(items)
}

fn prepend(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut items = elements(&values[0], "prepend")?;
    items.insert(0, values[1].clone());
    scope.list(items)
}

fn part(scope: &mut Scope, value: &Value, cut: fn(&[Value]) -> Option<&[Value]>) -> Result<Value, EvalError> {
    let items = elements(value, "find a part")?;
    scope.list(cut(&items).unwrap_or_default().to_vec())
}

fn reverse(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut items = elements(&values[0], "find reverse")?;
    items.reverse();
    scope.list(items)
}

fn compact(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut items = elements(&values[0], "compact")?;
    items.retain(|item| !is_empty(item));
    scope.list(items)
}

fn holds(scope: &mut Scope, items: &[Value], wanted: &Value) -> Result<bool, EvalError> {
    for item in items {
        if deeply_equal(scope, wanted, item, 0)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn uniq(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut kept = Vec::new();
    for item in elements(&values[0], "find uniq")? {
        if !holds(scope, &kept, &item)? {
            kept.push(item);
        }
    }
    scope.list(kept)
}

fn without(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut kept = Vec::new();
    for item in elements(&values[0], "find without")? {
        if !holds(scope, &values[1..], &item)? {
            kept.push(item);
        }
    }
    scope.list(kept)
}

fn has(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    if matches!(values[1], Value::Nil) {
        return Ok(Value::Bool(false));
    }
    let items = elements(&values[1], "find has")?;
    Ok(Value::Bool(holds(scope, &items, &values[0])?))
}

fn slice(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let items = elements(&values[0], "slice")?;
    if items.is_empty() {
        return Ok(Value::Nil);
    }
    let bound = |at: usize, otherwise: usize| match values.get(at) {
        Some(value) => usize::try_from(whole(value)).map_err(|_| EvalError::new("slice index out of bounds")),
        None => Ok(otherwise),
    };
    let (start, end) = (bound(1, 0)?, bound(2, items.len())?);
    let Some(cut) = items.get(start..end) else { return Err(EvalError::new("slice index out of bounds")) };
    match &values[0] {
        Value::List(List { of, .. }) => scope.list_of((**of).clone(), cut.to_vec()),
        Value::Bytes(bytes) => Ok(Value::Bytes(bytes[start..end].into())),
        _ => scope.list(cut.to_vec()),
    }
}

fn concat(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut items = Vec::new();
    for list in values {
        items.extend(elements(list, "concat")?);
    }
    scope.list(items)
}
