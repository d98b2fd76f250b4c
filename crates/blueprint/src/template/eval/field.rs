//! Fields of values: keys of maps, fields of structs, and some methods.

use super::super::ast::Operand;
use super::super::eval_error::EvalError;
use super::super::value::{Struct, Value};
use super::{Failure, Render, absent};

impl<'a> Render<'a> {
    /// `.a.b` of a value. Only the last field can have arguments.
    pub(super) fn fields(
        &mut self,
        dot: &Value,
        line: usize,
        receiver: Value,
        names: &[String],
        arguments: &'a [Operand],
        last: Option<&Value>,
    ) -> Result<Value, Failure> {
        let mut value = receiver;
        for (at, name) in names.iter().enumerate() {
            let is_last = at + 1 == names.len();
            let has_methods = matches!(value, Value::Time(_) | Value::Version(_));
            if is_last && !has_methods && (!arguments.is_empty() || last.is_some()) {
                return Err((line, EvalError::new(format!("{name} has arguments but cannot be invoked as function"))));
            }
            let given = if is_last { self.given(dot, line, arguments, last)? } else { Vec::new() };
            value = self.field(&value, name, &given).map_err(|fault| (line, fault))?;
        }
        Ok(value)
    }

    fn given(
        &mut self,
        dot: &Value,
        line: usize,
        arguments: &'a [Operand],
        last: Option<&Value>,
    ) -> Result<Vec<Value>, Failure> {
        let mut values = Vec::new();
        for argument in arguments {
            values.push(self.operand(dot, line, argument)?);
        }
        values.extend(last.cloned());
        Ok(values)
    }

    fn field(&mut self, value: &Value, name: &str, given: &[Value]) -> Result<Value, EvalError> {
        if let Value::Time(time) = value {
            return time.method(&mut self.scope, name, given);
        }
        if let Value::Version(version) = value {
            return version.method(&mut self.scope, name, given);
        }
        match value {
            Value::Map(map) => match map.get(name) {
                Some(found) => Ok(found),
                None if self.params.as_ref().is_some_and(|params| params.is(map)) => self.of_params(name),
                None => self.missing(name),
            },
            Value::Struct(found) => {
                let missing = || EvalError::new(format!("can't evaluate field {name} in type {}", found.shape.name));
                of_structure(found, name).ok_or_else(missing)
            }
            Value::Nil if self.missing_is_nil => Ok(Value::Nil),
            Value::Nil => Err(EvalError::new(format!("nil pointer evaluating interface {{}}.{name}"))),
            Value::NilPointer(shape) => Err(EvalError::new(format!("nil pointer evaluating *{}.{name}", shape.name))),
            other => Err(EvalError::new(format!("can't evaluate field {name} in type {}", other.type_name()))),
        }
    }

    fn of_params(&self, name: &str) -> Result<Value, EvalError> {
        absent(name).map_or_else(|| self.missing(name), Ok)
    }

    fn missing(&self, name: &str) -> Result<Value, EvalError> {
        if self.missing_is_nil { Ok(Value::Nil) } else { Err(EvalError::NotFound(name.to_owned())) }
    }
}

/// A field by Go's name, also of an embedded struct.
fn of_structure(found: &Struct, name: &str) -> Option<Value> {
    let at = |name: &str| found.shape.fields.iter().position(|field| field.name == name);
    if let Some(at) = at(name) {
        return found.fields.get(at).cloned();
    }
    match found.fields.get(at(found.shape.embedded?)?)? {
        Value::Struct(inner) => of_structure(inner, name),
        _ => None,
    }
}
