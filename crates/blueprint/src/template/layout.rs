//! Go's time layouts, based on the reference time 2006-01-02 15:04:05.

use std::rc::Rc;

use super::time::{Time, days_from_civil, days_of_month};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

pub(super) fn month_name(month: u32) -> &'static str {
    MONTHS.get((month as usize).wrapping_sub(1)).copied().unwrap_or("January")
}

pub(super) fn weekday_name(weekday: u32) -> &'static str {
    WEEKDAYS.get(weekday as usize).copied().unwrap_or("Sunday")
}

/// An element of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    LongMonth,
    Month,
    Number(Field, Padding),
    LongYear,
    ShortYear,
    LongWeekday,
    Weekday,
    UpperHalf,
    LowerHalf,
    ZoneName,
    /// Whether UTC is `Z`, whether there is a colon, and how many pairs of digits.
    Offset {
        z: bool,
        colon: bool,
        pairs: u8,
    },
    /// Number of digits; whether trailing zeros are kept.
    Fraction {
        digits: usize,
        keep: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Month,
    Day,
    YearDay,
    Hour,
    Hour12,
    Minute,
    Second,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    None,
    Zeros,
    Spaces,
}

/// Elements with a fixed spelling; longer ones before their prefixes.
const PARTS: [(&str, Part); 33] = {
    use Field::{Day, Hour, Hour12, Minute, Month, Second, YearDay};
    use Padding::{None, Spaces, Zeros};
    use Part::Number;
    const fn offset(z: bool, colon: bool, pairs: u8) -> Part {
        Part::Offset { z, colon, pairs }
    }
    [
        ("January", Part::LongMonth),
        ("Jan", Part::Month),
        ("Monday", Part::LongWeekday),
        ("Mon", Part::Weekday),
        ("MST", Part::ZoneName),
        ("2006", Part::LongYear),
        ("002", Number(YearDay, Zeros)),
        ("01", Number(Month, Zeros)),
        ("02", Number(Day, Zeros)),
        ("03", Number(Hour12, Zeros)),
        ("04", Number(Minute, Zeros)),
        ("05", Number(Second, Zeros)),
        ("06", Part::ShortYear),
        ("15", Number(Hour, Zeros)),
        ("1", Number(Month, None)),
        ("__2", Number(YearDay, Spaces)),
        ("_2", Number(Day, Spaces)),
        ("2", Number(Day, None)),
        ("3", Number(Hour12, None)),
        ("4", Number(Minute, None)),
        ("5", Number(Second, None)),
        ("PM", Part::UpperHalf),
        ("pm", Part::LowerHalf),
        ("-07:00:00", offset(false, true, 3)),
        ("-070000", offset(false, false, 3)),
        ("-07:00", offset(false, true, 2)),
        ("-0700", offset(false, false, 2)),
        ("-07", offset(false, false, 1)),
        ("Z07:00:00", offset(true, true, 3)),
        ("Z070000", offset(true, false, 3)),
        ("Z07:00", offset(true, true, 2)),
        ("Z0700", offset(true, false, 2)),
        ("Z07", offset(true, false, 1)),
    ]
};

/// The text before the next element, the element, and the rest.
fn next(layout: &str) -> (&str, Option<Part>, &str) {
    for (at, _) in layout.char_indices() {
        let rest = &layout[at..];
        if let Some((length, part)) = part_at(rest) {
            return (&layout[..at], Some(part), &rest[length..]);
        }
        // `_2006` is an underscore before a year.
        if let Some(after) = rest.strip_prefix("_2006") {
            return (&layout[..=at], Some(Part::LongYear), after);
        }
    }
    (layout, None, "")
}

fn part_at(rest: &str) -> Option<(usize, Part)> {
    if rest.starts_with("_2006") {
        return None;
    }
    if rest.starts_with(['.', ',']) {
        return fraction_at(rest);
    }
    let (text, part) = PARTS.iter().find(|(text, _)| rest.starts_with(text))?;
    // `Jan` and `Mon` are not recognized inside longer words.
    let word_goes_on = rest[text.len()..].starts_with(|next: char| next.is_ascii_lowercase());
    if matches!(part, Part::Month | Part::Weekday) && word_goes_on {
        return None;
    }
    Some((text.len(), *part))
}

