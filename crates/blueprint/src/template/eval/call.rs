//! Commands and their arguments.

use super::super::ast::{Command, Number, Operand};
use super::super::eval_error::EvalError;
use super::super::functions::{self, Function};
use super::super::value::{Type, Value};
use super::{Failure, Render};

impl<'a> Render<'a> {
    /// Evaluates a command; `last` is the result of the previous one.
    pub(super) fn command(&mut self, dot: &Value, command: &'a Command, last: Option<Value>) -> Result<Value, Failure> {
        let line = command.line;
        self.step(line)?;
        let Some((first, arguments)) = command.operands.split_first() else {
            return Err((line, EvalError::new("empty command")));
        };
        match first {
            Operand::Function(name) => return self.function(dot, line, name, arguments, last),
            Operand::Field(names) => return self.fields(dot, line, dot.clone(), names, arguments, last.as_ref()),
            Operand::Chain(inner, names) => {
                let receiver = self.operand(dot, line, inner)?;
                return self.fields(dot, line, receiver, names, arguments, last.as_ref());
            }
            Operand::Variable(name, names) if !names.is_empty() => {
                let receiver = self.variable(line, name)?;
                return self.fields(dot, line, receiver, names, arguments, last.as_ref());
            }
            _ => {}
        }
        if !arguments.is_empty() || last.is_some() {
            return Err((line, EvalError::new("can't give argument to non-function")));
        }
        match first {
            Operand::Nil => Err((line, EvalError::new("nil is not a command"))),
            _ => self.operand(dot, line, first),
        }
    }

