//! Planned work: how long a task is expected to take, and how well that is known.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How well the size of some work is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// It was measured: the size of a snapshot that is restored.
    Exact,
    /// It was like this lately: the last transfer of the same claim.
    Estimated,
    /// It is at most this, or usual: the capacity of a claim. Also what a newer process says.
    #[default]
    #[serde(other)]
    Assumed,
}

/// Where a time left comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// From the pace of this run.
    Pace,
    /// From earlier runs of the same work.
    History,
    /// From sizes and usual rates only. Also what a newer process says.
    #[default]
    #[serde(other)]
    Plan,
}

impl Source {
    /// As written in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pace => "pace",
            Self::History => "history",
            Self::Plan => "plan",
        }
    }
}

/// The expected work of one task: a fixed part, and a part that grows with an amount.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// The part that takes the same time whatever the amount.
    pub(crate) fixed: Duration,
    /// Bytes, items or steps, and how many of them a second. None if the fixed part is all there is.
    pub(crate) amount: Option<Amount>,
    /// How well the amount is known.
    pub(crate) basis: Basis,
    /// Where the rate, or the fixed part, comes from.
    pub(crate) source: Source,
}

/// So much, at so much a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Amount {
    pub(crate) total: f64,
    pub(crate) per_second: f64,
}

impl Work {
    /// Work of a known duration.
    pub const fn fixed(duration: Duration) -> Self {
        Self { fixed: duration, amount: None, basis: Basis::Exact, source: Source::Plan }
    }

    /// A duration that is usual, but says little about this one.
    pub const fn assumed(duration: Duration) -> Self {
        Self { fixed: duration, amount: None, basis: Basis::Assumed, source: Source::Plan }
    }

    /// So much at a usual rate. A rate that is not positive is as good as none: then only the fixed part counts.
    pub fn amount(total: u64, per_second: f64, basis: Basis) -> Self {
        let usable = per_second.is_finite() && per_second > 0.0;
        let amount = usable.then(|| Amount { total: crate::rate::as_f64(total), per_second });
        Self { fixed: Duration::ZERO, amount, basis, source: Source::Plan }
    }

    /// The same with a fixed part: what each transfer costs before its first byte and after its last one.
    #[must_use]
    pub fn with_fixed(self, fixed: Duration) -> Self {
        Self { fixed, ..self }
    }

    /// The same, at the rate of earlier runs.
    #[must_use]
    pub(crate) fn at_earlier_rate(self, rate: EarlierRate) -> Self {
        let known = rate.per_second > 0.0;
        let amount =
            self.amount.map(|amount| if known { Amount { per_second: rate.per_second, ..amount } } else { amount });
        let source = if known || amount.is_none() { Source::History } else { self.source };
        Self { amount, fixed: rate.fixed, source, ..self }
    }

    /// The duration of this work in an earlier run.
    pub(crate) fn earlier(duration: Duration) -> Self {
        Self { source: Source::History, ..Self::fixed(duration) }
    }

    /// The seconds it takes in all, with the total that is known by now.
    pub(crate) fn seconds(&self, total: Option<f64>) -> f64 {
        let amount = self.amount.map_or(0.0, |amount| total.unwrap_or(amount.total) / amount.per_second);
        self.fixed.as_secs_f64() + amount
    }

    /// How long it takes in all.
    pub fn duration(&self) -> Duration {
        Duration::try_from_secs_f64(self.seconds(None)).unwrap_or(Duration::MAX)
    }
}

/// What earlier runs showed about the transfers below one task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlierRate {
    /// Units a second for one transfer; 0 if none is known.
    pub per_second: f64,
    /// The fixed part of each.
    pub fixed: Duration,
}

/// The durations of earlier runs of the same operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EarlierRuns {
    /// How many there were.
    pub runs: u32,
    /// The shortest, in seconds.
    pub low: u64,
    /// The longest, in seconds.
    pub high: u64,
}