fn fraction_at(rest: &str) -> Option<(usize, Part)> {
    let digit = rest[1..].chars().next().filter(|digit| matches!(digit, '0' | '9'))?;
    let digits = rest[1..].bytes().take_while(|byte| char::from(*byte) == digit).count();
    let ends = !rest[1 + digits..].starts_with(|next: char| next.is_ascii_digit());
    ends.then_some((digits + 1, Part::Fraction { digits, keep: digit == '0' }))
}

/// Formats a time with a layout.
pub(super) fn format(layout: &str, time: &Time) -> String {
    let mut text = String::new();
    let mut layout = layout;
    loop {
        let (before, part, rest) = next(layout);
        text.push_str(before);
        let Some(part) = part else { return text };
        // The separator before a fraction is part of the layout.
        let sign = layout[before.len()..].chars().next().unwrap_or('.');
        write(&mut text, part, sign, time);
        layout = rest;
    }
}

fn write(text: &mut String, part: Part, sign: char, time: &Time) {
    let civil = time.civil();
    match part {
        Part::LongMonth => text.push_str(month_name(civil.month)),
        Part::Month => text.push_str(&month_name(civil.month)[..3]),
        Part::LongWeekday => text.push_str(weekday_name(civil.weekday)),
        Part::Weekday => text.push_str(&weekday_name(civil.weekday)[..3]),
        Part::LongYear if civil.year < 0 => text.push_str(&format!("-{:04}", civil.year.unsigned_abs())),
        Part::LongYear => text.push_str(&format!("{:04}", civil.year)),
        Part::ShortYear => text.push_str(&format!("{:02}", civil.year.rem_euclid(100))),
        Part::UpperHalf => text.push_str(if civil.hour >= 12 { "PM" } else { "AM" }),
        Part::LowerHalf => text.push_str(if civil.hour >= 12 { "pm" } else { "am" }),
        Part::ZoneName if time.zone.is_empty() => text.push_str(&offset(time.offset, false, 2)),
        Part::ZoneName => text.push_str(&time.zone),
        Part::Offset { z: true, .. } if time.offset == 0 => text.push('Z'),
        Part::Offset { colon, pairs, .. } => text.push_str(&offset(time.offset, colon, pairs)),
        Part::Fraction { digits, keep } => fraction(text, time.nanos, digits, keep, sign),
        Part::Number(field, padding) => {
            let (number, width) = match field {
                Field::Month => (civil.month, 2),
                Field::Day => (civil.day, 2),
                Field::YearDay => (civil.year_day, 3),
                Field::Hour => (civil.hour, 2),
                Field::Hour12 => ((civil.hour + 11) % 12 + 1, 2),
                Field::Minute => (civil.minute, 2),
                Field::Second => (civil.second, 2),
            };
            text.push_str(&match padding {
                Padding::None => number.to_string(),
                Padding::Zeros => format!("{number:0width$}"),
                Padding::Spaces => format!("{number:width$}"),
            });
        }
    }
}

fn offset(seconds: i32, colon: bool, pairs: u8) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let size = seconds.unsigned_abs();
    let colon = if colon { ":" } else { "" };
    let mut text = format!("{sign}{:02}", size / 3600);
    if pairs > 1 {
        text.push_str(&format!("{colon}{:02}", size / 60 % 60));
    }
    if pairs > 2 {
        text.push_str(&format!("{colon}{:02}", size % 60));
    }
    text
}

fn fraction(text: &mut String, nanos: u32, digits: usize, keep: bool, sign: char) {
    let all = format!("{nanos:09}");
    let shown = if digits > 9 { format!("{all:0<digits$}") } else { all[..digits].to_owned() };
    let shown = if keep { &shown } else { shown.trim_end_matches('0') };
    if keep || !shown.is_empty() {
        text.push(sign);
        text.push_str(shown);
    }
}

