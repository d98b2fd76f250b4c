//! What the commands and the controller say to each other through a pod's log.

use plimsoll_progress::Frame;
use serde::{Deserialize, Serialize};

use super::{KandoError, Result};

/// Before an output, anywhere in a line of standard output.
pub const OUTPUT: &str = "###Phase-output###:";
/// Before a frame, in a line of standard error. Kanister's controller takes such a line for a log line.
pub const PROGRESS: &str = "###Phase-progress###:";

/// One output of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

impl Output {
    /// An output, if Kanister allows its key.
    pub fn new(key: &str, value: &str) -> Result<Self> {
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(KandoError::InvalidKey { key: key.to_owned() });
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }

    /// The line, without its end.
    pub fn to_line(&self) -> String {
        // Two strings: there is nothing in it that JSON could not hold.
        format!("{OUTPUT} {}", serde_json::to_string(self).unwrap_or_default())
    }
}

/// The line that carries a frame, without its end.
pub fn progress_line(frame: &Frame) -> String {
    format!("{PROGRESS} {}", frame.to_line())
}
