//! A task as the cluster's objects show it at one moment, without rates and stalls.

use jiff::Timestamp;
use plimsoll_progress::{Counts, Total, Unit};

/// The status of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// Not started.
    Pending,
    /// Running.
    Running,
    /// Running, and reports no progress by design.
    Quiet,
    /// Waiting; too long is a stall.
    Waiting(String),
    /// Waiting for something that may take any time, such as a queue.
    Queued(String),
    /// Succeeded.
    Done,
    /// Failed.
    Failed(String),
    /// Cancelled on request.
    Cancelled(String),
}

impl TaskStatus {
    /// Whether the task has ended.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Done | Self::Failed(_) | Self::Cancelled(_))
    }
}

/// One task, as the cluster's objects show it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedTask {
    /// The name.
    pub name: String,
    /// The status.
    pub status: TaskStatus,
    /// When it started.
    pub began: Option<Timestamp>,
    /// When it was last updated.
    pub written: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Its meters.
    pub meters: Vec<Counts>,
    /// The current item.
    pub item: Option<String>,
    /// The last message about it.
    pub hint: Option<String>,
    /// All children have the same weight.
    pub equal_weights: bool,
    /// As how many children it counts where all weigh the same.
    pub shares: Option<u32>,
    /// Its child tasks.
    pub children: Vec<ObservedTask>,
}

impl ObservedTask {
    /// A task with a name and a status.
    pub fn new(name: impl Into<String>, status: TaskStatus) -> Self {
        Self {
            name: name.into(),
            status,
            began: None,
            written: None,
            ended: None,
            meters: Vec::new(),
            item: None,
            hint: None,
            equal_weights: false,
            shares: None,
            children: Vec::new(),
        }
    }

    /// Adds a meter. A total of nothing is no total.
    #[must_use]
    pub fn with_meter(mut self, unit: Unit, done: u64, total: Total) -> Self {
        self.meters.push(Counts { done, total, ..Counts::zero(unit) });
        self
    }

    /// Sets when it started and was last updated.
    #[must_use]
    pub fn with_times(mut self, began: Option<Timestamp>, written: Option<Timestamp>) -> Self {
        (self.began, self.written) = (began, written);
        self
    }

    /// Sets when it ended.
    #[must_use]
    pub fn with_end(mut self, ended: Option<Timestamp>) -> Self {
        self.ended = ended;
        self
    }

    /// Sets its child tasks.
    #[must_use]
    pub fn with_children(mut self, children: Vec<ObservedTask>) -> Self {
        self.children = children;
        self
    }
}
