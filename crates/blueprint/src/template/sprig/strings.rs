//! Strings: cutting, joining, quoting.

#![expect(clippy::unnecessary_wraps, reason = "all functions of the table have one shape")]

use super::super::eval_error::EvalError;
use super::super::format::{FormatBuffer, shown};
use super::super::functions::Function;
use super::super::quote;
use super::super::scope::Scope;
use super::super::value::{Type, Value};
use super::{bytes, int, stringed, text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "hello", takes: "", run: |_, _| Ok(Value::text("Hello!")) },
    Function { name: "abbrev", takes: "is", run: abbrev },
    Function { name: "abbrevboth", takes: "iis", run: abbrevboth },
    Function { name: "trunc", takes: "is", run: trunc },
    Function { name: "trim", takes: "s", run: |scope, values| scope.text(text(&values[0]).trim()) },
    Function { name: "upper", takes: "s", run: |scope, values| scope.text(text(&values[0]).to_uppercase()) },
    Function { name: "lower", takes: "s", run: |scope, values| scope.text(text(&values[0]).to_lowercase()) },
    Function { name: "substr", takes: "iis", run: substr },
    Function { name: "repeat", takes: "is", run: repeat },
    Function { name: "trimall", takes: "ss", run: trim_all },
    Function { name: "trimAll", takes: "ss", run: trim_all },
    Function { name: "trimSuffix", takes: "ss", run: trim_suffix },
    Function { name: "trimPrefix", takes: "ss", run: trim_prefix },
    Function {
        name: "contains",
        takes: "ss",
        run: |_, values| answer(find(bytes(&values[1]), bytes(&values[0])).is_some()),
    },
    Function {
        name: "hasPrefix",
        takes: "ss",
        run: |_, values| answer(bytes(&values[1]).starts_with(bytes(&values[0]))),
    },
    Function {
        name: "hasSuffix",
        takes: "ss",
        run: |_, values| answer(bytes(&values[1]).ends_with(bytes(&values[0]))),
    },
    Function { name: "quote", takes: "a*", run: quoted },
    Function { name: "squote", takes: "a*", run: single_quoted },
    Function { name: "cat", takes: "a*", run: cat },
    Function { name: "indent", takes: "is", run: |scope, values| indent(scope, values, "") },
    Function { name: "nindent", takes: "is", run: |scope, values| indent(scope, values, "\n") },
    Function { name: "replace", takes: "sss", run: replace },
    Function { name: "plural", takes: "ssi", run: |_, values| Ok(values[usize::from(int(&values[2]) != 1)].clone()) },
    Function { name: "toString", takes: "a", run: |scope, values| scope.text(stringed(&values[0])?) },
    Function { name: "split", takes: "ss", run: |scope, values| split(scope, &values[0], &values[1], -1) },
    Function {
        name: "splitn",
        takes: "sis",
        run: |scope, values| split(scope, &values[0], &values[2], int(&values[1])),
    },
    Function { name: "splitList", takes: "ss", run: split_list },
    Function { name: "toStrings", takes: "a", run: to_strings },
    Function { name: "join", takes: "sa", run: join },
    Function { name: "sortAlpha", takes: "a", run: sort_alpha },
    Function { name: "fail", takes: "s", run: |_, values| Err(EvalError::new(text(&values[0]))) },
];

fn answer(flag: bool) -> Result<Value, EvalError> {
    Ok(Value::Bool(flag))
}

fn size(number: i64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return Some(0);
    }
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn abbrev(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    if int(&values[0]) < 4 {
        return Ok(values[1].clone());
    }
    scope.text(abbreviated(bytes(&values[1]), 0, size(int(&values[0]))))
}

fn abbrevboth(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let (left, right) = (int(&values[0]), int(&values[1]));
    if right < 4 || left > 0 && right < 7 {
        return Ok(values[2].clone());
    }
    scope.text(abbreviated(bytes(&values[2]), size(left), size(right)))
}

/// At most `width` bytes around the offset `from`, with dots for omitted text.
fn abbreviated(text: &[u8], from: usize, width: usize) -> Vec<u8> {
    if text.len() <= width {
        return text.to_vec();
    }
    let room = width - 3;
    let from = from.min(text.len()).min(text.len() - room);
    if from <= 4 {
        return [&text[..room], b"..."].concat();
    }
    if from + room < text.len() {
        return [b"...", &abbreviated(&text[from..], 0, room)[..]].concat();
    }
    [b"...", &text[text.len() - room..]].concat()
}

fn trunc(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let (length, text) = (int(&values[0]), bytes(&values[1]));
    match usize::try_from(length) {
        Ok(length) if length >= text.len() => Ok(values[1].clone()),
        Ok(length) => scope.text(&text[..length]),
        Err(_) => Err(EvalError::new("slice bounds out of range")),
    }
}

fn substr(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let (start, end, text) = (int(&values[0]), int(&values[1]), bytes(&values[2]));
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let (start, end) = match (start, end) {
        (start, end) if start < 0 => (0, end),
        (start, end) if end < 0 || end > length => (start, length),
        both => both,
    };
    let cut = usize::try_from(start).ok().zip(usize::try_from(end).ok()).and_then(|(start, end)| text.get(start..end));
    match cut {
        Some(cut) => scope.text(cut),
        None => Err(EvalError::new("slice bounds out of range")),
    }
}