    fn variable(&mut self, line: usize, name: &str) -> Result<Value, Failure> {
        let found = self.variables.iter().rev().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.clone())
            .ok_or_else(|| (line, EvalError::new(format!("undefined variable: {name}"))))
    }

    /// Evaluates an operand without an expected type.
    pub(super) fn operand(&mut self, dot: &Value, line: usize, operand: &'a Operand) -> Result<Value, Failure> {
        match operand {
            Operand::Dot => Ok(dot.clone()),
            Operand::Nil => Ok(Value::Nil),
            Operand::Bool(flag) => Ok(Value::Bool(*flag)),
            Operand::Text(bytes) => Ok(Value::Text(bytes.as_ref().into())),
            Operand::Number(number) => constant(number).map_err(|fault| (line, fault)),
            Operand::Field(names) => self.fields(dot, line, dot.clone(), names, &[], None),
            Operand::Variable(name, names) => {
                let receiver = self.variable(line, name)?;
                self.fields(dot, line, receiver, names, &[], None)
            }
            Operand::Function(name) => self.function(dot, line, name, &[], None),
            Operand::Pipeline(inner) => self.pipeline(dot, inner),
            Operand::Chain(inner, names) => {
                let receiver = self.operand(dot, line, inner)?;
                self.fields(dot, line, receiver, names, &[], None)
            }
        }
    }

    fn function(
        &mut self,
        dot: &Value,
        line: usize,
        name: &str,
        arguments: &'a [Operand],
        last: Option<Value>,
    ) -> Result<Value, Failure> {
        let Some(function) = functions::find(name) else {
            return Err((line, EvalError::new(format!("{name:?} is not a defined function"))));
        };
        function.check_count(arguments.len() + usize::from(last.is_some())).map_err(|fault| (line, fault))?;
        if matches!(name, "and" | "or") {
            return self.short_circuit(dot, line, name == "or", arguments, last);
        }
        let values = self.arguments(dot, line, function, arguments, last)?;
        let weight = values.iter().map(Value::weight).sum();
        self.scope.budget.steps(weight).map_err(|exceeded| (line, exceeded.into()))?;
        (function.run)(&mut self.scope, &values).map_err(|fault| match fault {
            EvalError::Message(message) => (line, EvalError::new(format!("error calling {name}: {message}"))),
            other => (line, other),
        })
    }

    fn short_circuit(
        &mut self,
        dot: &Value,
        line: usize,
        stops_at: bool,
        arguments: &'a [Operand],
        last: Option<Value>,
    ) -> Result<Value, Failure> {
        let mut value = Value::Nil;
        for argument in arguments {
            value = self.operand(dot, line, argument)?;
            if value.is_true() == stops_at {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    fn arguments(
        &mut self,
        dot: &Value,
        line: usize,
        function: &Function,
        arguments: &'a [Operand],
        last: Option<Value>,
    ) -> Result<Vec<Value>, Failure> {
        let mut values = Vec::with_capacity(arguments.len() + 1);
        for (at, argument) in arguments.iter().enumerate() {
            let wanted = function.wants(at);
            let value = match literal(argument, &wanted).map_err(|fault| (line, fault))? {
                Some(value) => value,
                None => self.operand(dot, line, argument)?,
            };
            // Go distinguishes nil in a field and nil of a pipeline.
            let of_field = matches!(argument, Operand::Field(_) | Operand::Chain(..));
            if of_field && matches!((&value, &wanted), (Value::Nil, Type::Map(_))) {
                let message = format!("wrong type for value; expected {}; got interface {{}}", wanted.name());
                return Err((line, EvalError::new(message)));
            }
            values.push(fitting(value, &wanted).map_err(|fault| (line, fault))?);
        }
        if let Some(last) = last {
            let wanted = function.wants(arguments.len());
            values.push(fitting(last, &wanted).map_err(|fault| (line, fault))?);
        }
        Ok(values)
    }
}

/// Converts a literal to the expected type, if possible.
fn literal(operand: &Operand, wanted: &Type) -> Result<Option<Value>, EvalError> {
    let unfit = |found: &str| EvalError::new(format!("expected {}; found {found}", wanted.name()));
    match (operand, wanted) {
        (Operand::Nil, Type::Map(_)) => Ok(Some(wanted.zero())),
        (Operand::Nil | Operand::Bool(_) | Operand::Text(_) | Operand::Number(_), Type::Any)
        | (Operand::Bool(_), Type::Bool)
        | (Operand::Text(_), Type::Text) => Ok(None),
        (Operand::Nil, _) => Err(EvalError::new(format!("cannot assign nil to {}", wanted.name()))),
        (Operand::Number(number), Type::Int) => {
            Ok(Some(number.int.map(Value::int).ok_or_else(|| unfit(&number.text))?))
        }
        (Operand::Number(number), Type::Float) => {
            Ok(Some(number.float.map(Value::Float).ok_or_else(|| unfit(&number.text))?))
        }
        (Operand::Bool(flag), _) => Err(unfit(&flag.to_string())),
        (Operand::Text(_), _) => Err(unfit("a string")),
        (Operand::Number(number), _) => Err(unfit(&number.text)),
        _ => Ok(None),
    }
}

/// Checks the type of a value: Go does not convert.
fn fitting(value: Value, wanted: &Type) -> Result<Value, EvalError> {
    match (&value, wanted) {
        (_, Type::Any) => Ok(value),
        (Value::Nil, Type::Map(_)) => Ok(wanted.zero()),
        (Value::Nil, _) => Err(EvalError::new(format!("invalid value; expected {}", wanted.name()))),
        _ if value.type_of().as_ref() == Some(wanted) => Ok(value),
        _ => {
            let found = value.type_name();
            Err(EvalError::new(format!("wrong type for value; expected {}; got {found}", wanted.name())))
        }
    }
}

/// A number without an expected type.
fn constant(number: &Number) -> Result<Value, EvalError> {
    match number {
        Number { fractional: true, float: Some(float), .. } => Ok(Value::Float(*float)),
        Number { int: Some(int), .. } => Ok(Value::int(*int)),
        other => Err(EvalError::new(format!("{} overflows int", other.text))),
    }
}
