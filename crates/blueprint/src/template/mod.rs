//! Go's text/template with sprig's functions, as blueprints use them.
//!
//! ```text
//!  source ──lex──▶ tokens ──parse──▶ tree ──eval──▶ text
//!                                      ▲
//!  JSON ──convert (by type) ──▶ values ┘──functions: builtin, sprig
//! ```
//!
//! Values have Go's types, because Go's functions distinguish `int` and `int64`, structs and maps. A missing key is an error.
//! Rendering is limited (`limits`), and a template has access to its parameters only.

mod ast;
mod builtin;
mod compare;
mod convert;
mod error;
mod eval;
mod eval_error;
mod float;
mod format;
mod functions;
mod json;
mod layout;
mod lex;
mod limits;
mod number;
mod parse;
mod printf;
mod quote;
mod references;
mod scope;
mod sprig;
mod struct_type;
mod time;
mod value;
mod version;

pub use error::Error;
use eval_error::EvalError;
use parse::{ParseError, Parsed};
use serde_json::{Map, Value};

/// A parsed template.
#[derive(Clone, Debug)]
pub struct Template {
    name: String,
    parsed: Parsed,
    missing_is_nil: bool,
}

impl Template {
    /// Parses a template. `name` is its name in errors.
    pub fn parse(name: &str, source: &str) -> Result<Self, Error> {
        let parsed = parse::parse(source).map_err(|flaw| flawed(name, flaw))?;
        Ok(Self { name: name.to_owned(), parsed, missing_is_nil: false })
    }

    /// Makes a missing key nil rather than an error.
    #[must_use]
    pub fn with_missing_keys(mut self) -> Self {
        self.missing_is_nil = true;
        self
    }

    /// Renders the template. The fields of an object are Kanister's parameters, with the names of Kanister's `toJson` (the data of
    /// a Secret in base64); other values are used unchanged.
    pub fn render(&self, params: &Value) -> Result<String, Error> {
        let mut scope = scope::Scope::new();
        let root = convert::root(&mut scope, params).map_err(|fault| self.failed(1, fault))?;
        let render = eval::Render::new(&self.parsed, scope, self.missing_is_nil);
        let output = render.run(&root).map_err(|(line, fault)| self.failed(line, fault))?;
        String::from_utf8(output).map_err(|_| self.failed(1, EvalError::new("the output is not text in UTF-8")))
    }

    /// The paths of the fields that it refers to.
    pub fn references(&self) -> Vec<Vec<String>> {
        let bodies = std::iter::once(&self.parsed.body).chain(self.parsed.defined.values());
        bodies.flat_map(|nodes| references::of(nodes)).collect()
    }

    fn failed(&self, line: usize, fault: EvalError) -> Error {
        let name = self.name.clone();
        match fault {
            EvalError::Message(message) => Error::Render { name, line, message },
            EvalError::NotFound(key) => Error::NotFound { name, line, key },
            EvalError::TooMuch(limit) => Error::TooMuch { name, line, limit: limit.to_owned() },
        }
    }
}

fn flawed(name: &str, flaw: ParseError) -> Error {
    let name = name.to_owned();
    match flaw {
        ParseError::LexError(wrong) => Error::Parse { name, line: wrong.line, message: wrong.message },
        ParseError::Refused { line, function, cause } => Error::Refused { name, line, function, cause },
        ParseError::TooMuch { line, limit } => Error::TooMuch { name, line, limit: limit.to_owned() },
    }
}

/// Renders all strings of a value, including the keys of objects; other values are unchanged.
pub fn render_value(arguments: &Value, params: &Value) -> Result<Value, Error> {
    render_at("", arguments, params)
}

fn render_at(path: &str, argument: &Value, params: &Value) -> Result<Value, Error> {
    match argument {
        Value::String(source) => Ok(Value::String(Template::parse(path, source)?.render(params)?)),
        Value::Array(items) => {
            let rendered = items.iter().enumerate().map(|(at, item)| render_at(&format!("{path}[{at}]"), item, params));
            Ok(Value::Array(rendered.collect::<Result<_, _>>()?))
        }
        Value::Object(fields) => Ok(Value::Object(render_fields(path, fields, params)?)),
        other => Ok(other.clone()),
    }
}

fn render_fields(path: &str, fields: &Map<String, Value>, params: &Value) -> Result<Map<String, Value>, Error> {
    let mut rendered = Map::new();
    for (key, value) in fields {
        let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let key = Template::parse(&below, key)?.render(params)?;
        rendered.insert(key, render_at(&below, value, params)?);
    }
    Ok(rendered)
}

/// Whether a string is a semantic version; omitted parts are 0.
pub(crate) fn is_version(text: &str) -> bool {
    version::Version::parse(text).is_ok()
}
