//! Parser for the output of commands: phase outputs and progress frames among log lines.
//!
//! ```text
//!   loading rows ...                                          a log line
//!   ###Phase-output###: {"key":"path","value":"/a/b"}         an output; may start in the middle of a line
//!   ###Phase-progress###:{"version":1,"operation":...}        a progress frame
//! ```
//! Chunks arrive as the pipe delivers them: a marker, a character or a line may be split anywhere.

use std::collections::BTreeMap;

use crate::kando::protocol::Output;

/// Marker of an output.
pub const OUTPUT_MARKER: &str = "###Phase-output###:";
/// Marker of a progress frame.
pub const PROGRESS_MARKER: &str = "###Phase-progress###:";
/// Maximum length of an output line, which is stored in the status of the ActionSet.
pub const MAX_OUTPUT_LINE_LENGTH: usize = 256 << 10;
/// Maximum size of all outputs of a phase.
pub const MAX_OUTPUT_BYTES: usize = 512 << 10;
/// Maximum size of all outputs and artifacts of an ActionSet: etcd accepts objects of up to about 1.5 MiB.
pub const MAX_ACTION_SET_BYTES: usize = 1 << 20;
/// Maximum length of a progress frame; a longer one is dropped.
const MAX_PROGRESS_LINE_LENGTH: usize = 1 << 20;
/// Maximum length of a log line; the rest is dropped.
const MAX_LOG_LINE_LENGTH: usize = 16 << 10;
/// Length of an invalid line in an error.
const MAX_SHOWN_LENGTH: usize = 80;

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A log line.
    Log(String),
    /// A progress frame, without its marker.
    Progress(String),
}

/// The error of parsing outputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    /// Not a valid output.
    #[error("invalid output line {shown:?}: expected JSON with key and value: {cause}")]
    Malformed {
        /// The start of the line.
        shown: String,
        /// The error of the parser.
        cause: String,
    },
    /// Too large for the status.
    #[error("output {shown:?} exceeds {limit} bytes: store large results in object storage and output their path")]
    TooLong {
        /// The start of the line.
        shown: String,
        /// The limit.
        limit: usize,
    },
    /// Too large for the status, together with the outputs of other phases.
    #[error(
        "outputs of {size} bytes exceed the limit of {limit} bytes for all outputs and artifacts of an ActionSet: store \
         large results in object storage and output their path"
    )]
    ActionSetTooLarge {
        /// The size of the new outputs.
        size: usize,
        /// The limit.
        limit: usize,
    },
}

impl OutputError {
    /// Stable reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "OutputMalformed",
            Self::TooLong { .. } | Self::ActionSetTooLarge { .. } => "OutputTooLong",
        }
    }

    /// Always false.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// Parses a stream chunk by chunk.
#[derive(Debug, Default)]
pub struct OutputReader {
    /// The part of the current line that is kept.
    line: Vec<u8>,
    /// Number of dropped bytes of the current line.
    dropped: usize,
    outputs: BTreeMap<String, String>,
    size: usize,
}

impl OutputReader {
    /// Processes the next chunk; returns the completed lines, without outputs.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Vec<Line>, OutputError> {
        let mut lines = Vec::new();
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.append(&rest[..end])?;
            self.end_line(&mut lines)?;
            rest = &rest[end + 1..];
        }
        self.append(rest)?;
        Ok(lines)
    }

    /// Discards the partial line.
    pub fn discard_partial_line(&mut self) {
        self.line.clear();
        self.dropped = 0;
    }

    /// Processes the rest of the stream as a line.
    pub fn finish(mut self) -> Result<(Vec<Line>, BTreeMap<String, String>), OutputError> {
        let mut lines = Vec::new();
        self.end_line(&mut lines)?;
        Ok((lines, self.outputs))
    }

    /// The outputs so far.
    pub fn outputs(&self) -> &BTreeMap<String, String> {
        &self.outputs
    }

    /// Appends to the line, within limits: keeps everything from a marker on, otherwise the start and enough of the end for a
    /// partial marker.
    fn append(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        self.line.extend_from_slice(bytes);
        if self.line.len() <= MAX_LOG_LINE_LENGTH {
            return Ok(());
        }
        match find_marker(&self.line) {
            Some((at, OUTPUT_MARKER)) if self.line.len() - at > MAX_OUTPUT_LINE_LENGTH => {
                Err(OutputError::TooLong { shown: shorten(&self.line[at..]), limit: MAX_OUTPUT_LINE_LENGTH })
            }
            Some((_, OUTPUT_MARKER)) => Ok(()),
            Some((at, _)) => {
                self.line.truncate(at + MAX_PROGRESS_LINE_LENGTH);
                Ok(())
            }
            None => {
                let overlap = OUTPUT_MARKER.len().max(PROGRESS_MARKER.len()) - 1;
                let cut = self.line.len() - overlap;
                self.dropped += cut - (MAX_LOG_LINE_LENGTH - overlap);
                self.line.drain(MAX_LOG_LINE_LENGTH - overlap..cut);
                Ok(())
            }
        }
    }

    fn end_line(&mut self, lines: &mut Vec<Line>) -> Result<(), OutputError> {
        let line = std::mem::take(&mut self.line);
        let dropped = std::mem::take(&mut self.dropped);
        let (log, found) = match find_marker(&line) {
            Some((at, kind)) => (&line[..at], Some((kind, &line[at + kind.len()..]))),
            None => (&line[..], None),
        };
        let mut text = String::from_utf8_lossy(log).trim_end().to_owned();
        if dropped > 0 {
            text.truncate(text.floor_char_boundary(MAX_LOG_LINE_LENGTH));
            text += &format!(" … ({dropped} bytes omitted)");
        }
        if !text.is_empty() {
            lines.push(Line::Log(text));
        }
        match found {
            Some((OUTPUT_MARKER, content)) => self.add(content),
            Some((_, content)) => {
                lines.push(Line::Progress(String::from_utf8_lossy(content).trim().to_owned()));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn add(&mut self, content: &[u8]) -> Result<(), OutputError> {
        let content = content.trim_ascii();
        if content.is_empty() {
            return Ok(());
        }
        let output: Output = serde_json::from_slice(content)
            .map_err(|error| OutputError::Malformed { shown: shorten(content), cause: error.to_string() })?;
        self.size += output.key.len() + output.value.len();
        if self.size > MAX_OUTPUT_BYTES {
            return Err(OutputError::TooLong { shown: shorten(content), limit: MAX_OUTPUT_BYTES });
        }
        self.outputs.insert(output.key, output.value);
        Ok(())
    }
}

/// Position and kind of the first marker of a line.
fn find_marker(line: &[u8]) -> Option<(usize, &'static str)> {
    let find = |word: &'static str| {
        let position = line.windows(word.len()).position(|window| window == word.as_bytes())?;
        Some((position, word))
    };
    [find(OUTPUT_MARKER), find(PROGRESS_MARKER)].into_iter().flatten().min_by_key(|(at, _)| *at)
}

fn shorten(content: &[u8]) -> String {
    let text = String::from_utf8_lossy(&content[..content.len().min(MAX_SHOWN_LENGTH * 4)]);
    let mut short: String = text.chars().take(MAX_SHOWN_LENGTH).collect();
    if short.len() < content.len() {
        short.push('…');
    }
    short
}
