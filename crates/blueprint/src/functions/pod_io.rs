//! The output of a running command: log lines, phase outputs and progress frames.

use std::collections::{BTreeMap, VecDeque};

use plimsoll_progress::{Clock, Frame, FrameOutcome, Replica, Snapshot, Unit};
use serde_json::Value;

use super::call::Call;
use super::phase_meters::{Direction, TransferProgress};
use crate::Error;
use crate::output::{Line, OutputReader};
use crate::results::Outputs;

/// Number of last lines in an error message.
const TAIL_LINES: usize = 10;
/// Maximum length of each of them.
const MAX_TAIL_LINE_LENGTH: usize = 500;

/// Collects the output of one command.
pub struct PodOutput<'a> {
    call: &'a Call,
    source: String,
    reader: OutputReader,
    frames: Frames,
    last: VecDeque<String>,
}

impl<'a> PodOutput<'a> {
    /// Collects the output of `source`.
    pub fn new(call: &'a Call, source: impl Into<String>) -> Self {
        let source = source.into();
        Self {
            call,
            frames: Frames::new(source.clone()),
            source,
            reader: OutputReader::default(),
            last: VecDeque::new(),
        }
    }

    /// Processes the next chunk.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), Error> {
        let lines = self.reader.push(chunk)?;
        self.process_lines(lines);
        Ok(())
    }

    /// Discards the partial line, which will be read again.
    pub fn discard_partial_line(&mut self) {
        self.reader.discard_partial_line();
    }

    /// Processes the rest and returns the outputs.
    pub fn finish(mut self) -> Result<Outputs, Error> {
        let (lines, outputs) = std::mem::take(&mut self.reader).finish()?;
        self.process_lines(lines);
        Ok(outputs.into_iter().map(|(key, value)| (key, Value::String(value))).collect())
    }

    /// The last lines, for an error message.
    pub fn output_tail(&self) -> String {
        let lines: Vec<_> = self.last.iter().map(String::as_str).collect();
        self.call.params.redact(&lines.join("\n"))
    }

    fn process_lines(&mut self, lines: Vec<Line>) {
        for line in lines {
            match line {
                Line::Log(text) => {
                    self.call.log(&text);
                    self.call.task.hint(self.call.params.redact(&text));
                    if self.last.len() == TAIL_LINES {
                        self.last.pop_front();
                    }
                    self.last.push_back(text.chars().take(MAX_TAIL_LINE_LENGTH).collect());
                }
                // An invalid progress frame is not an error.
                Line::Progress(frame) => match Frame::from_line(&frame) {
                    Ok(frame) => self.frames.take(&frame, self.call),
                    Err(error) => tracing::debug!("progress of {}: {error}", self.source),
                },
            }
        }
    }
}

/// The progress frames of one command, which may come from several programs, in sequence or in parallel.
struct Frames {
    source: String,
    replicas: BTreeMap<String, (usize, Replica)>,
    programs: usize,
}

impl Frames {
    fn new(source: String) -> Self {
        Self { source, replicas: BTreeMap::new(), programs: 0 }
    }

    fn take(&mut self, frame: &Frame, call: &Call) {
        let operation = frame.operation.to_string();
        let new_program = frame.full && frame.sequence <= 1;
        if new_program || !self.replicas.contains_key(&operation) {
            self.programs += 1;
            self.replicas.insert(operation.clone(), (self.programs, Replica::new(Clock::system())));
        }
        let Some((number, replica)) = self.replicas.get_mut(&operation) else { return };
        let applied = replica.apply(frame);
        if !matches!(applied, Ok(FrameOutcome::Fresh | FrameOutcome::AfterGap)) {
            return;
        }
        let direction = if operation.starts_with("pull") { Direction::Download } else { Direction::Upload };
        if let Some(progress) = replica.snapshot().as_ref().and_then(|tree| byte_progress(direction, tree)) {
            call.meters.report(&format!("{}#{number}", self.source), progress);
        }
    }
}

/// The byte progress of a tree: that of the first task that counts bytes.
pub fn byte_progress(direction: Direction, tree: &Snapshot) -> Option<TransferProgress> {
    let node = tree.nodes.iter().find(|node| node.counts(Unit::Bytes).is_some())?;
    let bytes = node.counts(Unit::Bytes)?;
    let total = bytes.total.value().filter(|_| bytes.total.is_final());
    Some(TransferProgress {
        direction,
        read: bytes.done,
        total,
        sent: Some(bytes.done),
        seconds_left: node.left.map(|left| left.high).filter(|_| total.is_some()),
    })
}
