//! Values in Go's own notation: durations.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const NANOSECOND: u64 = 1;
const MICROSECOND: u64 = 1_000 * NANOSECOND;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// A duration as Go writes it (`4h0m0s`) and reads it (`time.ParseDuration`).
///
/// Invalid text is kept rather than rejected: one object with a typing error must not make a whole list unreadable.
/// [`crate::validate`] reports it; [`GoDuration::as_std`] returns `None` for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GoDuration(Repr);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Repr {
    Nanoseconds(i64),
    Invalid(String),
}

/// The error of parsing a [`GoDuration`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not of the form `[+-]<number><unit>...`.
    #[error("invalid duration {0:?}")]
    Syntax(String),
    /// A number without a unit, or with an unknown one.
    #[error("invalid duration {text:?}: missing or unknown unit after {number:?}")]
    Unit {
        /// The whole text.
        text: String,
        /// The number without a valid unit.
        number: String,
    },
    /// Outside the range of Go's `int64` nanoseconds (292 years).
    #[error("invalid duration {0:?}: exceeds 292 years")]
    Range(String),
}

impl GoDuration {
    /// A duration of whole seconds, capped at the largest value Go can represent.
    pub fn from_secs(seconds: u64) -> Self {
        Self::from(std::time::Duration::from_secs(seconds))
    }

    /// A duration in nanoseconds; may be negative.
    pub const fn from_nanos(nanoseconds: i64) -> Self {
        Self(Repr::Nanoseconds(nanoseconds))
    }

    /// The signed number of nanoseconds; `None` when the text is not a duration.
    pub fn nanos(&self) -> Option<i64> {
        match self.0 {
            Repr::Nanoseconds(nanoseconds) => Some(nanoseconds),
            Repr::Invalid(_) => None,
        }
    }

    /// The duration if it is valid and not negative.
    pub fn as_std(&self) -> Option<std::time::Duration> {
        let nanoseconds = u64::try_from(self.nanos()?).ok()?;
        Some(std::time::Duration::from_nanos(nanoseconds))
    }
}

impl Default for GoDuration {
    fn default() -> Self {
        Self::from_nanos(0)
    }
}

impl From<std::time::Duration> for GoDuration {
    fn from(duration: std::time::Duration) -> Self {
        Self::from_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        parse(text).map(Self::from_nanos)
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Nanoseconds(nanoseconds) => write_nanoseconds(f, *nanoseconds),
            Repr::Invalid(text) => f.write_str(text),
        }
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(text.parse().unwrap_or(Self(Repr::Invalid(text))))
    }
}

impl JsonSchema for GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }

    // No `format`: upstream has none, and the API server's `duration` format is a different grammar.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

fn parse(text: &str) -> Result<i64, DurationError> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let negative = text.starts_with('-');
    if unsigned == "0" {
        return Ok(0);
    }
    if unsigned.is_empty() {
        return Err(DurationError::Syntax(text.to_owned()));
    }
    let range = || DurationError::Range(text.to_owned());
    let mut rest = unsigned;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (nanoseconds, after) = parse_component(text, rest)?;
        total = total.checked_add(nanoseconds).ok_or_else(range)?;
        rest = after;
    }
    signed(total, negative).ok_or_else(range)
}

/// Go's range is that of `int64`, whose minimum is one further from zero than its maximum.
fn signed(total: u64, negative: bool) -> Option<i64> {
    if negative { 0_i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() }
}

/// One `<number><unit>` at the start of `rest`: its nanoseconds and what follows it.
fn parse_component<'a>(text: &str, rest: &'a str) -> Result<(u64, &'a str), DurationError> {
    let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, after_number) = rest.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(DurationError::Syntax(text.to_owned()));
    }
    let unit_end = after_number.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after_number.len());
    let (unit, after) = after_number.split_at(unit_end);
    let scale = unit_nanoseconds(unit)
        .ok_or_else(|| DurationError::Unit { text: text.to_owned(), number: number.to_owned() })?;
    let nanoseconds = scaled(whole, fraction, scale).ok_or_else(|| DurationError::Range(text.to_owned()))?;
    Ok((nanoseconds, after))
}

fn unit_nanoseconds(unit: &str) -> Option<u64> {
    match unit {
        "ns" => Some(NANOSECOND),
        // Go accepts the micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(MICROSECOND),
        "ms" => Some(MILLISECOND),
        "s" => Some(SECOND),
        "m" => Some(MINUTE),
        "h" => Some(HOUR),
        _ => None,
    }
}

fn scaled(whole: &str, fraction: &str, scale: u64) -> Option<u64> {
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    whole.checked_mul(scale)?.checked_add(fraction_nanoseconds(fraction, scale))
}

/// Go computes fractions in floating point: a third of an hour is exactly 20 minutes, not one nanosecond less.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the same conversions as Go's, for the same result"
)]
fn fraction_nanoseconds(fraction: &str, unit: u64) -> u64 {
    let (mut digits, mut scale) = (0_u64, 1_f64);
    for digit in fraction.bytes() {
        // Further digits are below one nanosecond.
        let Some(next) = digits.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit - b'0'))) else {
            break;
        };
        if next > 1 << 63 {
            break;
        }
        digits = next;
        scale *= 10.0;
    }
    (digits as f64 * (unit as f64 / scale)) as u64
}

fn write_nanoseconds(f: &mut fmt::Formatter<'_>, nanoseconds: i64) -> fmt::Result {
    let magnitude = nanoseconds.unsigned_abs();
    if nanoseconds < 0 {
        f.write_str("-")?;
    }
    match magnitude {
        0 => f.write_str("0s"),
        1..MICROSECOND => write!(f, "{magnitude}ns"),
        MICROSECOND..MILLISECOND => write_decimal(f, magnitude, MICROSECOND, "\u{b5}s"),
        MILLISECOND..SECOND => write_decimal(f, magnitude, MILLISECOND, "ms"),
        _ => write_clock(f, magnitude),
    }
}

/// `1h0m0.5s`: every unit below the largest is written, even when it is zero.
fn write_clock(f: &mut fmt::Formatter<'_>, magnitude: u64) -> fmt::Result {
    if magnitude >= HOUR {
        write!(f, "{}h", magnitude / HOUR)?;
    }
    if magnitude >= MINUTE {
        write!(f, "{}m", magnitude % HOUR / MINUTE)?;
    }
    write_decimal(f, magnitude % MINUTE, SECOND, "s")
}

fn write_decimal(f: &mut fmt::Formatter<'_>, value: u64, unit: u64, name: &str) -> fmt::Result {
    write!(f, "{}", value / unit)?;
    let width = unit.ilog10() as usize;
    let fraction = format!("{:0width$}", value % unit);
    let digits = fraction.trim_end_matches('0');
    if !digits.is_empty() {
        write!(f, ".{digits}")?;
    }
    f.write_str(name)
}
