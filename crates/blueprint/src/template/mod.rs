//! Go's text/template, as far as blueprints can tell the difference.

mod error;

pub use error::Error;
use serde_json::{Map, Value};

/// A parsed template.
#[derive(Clone, Debug)]
pub struct Template {
    name: String,
    source: String,
}

impl Template {
    /// Parses a template. `name` is what messages call it.
    pub fn parse(name: &str, source: &str) -> Result<Self, Error> {
        Ok(Self { name: name.to_owned(), source: source.to_owned() })
    }

    /// Fills the template in.
    pub fn render(&self, _params: &Value) -> Result<String, Error> {
        if self.source.contains("{{") {
            let message = "templates are not supported yet".to_owned();
            return Err(Error::Render { name: self.name.clone(), line: 1, message });
        }
        Ok(self.source.clone())
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
