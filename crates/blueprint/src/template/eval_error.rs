//! Evaluation errors, without the name and line of the template.

use super::limits::LimitExceeded;

/// A failure of a function or a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EvalError {
    Message(String),
    NotFound(String),
    TooMuch(&'static str),
}

impl EvalError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self::Message(message.into())
    }

    pub(super) fn too_much(limit: &'static str) -> Self {
        Self::TooMuch(limit)
    }
}

impl From<LimitExceeded> for EvalError {
    fn from(exceeded: LimitExceeded) -> Self {
        Self::TooMuch(exceeded.0)
    }
}
