//! Exit codes that scripts can use.

use std::process::ExitCode;

/// How a command ended. The numbers are an interface: see `plimsoll --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything that was asked for is done.
    Success,
    /// The operation ended, but something is missing.
    PartiallyFailed,
    /// The operation failed.
    Failed,
    /// The operation was cancelled.
    Cancelled,
    /// The server refused it.
    Refused,
    /// It has not ended, and does not go on: what `why` and `top --once` find.
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
    /// What an event calls it.
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

/// What `--help` says about it.
pub const HELP: &str = "Exit codes: 0 done; 1 the command could not be carried out; 2 wrong usage; 3 ended with errors \
(PartiallyFailed); 4 failed; 5 cancelled; 6 refused by validation; 7 stuck (`why`, `top --once`).";

/// What was typed makes no sense: exit code 2, like what the parser of the command line finds itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Prints an error with its causes, and says so by the exit code.
#[expect(clippy::print_stderr, reason = "this is where errors reach the user")]
pub fn report(error: &anyhow::Error) -> ExitCode {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Many errors repeat their source in their own text.
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    eprintln!("plimsoll: {text}");
    ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
}
