//! The log of a container, kept as a kubelet keeps it: each piece of a line with the time at which it came.
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

/// How much of what a container says is taken at once.
const PIECE: usize = 32 << 10;

/// Writes down what a container says, until it has said all.
pub(super) async fn keep(mut said: impl AsyncRead + Unpin, path: &Path) {
    let mut file = File::options().create(true).append(true).open(path).await.ok();
    let mut piece = vec![0; PIECE];
    while let Ok(length @ 1..) = said.read(&mut piece).await {
        // A container is not held up by a log that cannot be written.
        if let Some(open) = &mut file
            && let Err(error) = append(open, &piece[..length]).await
        {
            tracing::warn!(log = %path.display(), %error, "cannot write the log of a container");
            file = None;
        }
    }
}

async fn append(file: &mut File, piece: &[u8]) -> std::io::Result<()> {
    file.write_all(&stamped(piece, Timestamp::now())).await?;
    file.flush().await
}

fn stamped(piece: &[u8], now: Timestamp) -> Vec<u8> {
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

/// Turns what was kept into what somebody asked to see, piece by piece.
#[derive(Debug)]
pub(super) struct View {
    /// Each line begins with its time.
    with_times: bool,
    /// What came earlier is left out.
    since: Option<Timestamp>,
    /// An entry that has not come to its end.
    rest: Vec<u8>,
    /// The last line that was shown has not come to its end.
    within_line: bool,
}

impl View {
    pub fn new(with_times: bool, since: Option<Timestamp>) -> Self {
        Self { with_times, since, rest: Vec::new(), within_line: false }
    }

    /// What a further piece of the kept log shows.
    pub fn show(&mut self, kept: &[u8]) -> Bytes {
        let mut shown = Vec::with_capacity(kept.len());
        self.rest.extend_from_slice(kept);
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let entries: Vec<u8> = self.rest.drain(..whole).collect();
        for entry in entries.split_inclusive(|byte| *byte == b'\n') {
            self.show_entry(entry, &mut shown);
        }
        shown.into()
    }

    fn show_entry(&mut self, entry: &[u8], shown: &mut Vec<u8>) {
        let Some((head, time, is_end, text)) = parse(entry) else {
            return shown.extend_from_slice(entry);
        };
        if self.since.is_some_and(|since| time < since) {
            return;
        }
        if self.with_times && !self.within_line {
            shown.extend_from_slice(head);
        }
        shown.extend_from_slice(text);
        if is_end {
            shown.push(b'\n');
        }
        self.within_line = !is_end;
    }
}

/// The time of an entry, as it is written and as it is, whether the entry ends its line, and its text.
fn parse(entry: &[u8]) -> Option<(&[u8], Timestamp, bool, &[u8])> {
    let space = entry.iter().position(|byte| *byte == b' ')?;
    let time = std::str::from_utf8(&entry[..space]).ok()?.parse().ok()?;
    let (head, rest) = entry.split_at(space + 1);
    let is_end = match rest.get(..2)? {
        b"F " => true,
        b"P " => false,
        _ => return None,
    };
    Some((head, time, is_end, rest[2..].strip_suffix(b"\n")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn log() -> Vec<u8> {
        [stamped(b"one\ntw", at(1)), stamped(b"o\n\n", at(2)), stamped(b"F three\nopen", at(3))].concat()
    }

    fn shown(view: &mut View, log: &[u8], size: usize) -> String {
        log.chunks(size).map(|piece| String::from_utf8(view.show(piece).to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_log_shows_what_was_said_however_it_was_cut() {
        for size in [1, 7, 1000] {
            assert_eq!(shown(&mut View::new(false, None), &log(), size), "one\ntwo\n\nF three\nopen", "{size}");
        }
    }

    #[test]
    fn every_line_begins_with_the_time_of_its_first_piece() {
        let time = |second: i64| format!("1970-01-01T00:00:0{second}.000000000Z ");
        let expected = format!("{0}one\n{0}two\n{1}\n{2}F three\n{2}open", time(1), time(2), time(3));
        for size in [1, 7, 1000] {
            assert_eq!(shown(&mut View::new(true, None), &log(), size), expected, "{size}");
        }
    }

    #[test]
    fn what_came_earlier_than_asked_for_is_left_out() {
        assert_eq!(shown(&mut View::new(false, Some(at(3))), &log(), 7), "F three\nopen");
        assert_eq!(shown(&mut View::new(false, Some(at(4))), &log(), 7), "");
    }

    #[test]
    fn a_line_without_a_time_is_shown_as_it_is() {
        assert_eq!(
            shown(&mut View::new(true, None), b"written by an older version\n", 5),
            "written by an older version\n"
        );
    }
}
