//! When silence is a verdict.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a task may go without advancing: the greater of a floor and a multiple of its own recent cadence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StallRule {
    /// No task is called stalled before this.
    pub floor: Duration,
    /// How many of its own usual intervals a task may miss.
    pub factor: u32,
}

impl Default for StallRule {
    /// Half a minute, or five intervals.
    fn default() -> Self {
        Self { floor: Duration::from_secs(30), factor: 5 }
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
    /// It runs, and nothing has moved.
    NoAdvance,
    /// It waits, for longer than it should.
    WaitingTooLong,
    /// It sends no signal by nature, and a check found it dead.
    LivenessFailed,
    /// It sends no signal by nature, and its time is up.
    DeadlineExceeded,
    /// Another process does the work, and that process has fallen silent.
    NoWord,
    /// A reason this version does not know, from a newer process.
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
            Self::NoWord => "NoWord",
            Self::Unknown => "Unknown",
        }
    }
}

/// The verdict: which task, since when, and why as far as it can be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stall {
    /// The path of the deepest stalled task (its name, if that is the root).
    pub task: Arc<str>,
    /// How long ago it last advanced.
    #[serde(rename = "ageMs", with = "crate::text::millis")]
    pub age: Duration,
    /// The stable reason.
    pub reason: StallReason,
    /// The last event, error, log line or waiting reason that explains it.
    pub message: Arc<str>,
}

/// How many intervals between advances are remembered.
const REMEMBERED: usize = 16;

/// The recent intervals between a task's advances, and their sum.
#[derive(Debug, Default)]
pub(crate) struct Cadence {
    gaps: VecDeque<Duration>,
    sum: Duration,
}

impl Cadence {
    /// Notes an interval. It counts for no more than `patience`: one long stall must not teach the task to be slow.
    pub(crate) fn note(&mut self, gap: Duration, patience: Duration) {
        if gap.is_zero() {
            return;
        }
        if self.gaps.len() == REMEMBERED {
            let oldest = self.gaps.pop_front().unwrap_or_default();
            self.sum = self.sum.saturating_sub(oldest);
        }
        let gap = gap.min(patience);
        self.gaps.push_back(gap);
        self.sum = self.sum.saturating_add(gap);
    }

    /// The mean interval, once there is one.
    pub(crate) fn mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.gaps.len()).ok().filter(|count| *count > 0)?;
        Some(self.sum / count)
    }
}