fn repeat(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let count = usize::try_from(int(&values[0])).map_err(|_| EvalError::new("negative repeat count"))?;
    let text = bytes(&values[1]);
    Scope::room(count.saturating_mul(text.len()))?;
    scope.text(if text.is_empty() { Vec::new() } else { text.repeat(count) })
}

fn trim_all(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let set = text(&values[0]);
    scope.text(text(&values[1]).trim_matches(|character| set.contains(character)))
}

fn trim_suffix(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let text = bytes(&values[1]);
    scope.text(text.strip_suffix(bytes(&values[0])).unwrap_or(text))
}

fn trim_prefix(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let text = bytes(&values[1]);
    scope.text(text.strip_prefix(bytes(&values[0])).unwrap_or(text))
}

fn spaced(
    scope: &mut Scope,
    values: &[Value],
    shape: impl Fn(&Value) -> Result<Vec<u8>, EvalError>,
) -> Result<Value, EvalError> {
    let mut out = FormatBuffer::default();
    let there = values.iter().filter(|value| !matches!(value, Value::Nil));
    for (at, value) in there.enumerate() {
        if at > 0 {
            out.push(" ")?;
        }
        out.push(shape(value)?)?;
    }
    scope.text(out.bytes)
}

fn quoted(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    spaced(scope, values, |value| Ok(quote::quoted(&stringed(value)?, false).into_bytes()))
}

fn single_quoted(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    spaced(scope, values, |value| Ok([b"'", &shown(value)?[..], b"'"].concat()))
}

fn cat(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    spaced(scope, values, shown)
}

fn indent(scope: &mut Scope, values: &[Value], before: &str) -> Result<Value, EvalError> {
    let spaces = usize::try_from(int(&values[0])).map_err(|_| EvalError::new("negative repeat count"))?;
    let text = bytes(&values[1]);
    let lines = text.split(|byte| *byte == b'\n').count();
    Scope::room(spaces.saturating_mul(lines).saturating_add(text.len()))?;
    let pad = " ".repeat(spaces);
    let lines: Vec<_> = text.split(|byte| *byte == b'\n').map(|line| [pad.as_bytes(), line].concat()).collect();
    scope.text([before.as_bytes(), &lines.join(&b'\n')[..]].concat())
}

fn replace(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let (old, new, mut rest) = (bytes(&values[0]), bytes(&values[1]), bytes(&values[2]));
    let mut out = FormatBuffer::default();
    if old.is_empty() {
        // The empty string matches before every character and at the end.
        out.push(new)?;
        while !rest.is_empty() {
            let (character, after) = rest.split_at(character_length(rest));
            out.push(character)?;
            out.push(new)?;
            rest = after;
        }
        return scope.text(out.bytes);
    }
    while let Some(end) = find(rest, old) {
        out.push(&rest[..end])?;
        out.push(new)?;
        rest = &rest[end + old.len()..];
    }
    out.push(rest)?;
    scope.text(out.bytes)
}

/// Go's `SplitN`: an empty separator splits into characters.
fn pieces<'a>(text: &'a [u8], separator: &[u8], most: i64) -> Vec<&'a [u8]> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut pieces = Vec::new();
    let mut rest = text;
    if most == 0 || (separator.is_empty() && text.is_empty()) {
        return pieces;
    }
    while pieces.len() + 1 < most {
        let (end, skip) = match (separator.is_empty(), find(rest, separator)) {
            (true, _) => (character_length(rest), 0),
            (false, Some(end)) => (end, separator.len()),
            (false, None) => break,
        };
        if separator.is_empty() && end >= rest.len() {
            break;
        }
        pieces.push(&rest[..end]);
        rest = &rest[end + skip..];
    }
    pieces.push(rest);
    pieces
}

fn character_length(text: &[u8]) -> usize {
    // No character is longer than four bytes.
    let start = &text[..text.len().min(4)];
    let valid = start.utf8_chunks().next().map(|chunk| chunk.valid()).unwrap_or_default();
    valid.chars().next().map_or(1, char::len_utf8)
}

fn split(scope: &mut Scope, separator: &Value, whole: &Value, most: i64) -> Result<Value, EvalError> {
    let map = scope.map(Type::Text);
    for (at, piece) in pieces(bytes(whole), bytes(separator), most).into_iter().enumerate() {
        let piece = scope.text(piece)?;
        map.insert(&format!("_{at}"), piece);
    }
    Ok(Value::Map(map))
}

fn split_list(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let pieces = pieces(bytes(&values[1]), bytes(&values[0]), -1).into_iter().map(<[u8]>::to_vec);
    scope.texts(pieces.collect())
}

/// Converts any value to a list of strings.
pub(super) fn strings(value: &Value) -> Result<Vec<Vec<u8>>, EvalError> {
    match value.elements() {
        Some(items) => items.iter().filter(|item| !matches!(item, Value::Nil)).map(stringed).collect(),
        None if matches!(value, Value::Nil) => Ok(Vec::new()),
        None => Ok(vec![stringed(value)?]),
    }
}

fn to_strings(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    scope.texts(strings(&values[0])?)
}

fn join(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let (separator, strings) = (bytes(&values[0]), strings(&values[1])?);
    let length: usize = strings.iter().map(|each| each.len().saturating_add(separator.len())).sum();
    Scope::room(length)?;
    scope.text(strings.join(separator))
}

fn sort_alpha(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let mut sorted = strings(&values[0])?;
    sorted.sort();
    scope.texts(sorted)
}
