//! Percentages as they are shown: cut, never rounded, and never 100 before the end.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::counts::{Counts, Total};

/// All of it, in hundredths of a percent.
const WHOLE: u16 = 10_000;

/// A percentage in hundredths, from the readings of a task: for kinds of work whose percentage follows a rule of its own.
pub type PercentRule = fn(&[Counts]) -> u16;

/// A percentage with two decimals, as shown. Written `43.33`, `~43.33` while part of the total is an estimate, or `≥43.33` while it
/// is held because the total grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Percent {
    hundredths: u16,
    approximate: bool,
    held: bool,
}

impl Percent {
    /// 100.00
    pub const COMPLETE: Self = Self { hundredths: WHOLE, approximate: false, held: false };

    /// `settled` of `total` while the work goes on: exact arithmetic, cut to two decimals, at most 99.99.
    pub fn of(settled: u64, total: u64) -> Self {
        let hundredths = if total == 0 { 0 } else { u128::from(settled) * u128::from(WHOLE) / u128::from(total) };
        Self::running(u16::try_from(hundredths).unwrap_or(WHOLE))
    }

    /// What a meter says by itself, if it has a total.
    pub(crate) fn of_counts(counts: &Counts) -> Option<Self> {
        let percent = Self::of(counts.settled(), counts.total.value()?);
        Some(percent.approximately(matches!(counts.total, Total::Growing(_))))
    }

    /// A share between 0 and 1 while the work goes on.
    ///
    /// A mean of exact shares may come out a hair below the true value, hence the nudge of 10^-10 before the cut.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=10000 before the cast")]
    pub fn of_fraction(fraction: f64) -> Self {
        let hundredths = (fraction * f64::from(WHOLE) + 1e-6).clamp(0.0, f64::from(WHOLE));
        Self::running(hundredths as u16)
    }

    fn running(hundredths: u16) -> Self {
        Self { hundredths: hundredths.min(WHOLE - 1), ..Self::default() }
    }

    /// The same value, marked as approximate or not.
    #[must_use]
    pub fn approximately(self, approximate: bool) -> Self {
        Self { approximate, held: false, ..self }
    }

    /// Whether the total behind it may still change.
    pub fn is_approximate(self) -> bool {
        self.approximate || self.held
    }

    /// Whether it is held: less is done of the total as it is known now.
    pub fn is_held(self) -> bool {
        self.held
    }

    /// Hundredths of a percent, 0 to 10000.
    pub fn hundredths(self) -> u16 {
        self.hundredths
    }

    /// As a share between 0 and 1.
    pub fn fraction(self) -> f64 {
        f64::from(self.hundredths) / f64::from(WHOLE)
    }

    /// The digits without the mark: what fields that only know numbers get.
    pub fn plain(self) -> String {
        self.approximately(false).to_string()
    }

    /// At most 99.99.
    #[must_use]
    pub(crate) fn below_whole(self) -> Self {
        Self { hundredths: self.hundredths.min(WHOLE - 1), ..self }
    }

    /// The greater value of the two. A floor that is greater holds the value.
    #[must_use]
    pub(crate) fn at_least(self, floor: u16) -> Self {
        let held = self.held || floor > self.hundredths;
        Self { hundredths: self.hundredths.max(floor), approximate: self.approximate && !held, held }
    }

    /// The greater value of the two, with the mark of `self`: what is below the floor is counted again, and no plan grew.
    #[must_use]
    pub(crate) fn floored(self, floor: u16) -> Self {
        Self { hundredths: self.hundredths.max(floor), ..self }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match (self.held, self.approximate) {
            (true, _) => "≥",
            (false, true) => "~",
            (false, false) => "",
        };
        write!(f, "{mark}{}.{:02}", self.hundredths / 100, self.hundredths % 100)
    }
}

/// A text that is no percentage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a percentage such as 43.33, ~43.33 or ≥43.33")]
pub struct NotAPercentage(String);

impl FromStr for Percent {
    type Err = NotAPercentage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotAPercentage(text.chars().take(32).collect());
        let held = text.starts_with('≥');
        let digits = text.strip_prefix(['~', '≥']).unwrap_or(text);
        let (whole, decimals) = digits.split_once('.').ok_or_else(wrong)?;
        let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() > 3 || decimals.len() != 2 || !all_digits(whole) || !all_digits(decimals) {
            return Err(wrong());
        }
        let hundredths = format!("{whole}{decimals}").parse::<u32>().map_err(|_| wrong())?;
        let hundredths = u16::try_from(hundredths).ok().filter(|value| *value <= WHOLE).ok_or_else(wrong)?;
        Ok(Self { hundredths, approximate: !held && digits.len() != text.len(), held })
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// `done` of `total` as shown, cut to two decimals; `100.00` exactly when the work has `ended` well.
pub fn percent_string(done: u64, total: u64, ended: bool) -> String {
    if ended { Percent::COMPLETE.to_string() } else { Percent::of(done, total).to_string() }
}
