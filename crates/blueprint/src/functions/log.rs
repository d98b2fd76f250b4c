//! How far the log of a container was heard, so that a log which is opened again is gone on with.
//!
//! The node says the time of each line. A log is opened again from the time of the last line that was heard, and the lines of
//! that time that were heard are passed over: this holds though the node has begun a new file since.

use futures::{AsyncRead, AsyncReadExt};
use jiff::Timestamp;
use kube::api::LogParams;

use crate::Error;

/// No time of a line is longer than this.
const LONGEST_TIME: usize = 40;

/// Hands on a stream piece by piece, until it ends or is cut.
pub async fn each_piece(stream: impl AsyncRead, mut take: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
    let (mut stream, mut piece) = (Box::pin(stream), vec![0; 32 << 10]);
    while let Ok(read @ 1..) = stream.read(&mut piece).await {
        take(&piece[..read])?;
    }
    Ok(())
}

/// How far a log was heard.
#[derive(Debug, Default)]
pub struct Heard {
    /// The time of the last line.
    last: Option<Timestamp>,
    /// How many lines of that time were heard.
    same: usize,
    /// The last of them was not heard to its end.
    open: bool,
}

impl Heard {
    /// Asks for what may not have been heard of a container's log, and for what is yet to come.
    pub fn parameters(&self, container: &str) -> LogParams {
        LogParams {
            container: Some(container.to_owned()),
            follow: true,
            timestamps: true,
            // Sent as whole seconds, rounded: one that lies after the last line would leave out the lines between.
            since_time: self.last.and_then(|last| Timestamp::from_second(last.as_second()).ok()),
            ..LogParams::default()
        }
    }

    /// The log is opened, once more or for the first time.
    pub fn open(&mut self) -> Lines<'_> {
        let (known, torn) = (self.same.saturating_sub(usize::from(self.open)), self.open);
        Lines { heard: self, known, torn, head: Vec::new(), place: Place::Start }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the time of a line, or before it.
    Start,
    /// In a line that was heard before.
    Old,
    /// In a line that was not.
    New,
}

/// An open log.
pub struct Lines<'a> {
    heard: &'a mut Heard,
    /// So many lines of the last time are still to come that were heard.
    known: usize,
    /// The line after these was heard in part.
    torn: bool,
    /// The time of a line, as far as it has come.
    head: Vec<u8>,
    place: Place,
}

/// What is new in a piece of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The line of which a part was heard begins anew.
    pub afresh: bool,
    /// Without the times.
    pub text: Vec<u8>,
}

impl Lines<'_> {
    /// The next piece.
    pub fn take(&mut self, piece: &[u8]) -> News {
        let mut news = News::default();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let ends = part.ends_with(b"\n");
            if self.place == Place::Start {
                let Some(text) = self.begin(part, &mut news) else { continue };
                self.hear(&text, ends, &mut news);
            } else {
                self.hear(part, ends, &mut news);
            }
        }
        news
    }

    fn hear(&mut self, text: &[u8], ends: bool, news: &mut News) {
        if self.place == Place::New {
            news.text.extend_from_slice(text);
            self.heard.open = !ends;
        }
        if ends {
            self.place = Place::Start;
        }
    }

    /// The beginning of a line without its time, once that is complete. A line without one is new.
    fn begin(&mut self, part: &[u8], news: &mut News) -> Option<Vec<u8>> {
        self.head.extend_from_slice(part);
        let space = self.head.iter().position(|byte| *byte == b' ');
        if space.is_none() && !part.ends_with(b"\n") && self.head.len() < LONGEST_TIME {
            return None;
        }
        let head = std::mem::take(&mut self.head);
        let time = space.and_then(|at| Some((at, std::str::from_utf8(&head[..at]).ok()?.parse().ok()?)));
        self.place = time.map_or(Place::New, |(_, time)| self.judge(time));
        if self.place == Place::New {
            news.afresh |= std::mem::take(&mut self.torn);
        }
        Some(time.map_or(head.clone(), |(at, _)| head[at + 1..].to_vec()))
    }

    fn judge(&mut self, time: Timestamp) -> Place {
        let heard = &mut *self.heard;
        if heard.last.is_some_and(|last| time < last) {
            return Place::Old;
        }
        if heard.last != Some(time) {
            (heard.last, heard.same, self.known) = (Some(time), 1, 0);
        } else if self.known > 0 {
            self.known -= 1;
            return Place::Old;
        } else if !self.torn {
            heard.same += 1;
        }
        Place::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that is heard of logs that are opened one after the other, cut into pieces of this size.
    fn heard(logs: &[&str], size: usize) -> String {
        let (mut position, mut text) = (Heard::default(), String::new());
        for log in logs {
            let mut lines = position.open();
            for piece in log.as_bytes().chunks(size) {
                let news = lines.take(piece);
                if news.afresh {
                    text.truncate(text.rfind('\n').map_or(0, |at| at + 1));
                }
                text += std::str::from_utf8(&news.text).unwrap();
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
    fn a_log_that_is_opened_again_is_gone_on_with_wherever_it_begins() {
        let whole = [A, B, B2, C, EMPTY].concat();
        let cases: [(&str, Vec<String>); 6] = [
            ("never cut", vec![whole.clone()]),
            ("read again from its start", vec![[A, B].concat(), whole.clone()]),
            ("the node has begun a new file", vec![[A, B, B2].concat(), [C, EMPTY].concat()]),
            ("from the time of the last line", vec![[A, B, B2].concat(), [B, B2, C, EMPTY].concat()]),
            ("cut in the middle of a line", vec![[A, &B[..26]].concat(), [B, B2, C, EMPTY].concat()]),
            ("cut in the middle of a time", vec![[A, B, B2, &C[..9]].concat(), [B, B2, C, EMPTY].concat(), whole]),
        ];
        for (name, logs) in cases {
            let logs: Vec<&str> = logs.iter().map(String::as_str).collect();
            for size in [1, 7, 1000] {
                assert_eq!(heard(&logs, size), "a\nb b\nagain\nc\n\n", "{name}, in pieces of {size}");
            }
        }
    }

    #[test]
    fn no_line_falls_between_the_last_one_and_the_second_from_which_the_log_is_opened_again() {
        let mut position = Heard::default();
        assert_eq!(position.parameters("c").since_time, None);
        position.open().take(b"2026-01-01T00:00:02.7Z a\n");
        assert_eq!(position.parameters("c").since_time, Some("2026-01-01T00:00:02Z".parse().unwrap()));
    }

    #[test]
    fn what_has_no_time_is_heard_too() {
        assert_eq!(heard(&["failed to open log file\n"], 5), "failed to open log file\n");
        assert_eq!(heard(&[&[A, "a line that was split\n"].concat()], 3), "a\na line that was split\n");
    }
}
