//! A tree as the objects of one moment tell it, before anything is made of its numbers.

use jiff::Timestamp;
use plimsoll_progress::{Counts, Total, Unit};

/// How something stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not begun.
    Pending,
    /// At work.
    Running,
    /// At work, and sends no signal by nature.
    Quiet,
    /// Waits; too long is a stall.
    Waiting(String),
    /// Waits for something that may take any time, such as its turn.
    Patient(String),
    /// Ended well.
    Done,
    /// Ended badly.
    Failed(String),
    /// Ended because somebody asked.
    Cancelled(String),
}

impl Standing {
    /// Whether it will not change any more.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Done | Self::Failed(_) | Self::Cancelled(_))
    }
}

/// One task, as the objects tell it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sketch {
    /// What to call it.
    pub name: String,
    /// How it stands.
    pub standing: Standing,
    /// When it began.
    pub began: Option<Timestamp>,
    /// When something about it was last written.
    pub written: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// What it counts.
    pub meters: Vec<Counts>,
    /// What it is doing.
    pub item: Option<String>,
    /// The last thing heard about it.
    pub hint: Option<String>,
    /// All children weigh the same.
    pub equal_weights: bool,
    /// What it is made of.
    pub children: Vec<Sketch>,
}

impl Sketch {
    /// A task about which nothing more is known.
    pub fn new(name: impl Into<String>, standing: Standing) -> Self {
        Self {
            name: name.into(),
            standing,
            began: None,
            written: None,
            ended: None,
            meters: Vec::new(),
            item: None,
            hint: None,
            equal_weights: false,
            children: Vec::new(),
        }
    }

    /// With what it counts. A total of nothing is no total.
    #[must_use]
    pub fn counting(mut self, unit: Unit, done: u64, total: Total) -> Self {
        self.meters.push(Counts { done, total, ..Counts::zero(unit) });
        self
    }

    /// With the moments at which it began and was last written.
    #[must_use]
    pub fn at(mut self, began: Option<Timestamp>, written: Option<Timestamp>) -> Self {
        (self.began, self.written) = (began, written);
        self
    }

    /// With the moment at which it ended.
    #[must_use]
    pub fn until(mut self, ended: Option<Timestamp>) -> Self {
        self.ended = ended;
        self
    }

    /// With what it is made of.
    #[must_use]
    pub fn of(mut self, children: Vec<Sketch>) -> Self {
        self.children = children;
        self
    }
}
