//! The calendar periods of retention policies.

use crate::format::time::{Time, date_of, days_of};

const SECONDS_PER_DAY: i64 = 86_400;

/// A period of the calendar that keeps one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Period {
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// The local time of a snapshot, in seconds since 1970.
fn local(time: &Time) -> i64 {
    time.seconds + i64::from(time.offset_minutes) * 60
}

impl Period {
    /// A number that is the same for all times in the same period, and no other.
    pub(super) fn number(self, time: &Time) -> i64 {
        let local = local(time);
        let days = local.div_euclid(SECONDS_PER_DAY);
        let (year, month, _) = date_of(days);
        match self {
            Self::Hour => local.div_euclid(3600),
            Self::Day => days,
            // Weeks begin on Monday, as in ISO 8601; 1970 began on a Thursday.
            Self::Week => (days + 3).div_euclid(7),
            Self::Month => year * 12 + month,
            Self::Year => year,
        }
    }
}

/// A duration of calendar units, such as `1y5m7d2h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CalendarDuration {
    /// Years.
    pub years: u32,
    /// Months.
    pub months: u32,
    /// Days.
    pub days: u32,
    /// Hours.
    pub hours: u32,
}

impl CalendarDuration {
    /// Parses numbers with the units `y`, `m`, `d` and `h`, as restic does.
    pub fn parse(text: &str) -> Option<Self> {
        let (mut duration, mut number) = (Self::default(), String::new());
        for character in text.chars() {
            if character.is_ascii_digit() {
                number.push(character);
                continue;
            }
            let value = number.parse().ok()?;
            number.clear();
            match character {
                'y' => duration.years = value,
                'm' => duration.months = value,
                'd' => duration.days = value,
                'h' => duration.hours = value,
                _ => return None,
            }
        }
        (number.is_empty() && !text.is_empty()).then_some(duration)
    }

    /// The seconds since 1970 of the time that is this long before `time`.
    pub(super) fn before(&self, time: &Time) -> i64 {
        let local = local(time);
        let (year, month, day) = date_of(local.div_euclid(SECONDS_PER_DAY));
        let months = year * 12 + month - 1 - i64::from(self.years) * 12 - i64::from(self.months);
        // A day that the month does not have is one of the next month.
        // Before the calendar begins, every snapshot is younger.
        let Some(first_of_month) = days_of(months.div_euclid(12), months.rem_euclid(12) + 1, 1) else {
            return i64::MIN;
        };
        let days = first_of_month + day - 1 - i64::from(self.days);
        let seconds = days * SECONDS_PER_DAY + local.rem_euclid(SECONDS_PER_DAY) - i64::from(self.hours) * 3600;
        seconds - i64::from(time.offset_minutes) * 60
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        Time::parse(text).expect("a time")
    }

    #[test]
    fn periods_follow_the_calendar_of_the_snapshots_zone() {
        let same = |period: Period, one: &str, other: &str| period.number(&time(one)) == period.number(&time(other));
        assert!(same(Period::Hour, "2026-11-19T05:00:00Z", "2026-11-19T05:59:59Z"));
        assert!(!same(Period::Hour, "2026-11-19T05:59:59Z", "2026-11-19T06:00:00Z"));
        assert!(same(Period::Day, "2026-11-19T23:30:00+02:00", "2026-11-19T00:10:00+02:00"));
        assert!(same(Period::Week, "2026-11-16T00:00:00Z", "2026-11-22T23:59:59Z"), "Monday to Sunday");
        assert!(!same(Period::Week, "2026-11-22T23:59:59Z", "2026-11-23T00:00:00Z"));
        assert!(same(Period::Week, "2024-12-30T00:00:00Z", "2025-01-05T00:00:00Z"), "a week of two years");
        assert!(same(Period::Month, "2026-11-01T00:00:00Z", "2026-11-30T23:59:59Z"));
        assert!(!same(Period::Month, "2025-11-01T00:00:00Z", "2026-11-01T00:00:00Z"));
        assert!(same(Period::Year, "2026-01-01T00:00:00Z", "2026-12-31T23:59:59Z"));
    }

    #[test]
    fn durations_are_parsed_and_subtracted_as_in_restic() {
        let parsed = CalendarDuration::parse("1y5m7d2h").expect("valid");
        assert_eq!(parsed, CalendarDuration { years: 1, months: 5, days: 7, hours: 2 });
        for invalid in ["", "5", "d", "5w", "-1d", "1.5d"] {
            assert_eq!(CalendarDuration::parse(invalid), None, "{invalid}");
        }
        for (duration, from, expected) in [
            ("2h", "2026-01-01T01:00:00Z", "2025-12-31T23:00:00Z"),
            ("1m", "2026-03-31T00:00:00Z", "2026-03-03T00:00:00Z"),
            ("14m", "2026-01-15T00:00:00+01:00", "2024-11-15T00:00:00+01:00"),
            ("1y7d", "2026-01-05T12:00:00Z", "2024-12-29T12:00:00Z"),
        ] {
            let duration = CalendarDuration::parse(duration).expect("valid");
            assert_eq!(duration.before(&time(from)), time(expected).seconds, "{from}");
        }
    }
}
