//! A whole tree at one moment, as plain data.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::counts::{Counts, Total, Unit};
use crate::explanation::Explanation;
use crate::percent::Percent;
use crate::rate::TimeLeft;
use crate::speed::Speed;
use crate::stall::{Stall, StallVerdict};
use crate::state::State;
use crate::token::Token;
use crate::work::{EarlierRuns, Source};

/// A whole tree at one moment: every node after its parent, siblings in the order they were made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The operation's name.
    pub operation: Arc<str>,
    /// The nodes, the root first.
    pub nodes: Vec<Node>,
    /// The verdict on the whole: the deepest stalled task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
    /// Which numbers these are. None for a tree that no process counts for, and for numbers of several trees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// What is said of the whole, for a tree of which parts were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Box<Whole>>,
}

/// What is said of the whole of a tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Whole {
    /// How fast it goes.
    pub speed: Speed,
    /// Why the time left is what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Explanation>,
}

/// One task at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its place: the names from below the root down to it, joined with `/`. The root's is empty. Unique in a tree.
    pub path: Arc<str>,
    /// Its own name.
    pub name: Arc<str>,
    /// Where it is in its life.
    #[serde(default)]
    pub state: State,
    /// Why it waits, failed, was skipped, was cancelled or interrupted, or whom it was taken over from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// What it is working on right now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<Arc<str>>,
    /// The last event, error or log line that was heard about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Arc<str>>,
    /// Its meters; the first one is the one the percentage, the rate and the time left speak of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<Counts>,
    /// As shown: cut, never falling, 100.00 only when it has ended well. Absent while nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<Percent>,
    /// Units of the first meter, a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// How long it will take from now: nine times out of ten more than `low`, nine times out of ten less than `high`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<TimeLeft>,
    /// Where the time left comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Source>,
    /// The path of the task that its end waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Arc<str>>,
    /// The node of the cluster on which it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_on: Option<Arc<str>>,
    /// How long earlier runs took; the root's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Arc<EarlierRuns>>,
    /// The seconds left as the program at work reports them, for work whose time this tree cannot estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_left: Option<u64>,
    /// How long it was expected to take in all, in milliseconds: its weight in its parent's percentage.
    #[serde(
        default,
        rename = "expectedMs",
        skip_serializing_if = "Option::is_none",
        with = "crate::text::millis::optional"
    )]
    pub expected: Option<Duration>,
    /// Its work sends no signal by nature, so that silence alone means nothing: shown as "no signal since".
    #[serde(default, skip_serializing_if = "is_false")]
    pub quiet: bool,
    /// Its deadline has passed and it has not ended.
    #[serde(default, skip_serializing_if = "is_false")]
    pub overdue: bool,
    /// The verdict on this very task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
    /// How often it has signalled that it lives, other than by counting.
    #[serde(default)]
    pub signals: u64,
    /// Descendants that were left out to keep the tree small.
    #[serde(default, skip_serializing_if = "FoldedCounts::is_empty")]
    pub folded: FoldedCounts,
    /// What those have counted, a reading for each unit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folded_meters: Vec<Counts>,
    /// How long ago things happened.
    #[serde(default)]
    pub ages: Ages,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

/// How long ago things happened to a task, in milliseconds on the wire. Ages, because two processes' clocks differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ages {
    /// Since it began; once it has ended, how long it took. Absent before it began.
    #[serde(rename = "elapsedMs", skip_serializing_if = "Option::is_none", with = "crate::text::millis::optional")]
    pub elapsed: Option<Duration>,
    /// For how long of that it waited for its turn.
    #[serde(rename = "queuedMs", skip_serializing_if = "Duration::is_zero", with = "crate::text::millis")]
    pub queued: Duration,
    /// Since it, or anything below it, last advanced.
    #[serde(rename = "advanceMs", with = "crate::text::millis")]
    pub advance: Duration,
}

impl Ages {
    /// For how long it was at work.
    pub fn busy(&self) -> Duration {
        self.elapsed.unwrap_or_default().saturating_sub(self.queued)
    }
}

