//! Evaluator: renders a template.

use super::ast::{Branch, Kind, Node, Pipeline};
use super::eval_error::EvalError;
use super::format::shown;
use super::limits;
use super::parse::Parsed;
use super::scope::Scope;
use super::value::{Map, Type, Value};

mod call;
mod field;

/// Maximum nesting of blocks, parentheses and calls at run time.
const MAX_DEPTH: usize = 150;

/// An error and its line.
pub(super) type Failure = (usize, EvalError);

/// The effect of a node on the enclosing loop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
}

/// One rendering.
pub(super) struct Render<'a> {
    parsed: &'a Parsed,
    pub(super) scope: Scope,
    output: Vec<u8>,
    variables: Vec<(String, Value)>,
    depth: usize,
    /// The parameters, whose fields exist even if unset.
    params: Option<Map>,
    /// Whether a missing key is nil rather than an error.
    missing_is_nil: bool,
}

impl<'a> Render<'a> {
    pub(super) fn new(parsed: &'a Parsed, scope: Scope, missing_is_nil: bool) -> Self {
        let (output, variables) = (Vec::new(), Vec::new());
        Self { parsed, scope, output, variables, depth: 0, params: None, missing_is_nil }
    }

    /// Renders the main template.
    pub(super) fn run(mut self, root: &Value) -> Result<Vec<u8>, Failure> {
        if let Value::Map(map) = root {
            self.params = Some(map.clone());
        }
        self.variables.push(("$".into(), root.clone()));
        let parsed = self.parsed;
        self.list(root, &parsed.body)?;
        self.variables.clear();
        Ok(std::mem::take(&mut self.output))
    }

    fn deeper<T>(&mut self, line: usize, inner: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        if self.depth >= MAX_DEPTH {
            return Err((line, EvalError::too_much("150 blocks, parentheses and templates in each other")));
        }
        self.depth += 1;
        let done = inner(self);
        self.depth -= 1;
        done
    }

    fn step(&mut self, line: usize) -> Result<(), Failure> {
        self.scope.budget.steps(1).map_err(|exceeded| (line, exceeded.into()))
    }

    fn list(&mut self, dot: &Value, nodes: &'a [Node]) -> Result<Flow, Failure> {
        for node in nodes {
            match self.node(dot, node)? {
                Flow::On => {}
                other => return Ok(other),
            }
        }
        Ok(Flow::On)
    }

    fn node(&mut self, dot: &Value, node: &'a Node) -> Result<Flow, Failure> {
        self.step(node.line)?;
        match &node.kind {
            Kind::Text(text) => self.write(node.line, text.as_bytes())?,
            Kind::Action(pipeline) => self.action(dot, pipeline)?,
            Kind::If(branch) => return self.scoped(node.line, |this| this.branch(dot, branch, false)),
            Kind::With(branch) => return self.scoped(node.line, |this| this.branch(dot, branch, true)),
            Kind::Range(branch) => return self.scoped(node.line, |this| this.range(dot, branch)),
            Kind::Template { name, data } => self.template(dot, node.line, name, data.as_ref())?,
            Kind::Break => return Ok(Flow::Break),
            Kind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::On)
    }

    /// Runs a block in a new variable scope.
    fn scoped<T>(&mut self, line: usize, inner: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        let variables = self.variables.len();
        let done = self.deeper(line, inner);
        self.variables.truncate(variables);
        done
    }

    fn write(&mut self, line: usize, text: &[u8]) -> Result<(), Failure> {
        if self.output.len() + text.len() > limits::MAX_OUTPUT_BYTES {
            return Err((line, EvalError::too_much("8 MiB of output")));
        }
        self.output.extend_from_slice(text);
        self.scope.budget.steps(text.len() / 64).map_err(|exceeded| (line, exceeded.into()))
    }

    fn action(&mut self, dot: &Value, pipeline: &'a Pipeline) -> Result<(), Failure> {
        let value = self.pipeline(dot, pipeline)?;
        if !pipeline.variables.is_empty() {
            return Ok(());
        }
        let text = match value {
            Value::Nil => b"<no value>".to_vec(),
            value => shown(&value).map_err(|fault| (pipeline.line, fault))?,
        };
        self.write(pipeline.line, &text)
    }

