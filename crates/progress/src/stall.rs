//! When silence is a verdict.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a task may go without advancing: the greater of a floor and a multiple of its own recent cadence.
///
/// The cadence of a task is the second longest of its last sixteen intervals: its usual long ones count, a single one that
/// was longer than all others does not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StallRule {
    /// No task is called stalled before this.
    pub floor: Duration,
    /// How many of its own usual intervals a task may miss.
    pub factor: u32,
}

impl Default for StallRule {
    /// Half a minute, or three intervals. Who looks once a second sees an advance up to a second late, and its absence, too:
    /// so that a task is named within half a minute, the floor is a little lower.
    fn default() -> Self {
        Self { floor: Duration::from_secs(28), factor: 3 }
    }
}

impl StallRule {
    /// The longest silence that is still normal for a task of this cadence.
    pub fn patience(&self, cadence: Option<Duration>) -> Duration {
        cadence.map_or(self.floor, |usual| self.floor.max(usual.saturating_mul(self.factor)))
    }
}

/// Why a task counts as stalled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StallReason {
    /// It runs without an advance.
    NoAdvance,
    /// It waits for longer than it should.
    WaitingTooLong,
    /// It reports no progress by design, and a liveness check failed.
    LivenessFailed,
    /// It reports no progress by design, and its deadline has passed.
    DeadlineExceeded,
    /// The process that does the work sends no reports.
    NoReport,
    /// It retries, sends again or waits again and again, and gains nothing.
    NoGain,
    /// It gains less than a hundredth of what it usually does in the same time.
    BelowUsualRate,
    /// A reason of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl StallReason {
    /// The stable name: condition reason, metric label, event reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoAdvance => "NoAdvance",
            Self::WaitingTooLong => "WaitingTooLong",
            Self::LivenessFailed => "LivenessFailed",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::NoReport => "NoReport",
            Self::NoGain => "NoGain",
            Self::BelowUsualRate => "BelowUsualRate",
            Self::Unknown => "Unknown",
        }
    }
}

impl StallReason {
    /// The reason of this name.
    pub fn of(name: &str) -> Self {
        const KNOWN: [StallReason; 7] = [
            StallReason::NoAdvance,
            StallReason::WaitingTooLong,
            StallReason::LivenessFailed,
            StallReason::DeadlineExceeded,
            StallReason::NoReport,
            StallReason::NoGain,
            StallReason::BelowUsualRate,
        ];
        KNOWN.into_iter().find(|reason| reason.reason() == name).unwrap_or_default()
    }

    /// What kind of stall it is the reason of.
    pub fn verdict(self) -> StallVerdict {
        match self {
            Self::NoGain => StallVerdict::Spinning,
            Self::BelowUsualRate => StallVerdict::Crawling,
            _ => StallVerdict::Stalled,
        }
    }
}

/// What is said of work that does not go on as it should, or that says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StallVerdict {
    /// Nothing moves.
    Stalled,
    /// It is busy and gains nothing.
    Spinning,
    /// It is slower than a hundredth of its usual rate.
    Crawling,
    /// It sends no signal by nature.
    Quiet,
}

impl StallVerdict {
    /// The stable name: event reason, metric label, JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stalled => "Stalled",
            Self::Spinning => "Spinning",
            Self::Crawling => "Crawling",
            Self::Quiet => "Quiet",
        }
    }

    /// One lower-case word, for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stalled => "stalled",
            Self::Spinning => "spinning",
            Self::Crawling => "crawling",
            Self::Quiet => "quiet",
        }
    }
}

impl Stall {
    /// What kind of stall it is.
    pub fn verdict(&self) -> StallVerdict {
        self.reason.verdict()
    }
}

/// The verdict: which task, since when, and why as far as it can be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stall {
    /// The path of the deepest stalled task (its name, if that is the root).
    pub task: Arc<str>,
    /// How long ago it last advanced, or gained something at its usual rate.
    #[serde(rename = "ageMs", with = "crate::text::millis")]
    pub age: Duration,
    /// The stable reason.
    pub reason: StallReason,
    /// The last event, error, log line or waiting reason that explains it.
    pub message: Arc<str>,
}

/// How many intervals between advances are remembered.
const MAX_INTERVALS: usize = 16;

/// The recent intervals between a task's advances.
#[derive(Debug, Default)]
pub(crate) struct Cadence {
    gaps: VecDeque<Duration>,
    usual: Option<Duration>,
}

impl Cadence {
    /// Notes an interval. It counts for no more than `patience`: one long stall must not teach the task to be slow.
    pub(crate) fn note(&mut self, gap: Duration, patience: Duration) {
        if gap.is_zero() {
            return;
        }
        if self.gaps.len() == MAX_INTERVALS {
            self.gaps.pop_front();
        }
        self.gaps.push_back(gap.min(patience));
        self.usual = second_longest(&self.gaps);
    }

    /// The second longest interval, once there are two.
    pub(crate) fn usual(&self) -> Option<Duration> {
        self.usual
    }
}

fn second_longest(gaps: &VecDeque<Duration>) -> Option<Duration> {
    let mut longest = [Duration::ZERO; 2];
    for gap in gaps {
        if *gap > longest[0] {
            longest = [*gap, longest[0]];
        } else if *gap > longest[1] {
            longest[1] = *gap;
        }
    }
    Some(longest[1]).filter(|gap| !gap.is_zero())
}
