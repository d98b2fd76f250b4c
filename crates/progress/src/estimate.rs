//! A time left with its uncertainty, and how those of several tasks add up.

use std::time::Duration;

use crate::rate::TimeLeft;
use crate::work::{Basis, Source, Work};

/// The quantile of the normal distribution at 90 %: between minus and plus this lie p10 and p90.
pub(crate) const Z90: f64 = 1.2816;
/// So much of the deviation is the same for all tasks of an operation: they share the network, the store and the machine.
pub(crate) const SHARED: f64 = 0.7;

/// How many seconds it will take: half of the time less than the median. The logarithm is normally distributed, because a rate can
/// be half as well as double what was expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    /// The standard deviation of the logarithm.
    pub(crate) sigma: f64,
    pub(crate) source: Source,
    /// So many of the median's seconds are assumptions.
    pub(crate) assumed: f64,
}

impl Estimate {
    pub(crate) fn new(median: f64, sigma: f64, source: Source) -> Self {
        Self { median, sigma, source, assumed: 0.0 }
    }

    /// From a range that was shown, such as that of another process.
    pub(crate) fn of_range(left: TimeLeft, source: Source) -> Self {
        let (low, high) = (crate::rate::as_f64(left.low), crate::rate::as_f64(left.high));
        Self::new(low.midpoint(high), (high / low).ln() / (2.0 * Z90), source)
    }

    /// From what was planned, after so many seconds of it. Absent when it should have ended long ago.
    pub(crate) fn planned(work: &Work, total: Option<f64>, settled: f64, elapsed: f64) -> Option<Self> {
        let seconds = work.seconds(total);
        let by_amount = total.or(work.amount.map(|amount| amount.total)).filter(|total| *total > 0.0 && settled > 0.0);
        let left = by_amount.map_or(seconds - elapsed, |total| seconds * (1.0 - settled / total).max(0.0));
        let overdue = elapsed > OVERDUE_FACTOR * seconds + OVERDUE_SECONDS;
        (seconds > 0.0 && !overdue).then(|| {
            let median = left.max(seconds * MIN_REMAINING);
            let assumed = if work.basis == Basis::Assumed || is_usual_rate(work) { median } else { 0.0 };
            Self { median, sigma: sigma(work), source: work.source, assumed }
        })
    }

    /// The range from p10 to p90; nothing if it is mostly assumed.
    pub(crate) fn range(&self) -> Option<TimeLeft> {
        let factor = (Z90 * self.sigma.max(MIN_SIGMA)).exp();
        let believed = self.assumed <= MAX_ASSUMED * self.median && self.sigma <= MAX_SIGMA;
        believed.then(|| TimeLeft::between(self.median / factor, self.median * factor)).flatten()
    }

    /// Both, one after the other.
    pub(crate) fn then(self, next: Self) -> Self {
        let median = self.median + next.median;
        let (one, other) = (self.median * self.sigma, next.median * next.sigma);
        let apart = (1.0 - SHARED * SHARED) * (one * one + other * other);
        let deviation = (SHARED * SHARED * (one + other).powi(2) + apart).sqrt();
        let source = if one.max(self.median) >= next.median { self.source } else { next.source };
        let sigma = if median > 0.0 { deviation / median } else { 0.0 };
        Self { median, sigma, source, assumed: self.assumed + next.assumed }
    }

    /// Both at the same time: until the later one has ended.
    pub(crate) fn beside(self, other: Self) -> Self {
        let (later, earlier) = if self.median >= other.median { (self, other) } else { (other, self) };
        // Either may turn out to be the later one: by so much the median of the maximum is above that of the later one.
        let spread = (later.median * later.sigma).hypot(earlier.median * earlier.sigma) * (1.0 - SHARED);
        let overlap = if spread > 0.0 { (-(later.median - earlier.median) / spread).exp() } else { 0.0 };
        Self { median: later.median + 0.4 * spread * overlap, ..later }
    }
}

/// Work that has taken more than this many times its expected duration, and some seconds, says nothing about its end.
const OVERDUE_FACTOR: f64 = 2.0;
const OVERDUE_SECONDS: f64 = 2.0;
/// Work that is late takes at least this share of its expected duration from now.
const MIN_REMAINING: f64 = 0.1;
/// No range is narrower than this, and none is shown that is wider than from a third to three times.
const MIN_SIGMA: f64 = 0.17;
const MAX_SIGMA: f64 = 0.86;
/// Nothing is shown if more than this share is assumed.
const MAX_ASSUMED: f64 = 0.2;

/// A rate that neither this run nor an earlier one has shown.
fn is_usual_rate(work: &Work) -> bool {
    work.amount.is_some() && work.source == Source::Plan
}

/// How far a planned duration may be off.
fn sigma(work: &Work) -> f64 {
    match (work.source, work.basis) {
        (Source::History | Source::Pace, Basis::Exact) => 0.34,
        (Source::History | Source::Pace, Basis::Estimated) => 0.38,
        _ => 0.7,
    }
}

/// The tasks below one that is no queue: those at work go on together, those that are planned follow one after the other.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    active: Option<Estimate>,
    pending: Option<Estimate>,
    longest: f64,
    /// The open child that the end waits for now.
    pub(crate) critical: Option<usize>,
    missing: bool,
}

impl Sequence {
    /// Adds an open child; `place` is its place among the nodes.
    pub(crate) fn add(&mut self, estimate: Option<Estimate>, active: bool, place: usize) {
        let Some(estimate) = estimate else {
            self.missing = true;
            return;
        };
        if active {
            if self.critical.is_none() || estimate.median > self.longest {
                (self.longest, self.critical) = (estimate.median, Some(place));
            }
            self.active = Some(self.active.map_or(estimate, |sum| sum.beside(estimate)));
        } else {
            self.pending = Some(self.pending.map_or(estimate, |sum| sum.then(estimate)));
        }
    }

    /// All of them; nothing if one is unknown, or if there are none.
    pub(crate) fn together(&self) -> Option<Estimate> {
        match (self.active, self.pending) {
            _ if self.missing => None,
            (Some(active), Some(pending)) => Some(active.then(pending)),
            (one, other) => one.or(other),
        }
    }
}

/// Seconds of an optional age.
pub(crate) fn seconds(age: Option<Duration>) -> f64 {
    age.unwrap_or_default().as_secs_f64()
}
