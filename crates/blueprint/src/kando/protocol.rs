//! The protocol between `kando` and the controller, over the log of a pod.

use plimsoll_progress::Frame;
use serde::{Deserialize, Serialize};

use super::{KandoError, Result};
use crate::output::{OUTPUT_MARKER, PROGRESS_MARKER};

/// One output of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
}

impl Output {
    /// An output; the key must be valid in Kanister.
    pub fn new(key: &str, value: &str) -> Result<Self> {
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(KandoError::InvalidKey { key: key.to_owned() });
        }
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }

    /// The line, without a newline.
    pub fn to_line(&self) -> String {
        // Two strings: serialization cannot fail.
        format!("{OUTPUT_MARKER} {}", serde_json::to_string(self).unwrap_or_default())
    }
}

/// The line with a progress frame, without a newline. Kanister's controller treats it as a log line.
pub fn progress_line(frame: &Frame) -> String {
    format!("{PROGRESS_MARKER} {}", frame.to_line())
}
