//! The life of a task.

use serde::{Deserialize, Serialize};

/// Where a task is in its life.
///
/// Stalled and Quiet are not states but verdicts on a running or waiting task: see [`crate::Node::stall`] and
/// [`crate::Node::quiet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Planned, not begun.
    Pending,
    /// At work.
    Running,
    /// Not at work, for a reason that is shown.
    Waiting,
    /// Was at work in a process that is gone; the one that took over has not reached it yet.
    TakenOver,
    /// Ended well.
    Done,
    /// Was not needed, for a reason.
    Skipped,
    /// Ended badly, for a reason.
    Failed,
    /// Cancelled on request.
    Cancelled,
    /// Its process is gone without reporting an end.
    Interrupted,
    /// A state this version does not know, from a newer process.
    #[default]
    #[serde(other)]
    Unknown,
}

impl State {
    /// Whether it can still change.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Running | Self::Waiting | Self::TakenOver | Self::Unknown)
    }

    /// Whether it has ended, in any way.
    pub fn is_ended(self) -> bool {
        !self.is_open()
    }

    /// Whether work is going on or being waited for.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Waiting | Self::TakenOver)
    }

    /// Whether it ended badly: failed, cancelled or interrupted.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Failed | Self::Cancelled | Self::Interrupted)
    }

    /// One lower-case word, for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::TakenOver => "taken over",
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Unknown => "unknown",
        }
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Well.
    Succeeded,
    /// Badly, for this reason.
    Failed(String),
    /// Cancelled on request, for this reason.
    Cancelled(String),
}

impl Ending {
    pub(crate) fn into_parts(self) -> (State, Option<String>) {
        match self {
            Self::Succeeded => (State::Done, None),
            Self::Failed(reason) => (State::Failed, Some(reason)),
            Self::Cancelled(reason) => (State::Cancelled, Some(reason)),
        }
    }
}
