//! The output of a mover process: frames, and one result at the end. One line of JSON each.

use plimsoll_progress::Frame;
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::{MoverError, Result};

/// The serialized result of a job.
#[derive(Debug, Serialize, Deserialize)]
enum ResultLine {
    #[serde(rename = "outcome")]
    Outcome(Outcome),
    #[serde(rename = "error")]
    Error(MoverError),
}

/// One line of a mover's output.
#[derive(Debug)]
pub enum MoverMessage {
    /// A progress frame.
    Progress(Box<Frame>),
    /// The result of the job.
    Result(Result<Outcome>),
}

/// The line on standard input that cancels a job.
pub(crate) const CANCEL: &str = "cancel";

/// Serializes the result, the last line of a mover.
pub(crate) fn result_line(result: Result<Outcome>) -> String {
    let line = result.map_or_else(ResultLine::Error, ResultLine::Outcome);
    // Strings, numbers and lists only: serializing cannot fail.
    serde_json::to_string(&line).unwrap_or_default()
}

/// Whether a line that starts like this is a result.
pub(crate) fn is_result(line: &[u8]) -> bool {
    [&b"{\"outcome\":"[..], b"{\"error\":"].iter().any(|prefix| line.starts_with(prefix))
}

/// Parses a line of a mover's output.
pub fn parse_message(line: &[u8]) -> Result<MoverMessage> {
    if let Ok(result) = serde_json::from_slice(line) {
        return Ok(MoverMessage::Result(match result {
            ResultLine::Outcome(outcome) => Ok(outcome),
            ResultLine::Error(error) => Err(error),
        }));
    }
    let invalid = |_| MoverError::Protocol { line: crate::program::truncate(&String::from_utf8_lossy(line)) };
    Frame::from_slice(line).map(|frame| MoverMessage::Progress(Box::new(frame))).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_survive_the_pipe_and_an_invalid_line_is_a_protocol_error() {
        let line = result_line(Ok(Outcome::Unlocked(2)));
        assert!(is_result(line.as_bytes()) && !is_result(b"{\"operation\":\"outcome\"}"));
        assert!(matches!(parse_message(line.as_bytes()), Ok(MoverMessage::Result(Ok(Outcome::Unlocked(2))))));
        let line = result_line(Err(MoverError::WrongPassword { repository: "/r".into() }));
        assert!(is_result(line.as_bytes()));
        assert!(matches!(
            parse_message(line.as_bytes()),
            Ok(MoverMessage::Result(Err(MoverError::WrongPassword { .. })))
        ));
        let error = parse_message(b"Segmentation fault").expect_err("invalid");
        assert_eq!(error.reason(), "MoverProtocolError");
        assert!(error.to_string().contains("Segmentation fault"));
    }
}
