//! Times as Go writes them: RFC 3339, nanoseconds without trailing zeros, zone kept.

use std::fmt;

use jiff::SignedDuration;
use jiff::civil::{Date, date};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment with the zone it was written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Time {
    /// Seconds since 1970, UTC.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
    /// Zone, in minutes east of Greenwich.
    pub offset_minutes: i16,
}

const EPOCH: Date = date(1970, 1, 1);
const FIRST: i64 = -62_167_219_200; // year 0
const LAST: i64 = 253_402_300_799; // end of year 9999

impl Time {
    /// In UTC; moments outside the years 0 to 9999 move to the nearest one inside.
    pub fn utc(seconds: i64, nanoseconds: u32) -> Self {
        match seconds {
            ..FIRST => Self { seconds: FIRST, nanoseconds: 0, offset_minutes: 0 },
            FIRST..=LAST => Self { seconds, nanoseconds: nanoseconds.min(999_999_999), offset_minutes: 0 },
            _ => Self { seconds: LAST, nanoseconds: 999_999_999, offset_minutes: 0 },
        }
    }

    /// The current time.
    pub fn now() -> Self {
        std::time::SystemTime::now().into()
    }

    /// Whether both are the same moment, whatever their zones.
    pub fn same_moment(&self, other: &Self) -> bool {
        (self.seconds, self.nanoseconds) == (other.seconds, other.nanoseconds)
    }

    /// Appends the text form.
    pub fn push(&self, out: &mut Vec<u8>) {
        use std::io::Write as _;
        let local = self.seconds + i64::from(self.offset_minutes) * 60;
        let (year, month, day) = date_of(local.div_euclid(86_400));
        let second = local.rem_euclid(86_400);
        push_padded(year, 4, out);
        for (mark, value) in
            [(b'-', month), (b'-', day), (b'T', second / 3600), (b':', second / 60 % 60), (b':', second % 60)]
        {
            out.push(mark);
            push_padded(value, 2, out);
        }
        if self.nanoseconds > 0 {
            out.push(b'.');
            push_padded(i64::from(self.nanoseconds), 9, out);
            while out.last() == Some(&b'0') {
                out.pop();
            }
        }
        match self.offset_minutes {
            0 => out.push(b'Z'),
            offset => {
                let sign = if offset < 0 { '-' } else { '+' };
                let offset = offset.unsigned_abs();
                let _ = write!(out, "{sign}{:02}:{:02}", offset / 60, offset % 60);
            }
        }
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
        if bytes.len() < 20 || marks.iter().any(|&(at, mark)| bytes[at] != mark) {
            return None;
        }
        let number = |from, to| digits(&bytes[from..to]);
        let (month, day) = (number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let (nanoseconds, zone) = fraction(&bytes[19..])?;
        let offset = offset_of(zone)?;
        let days = days_of(number(0, 4)?, month, day)?;
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset * 60;
        Some(Self { seconds, nanoseconds, offset_minutes: i16::try_from(offset).ok()? })
    }
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0_i64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
}

fn fraction(text: &[u8]) -> Option<(u32, &[u8])> {
    let Some(text) = text.strip_prefix(b".") else { return Some((0, text)) };
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if length == 0 || length > 9 {
        return None;
    }
    let value = u32::try_from(digits(&text[..length])?).ok()?;
    let missing = u32::try_from(9 - length).ok()?;
    Some((value * 10_u32.pow(missing), &text[length..]))
}

fn offset_of(zone: &[u8]) -> Option<i64> {
    let sign = match zone.first()? {
        b'Z' => return (zone.len() == 1).then_some(0),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    if zone.len() != 6 || zone[3] != b':' {
        return None;
    }
    let (hours, minutes) = (digits(&zone[1..3])?, digits(&zone[4..6])?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes))
}

fn push_padded(value: i64, width: u32, out: &mut Vec<u8>) {
    for position in (0..width).rev() {
        let digit = value / 10_i64.pow(position) % 10;
        out.push(b'0' + u8::try_from(digit).unwrap_or(0));
    }
}

/// Year, month and day of a day counted from 1970.
pub(crate) fn date_of(days: i64) -> (i64, i64, i64) {
    let date = EPOCH.saturating_add(SignedDuration::from_hours(days.saturating_mul(24)));
    (date.year().into(), date.month().into(), date.day().into())
}

/// Days since 1970; `None` if there is no such date.
pub(crate) fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let date = Date::new(year.try_into().ok()?, month.try_into().ok()?, day.try_into().ok()?).ok()?;
    Some(date.duration_since(EPOCH).as_hours() / 24)
}

impl From<std::time::SystemTime> for Time {
    fn from(time: std::time::SystemTime) -> Self {
        match time.duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => Self::utc(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()),
            Err(error) => {
                let before = error.duration();
                let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => Self::utc(-seconds, 0),
                    nanoseconds => Self::utc(-seconds - 1, 1_000_000_000 - nanoseconds),
                }
            }
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(35);
        self.push(&mut text);
        out.write_str(&String::from_utf8_lossy(&text))
    }
}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |time: &Self| (time.seconds, time.nanoseconds, time.offset_minutes);
        key(self).cmp(&key(other))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not an RFC 3339 time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back_to_the_same_text() {
        for text in [
            "2023-11-14T22:13:20.12Z",
            "2023-11-14T23:13:22.123456789+01:00",
            "1969-12-31T23:59:59.999999999Z",
            "0000-02-29T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "2024-02-29T12:00:00-09:30",
        ] {
            assert_eq!(Time::parse(text).map(|time| time.to_string()).as_deref(), Some(text));
        }
        assert_eq!(Time::utc(i64::MAX, 5).to_string(), "9999-12-31T23:59:59.999999999Z");
        assert_eq!(Time::utc(1_700_000_000, 120_000_000).to_string(), "2023-11-14T22:13:20.12Z");
        for wrong in [
            "",
            "2023-13-01T00:00:00Z",
            "2023-11-14 22:13:20Z",
            "2023-11-14T22:13:20",
            "2023-11-14T22:13:20.Z",
            "9999-12-31T23:59:60Z",
        ] {
            assert_eq!(Time::parse(wrong), None, "{wrong}");
        }
    }
}
