//! What the children of a task add up to: a mean, a sum, a bound.

use std::time::Duration;

use crate::percent::Percent;
use crate::rate::TimeLeft;
use crate::snapshot::Node;
use crate::state::State;

/// What the children of a task add up to.
#[derive(Debug, Default)]
pub(crate) struct ChildSummary {
    pub(crate) active: bool,
    pub(crate) approximate: bool,
    pub(crate) measured: bool,
    pub(crate) advance: Option<Duration>,
    shares: Shares,
    pub(crate) left: Left,
}

/// The sums behind a weighted mean.
#[derive(Debug, Default)]
struct Shares {
    all: f64,
    count: f64,
    weighted: f64,
    weight: f64,
    weighed: f64,
    weighed_all: f64,
}

impl Shares {
    fn add(&mut self, fraction: f64, expected: Option<Duration>) {
        self.all += fraction;
        self.count += 1.0;
        if let Some(expected) = expected {
            self.weighted += fraction * expected.as_secs_f64();
            self.weight += expected.as_secs_f64();
            self.weighed += 1.0;
            self.weighed_all += fraction;
        }
    }

    /// The mean, by expected duration where that is known. A task of unknown duration weighs as much as the average one of
    /// known duration.
    fn mean(&self, equal: bool) -> Option<f64> {
        if self.count == 0.0 {
            return None;
        }
        if equal || self.weight <= 0.0 {
            return Some(self.all / self.count);
        }
        let usual = self.weight / self.weighed;
        let rest = self.count - self.weighed;
        Some((self.weighted + usual * (self.all - self.weighed_all)) / (self.weight + usual * rest))
    }
}

/// Bounds for the time that tasks need together: all at once, or one after the other.
#[derive(Debug, Default)]
pub(crate) struct Left {
    longest: u64,
    sum: u64,
    missing: bool,
}

impl Left {
    fn add(&mut self, left: Option<TimeLeft>) {
        match left {
            Some(left) => {
                self.longest = self.longest.max(left.low);
                self.sum = self.sum.saturating_add(left.high);
            }
            None => self.missing = true,
        }
    }

    pub(crate) fn together(&self) -> Option<TimeLeft> {
        (!self.missing && self.longest > 0).then_some(TimeLeft { low: self.longest, high: self.sum.max(self.longest) })
    }
}

impl ChildSummary {
    /// Whether there are no children.
    pub(crate) fn is_empty(&self) -> bool {
        self.shares.count == 0.0
    }

    /// The mean share of the children.
    pub(crate) fn mean(&self, equal: bool) -> Option<f64> {
        self.shares.mean(equal)
    }

    pub(crate) fn add(&mut self, child: &Node, fraction: f64) {
        let open = child.state.is_open();
        let unknown = child.percent.is_none() && !child.meters.is_empty();
        self.active |= child.state.is_active();
        self.approximate |= open && (unknown || child.percent.is_some_and(Percent::is_approximate));
        self.measured |= child.percent.is_some() || matches!(child.state, State::Pending | State::Skipped);
        self.advance = Some(self.advance.map_or(child.ages.advance, |age| age.min(child.ages.advance)));
        self.shares.add(fraction, child.expected);
        if open {
            self.left.add(child.left);
        }
    }
}
