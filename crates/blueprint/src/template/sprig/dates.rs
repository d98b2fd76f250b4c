//! Dates in Go's layouts.

#![expect(clippy::unnecessary_wraps, reason = "all functions of the table have one shape")]

use super::super::eval_error::EvalError;
use super::super::functions::Function;
use super::super::layout;
use super::super::scope::Scope;
use super::super::time::Time;
use super::super::value::{Value, Width};
use super::text;

const HTML: &str = "2006-01-02";

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "date", takes: "sa", run: |scope, values| date(scope, &text(&values[0]), &values[1], "Local") },
    Function { name: "date_in_zone", takes: "sas", run: in_zone },
    Function { name: "dateInZone", takes: "sas", run: in_zone },
    Function { name: "htmlDate", takes: "a", run: |scope, values| date(scope, HTML, &values[0], "Local") },
    Function {
        name: "htmlDateInZone",
        takes: "as",
        run: |scope, values| date(scope, HTML, &values[0], &text(&values[1])),
    },
    Function { name: "date_modify", takes: "st", run: modify },
    Function { name: "dateModify", takes: "st", run: modify },
    Function { name: "now", takes: "", run: |_, _| Ok(Value::Time(Time::now())) },
    Function { name: "ago", takes: "a", run: ago },
    Function { name: "toDate", takes: "ss", run: to_date },
    Function { name: "unixEpoch", takes: "t", run: |scope, values| scope.text(moment(&values[0]).seconds.to_string()) },
];

/// A time, or Unix seconds; any other value means now.
fn moment(value: &Value) -> Time {
    match value {
        Value::Time(time) => time.clone(),
        Value::Int(seconds, Width::Int | Width::Int64) => Time::utc(*seconds, 0),
        _ => Time::now(),
    }
}

fn date(scope: &mut Scope, layout: &str, value: &Value, zone: &str) -> Result<Value, EvalError> {
    Scope::room(layout.len().saturating_mul(9))?;
    scope.text(layout::format(layout, &moment(value).in_zone(zone)))
}

fn in_zone(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    date(scope, &text(&values[0]), &values[1], &text(&values[2]))
}

fn modify(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let time = moment(&values[1]);
    Ok(Value::Time(match duration(&text(&values[0])) {
        Some(nanos) => time.plus(nanos),
        None => time,
    }))
}

fn to_date(_: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let parsed = layout::parse(&text(&values[0]), &text(&values[1]));
    Ok(Value::Time(parsed.unwrap_or_else(Time::zero)))
}

fn ago(scope: &mut Scope, values: &[Value]) -> Result<Value, EvalError> {
    let (now, then) = (Time::now(), moment(&values[0]));
    let half_up = i64::from(i64::from(now.nanos) - i64::from(then.nanos) >= 500_000_000);
    scope.text(in_words(now.seconds.saturating_sub(then.seconds).saturating_add(half_up)))
}

/// Whole seconds as Go writes a duration.
fn in_words(seconds: i64) -> String {
    let sign = if seconds < 0 { "-" } else { "" };
    let size = seconds.unsigned_abs();
    match (size / 3600, size / 60 % 60, size % 60) {
        (0, 0, seconds) => format!("{sign}{seconds}s"),
        (0, minutes, seconds) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes, seconds) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// Go's durations: `-1.5h`, `300ms`, `2h45m`.
fn duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: f64 = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|next: char| !next.is_ascii_digit() && next != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|next: char| next.is_ascii_digit() || next == '.').unwrap_or(rest.len());
        total += number * nanos_of(&rest[..unit])?;
        rest = &rest[unit..];
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and saturates")]
    let total = total as i64;
    Some(if negative { -total } else { total })
}

fn nanos_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    })
}
