//! Values as Go's encoding/json writes them.

use base64::Engine;

use super::eval_error::EvalError;
use super::format::FormatBuffer;
use super::limits;
use super::value::{Struct, Value};

/// JSON on one line, or indented.
pub(super) fn written(value: &Value, indent: Option<&'static str>) -> Result<Vec<u8>, EvalError> {
    let mut writer = Writer { out: FormatBuffer::default(), indent };
    writer.value(value, 0)?;
    Ok(writer.out.bytes)
}

struct Writer {
    out: FormatBuffer,
    indent: Option<&'static str>,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), EvalError> {
        if depth > limits::MAX_VALUE_NESTING {
            return Err(EvalError::too_much("120 values in each other"));
        }
        match value {
            Value::Nil | Value::NilPointer(_) => self.out.push("null"),
            Value::Bool(flag) => self.out.push(flag.to_string()),
            Value::Int(number, _) => self.out.push(number.to_string()),
            Value::Float(number) => self.out.push(float(*number)?),
            Value::Text(bytes) => self.text(bytes),
            Value::Bytes(bytes) => {
                let text = base64::engine::general_purpose::STANDARD.encode(bytes);
                self.out.push(format!("\"{text}\""))
            }
            Value::List(list) => self
                .enclosed(b"[", b"]", list.items.len(), depth, |writer, at| writer.value(&list.items[at], depth + 1)),
            Value::Map(map) => {
                let entries: Vec<_> = map.entries().iter().map(|(key, item)| (key.clone(), item.clone())).collect();
                self.enclosed(b"{", b"}", entries.len(), depth, |writer, at| {
                    writer.key(&entries[at].0)?;
                    writer.value(&entries[at].1, depth + 1)
                })
            }
            Value::Struct(found) => self.structure(found, depth),
            Value::Time(time) => self.text(time.rfc3339().as_bytes()),
            Value::Version(version) => self.text(version.shown().as_bytes()),
        }
    }

    fn structure(&mut self, found: &Struct, depth: usize) -> Result<(), EvalError> {
        let fields = found.shape.fields.iter().zip(found.fields.iter());
        let fields: Vec<_> = fields.filter(|(field, value)| !field.omit_empty || is_there(value)).collect();
        self.enclosed(b"{", b"}", fields.len(), depth, |writer, at| {
            writer.key(fields[at].0.json)?;
            writer.value(fields[at].1, depth + 1)
        })
    }

    fn enclosed(
        &mut self,
        open: &[u8],
        close: &[u8],
        length: usize,
        depth: usize,
        mut item: impl FnMut(&mut Self, usize) -> Result<(), EvalError>,
    ) -> Result<(), EvalError> {
        self.out.push(open)?;
        for at in 0..length {
            if at > 0 {
                self.out.push(",")?;
            }
            self.line(depth + 1)?;
            item(self, at)?;
        }
        if length > 0 {
            self.line(depth)?;
        }
        self.out.push(close)
    }

    fn line(&mut self, depth: usize) -> Result<(), EvalError> {
        match self.indent {
            Some(indent) => self.out.push(format!("\n{}", indent.repeat(depth))),
            None => Ok(()),
        }
    }

    fn key(&mut self, key: &str) -> Result<(), EvalError> {
        self.text(key.as_bytes())?;
        self.out.push(if self.indent.is_some() { ": " } else { ":" })
    }

    /// A quoted string with HTML characters escaped.
    fn text(&mut self, bytes: &[u8]) -> Result<(), EvalError> {
        self.out.push("\"")?;
        for chunk in bytes.utf8_chunks() {
            for character in chunk.valid().chars() {
                self.character(character)?;
            }
            for _ in chunk.invalid() {
                self.out.push("\\ufffd")?;
            }
        }
        self.out.push("\"")
    }

    fn character(&mut self, character: char) -> Result<(), EvalError> {
        match character {
            '"' => self.out.push("\\\""),
            '\\' => self.out.push("\\\\"),
            '\n' => self.out.push("\\n"),
            '\r' => self.out.push("\\r"),
            '\t' => self.out.push("\\t"),
            '\x08' => self.out.push("\\b"),
            '\x0c' => self.out.push("\\f"),
            '<' | '>' | '&' | '\0'..='\x1f' | '\u{2028}' | '\u{2029}' => {
                self.out.push(format!("\\u{:04x}", u32::from(character)))
            }
            _ => self.out.push(character.encode_utf8(&mut [0; 4])),
        }
    }
}

fn float(number: f64) -> Result<String, EvalError> {
    if !number.is_finite() {
        return Err(EvalError::new("JSON has no such number"));
    }
    let size = number.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = super::float::formatted(number, 'e', None);
        // Go writes 1e-9 where its own %e has 1e-09.
        return Ok(text.replace("e-0", "e-"));
    }
    Ok(format!("{number}"))
}

/// Whether `omitempty` keeps the value.
fn is_there(value: &Value) -> bool {
    matches!(value, Value::Struct(_)) || value.is_true()
}
