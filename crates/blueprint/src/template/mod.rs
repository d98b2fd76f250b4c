//! Go's text/template with sprig's functions, as far as blueprints can tell the difference.
//!
//! ```text
//!  source ──lex──▶ tokens ──parse──▶ tree ──eval──▶ text
//!                                      ▲
//!  JSON ──convert (by shape)──▶ values ┘──functions: builtin, sprig
//! ```
//!
//! Values have Go's types, because Go's functions tell an `int` from an `int64` and a struct from a map. A missing key
//! is an error. What a template may do is limited (`limits`), and it sees nothing but its parameters.

mod ast;
mod builtin;
mod compare;
mod convert;
mod error;
mod eval;
mod fault;
mod float;
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
mod shape;
mod show;
mod sprig;
mod time;
mod value;
mod version;

pub use error::Error;
use fault::Fault;
use parse::{Flaw, Parsed};
use serde_json::{Map, Value};

/// A parsed template.
#[derive(Clone, Debug)]
pub struct Template {
    name: String,
    parsed: Parsed,
    missing_is_nil: bool,
}

impl Template {
    /// Parses a template. `name` is what messages call it.
    pub fn parse(name: &str, source: &str) -> Result<Self, Error> {
        let parsed = parse::parse(source).map_err(|flaw| flawed(name, flaw))?;
        Ok(Self { name: name.to_owned(), parsed, missing_is_nil: false })
    }

    /// The same template, but a key that is not there is nothing rather than a failure.
    #[must_use]
    pub fn with_missing_keys(mut self) -> Self {
        self.missing_is_nil = true;
        self
    }

    /// Fills the template in. An object's fields are Kanister's parameters, spelled as Kanister's `toJson` prints them
    /// (a Secret as Kubernetes has it, its data in base64); everything else is taken as it is.
    pub fn render(&self, params: &Value) -> Result<String, Error> {
        let mut scope = scope::Scope::new();
        let root = convert::root(&mut scope, params).map_err(|fault| self.failed(1, fault))?;
        let render = eval::Render::new(&self.parsed, scope, self.missing_is_nil);
        let output = render.run(&root).map_err(|(line, fault)| self.failed(line, fault))?;
        String::from_utf8(output).map_err(|_| self.failed(1, Fault::new("the output is not text in UTF-8")))
    }

    /// The paths of the fields that it speaks of, for those who look at templates without filling them in.
    pub fn references(&self) -> Vec<Vec<String>> {
        let bodies = std::iter::once(&self.parsed.body).chain(self.parsed.defined.values());
        bodies.flat_map(|nodes| references::of(nodes)).collect()
    }

    fn failed(&self, line: usize, fault: Fault) -> Error {
        let name = self.name.clone();
        match fault {
            Fault::Message(message) => Error::Render { name, line, message },
            Fault::NotFound(key) => Error::NotFound { name, line, key },
            Fault::TooMuch(limit) => Error::TooMuch { name, line, limit: limit.to_owned() },
        }
    }
}

fn flawed(name: &str, flaw: Flaw) -> Error {
    let name = name.to_owned();
    match flaw {
        Flaw::Wrong(wrong) => Error::Parse { name, line: wrong.line, message: wrong.message },
        Flaw::Refused { line, function, cause } => Error::Refused { name, line, function, cause },
        Flaw::TooMuch { line, limit } => Error::TooMuch { name, line, limit: limit.to_owned() },
    }
}

/// Fills in every string of a tree, the keys of objects included; everything else stays as it is.
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

/// Whether a text is a semantic version; what is left out is 0.
pub(crate) fn is_version(text: &str) -> bool {
    version::Version::parse(text).is_ok()
}
