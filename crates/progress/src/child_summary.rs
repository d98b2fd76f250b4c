//! What the children of a task add up to: a share of the work, a time left.

use std::time::Duration;

use crate::estimate::Sequence;
use crate::gain::Gains;
use crate::percent::Percent;
use crate::queue::Job;
use crate::snapshot::Node;
use crate::state::State;

/// What the children of a task add up to.
#[derive(Debug, Default)]
pub(crate) struct ChildSummary {
    pub(crate) active: bool,
    pub(crate) approximate: bool,
    pub(crate) measured: bool,
    pub(crate) advance: Option<Duration>,
    pub(crate) gains: Option<Gains>,
    shares: Shares,
    /// The percentages of children that all weigh the same, in hundredths, and how many these are.
    pub(crate) equal: (u64, u64),
    /// Those that follow one another.
    pub(crate) sequence: Sequence,
    /// Those that wait for their turn.
    pub(crate) jobs: Vec<Job>,
}

/// What one child adds to the share of its parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// What it has reached of its work.
    pub(crate) reached: f64,
    /// Its work in seconds, if it is known.
    pub(crate) weight: Option<f64>,
    /// Part of its work is estimated.
    pub(crate) estimated: bool,
    /// Where all weigh the same: its percentage in hundredths, summed over the children it counts as, and how many these are.
    pub(crate) equal: (u64, u64),
}

/// The sums behind a weighted mean.
#[derive(Debug, Default)]
struct Shares {
    count: f64,
    settled: f64,
    weighted: f64,
    weight: f64,
    weighed: f64,
    weighed_settled: f64,
}

impl Shares {
    fn add(&mut self, share: Share, state: State) {
        // Nothing remains of what has failed. What was interrupted is taken up again.
        let settled = if matches!(state, State::Failed | State::Cancelled) { 1.0 } else { share.reached };
        self.settled += settled;
        self.count += 1.0;
        if let Some(weight) = share.weight {
            self.weighted += settled * weight;
            self.weight += weight;
            self.weighed += 1.0;
            self.weighed_settled += settled;
        }
    }

    /// The mean, by expected work where that is known. A task of unknown work weighs as much as the average one of known work.
    fn mean(&self) -> Option<f64> {
        if self.count == 0.0 {
            return None;
        }
        if self.weight <= 0.0 {
            return Some(self.settled / self.count);
        }
        let usual = self.weight / self.weighed;
        let rest = self.count - self.weighed;
        Some((self.weighted + usual * (self.settled - self.weighed_settled)) / (self.weight + usual * rest))
    }
}

impl ChildSummary {
    /// Whether there are no children.
    pub(crate) fn is_empty(&self) -> bool {
        self.shares.count == 0.0
    }

    /// The mean share of the children.
    pub(crate) fn mean(&self) -> Option<f64> {
        self.shares.mean()
    }

    /// The mean of the percentages that the children show.
    pub(crate) fn equal_mean(&self) -> Option<Percent> {
        let (sum, count) = self.equal;
        (count > 0).then(|| Percent::of(sum, count.saturating_mul(Percent::COMPLETE.hundredths().into())))
    }

    pub(crate) fn add(&mut self, child: &Node, share: Share) {
        let open = child.state.is_open();
        let unknown = child.percent.is_none() && !child.meters.is_empty();
        self.active |= child.state.is_active();
        self.approximate |= open && (unknown || share.estimated || child.percent.is_some_and(Percent::is_approximate));
        self.measured |= child.percent.is_some() || matches!(child.state, State::Pending | State::Skipped);
        self.advance = Some(self.advance.map_or(child.ages.advance, |age| age.min(child.ages.advance)));
        self.shares.add(share, child.state);
        self.equal = (self.equal.0 + share.equal.0, self.equal.1 + share.equal.1);
    }
}