/// Parses a time with a layout.
pub(super) fn parse(layout: &str, text: &str) -> Option<Time> {
    let mut read = Read { rest: text, ..Read::default() };
    let mut layout = layout;
    loop {
        let (before, part, after) = next(layout);
        read.literal(before)?;
        let Some(part) = part else {
            return if read.rest.is_empty() { read.time() } else { None };
        };
        read.part(part, after)?;
        layout = after;
    }
}

#[derive(Default)]
struct Read<'a> {
    rest: &'a str,
    year: Option<i64>,
    month: Option<u32>,
    day: Option<u32>,
    year_day: Option<u32>,
    hour: u32,
    minute: u32,
    second: u32,
    nanos: u32,
    afternoon: Option<bool>,
    offset: Option<i32>,
    zone: Option<String>,
}

impl Read<'_> {
    /// Required text; a space matches any number of spaces.
    fn literal(&mut self, text: &str) -> Option<()> {
        let mut text = text;
        while let Some(first) = text.chars().next() {
            if first == ' ' {
                if !self.rest.is_empty() && !self.rest.starts_with(' ') {
                    return None;
                }
                text = text.trim_start_matches(' ');
                self.rest = self.rest.trim_start_matches(' ');
                continue;
            }
            self.rest = self.rest.strip_prefix(first)?;
            text = &text[first.len_utf8()..];
        }
        Some(())
    }

    fn take(&mut self, length: usize) -> Option<&str> {
        let taken = self.rest.get(..length)?;
        self.rest = &self.rest[length..];
        Some(taken)
    }

    /// One or two digits, or an exact number of digits.
    fn number(&mut self, exactly: Option<usize>) -> Option<u32> {
        let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let length = match exactly {
            Some(exactly) if digits < exactly => return None,
            Some(exactly) => exactly,
            None if digits == 0 => return None,
            None => digits.min(2),
        };
        self.take(length)?.parse().ok()
    }

    fn name(&mut self, names: &[&str], length: Option<usize>) -> Option<u32> {
        let short = |name: &str| length.map_or(name.len(), |length| length.min(name.len()));
        let found = names.iter().position(|name| {
            let length = short(name);
            self.rest.get(..length).is_some_and(|start| start.eq_ignore_ascii_case(&name[..length]))
        })?;
        self.take(short(names[found]))?;
        u32::try_from(found).ok()
    }

    fn part(&mut self, part: Part, after: &str) -> Option<()> {
        match part {
            Part::LongYear => self.year = Some(i64::from(self.number(Some(4))?)),
            Part::ShortYear => {
                let year = i64::from(self.number(Some(2))?);
                self.year = Some(if year >= 69 { year + 1900 } else { year + 2000 });
            }
            Part::LongMonth => self.month = Some(self.name(&MONTHS, None)? + 1),
            Part::Month => self.month = Some(self.name(&MONTHS, Some(3))? + 1),
            Part::LongWeekday => drop(self.name(&WEEKDAYS, None)?),
            Part::Weekday => drop(self.name(&WEEKDAYS, Some(3))?),
            Part::UpperHalf | Part::LowerHalf => {
                let half = self.take(2)?;
                let upper = part == Part::UpperHalf;
                self.afternoon = Some(match half {
                    "PM" if upper => true,
                    "AM" if upper => false,
                    "pm" if !upper => true,
                    "am" if !upper => false,
                    _ => return None,
                });
            }
            Part::ZoneName => self.zone_name()?,
            Part::Offset { z, colon, pairs } => self.offset(z, colon, pairs)?,
            Part::Fraction { digits, keep: true } => self.fraction(Some(digits))?,
            Part::Fraction { keep: false, .. } => {
                // Optional.
                if self.rest.starts_with(['.', ',']) && self.rest[1..].starts_with(|next: char| next.is_ascii_digit()) {
                    self.fraction(None)?;
                }
            }
            Part::Number(field, padding) => self.field(field, padding, after)?,
        }
        Some(())
    }

    fn field(&mut self, field: Field, padding: Padding, after: &str) -> Option<()> {
        if padding == Padding::Spaces {
            self.rest = self.rest.strip_prefix(' ').unwrap_or(self.rest);
        }
        let exactly = (padding == Padding::Zeros).then_some(2);
        match field {
            Field::Month => self.month = Some(self.number(exactly)?).filter(|month| (1..=12).contains(month)),
            Field::Day => self.day = Some(self.number(exactly)?),
            Field::YearDay => self.year_day = Some(self.number(Some(3))?),
            Field::Hour => self.hour = self.number(None)?,
            Field::Hour12 => self.hour = self.number(exactly).filter(|hour| *hour <= 12)?,
            Field::Minute => self.minute = self.number(exactly)?,
            Field::Second => {
                self.second = self.number(exactly)?;
                // A fraction is accepted even if the layout has none.
                let expected = matches!(next(after), ("", Some(Part::Fraction { .. }), _));
                let there =
                    self.rest.starts_with(['.', ',']) && self.rest[1..].starts_with(|next: char| next.is_ascii_digit());
                if !expected && there {
                    self.fraction(None)?;
                }
            }
        }
        let month_is_good = field != Field::Month || self.month.is_some();
        (month_is_good && self.hour < 24 && self.minute < 60 && self.second < 60).then_some(())
    }

    fn fraction(&mut self, digits: Option<usize>) -> Option<()> {
        if !self.rest.starts_with(['.', ',']) {
            return None;
        }
        let there = self.rest[1..].bytes().take_while(u8::is_ascii_digit).count();
        let length = digits.unwrap_or(there);
        if length > there || length == 0 {
            return None;
        }
        let text = self.take(length + 1)?;
        let nanos = format!("{:0<9}", &text[1..]);
        self.nanos = nanos[..9].parse().ok()?;
        Some(())
    }

    fn zone_name(&mut self) -> Option<()> {
        if self.rest.starts_with("UTC") {
            self.offset = Some(0);
            self.take(3)?;
            return Some(());
        }
        let letters = self.rest.bytes().take_while(u8::is_ascii_uppercase).count();
        if !(3..=5).contains(&letters) {
            return None;
        }
        self.zone = Some(self.take(letters)?.to_owned());
        Some(())
    }

    fn offset(&mut self, z: bool, colon: bool, pairs: u8) -> Option<()> {
        if z && self.rest.starts_with('Z') {
            self.take(1)?;
            self.offset = Some(0);
            return Some(());
        }
        let sign = match self.take(1)? {
            "+" => 1,
            "-" => -1,
            _ => return None,
        };
        let mut seconds = 0;
        for (pair, unit) in (0..pairs).zip([3600, 60, 1]) {
            if colon && pair > 0 && self.take(1)? != ":" {
                return None;
            }
            let number = i32::try_from(self.number(Some(2))?).ok()?;
            if number > if unit == 3600 { 24 } else { 60 } {
                return None;
            }
            seconds += number * unit;
        }
        self.offset = Some(sign * seconds);
        Some(())
    }

    fn time(self) -> Option<Time> {
        let hour = match self.afternoon {
            Some(true) if self.hour < 12 => self.hour + 12,
            Some(false) if self.hour == 12 => 0,
            _ => self.hour,
        };
        let year = self.year.unwrap_or(0);
        let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
        let days = match self.year_day {
            Some(day) => days_from_civil(year, 1, 1) + i64::from(day) - 1,
            None if (1..=days_of_month(year, month)).contains(&day) => days_from_civil(year, month, day),
            None => return None,
        };
        let local = days * 86_400 + i64::from(hour * 3600 + self.minute * 60 + self.second);
        let offset = self.offset.unwrap_or(0);
        let zone: Rc<str> = match (self.zone, offset) {
            (Some(zone), _) => Rc::from(zone),
            (None, 0) => Rc::from("UTC"),
            _ => Rc::from(""),
        };
        Some(Time { seconds: local - i64::from(offset), nanos: self.nanos, offset, zone })
    }
}
