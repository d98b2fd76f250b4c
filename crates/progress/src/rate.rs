//! Rate over a sliding window, and the time left as a range.
//!
//! The rate that is shown is that of the last half minute, since that is what a person compares with his own eyes. The time
//! left follows from the [`Pace`], which looks back as far as it makes sense.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::pace::{Pace, Speed};

/// How far back a rate looks.
const WINDOW: Duration = Duration::from_secs(30);
/// Samples closer together than this are merged: fifteen tell as much as a hundred.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_secs(2);
/// No rate is told from less than this.
const MIN_RATE_PERIOD: Duration = Duration::from_secs(1);
/// No time left is told from less than this.
const MIN_TIME_LEFT_PERIOD: Duration = Duration::from_secs(3);
/// No range is narrower than this share to either side: an estimate is never more precise.
const MIN_RANGE_WIDTH: f64 = 0.1;
/// None is wider: a range from nothing to double says nothing.
const MAX_RANGE_WIDTH: f64 = 0.6;
/// An estimated total makes it so much wider.
const ESTIMATED_TOTAL_WIDTH: f64 = 0.2;
/// An estimated total is believed once it has stayed the same for this long and through so many moves: one that is told seldom stays the
/// same between two words, and means nothing by it.
const ESTIMATE_STABLE_PERIOD: Duration = Duration::from_secs(5);
const ESTIMATE_STABLE_UPDATES: u32 = 3;
/// A time left beyond this is no information.
const MAX_TIME_LEFT: f64 = 30.0 * 86_400.0;

/// How long it will take: between `low` and `high` seconds, from p10 to p90. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeLeft {
    /// It takes longer than this in nine of ten cases.
    pub low: u64,
    /// It takes less than this in nine of ten cases.
    pub high: u64,
}

impl TimeLeft {
    /// A range from two estimates in seconds; nothing if they say nothing.
    pub(crate) fn between(low: f64, high: f64) -> Option<Self> {
        if !low.is_finite() || !high.is_finite() || high > MAX_TIME_LEFT {
            return None;
        }
        let low = whole_seconds(low.floor()).max(1);
        Some(Self { low, high: whole_seconds(high.ceil()).max(low) })
    }

    /// The middle, for fields that hold one number.
    pub fn middle(self) -> u64 {
        self.low.midpoint(self.high)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by MAX_TIME_LEFT, never negative")]
fn whole_seconds(seconds: f64) -> u64 {
    seconds.clamp(0.0, MAX_TIME_LEFT) as u64
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    settled: u64,
}

/// The last half minute of one meter.
#[derive(Debug, Default)]
pub(crate) struct Window {
    samples: VecDeque<Sample>,
    pace: Pace,
    total: Option<u64>,
    total_since: Duration,
    /// How often it has moved since.
    moves: u32,
}

impl Window {
    /// Takes a sample; old ones leave, but one from before the window stays as its edge.
    pub(crate) fn push(&mut self, at: Duration, settled: u64, total: Option<u64>) {
        let moved = self.samples.back().is_some_and(|newest| settled > newest.settled);
        if self.total != total {
            (self.total, self.total_since, self.moves) = (total, at, 0);
        } else if moved {
            self.moves = self.moves.saturating_add(1);
        }
        self.pace.push(at, settled);
        let sample = Sample { at, settled };
        let len = self.samples.len();
        // The newest sample is provisional until it is far enough from the one before it.
        if len >= 2 && self.samples[len - 1].at.saturating_sub(self.samples[len - 2].at) < MIN_SAMPLE_INTERVAL {
            self.samples[len - 1] = sample;
        } else {
            self.samples.push_back(sample);
        }
        let edge = at.saturating_sub(WINDOW);
        while self.samples.len() > 2 && self.samples[1].at <= edge {
            self.samples.pop_front();
        }
    }

    /// Forgets everything, for a task that has ended.
    pub(crate) fn clear(&mut self) {
        self.samples = VecDeque::new();
        self.pace.clear();
    }

    /// Units a second over the window.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.rate_over(WINDOW, MIN_RATE_PERIOD)
    }

    fn rate_over(&self, span: Duration, shortest: Duration) -> Option<f64> {
        let newest = self.samples.back()?;
        let edge = newest.at.saturating_sub(span);
        // The youngest sample that is at least as old as the edge, or the oldest there is.
        let oldest = self.samples.iter().take_while(|sample| sample.at <= edge).last().or(self.samples.front())?;
        let elapsed = newest.at.saturating_sub(oldest.at);
        (elapsed >= shortest).then(|| as_f64(newest.settled.saturating_sub(oldest.settled)) / elapsed.as_secs_f64())
    }

    /// Whether the total has stayed the same for long enough, or since the first look at it.
    fn total_is_steady(&self) -> bool {
        let (Some(oldest), Some(newest)) = (self.samples.front(), self.samples.back()) else { return false };
        let believed = newest.at.saturating_sub(self.total_since) >= ESTIMATE_STABLE_PERIOD
            && self.moves >= ESTIMATE_STABLE_UPDATES;
        self.total_since <= oldest.at || believed
    }

    /// The time for what remains at the pace it has.
    ///
    /// Absent when it would be a guess: no pace yet, nothing moving, a total that is still changing, or an end that should have
    /// come by now. An estimated total (`exact` is false) widens the range, and so does a pace that is not steady.
    pub(crate) fn time_left(&self, exact: bool) -> Option<TimeLeft> {
        let newest = self.samples.back()?;
        let remaining = self.total?.saturating_sub(newest.settled);
        if remaining == 0 || self.pace.stands_still(newest.at) || !(exact || self.total_is_steady()) {
            return None;
        }
        let speed = self.pace.speed(newest.at, MIN_TIME_LEFT_PERIOD)?;
        let left = as_f64(remaining) / speed.rate;
        let width = width(speed, left) + if exact { 0.0 } else { ESTIMATED_TOTAL_WIDTH };
        // What is still open when even the longest guess has passed without a move is in work that is not counted, such as the
        // storing of what was read: its pace says nothing about that.
        TimeLeft::between(left * (1.0 - width), left * (1.0 + width))
            .filter(|left| self.pace.silence(newest.at) <= Duration::from_secs(left.high))
    }
}

/// How far the truth may be to either side, as a share: by the noise of the pace, and by how much longer the future is than
/// the past it is told from.
fn width(speed: Speed, left: f64) -> f64 {
    let far = (left / speed.seconds).clamp(1.0, 4.0).sqrt() - 1.0;
    (MIN_RANGE_WIDTH + 1.5 * speed.doubt + MIN_RANGE_WIDTH * far).min(MAX_RANGE_WIDTH)
}

#[expect(clippy::cast_precision_loss, reason = "a rate for display needs no more than 53 bits")]
pub(crate) fn as_f64(value: u64) -> f64 {
    value as f64
}
