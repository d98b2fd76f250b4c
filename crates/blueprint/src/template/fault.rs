//! What goes wrong inside, before the template's name and line are known.

use super::limits::Exceeded;

/// A failure of a function or a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Message(String),
    NotFound(String),
    TooMuch(&'static str),
}

impl Fault {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self::Message(message.into())
    }

    pub(super) fn too_much(limit: &'static str) -> Self {
        Self::TooMuch(limit)
    }
}

impl From<Exceeded> for Fault {
    fn from(exceeded: Exceeded) -> Self {
        Self::TooMuch(exceeded.0)
    }
}
