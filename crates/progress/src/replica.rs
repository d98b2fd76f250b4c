//! A replica of another process's tree, updated from its frames.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::frame::{Frame, FrameError};
use crate::ratchet::Floor;
use crate::snapshot::{Node, Snapshot, join};
use crate::stall_check::deepest_stall;
use crate::state::State;
use crate::text::clean_reason;
use crate::token::Token;

/// The result of applying a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOutcome {
    /// It was applied.
    Fresh,
    /// It was applied, but an earlier frame is missing: parts may be old until the next full frame.
    AfterGap,
    /// It is not newer than the replica, and was ignored.
    Stale,
    /// It changes an unknown tree: a full frame is needed first.
    NeedsFull,
}

/// A copy of a tree that lives in another process.
///
/// Nothing it shows goes back: a newer process that counts from the start again has to catch up first.
#[derive(Debug)]
pub struct Replica {
    clock: Clock,
    operation: Option<Arc<str>>,
    position: Option<(u64, u64)>,
    token: Option<Token>,
    /// The process of this epoch has counted something, or knows how much there is to count.
    has_counted: bool,
    last_frame: Duration,
    nodes: Vec<ReplicaNode>,
    by_path: HashMap<Arc<str>, usize>,
    floors: HashMap<Arc<str>, Node>,
}

/// A node, and when it was received.
#[derive(Debug)]
struct ReplicaNode {
    node: Node,
    at: Duration,
    /// It shows more than was received.
    raised: bool,
}

impl Replica {
    /// An empty copy.
    pub fn new(clock: Clock) -> Self {
        Self::with_floors(clock, Vec::new())
    }

    /// An empty copy that will show nothing less than these nodes did.
    pub(crate) fn with_floors(clock: Clock, floors: Vec<Node>) -> Self {
        Self {
            last_frame: clock.now(),
            clock,
            operation: None,
            position: None,
            token: None,
            has_counted: false,
            nodes: Vec::new(),
            by_path: HashMap::new(),
            floors: floors.into_iter().map(|node| (Arc::clone(&node.path), node)).collect(),
        }
    }

    /// Takes a frame, if it is newer than what is shown.
    pub fn apply(&mut self, frame: &Frame) -> Result<FrameOutcome, FrameError> {
        frame.check()?;
        self.check_operation(frame)?;
        let next = frame.position();
        if self.position.is_some_and(|shown| next <= shown) {
            return Ok(FrameOutcome::Stale);
        }
        let same_epoch = self.position.is_some_and(|(epoch, _)| epoch == frame.epoch);
        if !frame.full && !same_epoch {
            return Ok(FrameOutcome::NeedsFull);
        }
        let gap = !frame.full && self.position.is_some_and(|(_, sequence)| sequence + 1 != frame.sequence);
        self.take(frame);
        // After a gap the numbers may be of several moments.
        self.token = frame.token.filter(|_| !gap);
        Ok(if gap { FrameOutcome::AfterGap } else { FrameOutcome::Fresh })
    }

    fn check_operation(&self, frame: &Frame) -> Result<(), FrameError> {
        match &self.operation {
            Some(expected) if *expected != frame.operation => {
                Err(FrameError::OtherOperation { expected: expected.to_string(), found: frame.operation.to_string() })
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, frame: &Frame) {
        let now = self.clock.now();
        let same_epoch = self.position.is_some_and(|(epoch, _)| epoch == frame.epoch);
        self.has_counted = (self.has_counted && same_epoch) || frame.nodes.iter().any(Node::has_counted);
        self.operation = Some(Arc::clone(&frame.operation));
        self.position = Some(frame.position());
        self.last_frame = now;
        if frame.full {
            self.forget_all();
        }
        for path in &frame.removed {
            self.forget(path);
        }
        for node in &frame.nodes {
            self.put(node, now);
        }
    }

    /// Before a whole new tree, what was shown becomes the floor.
    fn forget_all(&mut self) {
        for received in self.nodes.drain(..) {
            self.floors.insert(Arc::clone(&received.node.path), received.node);
        }
        self.by_path.clear();
    }

    fn forget(&mut self, path: &str) {
        if let Some(index) = self.by_path.remove(path) {
            let received = self.nodes.remove(index);
            self.floors.insert(Arc::clone(&received.node.path), received.node);
            self.by_path.values_mut().filter(|at| **at > index).for_each(|at| *at -= 1);
        }
    }

    fn put(&mut self, node: &Node, at: Duration) {
        let known = self.by_path.get(&node.path).copied();
        let floor = known.map(|index| &self.nodes[index].node).or_else(|| self.floors.get(&node.path));
        let mut shown = node.clone();
        let raised = floor.is_some_and(|floor| Floor::of(floor).raise(&mut shown));
        let received = ReplicaNode { node: shown, at, raised };
        if let Some(index) = known {
            self.nodes[index] = received;
        } else {
            self.by_path.insert(Arc::clone(&node.path), self.nodes.len());
            self.nodes.push(received);
        }
    }

    /// Another process does the same work from now on.
    pub(crate) fn expect_another(&mut self) {
        self.has_counted = false;
    }

    /// Whether the process at work has counted something, or knows how much there is to count.
    pub(crate) fn has_counted(&self) -> bool {
        self.has_counted
    }

    /// The other process is gone: what it had not ended will never end by itself.
    pub(crate) fn interrupt(&mut self, reason: &str) {
        let (now, reason) = (self.clock.now(), clean_reason(reason));
        self.token = None;
        for received in self.nodes.iter_mut().filter(|received| received.node.state.is_open()) {
            let node = Node {
                state: State::Interrupted,
                reason: Some(Arc::clone(&reason)),
                rate: None,
                left: None,
                from: None,
                waits_for: None,
                reported_left: None,
                stall: None,
                overdue: false,
                ..received.aged(now)
            };
            *received = ReplicaNode { node, at: now, raised: true };
        }
    }

    /// The (epoch, sequence) of what is shown.
    pub fn position(&self) -> Option<(u64, u64)> {
        self.position
    }

    /// How long ago the last frame came.
    pub fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_frame)
    }

