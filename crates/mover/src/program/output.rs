//! The output of a program, line by line, and the end of it for messages.

use std::io::Read;
use std::process::Child;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Longer lines are truncated. A list of snapshots may be one long line.
const MAX_LINE_LENGTH: usize = 256 << 20;
const MAX_STDERR_TAIL: usize = 16 << 10;

/// The output stream of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Reads both outputs of a program, line by line.
pub(super) fn spawn_readers(child: &mut Child) -> Receiver<(Stream, String)> {
    let (to, from) = sync_channel(1024);
    if let Some(out) = child.stdout.take() {
        read_lines(out, Stream::Out, to.clone());
    }
    if let Some(err) = child.stderr.take() {
        read_lines(err, Stream::Err, to);
    }
    from
}

fn read_lines(mut from: impl Read + Send + 'static, stream: Stream, to: SyncSender<(Stream, String)>) {
    std::thread::spawn(move || {
        let mut lines = LineSplitter::default();
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            for line in lines.add(&buffer[..length]) {
                if to.send((stream, line)).is_err() {
                    return;
                }
            }
        }
        if let Some(rest) = lines.take_incomplete() {
            let _ = to.send((stream, rest));
        }
    });
}

/// Splits at line breaks and at carriage returns: kopia overwrites its progress line.
#[derive(Debug, Default)]
struct LineSplitter(Vec<u8>);

impl LineSplitter {
    fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut complete = Vec::new();
        let mut pieces = bytes.split(|byte| matches!(byte, b'\n' | b'\r')).peekable();
        while let Some(piece) = pieces.next() {
            let room = MAX_LINE_LENGTH.saturating_sub(self.0.len()).min(piece.len());
            self.0.extend_from_slice(&piece[..room]);
            if pieces.peek().is_some() {
                complete.extend(self.take_incomplete());
            }
        }
        complete
    }

    fn take_incomplete(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.0);
        (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned())
    }
}

/// The bounded end of a text.
#[derive(Debug, Default)]
pub(super) struct Tail(String);

impl Tail {
    pub(super) fn add(&mut self, line: &str) {
        if line.is_empty() {
            return;
        }
        self.0.push_str(line);
        self.0.push('\n');
        if self.0.len() > MAX_STDERR_TAIL {
            let from = self.0.ceil_char_boundary(self.0.len() - MAX_STDERR_TAIL / 2);
            self.0.drain(..from);
        }
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_line_breaks_and_carriage_returns_across_reads() {
        let mut lines = LineSplitter::default();
        assert_eq!(lines.add(b"\r / 1 hash"), Vec::<String>::new());
        assert_eq!(lines.add(b"ing\r - 2\nlast"), [" / 1 hashing", " - 2"]);
        assert_eq!(lines.take_incomplete().as_deref(), Some("last"));
        assert_eq!(lines.take_incomplete(), None);
    }
}