/// How many descendants were left out, by how they fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FoldedCounts {
    /// Not begun.
    #[serde(skip_serializing_if = "is_none_left_out")]
    pub pending: u64,
    /// At work, waiting or taken over.
    #[serde(skip_serializing_if = "is_none_left_out")]
    pub active: u64,
    /// Ended well.
    #[serde(skip_serializing_if = "is_none_left_out")]
    pub done: u64,
    /// Skipped.
    #[serde(skip_serializing_if = "is_none_left_out")]
    pub skipped: u64,
    /// Failed, cancelled or interrupted.
    #[serde(skip_serializing_if = "is_none_left_out")]
    pub failed: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_none_left_out(value: &u64) -> bool {
    *value == 0
}

impl FoldedCounts {
    /// Whether nothing was left out.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// How many were left out. Saturating, since the numbers may come from another process.
    pub fn count(&self) -> u64 {
        [self.pending, self.active, self.done, self.skipped, self.failed].into_iter().fold(0, u64::saturating_add)
    }

    pub(crate) fn add(&mut self, state: State) {
        match state {
            State::Pending | State::Unknown => self.pending += 1,
            State::Running | State::Waiting | State::TakenOver => self.active += 1,
            State::Done => self.done += 1,
            State::Skipped => self.skipped += 1,
            State::Failed | State::Cancelled | State::Interrupted => self.failed += 1,
        }
    }

    pub(crate) fn merge(&mut self, other: &FoldedCounts) {
        self.pending = self.pending.saturating_add(other.pending);
        self.active = self.active.saturating_add(other.active);
        self.done = self.done.saturating_add(other.done);
        self.skipped = self.skipped.saturating_add(other.skipped);
        self.failed = self.failed.saturating_add(other.failed);
    }
}

impl Node {
    /// The path of its parent; nothing for the root.
    pub fn parent_path(&self) -> Option<&str> {
        parent_path(&self.path, &self.name)
    }

    /// What to call it: its path, or its name if it is the root.
    pub fn label(&self) -> &Arc<str> {
        if self.path.is_empty() { &self.name } else { &self.path }
    }

    /// Whether it has counted something, or knows how much there is to count.
    pub(crate) fn has_counted(&self) -> bool {
        self.meters.iter().any(|counts| counts.settled() > 0 || counts.total.value().is_some_and(|total| total > 0))
    }

    /// What the descendants that were left out have counted of one unit.
    fn folded_counts(&self, unit: Unit) -> Option<&Counts> {
        self.folded_meters.iter().find(|counts| counts.unit == unit)
    }

    /// The reading of one unit.
    pub fn counts(&self, unit: Unit) -> Option<&Counts> {
        self.meters.iter().find(|counts| counts.unit == unit)
    }

    /// The meter its percentage speaks of.
    pub fn primary(&self) -> Option<&Counts> {
        self.meters.first()
    }

    /// Whether everything but the ages is the same.
    pub fn has_same_content(&self, other: &Node) -> bool {
        self.facts() == other.facts()
    }

    fn facts(&self) -> impl PartialEq + '_ {
        let stall = self.stall.as_ref().map(|stall| (&stall.task, stall.reason, &stall.message));
        (
            (&self.path, &self.name, self.state, &self.reason, &self.item, &self.hint),
            (&self.meters, self.percent, self.rate, self.left, self.reported_left, self.expected),
            (self.from, &self.waits_for, &self.runs_on, &self.earlier, &self.folded_meters),
            (self.quiet, self.overdue, stall, self.signals, self.folded),
            // The time a task took is a fact once it has ended; before that it is an age.
            if self.state.is_ended() { Some((self.ages.elapsed, self.ages.queued)) } else { None },
        )
    }
}

/// `path` without its last part `name`. A name may hold a slash itself, so the length decides, not the separator.
pub(crate) fn parent_path<'p>(path: &'p str, name: &str) -> Option<&'p str> {
    let rest = path.strip_suffix(name)?;
    if path.is_empty() { None } else { Some(rest.strip_suffix('/').unwrap_or(rest)) }
}

/// How deep each node is, for nodes that come after their parents. The root is at 0.
pub(crate) fn depths(nodes: &[Node]) -> Vec<usize> {
    let mut depths: Vec<usize> = Vec::with_capacity(nodes.len());
    for parent in parents(nodes) {
        depths.push(parent.map_or(0, |parent| depths[parent] + 1));
    }
    depths
}

