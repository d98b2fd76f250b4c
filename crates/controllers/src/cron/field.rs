//! One field of a cron expression: a set of numbers.

use super::CronError;

/// The range of a field.
pub struct Bounds {
    name: &'static str,
    least: u8,
    most: u8,
    names: &'static [&'static str],
}

pub const MINUTE: Bounds = Bounds { name: "minute", least: 0, most: 59, names: &[] };
pub const HOUR: Bounds = Bounds { name: "hour", least: 0, most: 23, names: &[] };
pub const DAY: Bounds = Bounds { name: "day of month", least: 1, most: 31, names: &[] };
pub const MONTH: Bounds = Bounds {
    name: "month",
    least: 1,
    most: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
pub const WEEKDAY: Bounds =
    Bounds { name: "day of week", least: 0, most: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// The numbers that a field allows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Field {
    bits: u64,
    /// It says nothing: `*` or `?`.
    pub star: bool,
}

impl Field {
    /// Whether it allows nothing at all.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// Whether it allows a number.
    pub fn has(self, number: i8) -> bool {
        u32::try_from(number).is_ok_and(|number| self.bits >> number & 1 == 1)
    }
}

/// Reads a field: ranges, with commas between them.
pub fn parse_field(bounds: &Bounds, text: &str) -> Result<Field, CronError> {
    let mut field = Field::default();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let problem = |problem: String| CronError::Field { field: bounds.name, text: text.to_owned(), problem };
        let range = parse_range(bounds, part).map_err(problem)?;
        field.bits |= range.bits;
        field.star |= range.star;
    }
    Ok(field)
}

/// `*`, `5`, `1-5`, each with a step or without. `5/10` begins at 5 and goes to the end.
fn parse_range(bounds: &Bounds, part: &str) -> Result<Field, String> {
    let (range, step) = match part.split('/').collect::<Vec<_>>()[..] {
        [range] => (range, None),
        [range, step] => (range, Some(number(step)?)),
        _ => return Err("it has more than one step".into()),
    };
    let ends: Vec<_> = range.split('-').collect();
    let (first, last, star) = match ends[..] {
        ["*" | "?"] => (bounds.least.into(), bounds.most.into(), step.is_none_or(|step| step <= 1)),
        [single] if step.is_some() => (value(bounds, single)?, bounds.most.into(), false),
        [single] => (value(bounds, single)?, value(bounds, single)?, false),
        [first, last] => (value(bounds, first)?, value(bounds, last)?, false),
        _ => return Err("it has more than one hyphen".into()),
    };
    let bits = bits(bounds, first, last, step.unwrap_or(1))?;
    Ok(Field { bits, star })
}

fn bits(bounds: &Bounds, first: u32, last: u32, step: u32) -> Result<u64, String> {
    if first < u32::from(bounds.least) {
        return Err(format!("below the minimum ({})", bounds.least));
    }
    if last > u32::from(bounds.most) {
        return Err(format!("above the maximum ({})", bounds.most));
    }
    if first > last {
        return Err("its beginning is beyond its end".into());
    }
    if step == 0 {
        return Err("a step of zero leads nowhere".into());
    }
    Ok((first..=last).step_by(step as usize).fold(0, |bits, number| bits | 1 << number))
}

fn value(bounds: &Bounds, text: &str) -> Result<u32, String> {
    let named = bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match named.and_then(|place| u32::try_from(place).ok()) {
        Some(place) => Ok(place + u32::from(bounds.least)),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}
