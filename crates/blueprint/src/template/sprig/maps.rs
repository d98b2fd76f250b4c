//! Map functions; some modify the map in place.

use super::super::eval_error::EvalError;
use super::super::functions::Function;
use super::super::limits;
use super::super::scope::Scope;
use super::super::value::{Map, Type, Value};
use super::types::is_empty;
use super::{stringed, text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "dict", takes: "a*", run: dict },
    Function { name: "set", takes: "msa", run: set },
    Function { name: "unset", takes: "ms", run: unset },
    Function {
        name: "hasKey",
        takes: "ms",
        run: |_, values| Ok(Value::Bool(map(&values[0])?.get(&text(&values[1])).is_some())),
    },
    Function { name: "pluck", takes: "sm*", run: pluck },
    Function { name: "keys", takes: "m*", run: keys },
    Function { name: "pick", takes: "ms*", run: |scope, values| chosen(scope, values, true) },
    Function { name: "omit", takes: "ms*", run: |scope, values| chosen(scope, values, false) },
    Function { name: "merge", takes: "mm*", run: |scope, values| merge(scope, values, false) },
    Function { name: "mergeOverwrite", takes: "mm*", run: |scope, values| merge(scope, values, true) },
    Function {
        name: "values",
        takes: "m",
        run: |scope, values| {
            let items = map(&values[0])?.entries().values().cloned().collect();
            scope.list(items)
        },
    },
    Function { name: "deepCopy", takes: "a", run: |scope, values| copied(scope, &values[0], 0) },
];

fn map(value: &Value) -> Result<&Map, EvalError> {
    match value {
        Value::Map(map) => Ok(map),
        other => Err(EvalError::new(format!("{} is no map", other.type_name()))),
    }
}

fn dict(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let map = scope.map(Type::Any);
    for pair in values.chunks(2) {
        let key = stringed(&pair[0])?;
        map.insert(&String::from_utf8_lossy(&key), pair.get(1).cloned().unwrap_or_else(|| Value::text("")));
    }
    scope.budget.make(size_of_val(values))?;
    Ok(Value::Map(map))
}

fn set(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    scope.budget.make(size_of::<Value>())?;
    map(&values[0])?.insert(&text(&values[1]), values[2].clone());
    Ok(values[0].clone())
}

fn unset(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    map(&values[0])?.remove(&text(&values[1]));
    Ok(values[0].clone())
}

fn pluck(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let key = text(&values[0]);
    let mut found = Vec::new();
    for value in &values[1..] {
        found.extend(map(value)?.get(&key));
    }
    scope.list(found)
}

/// Sorted; Go's order is random.
fn keys(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut keys = Vec::new();
    for value in values {
        keys.extend(map(value)?.entries().keys().map(|key| key.as_bytes().to_vec()));
    }
    scope.texts(keys)
}

fn chosen(scope: &mut Scope, values: &[Value], named: bool) -> Result<Value, EvalError> {
    let names: Vec<_> = values[1..].iter().map(text).collect();
    let kept = scope.map(Type::Any);
    scope.budget.steps(map(&values[0])?.entries().len().saturating_mul(names.len()))?;
    for (key, value) in map(&values[0])?.entries().iter() {
        if names.iter().any(|name| **name == **key) == named {
            kept.insert(key, value.clone());
        }
    }
    Ok(Value::Map(kept))
}

fn merge(scope: &mut Scope, values: &[Value], overwrites: bool) -> Result<Value, EvalError> {
    let into = map(&values[0])?;
    for from in &values[1..] {
        merge_one(scope, into, map(from)?, overwrites, 0)?;
    }
    Ok(values[0].clone())
}

fn merge_one(scope: &mut Scope, into: &Map, from: &Map, overwrites: bool, depth: usize) -> Result<(), EvalError> {
    if depth > limits::MAX_VALUE_NESTING {
        return Err(EvalError::too_much("120 values in each other"));
    }
    // A copy, because both may be the same map.
    let entries: Vec<_> = from.entries().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    scope.budget.make(entries.len() * size_of::<Value>())?;
    for (key, value) in entries {
        match (into.get(&key), &value) {
            (Some(Value::Map(there)), Value::Map(new)) if there.of == new.of => {
                merge_one(scope, &there, new, overwrites, depth + 1)?;
            }
            (Some(there), _) if !is_empty(&there) && (!overwrites || is_empty(&value)) => {}
            (Some(_), _) if is_empty(&value) && overwrites => {}
            _ => into.insert(&key, value),
        }
    }
    Ok(())
}

fn copied(scope: &mut Scope, value: &Value, depth: usize) -> Result<Value, EvalError> {
    if depth > limits::MAX_VALUE_NESTING {
        return Err(EvalError::too_much("120 values in each other"));
    }
    match value {
        Value::Map(from) => {
            let entries: Vec<_> = from.entries().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            scope.budget.make(entries.len() * size_of::<Value>())?;
            let to = scope.map((*from.of).clone());
            for (key, value) in entries {
                to.insert(&key, copied(scope, &value, depth + 1)?);
            }
            Ok(Value::Map(to))
        }
        Value::List(list) => {
            let items = list.items.iter().map(|item| copied(scope, item, depth + 1)).collect::<Result<_, _>>()?;
            scope.list_of((*list.of).clone(), items)
        }
        other => Ok(other.clone()),
    }
}
