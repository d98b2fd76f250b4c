//! The log of a container in the CRI format: each part of a line has the time at which it was written.
//!
//! ```text
//! 2026-01-01T00:00:01.000000000Z P half of a line
//! 2026-01-01T00:00:02.500000000Z F  and its end
//! ```

use bytes::Bytes;
use jiff::Timestamp;
use std::path::Path;
use tokio::{
    fs::File,
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
};

/// Size of one read from the output of a container.
const READ_SIZE: usize = 32 << 10;

/// Writes the output of a container to its log until the output ends.
pub(super) async fn write_log(mut output: impl AsyncRead + Unpin, path: &Path) {
    let mut file = File::options().create(true).append(true).open(path).await.ok();
    let mut piece = vec![0; READ_SIZE];
    while let Ok(length @ 1..) = output.read(&mut piece).await {
        // A container must not block because its log cannot be written.
        if let Some(open) = &mut file
            && let Err(error) = append(open, &piece[..length]).await
        {
            tracing::warn!(log = %path.display(), %error, "cannot write the log of a container");
            file = None;
        }
    }
}

async fn append(file: &mut File, piece: &[u8]) -> std::io::Result<()> {
    file.write_all(&format_entries(piece, Timestamp::now())).await?;
    file.flush().await
}

fn format_entries(piece: &[u8], now: Timestamp) -> Vec<u8> {
    let mut entries = Vec::with_capacity(piece.len() + 64);
    for part in piece.split_inclusive(|byte| *byte == b'\n') {
        let line = part.strip_suffix(b"\n");
        let tag = if line.is_some() { 'F' } else { 'P' };
        entries.extend_from_slice(format!("{now:.9} {tag} ").as_bytes());
        entries.extend_from_slice(line.unwrap_or(part));
        entries.push(b'\n');
    }
    entries
}

/// Converts log entries to the output of `kubectl logs`, chunk by chunk.
#[derive(Debug)]
pub(super) struct LogFormatter {
    /// Each line starts with its time.
    with_timestamps: bool,
    /// Earlier entries are omitted.
    since: Option<Timestamp>,
    /// An incomplete entry at the end of the last chunk.
    incomplete: Vec<u8>,
    /// The last formatted line is incomplete.
    within_line: bool,
}

impl LogFormatter {
    pub fn new(with_timestamps: bool, since: Option<Timestamp>) -> Self {
        Self { with_timestamps, since, incomplete: Vec::new(), within_line: false }
    }

    /// Formats a further chunk of the log file.
    pub fn format(&mut self, entries_read: &[u8]) -> Bytes {
        let mut formatted = Vec::with_capacity(entries_read.len());
        self.incomplete.extend_from_slice(entries_read);
        let whole = self.incomplete.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let entries: Vec<u8> = self.incomplete.drain(..whole).collect();
        for entry in entries.split_inclusive(|byte| *byte == b'\n') {
            self.format_entry(entry, &mut formatted);
        }
        formatted.into()
    }

    fn format_entry(&mut self, entry: &[u8], formatted: &mut Vec<u8>) {
        let Some((head, time, ends_line, text)) = parse(entry) else {
            return formatted.extend_from_slice(entry);
        };
        if self.since.is_some_and(|since| time < since) {
            return;
        }
        if self.with_timestamps && !self.within_line {
            formatted.extend_from_slice(head);
        }
        formatted.extend_from_slice(text);
        if ends_line {
            formatted.push(b'\n');
        }
        self.within_line = !ends_line;
    }
}

/// The prefix of an entry with its time, the parsed time, whether the entry ends its line, and its text.
fn parse(entry: &[u8]) -> Option<(&[u8], Timestamp, bool, &[u8])> {
    let space = entry.iter().position(|byte| *byte == b' ')?;
    let time = std::str::from_utf8(&entry[..space]).ok()?.parse().ok()?;
    let (head, rest) = entry.split_at(space + 1);
    let ends_line = match rest.get(..2)? {
        b"F " => true,
        b"P " => false,
        _ => return None,
    };
    Some((head, time, ends_line, rest[2..].strip_suffix(b"\n")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn log() -> Vec<u8> {
        [format_entries(b"one\ntw", at(1)), format_entries(b"o\n\n", at(2)), format_entries(b"F three\nopen", at(3))]
            .concat()
    }

    fn formatted(formatter: &mut LogFormatter, log: &[u8], size: usize) -> String {
        log.chunks(size).map(|piece| String::from_utf8(formatter.format(piece).to_vec()).unwrap()).collect()
    }

    #[test]
    fn formatting_does_not_depend_on_the_chunk_size() {
        for size in [1, 7, 1000] {
            assert_eq!(
                formatted(&mut LogFormatter::new(false, None), &log(), size),
                "one\ntwo\n\nF three\nopen",
                "{size}"
            );
        }
    }

    #[test]
    fn every_line_starts_with_the_time_of_its_first_part() {
        let time = |second: i64| format!("1970-01-01T00:00:0{second}.000000000Z ");
        let expected = format!("{0}one\n{0}two\n{1}\n{2}F three\n{2}open", time(1), time(2), time(3));
        for size in [1, 7, 1000] {
            assert_eq!(formatted(&mut LogFormatter::new(true, None), &log(), size), expected, "{size}");
        }
    }

    #[test]
    fn entries_before_since_are_omitted() {
        assert_eq!(formatted(&mut LogFormatter::new(false, Some(at(3))), &log(), 7), "F three\nopen");
        assert_eq!(formatted(&mut LogFormatter::new(false, Some(at(4))), &log(), 7), "");
    }

    #[test]
    fn a_line_without_a_time_is_passed_through() {
        assert_eq!(
            formatted(&mut LogFormatter::new(true, None), b"written by an older version\n", 5),
            "written by an older version\n"
        );
    }
}
