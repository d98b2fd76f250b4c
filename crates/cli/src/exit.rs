//! Exit codes that scripts can use.

use std::process::ExitCode;

/// The outcome of a command. The numbers are an interface: see `plimsoll --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command did everything that was requested.
    Success,
    /// The operation ended, but something is missing.
    PartiallyFailed,
    /// The operation failed.
    Failed,
    /// The operation was cancelled.
    Cancelled,
    /// The server refused it.
    Refused,
    /// It has not ended and makes no progress: the finding of `why` and `top --once`.
    Stuck,
}

impl Outcome {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::PartiallyFailed => 3,
            Self::Failed => 4,
            Self::Cancelled => 5,
            Self::Refused => 6,
            Self::Stuck => 7,
        }
    }
}

impl Outcome {
    /// Its name in events.
    pub fn word(self) -> &'static str {
        match self {
            Self::Success => "Succeeded",
            Self::PartiallyFailed => "PartiallyFailed",
            Self::Failed => "Failed",
            Self::Cancelled => "Cancelled",
            Self::Refused => "Refused",
            Self::Stuck => "Stalled",
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        outcome.code().into()
    }
}

/// The exit codes in `--help`.
pub const HELP: &str = "Exit codes: 0 succeeded; 1 the command failed; 2 invalid usage; 3 the operation ended with errors \
(PartiallyFailed); 4 the operation failed; 5 cancelled; 6 validation failed; 7 stalled (`why`, `top --once`); 130 \
interrupted: a wait ended by Ctrl-C; the operation continues.";
