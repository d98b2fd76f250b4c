//! Go's quoted strings: quote and unquote.

use std::fmt::Write as _;

/// Resolves the escapes of a quoted string; `None` if one is invalid.
pub(super) fn unescape(inner: &str, quote: char) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        if first == '\\' {
            rest = escape(rest, quote, &mut bytes)?;
        } else if first == quote {
            return None;
        } else {
            bytes.extend_from_slice(first.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Some(bytes)
}

fn escape<'a>(rest: &'a str, quote: char, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let kind = rest.chars().next()?;
    let after = &rest[kind.len_utf8()..];
    let byte = match kind {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' => b'\\',
        '\'' | '"' if kind == quote => u8::try_from(kind).ok()?,
        'x' => return digits(after, 2, 16, |code| bytes.push(u8::try_from(code).unwrap_or_default())),
        '0'..='7' => {
            let code = u32::from_str_radix(rest.get(..3)?, 8).ok()?;
            bytes.push(u8::try_from(code).ok()?);
            return Some(&rest[3..]);
        }
        'u' => return character(after, 4, bytes),
        'U' => return character(after, 8, bytes),
        _ => return None,
    };
    bytes.push(byte);
    Some(after)
}

fn digits(text: &str, length: usize, radix: u32, take: impl FnOnce(u32)) -> Option<&str> {
    let written = text.get(..length)?;
    if !written.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    take(u32::from_str_radix(written, radix).ok()?);
    Some(&text[length..])
}

fn character<'a>(text: &'a str, length: usize, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let mut code = 0;
    let rest = digits(text, length, 16, |found| code = found)?;
    bytes.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
    Some(rest)
}

/// A string in double quotes, as `%q` writes it.
pub(super) fn quoted(bytes: &[u8], ascii: bool) -> String {
    let mut text = String::with_capacity(bytes.len() + 2);
    text.push('"');
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            push(&mut text, character, '"', ascii);
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text.push('"');
    text
}

/// A character in single quotes.
pub(super) fn quoted_character(character: char, ascii: bool) -> String {
    let mut text = String::from("'");
    push(&mut text, character, '\'', ascii);
    text.push('\'');
    text
}

fn push(text: &mut String, character: char, quote: char, ascii: bool) {
    let code = u32::from(character);
    match character {
        '\\' => text.push_str("\\\\"),
        _ if character == quote => {
            text.push('\\');
            text.push(quote);
        }
        '\x07' => text.push_str("\\a"),
        '\x08' => text.push_str("\\b"),
        '\x0c' => text.push_str("\\f"),
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        '\x0b' => text.push_str("\\v"),
        ' '..='~' => text.push(character),
        _ if !ascii && is_printable(character) => text.push(character),
        _ if code < 0x20 || code == 0x7f => {
            let _ = write!(text, "\\x{code:02x}");
        }
        _ if code < 0x1_0000 => {
            let _ = write!(text, "\\u{code:04x}");
        }
        _ => {
            let _ = write!(text, "\\U{code:08x}");
        }
    }
}

/// Go's printable characters: letters, marks, numbers, punctuation, symbols, and the ASCII space.
pub(super) fn is_printable(character: char) -> bool {
    // Rust's escaping keeps printable characters, but escapes combining marks, which Go prints.
    if character.is_control() || character.is_whitespace() {
        return character == ' ';
    }
    !character.escape_debug().to_string().starts_with("\\u") || is_mark(character)
}

/// A combining mark: escaped alone, yet printed after a letter.
fn is_mark(character: char) -> bool {
    format!("a{character}").escape_debug().to_string().ends_with(character)
}
