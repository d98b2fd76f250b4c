//! The position in the log of a container, to continue reading after the stream was closed.
//!
//! The kubelet adds a timestamp to each line. A log is opened again from the timestamp of the last line that was read, and lines
//! with this timestamp that were read already are skipped. This works across log rotation.

use futures::{AsyncRead, AsyncReadExt};
use jiff::Timestamp;
use kube::api::LogParams;

use crate::Error;

/// Maximum length of a timestamp.
const MAX_TIMESTAMP_LENGTH: usize = 40;

/// Reads a stream chunk by chunk until it ends or fails.
pub async fn read_chunks(
    stream: impl AsyncRead,
    mut take: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut stream, mut chunk) = (Box::pin(stream), vec![0; 32 << 10]);
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        take(&chunk[..read])?;
    }
    Ok(())
}

/// The position in a log.
#[derive(Debug, Default)]
pub struct LogPosition {
    /// The timestamp of the last line.
    last: Option<Timestamp>,
    /// Number of lines read with this timestamp.
    same: usize,
    /// Whether the last line was read only in part.
    open: bool,
}

impl LogPosition {
    /// Parameters to follow the log of a container from this position.
    pub fn log_params(&self, container: &str) -> LogParams {
        LogParams {
            container: Some(container.to_owned()),
            follow: true,
            timestamps: true,
            // Sent as whole seconds, rounded: a time after the last line would leave out the lines between.
            since_time: self.last.and_then(|last| Timestamp::from_second(last.as_second()).ok()),
            ..LogParams::default()
        }
    }

    /// Starts to read the log, at first or again.
    pub fn open(&mut self) -> LogLines<'_> {
        let (known, line_interrupted) = (self.same.saturating_sub(usize::from(self.open)), self.open);
        LogLines { position: self, known, line_interrupted, head: Vec::new(), line_position: LinePosition::Start }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePosition {
    /// In the timestamp of a line, or before it.
    Start,
    /// In a line that was read before.
    Old,
    /// In a new line.
    New,
}

/// An open log.
pub struct LogLines<'a> {
    position: &'a mut LogPosition,
    /// Number of lines with the last timestamp to skip.
    known: usize,
    /// Whether the line after these was read in part.
    line_interrupted: bool,
    /// The partial timestamp of a line.
    head: Vec<u8>,
    line_position: LinePosition,
}

/// The new data in a chunk of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NewLogData {
    /// Whether the partial line starts again.
    pub restarts_line: bool,
    /// The text without timestamps.
    pub text: Vec<u8>,
}

impl LogLines<'_> {
    /// Processes the next chunk.
    pub fn push(&mut self, chunk: &[u8]) -> NewLogData {
        let mut new_data = NewLogData::default();
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            let ends = part.ends_with(b"\n");
            if self.line_position == LinePosition::Start {
                let Some(text) = self.begin(part, &mut new_data) else { continue };
                self.process_line(&text, ends, &mut new_data);
            } else {
                self.process_line(part, ends, &mut new_data);
            }
        }
        new_data
    }

    fn process_line(&mut self, text: &[u8], ends: bool, new_data: &mut NewLogData) {
        if self.line_position == LinePosition::New {
            new_data.text.extend_from_slice(text);
            self.position.open = !ends;
        }
        if ends {
            self.line_position = LinePosition::Start;
        }
    }

    /// The start of a line without its timestamp, once the timestamp is complete. A line without timestamp is new.
    fn begin(&mut self, part: &[u8], new_data: &mut NewLogData) -> Option<Vec<u8>> {
        self.head.extend_from_slice(part);
        let space = self.head.iter().position(|byte| *byte == b' ');
        if space.is_none() && !part.ends_with(b"\n") && self.head.len() < MAX_TIMESTAMP_LENGTH {
            return None;
        }
        let head = std::mem::take(&mut self.head);
        let time = space.and_then(|at| Some((at, std::str::from_utf8(&head[..at]).ok()?.parse().ok()?)));
        self.line_position = time.map_or(LinePosition::New, |(_, time)| self.classify_timestamp(time));
        if self.line_position == LinePosition::New {
            new_data.restarts_line |= std::mem::take(&mut self.line_interrupted);
        }
        Some(time.map_or(head.clone(), |(at, _)| head[at + 1..].to_vec()))
    }

    fn classify_timestamp(&mut self, time: Timestamp) -> LinePosition {
        let position = &mut *self.position;
        if position.last.is_some_and(|last| time < last) {
            return LinePosition::Old;
        }
        if position.last != Some(time) {
            (position.last, position.same, self.known) = (Some(time), 1, 0);
        } else if self.known > 0 {
            self.known -= 1;
            return LinePosition::Old;
        } else if !self.line_interrupted {
            position.same += 1;
        }
        LinePosition::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All text read from logs that are opened one after the other, in chunks of this size.
    fn position(logs: &[&str], size: usize) -> String {
        let (mut position, mut text) = (LogPosition::default(), String::new());
        for log in logs {
            let mut lines = position.open();
            for chunk in log.as_bytes().chunks(size) {
                let new_data = lines.push(chunk);
                if new_data.restarts_line {
                    text.truncate(text.rfind('\n').map_or(0, |at| at + 1));
                }
                text += std::str::from_utf8(&new_data.text).unwrap();
            }
        }
        text
    }

    const A: &str = "2026-01-01T00:00:01.000000001Z a\n";
    const B: &str = "2026-01-01T00:00:02.5Z b b\n";
    const B2: &str = "2026-01-01T00:00:02.5Z again\n";
    const C: &str = "2026-01-01T00:00:03Z c\n";
    const EMPTY: &str = "2026-01-01T00:00:04Z \n";

    #[test]
    fn reading_continues_wherever_the_log_starts() {
        let whole = [A, B, B2, C, EMPTY].concat();
        let cases: [(&str, Vec<String>); 6] = [
            ("not interrupted", vec![whole.clone()]),
            ("read again from its start", vec![[A, B].concat(), whole.clone()]),
            ("the log was rotated", vec![[A, B, B2].concat(), [C, EMPTY].concat()]),
            ("from the timestamp of the last line", vec![[A, B, B2].concat(), [B, B2, C, EMPTY].concat()]),
            ("interrupted in a line", vec![[A, &B[..26]].concat(), [B, B2, C, EMPTY].concat()]),
            ("interrupted in a timestamp", vec![[A, B, B2, &C[..9]].concat(), [B, B2, C, EMPTY].concat(), whole]),
        ];
        for (name, logs) in cases {
            let logs: Vec<&str> = logs.iter().map(String::as_str).collect();
            for size in [1, 7, 1000] {
                assert_eq!(position(&logs, size), "a\nb b\nagain\nc\n\n", "{name}, in chunks of {size}");
            }
        }
    }

    #[test]
    fn a_log_is_opened_again_from_the_second_of_its_last_line() {
        let mut position = LogPosition::default();
        assert_eq!(position.log_params("c").since_time, None);
        position.open().push(b"2026-01-01T00:00:02.7Z a\n");
        assert_eq!(position.log_params("c").since_time, Some("2026-01-01T00:00:02Z".parse().unwrap()));
    }

    #[test]
    fn lines_without_timestamp_are_read() {
        assert_eq!(position(&["failed to open log file\n"], 5), "failed to open log file\n");
        assert_eq!(position(&[&[A, "a line that was split\n"].concat()], 3), "a\na line that was split\n");
    }
}
