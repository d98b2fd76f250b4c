//! What comes out of a command while it runs: lines for the log, outputs, and frames of our own programs.

use std::collections::{BTreeMap, VecDeque};

use plimsoll_progress::{Clock, Frame, FrameOutcome, Replica, Snapshot, Unit};
use serde_json::Value;

use super::call::{Call, Direction, Moved};
use crate::Error;
use crate::board::Outputs;
use crate::output::{Line, Reader};

/// So many lines are kept for an error message.
const LAST_LINES: usize = 10;
/// And no longer than this, each.
const LONGEST_LAST: usize = 500;

/// Listens to one command.
pub struct Talk<'a> {
    call: &'a Call,
    who: String,
    reader: Reader,
    frames: Frames,
    last: VecDeque<String>,
}

impl<'a> Talk<'a> {
    /// Listens to `who`.
    pub fn new(call: &'a Call, who: impl Into<String>) -> Self {
        let who = who.into();
        Self { call, frames: Frames::new(who.clone()), who, reader: Reader::default(), last: VecDeque::new() }
    }

    /// The next piece of what it prints.
    pub fn take(&mut self, piece: &[u8]) -> Result<(), Error> {
        let lines = self.reader.take(piece)?;
        self.hear(lines);
        Ok(())
    }

    /// The line of which a part was heard is going to be said anew.
    pub fn forget_line(&mut self) {
        self.reader.forget_line();
    }

    /// It has said everything: its outputs.
    pub fn finish(mut self) -> Result<Outputs, Error> {
        let (lines, outputs) = std::mem::take(&mut self.reader).finish()?;
        self.hear(lines);
        Ok(outputs.into_iter().map(|(key, value)| (key, Value::String(value))).collect())
    }

    /// The end of what it said, for an error message.
    pub fn last_words(&self) -> String {
        let words: Vec<_> = self.last.iter().map(String::as_str).collect();
        self.call.params.redact(&words.join("\n"))
    }

    fn hear(&mut self, lines: Vec<Line>) {
        for line in lines {
            match line {
                Line::Log(text) => {
                    self.call.log(&text);
                    self.call.task.hint(self.call.params.redact(&text));
                    if self.last.len() == LAST_LINES {
                        self.last.pop_front();
                    }
                    self.last.push_back(text.chars().take(LONGEST_LAST).collect());
                }
                // Progress fails nothing.
                Line::Progress(frame) => match Frame::from_line(&frame) {
                    Ok(frame) => self.frames.take(&frame, self.call),
                    Err(error) => tracing::debug!("progress of {}: {error}", self.who),
                },
            }
        }
    }
}

/// The frames of one command, which may come from several programs one after the other or at the same time.
struct Frames {
    who: String,
    replicas: BTreeMap<String, (usize, Replica)>,
    programs: usize,
}

impl Frames {
    fn new(who: String) -> Self {
        Self { who, replicas: BTreeMap::new(), programs: 0 }
    }

    fn take(&mut self, frame: &Frame, call: &Call) {
        let operation = frame.operation.to_string();
        let fresh = frame.full && frame.sequence <= 1;
        if fresh || !self.replicas.contains_key(&operation) {
            self.programs += 1;
            self.replicas.insert(operation.clone(), (self.programs, Replica::new(Clock::system())));
        }
        let Some((number, replica)) = self.replicas.get_mut(&operation) else { return };
        let applied = replica.apply(frame);
        if !matches!(applied, Ok(FrameOutcome::Fresh | FrameOutcome::AfterGap)) {
            return;
        }
        let direction = if operation.starts_with("pull") { Direction::Down } else { Direction::Up };
        if let Some(moved) = replica.snapshot().as_ref().and_then(|tree| moved(direction, tree)) {
            call.gauge.moved(&format!("{}#{number}", self.who), moved);
        }
    }
}

/// The bytes of a tree: the first task that counts some.
pub fn moved(direction: Direction, tree: &Snapshot) -> Option<Moved> {
    let node = tree.nodes.iter().find(|node| node.counts(Unit::Bytes).is_some())?;
    let bytes = node.counts(Unit::Bytes)?;
    let total = bytes.total.value().filter(|_| bytes.total.is_final());
    Some(Moved {
        direction,
        read: bytes.done,
        total,
        sent: Some(bytes.done),
        seconds_left: node.left.map(|left| left.high).filter(|_| total.is_some()),
    })
}