/// The index of each node's parent, for nodes that come after their parents.
pub(crate) fn parents(nodes: &[Node]) -> Vec<Option<usize>> {
    let mut above: Vec<usize> = Vec::new();
    let mut parents = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        let parent = node.parent_path();
        while above.last().is_some_and(|above| Some(&*nodes[*above].path) != parent) {
            above.pop();
        }
        parents.push(above.last().copied());
        above.push(index);
    }
    parents
}

/// A child's path.
pub(crate) fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") }
}

impl Snapshot {
    /// The same without its nodes.
    pub(crate) fn without_nodes(&self) -> Self {
        let (operation, stall, whole) = (Arc::clone(&self.operation), self.stall.clone(), self.whole.clone());
        Self { operation, nodes: Vec::new(), stall, token: self.token, whole }
    }

    /// The operation's own node. Absent only in a tree that came from elsewhere and is empty.
    pub fn root(&self) -> Option<&Node> {
        self.nodes.first()
    }

    /// The node at a path.
    pub fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| &*node.path == path)
    }

    /// How the operation is.
    pub fn state(&self) -> State {
        self.root().map_or(State::Unknown, |root| root.state)
    }

    /// The operation's percentage, as shown.
    pub fn percent(&self) -> Option<Percent> {
        self.root().and_then(|root| root.percent)
    }

    /// What is said of the whole: the kind of its stall, or that what it does now sends no signal by nature.
    pub fn verdict(&self) -> Option<StallVerdict> {
        let is_quiet = || self.current().is_some_and(|node| node.quiet).then_some(StallVerdict::Quiet);
        self.stall.as_ref().map(Stall::verdict).or_else(is_quiet)
    }

    /// The deepest active task; among equals the one that advanced last: what the operation is doing now.
    pub fn current(&self) -> Option<&Node> {
        let active = self.nodes.iter().zip(depths(&self.nodes)).filter(|(node, _)| node.state.is_active());
        active.max_by_key(|(node, depth)| (*depth, std::cmp::Reverse(node.ages.advance))).map(|(node, _)| node)
    }

    /// All meters of one unit together; below a task that has one, its children's are not counted again. The total is
    /// final only if every one is, and unknown if any one is.
    pub fn sum(&self, unit: Unit) -> Option<Counts> {
        gather(&self.nodes, unit).first().copied().flatten()
    }
}

/// For each node its own meter of a unit, or else those of its children together, with the ones that were left out.
pub(crate) fn gather(nodes: &[Node], unit: Unit) -> Vec<Option<Counts>> {
    let own = |node: &Node| node.counts(unit).or_else(|| node.folded_counts(unit)).copied();
    let mut sums: Vec<Option<Counts>> = nodes.iter().map(own).collect();
    let parents = parents(nodes);
    for index in (1..nodes.len()).rev() {
        let (Some(counts), Some(parent)) = (sums[index], parents[index]) else { continue };
        if nodes[parent].counts(unit).is_none() {
            sums[parent] = Some(sums[parent].map_or(counts, |sum| add(sum, &counts)));
        }
    }
    sums
}

/// The nodes at and below a path: they follow one another.
pub(crate) fn subtree<'n>(nodes: &'n [Node], path: &str) -> &'n [Node] {
    let Some(top) = nodes.iter().position(|node| &*node.path == path) else { return &[] };
    let nodes = &nodes[top..];
    let end = parents(nodes).iter().skip(1).position(Option::is_none).map_or(nodes.len(), |inside| inside + 1);
    &nodes[..end]
}

pub(crate) fn add(mut sum: Counts, next: &Counts) -> Counts {
    sum.done = sum.done.saturating_add(next.done);
    sum.skipped = sum.skipped.saturating_add(next.skipped);
    sum.failed = sum.failed.saturating_add(next.failed);
    sum.overrun = sum.overrun.saturating_add(next.overrun);
    sum.shortfall = sum.shortfall.saturating_add(next.shortfall);
    sum.total = match (sum.total, next.total) {
        (Total::Final(a), Total::Final(b)) => Total::Final(a.saturating_add(b)),
        (a, b) => match (a.value(), b.value()) {
            (Some(a), Some(b)) => Total::Growing(a.saturating_add(b)),
            _ => Total::Unknown,
        },
    };
    sum
}
