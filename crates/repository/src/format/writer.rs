//! JSON byte for byte as Go's encoder writes it: the hash of a tree depends on every byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::id::{Id, push_hex};
use super::time::Time;

/// Writes one object after another into a buffer.
pub(crate) struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> ObjectWriter<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    fn key(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::replace(&mut self.empty, false) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    pub(crate) fn number(&mut self, name: &str, value: u64) {
        let digits = value.to_string();
        self.key(name).extend_from_slice(digits.as_bytes());
    }

    pub(crate) fn number_unless_zero(&mut self, name: &str, value: u64) {
        if value != 0 {
            self.number(name, value);
        }
    }

    pub(crate) fn text(&mut self, name: &str, value: &[u8]) {
        push_string(value, self.key(name));
    }

    pub(crate) fn text_unless_empty(&mut self, name: &str, value: &[u8]) {
        if !value.is_empty() {
            self.text(name, value);
        }
    }

    pub(crate) fn base64(&mut self, name: &str, value: &[u8]) {
        let text = STANDARD.encode(value);
        self.text(name, text.as_bytes());
    }

    pub(crate) fn time(&mut self, name: &str, value: &Time) {
        let out = self.key(name);
        out.push(b'"');
        value.push(out);
        out.push(b'"');
    }

    pub(crate) fn id(&mut self, name: &str, value: &Id) {
        push_id(value, self.key(name));
    }

    /// Bytes that are JSON already.
    pub(crate) fn raw(&mut self, name: &str, json: &[u8]) {
        self.key(name).extend_from_slice(json);
    }

    /// A list; `write` appends one element.
    pub(crate) fn list<T>(&mut self, name: &str, items: &[T], write: impl Fn(&T, &mut Vec<u8>)) {
        let out = self.key(name);
        out.push(b'[');
        push_list(items, out, write);
        out.push(b']');
    }

    pub(crate) fn end(self) {
        self.out.push(b'}');
    }
}

pub(crate) fn push_list<T>(items: &[T], out: &mut Vec<u8>, write: impl Fn(&T, &mut Vec<u8>)) {
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write(item, out);
    }
}

pub(crate) fn push_id(id: &Id, out: &mut Vec<u8>) {
    out.push(b'"');
    push_hex(&id.0, out);
    out.push(b'"');
}

/// A JSON string. Bytes that are not UTF-8 become the escape of the replacement character.
pub(crate) fn push_string(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for piece in value.utf8_chunks() {
        piece.valid().chars().for_each(|character| push_character(character, out));
        piece.invalid().iter().for_each(|_| out.extend_from_slice(b"\\ufffd"));
    }
    out.push(b'"');
}

fn push_character(character: char, out: &mut Vec<u8>) {
    use std::io::Write as _;
    match character {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\t' => out.extend_from_slice(b"\\t"),
        '\x08' => out.extend_from_slice(b"\\b"),
        '\x0c' => out.extend_from_slice(b"\\f"),
        '\0'..='\x1f' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
            let _ = write!(out, "\\u{:04x}", u32::from(character));
        }
        _ => {
            let mut buffer = [0; 4];
            out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
        }
    }
}
