//! What a command prints for us among what it prints for people: outputs and progress, one line each.
//!
//! ```text
//!   loading rows ...                                          a line of the log
//!   ###Phase-output###: {"key":"path","value":"/a/b"}         an output; may begin in the middle of a line
//!   ###Phase-progress###:{"version":1,"operation":...}        a progress frame of ours
//! ```
//! Pieces come as the pipe delivers them: a marker, a character or a line may be cut anywhere.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Before an output.
pub const OUTPUT: &str = "###Phase-output###:";
/// Before a progress frame.
pub const PROGRESS: &str = "###Phase-progress###:";
/// The longest output line: the status of an ActionSet has to hold it.
pub const LONGEST_OUTPUT: usize = 256 << 10;
/// All outputs of a phase together.
pub const MOST_OUTPUT: usize = 512 << 10;
/// All outputs and artifacts of a set together: etcd takes no larger object than about one and a half of this.
pub const MOST_OF_A_SET: usize = 1 << 20;
/// The longest progress frame; a longer one is dropped, since progress fails nothing.
const LONGEST_PROGRESS: usize = 1 << 20;
/// The longest line of a log; the rest of a longer one is dropped.
const LONGEST_LOG: usize = 16 << 10;
/// Of what cannot be used, this much is shown.
const SHOWN: usize = 80;

/// What one line was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// For people.
    Log(String),
    /// What comes after the marker of a progress frame.
    Progress(String),
}

/// Why what a phase printed cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    /// What follows the marker is no output.
    #[error("its output line {shown:?} is not JSON with a key and a value: {cause}")]
    Malformed {
        /// How the line begins.
        shown: String,
        /// What the parser says.
        cause: String,
    },
    /// More than a status can hold.
    #[error(
        "its output {shown:?} is longer than {limit} bytes: keep large results in object storage and output their path"
    )]
    TooLong {
        /// How the line begins.
        shown: String,
        /// How long it may be.
        limit: usize,
    },
    /// More than the status can hold, together with what others have returned.
    #[error(
        "its {size} bytes of outputs are too many: all outputs and artifacts of an ActionSet together may have {limit} bytes; keep \
         large results in object storage and output their path"
    )]
    SetTooLarge {
        /// How many bytes it would add.
        size: usize,
        /// How many there may be.
        limit: usize,
    },
}

impl OutputError {
    /// The stable reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "OutputMalformed",
            Self::TooLong { .. } | Self::SetTooLarge { .. } => "OutputTooLong",
        }
    }

    /// The same lines are as bad the next time.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

#[derive(Deserialize)]
struct Pair {
    key: String,
    value: String,
}

/// Reads a stream piece by piece.
#[derive(Debug, Default)]
pub struct Reader {
    /// The current line as far as it is kept.
    line: Vec<u8>,
    /// How many bytes of the current line were dropped.
    dropped: usize,
    outputs: BTreeMap<String, String>,
    size: usize,
}

impl Reader {
    /// Takes the next piece; returns the lines that it completes, outputs aside.
    pub fn take(&mut self, piece: &[u8]) -> Result<Vec<Line>, OutputError> {
        let mut lines = Vec::new();
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.keep(&rest[..end])?;
            self.end_line(&mut lines)?;
            rest = &rest[end + 1..];
        }
        self.keep(rest)?;
        Ok(lines)
    }

    /// Forgets the line that is not complete.
    pub fn forget_line(&mut self) {
        self.line.clear();
        self.dropped = 0;
    }

    /// The stream has ended: what is left is a line too.
    pub fn finish(mut self) -> Result<(Vec<Line>, BTreeMap<String, String>), OutputError> {
        let mut lines = Vec::new();
        self.end_line(&mut lines)?;
        Ok((lines, self.outputs))
    }

    /// The outputs so far.
    pub fn outputs(&self) -> &BTreeMap<String, String> {
        &self.outputs
    }

    /// Keeps what may matter of a line: all of it from a marker on, otherwise its beginning and enough of its end for a marker
    /// that is not complete yet.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        self.line.extend_from_slice(bytes);
        if self.line.len() <= LONGEST_LOG {
            return Ok(());
        }
        match marker(&self.line) {
            Some((at, OUTPUT)) if self.line.len() - at > LONGEST_OUTPUT => {
                Err(OutputError::TooLong { shown: shown(&self.line[at..]), limit: LONGEST_OUTPUT })
            }
            Some((_, OUTPUT)) => Ok(()),
            Some((at, _)) => {
                self.line.truncate(at + LONGEST_PROGRESS);
                Ok(())
            }
            None => {
                let overlap = OUTPUT.len().max(PROGRESS.len()) - 1;
                let cut = self.line.len() - overlap;
                self.dropped += cut - (LONGEST_LOG - overlap);
                self.line.drain(LONGEST_LOG - overlap..cut);
                Ok(())
            }
        }
    }

    fn end_line(&mut self, lines: &mut Vec<Line>) -> Result<(), OutputError> {
        let line = std::mem::take(&mut self.line);
        let dropped = std::mem::take(&mut self.dropped);
        let (log, found) = match marker(&line) {
            Some((at, kind)) => (&line[..at], Some((kind, &line[at + kind.len()..]))),
            None => (&line[..], None),
        };
        let mut text = String::from_utf8_lossy(log).trim_end().to_owned();
        if dropped > 0 {
            text.truncate(text.floor_char_boundary(LONGEST_LOG));
            text += &format!(" … ({dropped} bytes left out)");
        }
        if !text.is_empty() {
            lines.push(Line::Log(text));
        }
        match found {
            Some((OUTPUT, content)) => self.add(content),
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
        let pair: Pair = serde_json::from_slice(content)
            .map_err(|error| OutputError::Malformed { shown: shown(content), cause: error.to_string() })?;
        self.size += pair.key.len() + pair.value.len();
        if self.size > MOST_OUTPUT {
            return Err(OutputError::TooLong { shown: shown(content), limit: MOST_OUTPUT });
        }
        self.outputs.insert(pair.key, pair.value);
        Ok(())
    }
}

/// The first marker of a line and which one it is.
fn marker(line: &[u8]) -> Option<(usize, &'static str)> {
    let find = |word: &'static str| {
        let place = line.windows(word.len()).position(|window| window == word.as_bytes())?;
        Some((place, word))
    };
    [find(OUTPUT), find(PROGRESS)].into_iter().flatten().min_by_key(|(at, _)| *at)
}

fn shown(content: &[u8]) -> String {
    let text = String::from_utf8_lossy(&content[..content.len().min(SHOWN * 4)]);
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < content.len() {
        short.push('…');
    }
    short
}