    /// The tree as it is by now, as far as the last frame tells; nothing before the first one.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let operation = Arc::clone(self.operation.as_ref()?);
        let nodes = self.nodes(self.clock.now());
        let stall = deepest_stall(&nodes);
        // Numbers that were raised are not those of the other process.
        let token = self.token.filter(|_| self.nodes.iter().all(|received| !received.raised));
        Some(Snapshot { operation, nodes, stall, token, whole: None })
    }

    /// The nodes with paths as seen from above: below `parent`, the root under `name`.
    pub(crate) fn nodes_under(&self, parent: &str, name: &Arc<str>, now: Duration) -> Vec<Node> {
        let mut nodes = self.nodes(now);
        let place: Arc<str> = join(parent, name).into();
        for node in &mut nodes {
            let path: Arc<str> =
                if node.path.is_empty() { Arc::clone(&place) } else { join(&place, &node.path).into() };
            if let Some(stall) = &mut node.stall {
                stall.task = Arc::clone(&path);
            }
            if let Some(waits_for) = &mut node.waits_for {
                *waits_for = join(&place, waits_for).into();
            }
            if node.path.is_empty() {
                node.name = Arc::clone(name);
            }
            node.path = path;
        }
        nodes
    }

    /// Every node after its parent, older by the time since it came. Nodes without a parent are left out.
    fn nodes(&self, now: Duration) -> Vec<Node> {
        let mut children: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, received) in self.nodes.iter().enumerate() {
            if let Some(parent) = received.node.parent_path() {
                children.entry(parent).or_default().push(index);
            }
        }
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let mut stack: Vec<usize> = self.by_path.get("").copied().into_iter().collect();
        while let Some(index) = stack.pop() {
            let received = &self.nodes[index];
            nodes.push(received.aged(now));
            if let Some(below) = children.get(&*received.node.path) {
                stack.extend(below.iter().rev());
            }
        }
        younger_parents(&mut nodes);
        nodes
    }
}

impl ReplicaNode {
    fn aged(&self, now: Duration) -> Node {
        let mut node = self.node.clone();
        let since = now.saturating_sub(self.at);
        node.ages.advance = node.ages.advance.saturating_add(since);
        if node.state.is_open() {
            node.ages.elapsed = node.ages.elapsed.map(|elapsed| elapsed.saturating_add(since));
        }
        if let Some(stall) = &mut node.stall {
            stall.age = stall.age.saturating_add(since);
        }
        node
    }
}

/// A task has advanced when anything below it has. A frame tells of the child alone, so the parents are put right here.
fn younger_parents(nodes: &mut [Node]) {
    let index: HashMap<Arc<str>, usize> =
        nodes.iter().enumerate().map(|(index, node)| (Arc::clone(&node.path), index)).collect();
    for child in (1..nodes.len()).rev() {
        let age = nodes[child].ages.advance;
        let parent = nodes[child].parent_path().and_then(|path| index.get(path)).copied();
        if let Some(parent) = parent {
            let above = &mut nodes[parent].ages.advance;
            *above = (*above).min(age);
        }
    }
}
