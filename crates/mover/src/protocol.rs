//! What a mover's process writes: frames, and one verdict at the end. One line each.

use plimsoll_progress::Frame;
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::{MoverError, Result};

/// How the job ended.
#[derive(Debug, Serialize, Deserialize)]
enum Verdict {
    #[serde(rename = "verdict")]
    Outcome(Outcome),
    #[serde(rename = "failure")]
    Error(MoverError),
}

/// One line of a mover's output.
#[derive(Debug)]
pub(crate) enum Line {
    Frame(Box<Frame>),
    Verdict(Result<Outcome>),
}

/// What a line of a mover's output says, for whoever runs one elsewhere than in a child process.
#[derive(Debug)]
pub enum Said {
    /// How far it is.
    Progress(Box<Frame>),
    /// How it ended.
    Ended(Result<Outcome>),
}

/// Understands a line of a mover's output, or names it as garbage.
pub fn understand(line: &[u8]) -> Result<Said> {
    parse(line).map(|line| match line {
        Line::Frame(frame) => Said::Progress(frame),
        Line::Verdict(verdict) => Said::Ended(verdict),
    })
}

/// The word on standard input that stops a mover.
pub(crate) const CANCEL: &str = "cancel";

/// The last line of a mover.
pub(crate) fn verdict_line(result: Result<Outcome>) -> String {
    let verdict = result.map_or_else(Verdict::Error, Verdict::Outcome);
    // Strings, numbers and lists only: there is nothing in a verdict that JSON could not hold.
    serde_json::to_string(&verdict).unwrap_or_default()
}

/// Whether a line that begins like this is a mover's last.
pub(crate) fn is_verdict(line: &[u8]) -> bool {
    [&b"{\"verdict\":"[..], b"{\"failure\":"].iter().any(|beginning| line.starts_with(beginning))
}

/// Understands a line, or names it as garbage.
pub(crate) fn parse(line: &[u8]) -> Result<Line> {
    if let Ok(verdict) = serde_json::from_slice(line) {
        return Ok(Line::Verdict(match verdict {
            Verdict::Outcome(outcome) => Ok(outcome),
            Verdict::Error(error) => Err(error),
        }));
    }
    let garbage = |_| MoverError::Garbage { line: crate::tool::cut(&String::from_utf8_lossy(line)) };
    Frame::from_slice(line).map(|frame| Line::Frame(Box::new(frame))).map_err(garbage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_survive_the_pipe_and_garbage_is_named() {
        let line = verdict_line(Ok(Outcome::Unlocked(2)));
        assert!(is_verdict(line.as_bytes()) && !is_verdict(b"{\"operation\":\"verdict\"}"));
        assert!(matches!(parse(line.as_bytes()), Ok(Line::Verdict(Ok(Outcome::Unlocked(2))))));
        let line = verdict_line(Err(MoverError::WrongPassword { repository: "/r".into() }));
        assert!(is_verdict(line.as_bytes()));
        assert!(matches!(parse(line.as_bytes()), Ok(Line::Verdict(Err(MoverError::WrongPassword { .. })))));
        let error = parse(b"Segmentation fault").expect_err("garbage");
        assert_eq!(error.reason(), "MoverGarbage");
        assert!(error.to_string().contains("Segmentation fault"));
    }
}
