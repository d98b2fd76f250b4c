//! Numbers as Go writes them in source.

use super::ast::Number;

/// Reads a number; `None` if it is none.
pub(super) fn parse(text: &str) -> Option<Number> {
    if text.starts_with('\'') {
        let code = i64::from(character(text)?);
        return Some(number(text, Some(code), false));
    }
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (&text[..1], rest),
        None => ("", text),
    };
    if !underscores_are_well_placed(digits) {
        return None;
    }
    let plain = digits.replace('_', "").to_ascii_lowercase();
    if let Some(int) = integer(sign, &plain) {
        return Some(number(text, Some(int), false));
    }
    if !plain.contains(['.', 'e', 'p']) || (plain.starts_with("0x") && !plain.contains(['.', 'p'])) {
        // Too large for an int; whether that matters shows when it is used.
        let fits = plain.parse::<u64>().is_ok() && !(plain.len() > 1 && plain.starts_with('0'));
        return fits.then(|| number(text, None, false));
    }
    let float = if plain.starts_with("0x") { hex_float(&plain)? } else { decimal_float(&plain)? };
    let float = if sign == "-" { -float } else { float };
    let int = whole(float);
    Some(Number { text: text.into(), int, float: Some(float), fractional: true })
}

fn number(text: &str, int: Option<i64>, fractional: bool) -> Number {
    #[expect(clippy::cast_precision_loss, reason = "Go's numbers lose the same digits")]
    let float = int.map(|int| int as f64);
    Number { text: text.into(), int, float, fractional }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::float_cmp, reason = "it is the test")]
fn whole(float: f64) -> Option<i64> {
    let int = float as i64;
    (int as f64 == float).then_some(int)
}

fn integer(sign: &str, digits: &str) -> Option<i64> {
    let (radix, digits) = match digits.get(..2) {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

fn decimal_float(digits: &str) -> Option<f64> {
    let shaped = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits.contains(|each: char| each.is_ascii_digit());
    let float: f64 = shaped.then(|| digits.parse().ok())??;
    float.is_finite().then_some(float)
}

/// `0x1.8p3`: digits of 16, an exponent of 2.
fn hex_float(digits: &str) -> Option<f64> {
    let (mantissa, exponent) = digits.strip_prefix("0x")?.split_once('p')?;
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut value = 0.0;
    for digit in whole.chars().chain(part.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let shift = exponent.parse::<i32>().ok()? - 4 * i32::try_from(part.len()).ok()?;
    let value = value * 2f64.powi(shift);
    value.is_finite().then_some(value)
}

/// An underscore stands between two digits, or between the base and a digit.
fn underscores_are_well_placed(digits: &str) -> bool {
    let bytes = digits.as_bytes();
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_').all(|(at, _)| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let after = bytes.get(at + 1);
        let based = at == 2 && digits.starts_with('0');
        before.is_some_and(|byte| byte.is_ascii_hexdigit() || based) && after.is_some_and(u8::is_ascii_hexdigit)
    })
}

/// The code of `'x'`.
fn character(text: &str) -> Option<u32> {
    let inner = text.strip_prefix('\'')?.strip_suffix('\'')?;
    let bytes = super::quote::unescape(inner, '\'')?;
    if let [byte] = bytes[..] {
        return Some(u32::from(byte));
    }
    let mut characters = std::str::from_utf8(&bytes).ok()?.chars();
    let first = characters.next()?;
    characters.next().is_none().then_some(u32::from(first))
}
