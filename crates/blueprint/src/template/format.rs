//! Values as Go's fmt prints them.

use super::eval_error::EvalError;
use super::float;
use super::limits;
use super::quote;
use super::value::{Struct, Value, Width};

/// The format of one value.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are Go's flags, each by itself")]
pub(super) struct Spec {
    pub(super) minus: bool,
    pub(super) plus: bool,
    pub(super) sharp: bool,
    pub(super) space: bool,
    pub(super) zero: bool,
    pub(super) width: Option<usize>,
    pub(super) precision: Option<usize>,
    /// `%+v`
    pub(super) names: bool,
    /// `%#v`
    pub(super) syntax: bool,
}

/// An output buffer with a limit.
#[derive(Debug, Default)]
pub(super) struct FormatBuffer {
    pub(super) bytes: Vec<u8>,
}

impl FormatBuffer {
    pub(super) fn push(&mut self, text: impl AsRef<[u8]>) -> Result<(), EvalError> {
        let text = text.as_ref();
        if self.bytes.len() + text.len() > limits::MAX_OUTPUT_BYTES {
            return Err(EvalError::too_much("8 MiB in one value"));
        }
        self.bytes.extend_from_slice(text);
        Ok(())
    }

    /// Pads to the width, counted in characters.
    pub(super) fn pad(&mut self, text: &[u8], spec: Spec) -> Result<(), EvalError> {
        let Some(width) = spec.width else { return self.push(text) };
        let missing = width.saturating_sub(characters(text));
        if spec.minus {
            self.push(text)?;
            return self.push(" ".repeat(missing));
        }
        self.push(if spec.zero { "0" } else { " " }.repeat(missing))?;
        self.push(text)
    }
}

fn characters(text: &[u8]) -> usize {
    String::from_utf8_lossy(text).chars().count()
}

/// `%v` of a value.
pub(super) fn shown(value: &Value) -> Result<Vec<u8>, EvalError> {
    // Strings, the most frequent values, are copied directly.
    if let Value::Text(bytes) = value {
        return Ok(bytes.to_vec());
    }
    let mut out = FormatBuffer::default();
    print(&mut out, value, 'v', Spec::default(), 0)?;
    Ok(out.bytes)
}

/// Go's `Sprint`: spaces between operands that are not strings.
pub(super) fn sprint(values: &[Value]) -> Result<Vec<u8>, EvalError> {
    let mut out = FormatBuffer::default();
    for (at, value) in values.iter().enumerate() {
        let is_text = |value: &Value| matches!(value, Value::Text(_));
        if at > 0 && !is_text(value) && !is_text(&values[at - 1]) {
            out.push(" ")?;
        }
        print(&mut out, value, 'v', Spec::default(), 0)?;
    }
    Ok(out.bytes)
}

/// Prints one value with a verb.
pub(super) fn print(
    out: &mut FormatBuffer,
    value: &Value,
    verb: char,
    spec: Spec,
    depth: usize,
) -> Result<(), EvalError> {
    if depth > limits::MAX_VALUE_NESTING {
        return Err(EvalError::too_much("120 values in each other"));
    }
    match (verb, value) {
        ('T', _) => out.pad(value.type_name().as_bytes(), spec),
        ('v', Value::Nil) if depth > 0 && spec.syntax => out.push("interface {}(nil)"),
        (_, Value::Nil) if depth > 0 => out.push("<nil>"),
        ('v', Value::Nil | Value::NilPointer(_)) => out.pad(b"<nil>", spec),
        (_, Value::Bool(flag)) if matches!(verb, 't' | 'v') => out.pad(flag.to_string().as_bytes(), spec),
        (_, Value::Int(number, width)) => integer(out, *number, *width, verb, spec, value),
        (_, Value::Float(number)) => floating(out, *number, verb, spec, value),
        (_, Value::Text(bytes)) | ('s' | 'x' | 'X' | 'q', Value::Bytes(bytes)) => text(out, bytes, verb, spec, value),
        (_, Value::Bytes(_) | Value::List(_)) => list(out, value, verb, spec, depth),
        (_, Value::Map(map)) => {
            let entries: Vec<_> = map.entries().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            out.push(if spec.syntax { format!("{}{{", value.type_name()) } else { "map[".into() })?;
            for (at, (key, item)) in entries.iter().enumerate() {
                separate(out, at, spec)?;
                print(out, &Value::text(key), verb, spec, depth + 1)?;
                out.push(":")?;
                print(out, item, verb, spec, depth + 1)?;
            }
            out.push(if spec.syntax { "}" } else { "]" })
        }
        (_, Value::Struct(found)) => structure(out, found, verb, spec, depth),
        (_, Value::Time(time)) => text(out, time.shown().as_bytes(), verb, spec, value),
        (_, Value::Version(version)) => text(out, version.shown().as_bytes(), verb, spec, value),
        _ => bad(out, verb, value),
    }
}