    fn branch(&mut self, dot: &Value, branch: &'a Branch, rebinds: bool) -> Result<Flow, Failure> {
        let value = self.pipeline(dot, &branch.pipeline)?;
        if !value.is_true() {
            return self.list(dot, &branch.otherwise);
        }
        self.list(if rebinds { &value } else { dot }, &branch.body)
    }

    fn range(&mut self, dot: &Value, branch: &'a Branch) -> Result<Flow, Failure> {
        let line = branch.pipeline.line;
        let value = self.pipeline(dot, &branch.pipeline)?;
        let two = branch.pipeline.variables.len() > 1;
        let turns = turns(&value, two).map_err(|fault| (line, fault))?;
        let mut turned = false;
        for (key, item) in turns {
            turned = true;
            self.step(line)?;
            let mark = self.variables.len();
            self.bind(&branch.pipeline, key, &item);
            let flow = self.list(&item, &branch.body)?;
            self.variables.truncate(mark);
            if flow == Flow::Break {
                break;
            }
        }
        if turned {
            return Ok(Flow::On);
        }
        self.list(dot, &branch.otherwise)
    }

    /// Sets the variables of a range for one iteration.
    fn bind(&mut self, pipeline: &Pipeline, key: Value, item: &Value) {
        match &pipeline.variables[..] {
            [only] => _ = self.set(only, item.clone()),
            [first, second] => {
                self.set(first, key);
                self.set(second, item.clone());
            }
            _ => {}
        }
    }

    /// Sets a variable; returns whether it exists.
    fn set(&mut self, name: &str, value: Value) -> bool {
        let found = self.variables.iter_mut().rev().find(|(known, _)| known == name);
        found.map(|(_, there)| *there = value).is_some()
    }

    fn template(&mut self, dot: &Value, line: usize, name: &str, data: Option<&'a Pipeline>) -> Result<(), Failure> {
        let parsed = self.parsed;
        let Some(body) = parsed.defined.get(name) else {
            return Err((line, EvalError::new(format!("template {name:?} not defined"))));
        };
        let data = match data {
            Some(pipeline) => self.pipeline(dot, pipeline)?,
            None => Value::Nil,
        };
        let outside = std::mem::replace(&mut self.variables, vec![("$".into(), data.clone())]);
        let done = self.deeper(line, |this| this.list(&data, body));
        self.variables = outside;
        done.map(drop)
    }

    /// Evaluates a pipeline and sets its variables.
    fn pipeline(&mut self, dot: &Value, pipeline: &'a Pipeline) -> Result<Value, Failure> {
        let value = self.deeper(pipeline.line, |this| {
            let mut last = None;
            for command in &pipeline.commands {
                last = Some(this.command(dot, command, last)?);
            }
            Ok(last.unwrap_or(Value::Nil))
        })?;
        for name in &pipeline.variables {
            if !pipeline.assigns {
                self.variables.push((name.clone(), value.clone()));
            } else if !self.set(name, value.clone()) {
                return Err((pipeline.line, EvalError::new(format!("undefined variable: {name}"))));
            }
        }
        Ok(value)
    }
}

type RangeIterator = Box<dyn Iterator<Item = (Value, Value)>>;

/// The keys and items of a range.
fn turns(value: &Value, two: bool) -> Result<RangeIterator, EvalError> {
    match value {
        Value::Nil => Ok(Box::new(std::iter::empty())),
        Value::Int(_, _) if two => Err(EvalError::new("can't use a number to iterate over more than one variable")),
        Value::Int(number, width) => {
            let width = *width;
            Ok(Box::new((0..*number).map(move |at| (Value::Nil, Value::Int(at, width)))))
        }
        Value::List(_) | Value::Bytes(_) => {
            let items = value.elements().unwrap_or_default();
            Ok(Box::new((0..).map(Value::int).zip(items)))
        }
        Value::Map(map) => {
            let entries: Vec<_> = map.entries().iter().map(|(key, item)| (Value::text(key), item.clone())).collect();
            Ok(Box::new(entries.into_iter()))
        }
        other => Err(EvalError::new(format!("range can't iterate over a value of type {}", other.type_name()))),
    }
}

/// Kanister's fields exist even if the parameters omit them.
fn absent(name: &str) -> Option<Value> {
    let field = super::struct_type::PARAMS.fields.iter().find(|field| field.name == name)?;
    match field.holds.as_type() {
        Type::Any => Some(Value::Nil),
        other => Some(other.zero()),
    }
}
