//! What goes over a pipe or a stream: only what changed, as one line of JSON.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::snapshot::{Node, Snapshot, join};
use crate::token::Token;

/// The version this code writes. It grows only when an older reader would misread a frame; new fields do not need it.
pub const FRAME_VERSION: u32 = 1;

/// No frame is longer than this; a longer one is not from us.
const LONGEST_FRAME: usize = 16 << 20;

/// A piece of a tree: the nodes that changed since the frame before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Frame {
    /// The version of the format.
    pub version: u32,
    /// The name of the operation.
    pub operation: Arc<str>,
    /// Counts the processes that did this work, one after the other.
    pub epoch: u64,
    /// Counts the frames of one epoch.
    pub sequence: u64,
    /// Whether this is the whole tree rather than a change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// The nodes that changed, parents before children, each one complete.
    #[serde(default)]
    pub nodes: Vec<Node>,
    /// The paths of nodes that are no longer shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<Arc<str>>,
    /// Which numbers the tree has after this frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
}

/// Why a frame cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// It is not a frame.
    #[error("failed to read a progress frame")]
    Malformed(#[source] serde_json::Error),
    /// It is of a version that this code does not know.
    #[error("progress frame has version {0}, this program reads up to {FRAME_VERSION}")]
    UnknownVersion(u32),
    /// It is longer than any frame.
    #[error("progress frame of {0} bytes is too long")]
    TooLong(usize),
    /// A node's path and name do not belong together.
    #[error("progress frame of {operation} has a node {path:?} that does not end in its name")]
    MisplacedNode {
        /// The frame's operation.
        operation: String,
        /// The path in question.
        path: String,
    },
    /// It belongs to another operation.
    #[error("progress frame of {found} arrived where {expected} was expected")]
    OtherOperation {
        /// The operation whose frames belong here.
        expected: String,
        /// The frame's operation.
        found: String,
    },
}

impl FrameError {
    /// The stable reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "FrameMalformed",
            Self::UnknownVersion(_) => "FrameVersionUnknown",
            Self::TooLong(_) => "FrameTooLong",
            Self::MisplacedNode { .. } => "FrameNodeMisplaced",
            Self::OtherOperation { .. } => "FrameOfOtherOperation",
        }
    }

    /// Whether the same frame could be used later: never. The next one may well be fine.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

impl Frame {
    /// A whole tree.
    pub fn full(snapshot: &Snapshot, epoch: u64, sequence: u64) -> Self {
        Self {
            version: FRAME_VERSION,
            operation: Arc::clone(&snapshot.operation),
            epoch,
            sequence,
            full: true,
            nodes: snapshot.nodes.clone(),
            removed: Vec::new(),
            token: snapshot.token,
        }
    }

    /// One line of JSON, without the line break.
    pub fn to_line(&self) -> String {
        // Strings, numbers and lists only: there is nothing in a frame that JSON could not hold.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads one line of JSON.
    pub fn from_line(line: &str) -> Result<Self, FrameError> {
        Self::from_slice(line.as_bytes())
    }

    /// Reads a frame from bytes. Unknown fields are ignored.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, FrameError> {
        if bytes.len() > LONGEST_FRAME {
            return Err(FrameError::TooLong(bytes.len()));
        }
        let envelope: Envelope = serde_json::from_slice(bytes).map_err(FrameError::Malformed)?;
        if envelope.version == 0 || envelope.version > FRAME_VERSION {
            return Err(FrameError::UnknownVersion(envelope.version));
        }
        let frame: Self = serde_json::from_slice(bytes).map_err(FrameError::Malformed)?;
        frame.check()?;
        Ok(frame)
    }

    /// Every path must end in its node's name, or no parent could be found.
    pub(crate) fn check(&self) -> Result<(), FrameError> {
        match self.nodes.iter().find(|node| !node.is_well_placed()) {
            None => Ok(()),
            Some(node) => Err(FrameError::MisplacedNode {
                operation: self.operation.to_string(),
                path: node.path.chars().take(128).collect(),
            }),
        }
    }

    /// Its place in the order of all frames of the operation.
    pub fn position(&self) -> (u64, u64) {
        (self.epoch, self.sequence)
    }

    /// The tree of a full frame, as it stood when the frame was made.
    pub fn snapshot(&self) -> Snapshot {
        let stall = crate::stall_check::deepest_stall(&self.nodes);
        let operation = Arc::clone(&self.operation);
        Snapshot { operation, nodes: self.nodes.clone(), stall, token: self.token, whole: None }
    }
}

#[derive(Deserialize)]
struct Envelope {
    version: u32,
}

impl Node {
    fn is_well_placed(&self) -> bool {
        self.path.is_empty()
            || self.parent_path().is_some_and(|parent| join(parent, &self.name) == *self.path && !self.name.is_empty())
    }
}

/// Makes frames from snapshots: a full one first, then only what changed.
#[derive(Debug)]
pub struct Encoder {
    epoch: u64,
    sequence: u64,
    sent: Option<HashMap<Arc<str>, Node>>,
}

impl Encoder {
    /// An encoder for one process's turn at an operation.
    pub fn new(epoch: u64) -> Self {
        Self { epoch, sequence: 0, sent: None }
    }

    /// The frame for what changed since the last one; nothing if nothing did.
    pub fn encode(&mut self, snapshot: &Snapshot) -> Option<Frame> {
        let Some(sent) = &self.sent else { return Some(self.full(snapshot)) };
        let changed = |node: &&Node| sent.get(&node.path).is_none_or(|before| !node.has_same_content(before));
        let nodes: Vec<Node> = snapshot.nodes.iter().filter(changed).cloned().collect();
        let removed = removed(sent, snapshot);
        if nodes.is_empty() && removed.is_empty() {
            return None;
        }
        Some(self.emit(snapshot, nodes, removed))
    }

    /// Like [`Encoder::encode`], but a frame even if nothing changed: a sign of life.
    pub fn encode_always(&mut self, snapshot: &Snapshot) -> Frame {
        self.encode(snapshot).unwrap_or_else(|| self.emit(snapshot, Vec::new(), Vec::new()))
    }

    /// The whole tree, for a reader that has just come.
    pub fn full(&mut self, snapshot: &Snapshot) -> Frame {
        self.sequence += 1;
        self.remember(snapshot);
        Frame::full(snapshot, self.epoch, self.sequence)
    }

    fn emit(&mut self, snapshot: &Snapshot, nodes: Vec<Node>, removed: Vec<Arc<str>>) -> Frame {
        self.sequence += 1;
        let sent = self.sent.get_or_insert_default();
        for path in &removed {
            sent.remove(path);
        }
        sent.extend(nodes.iter().map(|node| (Arc::clone(&node.path), node.clone())));
        Frame {
            version: FRAME_VERSION,
            operation: Arc::clone(&snapshot.operation),
            epoch: self.epoch,
            sequence: self.sequence,
            full: false,
            nodes,
            removed,
            token: snapshot.token,
        }
    }

    fn remember(&mut self, snapshot: &Snapshot) {
        self.sent = Some(snapshot.nodes.iter().map(|node| (Arc::clone(&node.path), node.clone())).collect());
    }
}

fn removed(sent: &HashMap<Arc<str>, Node>, snapshot: &Snapshot) -> Vec<Arc<str>> {
    let there: std::collections::HashSet<&str> = snapshot.nodes.iter().map(|node| &*node.path).collect();
    sent.keys().filter(|path| !there.contains(&***path)).cloned().collect()
}