fn separate(out: &mut FormatBuffer, at: usize, spec: Spec) -> Result<(), EvalError> {
    match at {
        0 => Ok(()),
        _ => out.push(if spec.syntax { ", " } else { " " }),
    }
}

fn list(out: &mut FormatBuffer, value: &Value, verb: char, spec: Spec, depth: usize) -> Result<(), EvalError> {
    out.push(if spec.syntax { format!("{}{{", value.type_name()) } else { "[".into() })?;
    for (at, item) in value.elements().unwrap_or_default().iter().enumerate() {
        separate(out, at, spec)?;
        print(out, item, verb, spec, depth + 1)?;
    }
    out.push(if spec.syntax { "}" } else { "]" })
}

fn structure(out: &mut FormatBuffer, found: &Struct, verb: char, spec: Spec, depth: usize) -> Result<(), EvalError> {
    if found.pointer && depth > 0 {
        // Go prints an address, which differs between runs.
        return out.push("0xc000000000");
    }
    if found.pointer {
        out.push("&")?;
    }
    if spec.syntax {
        out.push(found.shape.name)?;
    }
    out.push("{")?;
    for (at, (field, value)) in found.shape.fields.iter().zip(found.fields.iter()).enumerate() {
        separate(out, at, spec)?;
        if spec.names || spec.syntax {
            out.push(field.name)?;
            out.push(":")?;
        }
        print(out, value, verb, spec, depth + 1)?;
    }
    out.push("}")
}

/// A verb that is invalid for the value.
fn bad(out: &mut FormatBuffer, verb: char, value: &Value) -> Result<(), EvalError> {
    out.push(format!("%!{verb}("))?;
    if let Some(found) = value.type_of() {
        out.push(found.name())?;
        out.push("=")?;
    }
    print(out, value, 'v', Spec::default(), 0)?;
    out.push(")")
}

fn text(out: &mut FormatBuffer, bytes: &[u8], verb: char, spec: Spec, value: &Value) -> Result<(), EvalError> {
    match verb {
        'v' if spec.syntax => quoted(out, bytes, Spec { syntax: false, sharp: false, ..spec }),
        'v' | 's' => out.pad(truncated(bytes, spec), spec),
        'q' => quoted(out, bytes, spec),
        'x' | 'X' => hex(out, bytes, verb, spec),
        _ => bad(out, verb, value),
    }
}

fn quoted(out: &mut FormatBuffer, bytes: &[u8], spec: Spec) -> Result<(), EvalError> {
    let bytes = truncated(bytes, spec);
    let raw = spec.sharp && std::str::from_utf8(bytes).is_ok_and(can_be_raw);
    if raw {
        return out.pad(&[b"`", bytes, b"`"].concat(), spec);
    }
    out.pad(quote::quoted(bytes, spec.plus).as_bytes(), spec)
}

fn can_be_raw(text: &str) -> bool {
    !text.contains(|character: char| character == '`' || (character.is_control() && character != '\t'))
}

/// As many characters as the precision allows.
fn truncated(bytes: &[u8], spec: Spec) -> &[u8] {
    let Some(precision) = spec.precision else { return bytes };
    let mut length = 0;
    let mut left = precision;
    for chunk in bytes.utf8_chunks() {
        let sizes = chunk.valid().chars().map(char::len_utf8).chain(chunk.invalid().iter().map(|_| 1));
        for size in sizes {
            if left == 0 {
                return &bytes[..length];
            }
            left -= 1;
            length += size;
        }
    }
    bytes
}

fn hex(out: &mut FormatBuffer, bytes: &[u8], verb: char, spec: Spec) -> Result<(), EvalError> {
    let bytes = &bytes[..spec.precision.map_or(bytes.len(), |most| most.min(bytes.len()))];
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let prefix = if spec.sharp { "0x" } else { "" };
    let joined = match (digits.is_empty(), spec.space) {
        (true, _) => String::new(),
        (false, true) => format!("{prefix}{}", digits.join(&format!(" {prefix}"))),
        (false, false) => format!("{prefix}{}", digits.concat()),
    };
    let joined = if verb == 'X' { joined.to_uppercase() } else { joined };
    out.pad(joined.as_bytes(), spec)
}

fn sign(is_negative: bool, spec: Spec) -> &'static str {
    match spec {
        _ if is_negative => "-",
        Spec { plus: true, .. } => "+",
        Spec { space: true, .. } => " ",
        _ => "",
    }
}

fn floating(out: &mut FormatBuffer, number: f64, verb: char, spec: Spec, value: &Value) -> Result<(), EvalError> {
    let precision = match verb {
        'v' | 'g' | 'G' => spec.precision,
        'e' | 'E' | 'f' | 'F' => Some(spec.precision.unwrap_or(6)),
        _ => return bad(out, verb, value),
    };
    let format = if verb == 'v' { 'g' } else { verb };
    let digits = float::formatted(number.abs(), format, precision);
    let sign = sign(number.is_sign_negative() && !number.is_nan(), spec);
    let digits = digits.trim_start_matches('+');
    if number.is_infinite() {
        let sign = if sign.is_empty() { "+" } else { sign };
        return out.pad(format!("{sign}Inf").as_bytes(), Spec { zero: false, ..spec });
    }
    match spec.width {
        Some(width) if spec.zero && !spec.minus && number.is_finite() => {
            let zeros = width.saturating_sub(sign.len() + digits.len());
            out.push(sign)?;
            out.push("0".repeat(zeros))?;
            out.push(digits)
        }
        _ => out.pad(format!("{sign}{digits}").as_bytes(), Spec { zero: false, ..spec }),
    }
}

fn integer(
    out: &mut FormatBuffer,
    number: i64,
    width: Width,
    verb: char,
    spec: Spec,
    value: &Value,
) -> Result<(), EvalError> {
    let magnitude = number.unsigned_abs();
    let digits = match verb {
        'v' if spec.syntax && width == Width::Uint8 => format!("0x{magnitude:x}"),
        'v' | 'd' => magnitude.to_string(),
        'b' => format!("{magnitude:b}"),
        'o' | 'O' => format!("{magnitude:o}"),
        'x' => format!("{magnitude:x}"),
        'X' => format!("{magnitude:X}"),
        'c' => return out.pad(character(number).to_string().as_bytes(), spec),
        'q' => return out.pad(quote::quoted_character(character(number), spec.plus).as_bytes(), spec),
        'U' => return unicode(out, number, spec),
        _ => return bad(out, verb, value),
    };
    if spec.precision == Some(0) && number == 0 {
        return out.push(" ".repeat(spec.width.unwrap_or_default()));
    }
    let sign = sign(number < 0, spec);
    let least = match (spec.precision, spec.width) {
        (Some(precision), _) => precision,
        (None, Some(width)) if spec.zero && !spec.minus => width.saturating_sub(sign.len()),
        _ => 0,
    };
    let digits = format!("{}{digits}", "0".repeat(least.saturating_sub(digits.len())));
    let prefix = match verb {
        'O' => "0o",
        'b' if spec.sharp => "0b",
        'o' if spec.sharp && !digits.starts_with('0') => "0",
        'x' if spec.sharp => "0x",
        'X' if spec.sharp => "0X",
        _ => "",
    };
    out.pad(format!("{sign}{prefix}{digits}").as_bytes(), Spec { zero: false, ..spec })
}

fn character(number: i64) -> char {
    u32::try_from(number).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn unicode(out: &mut FormatBuffer, number: i64, spec: Spec) -> Result<(), EvalError> {
    let code = format!("U+{number:04X}");
    let shown = character(number);
    let text = if spec.sharp && quote::is_printable(shown) { format!("{code} '{shown}'") } else { code };
    out.pad(text.as_bytes(), Spec { zero: false, ..spec })
}
