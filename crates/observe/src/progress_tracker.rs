//! Computes rates, time left and stalls from successive observations of one operation.
//!
//! The tree is an ordinary `progress::Operation` with a virtual clock. The clock starts with the operation and passes every recorded
//! update, so the first observation already knows since when nothing has advanced.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_progress::{Counts, Ending, Node, Operation, Snapshot, Task, TimeLeft, VirtualClock, Wait};

use crate::observed_task::{ObservedTask, TaskStatus};

/// Tracks the progress of one operation.
#[derive(Debug)]
pub struct ProgressTracker {
    clock: VirtualClock,
    origin: Timestamp,
    operation: Operation,
    tasks: BTreeMap<String, TrackedTask>,
    /// The rate at the last change of a task's counts, by path.
    rates: BTreeMap<Arc<str>, LastRate>,
    ended: bool,
}

/// The rate of a task at the last change of its counts.
///
/// Velero updates an object every few seconds. Between two updates nothing is known: the task may well advance.
#[derive(Debug)]
struct LastRate {
    meters: Vec<Counts>,
    rate: Option<u64>,
    left: Option<TimeLeft>,
    at: Duration,
}

#[derive(Debug)]
struct TrackedTask {
    task: Task,
    wait: Option<(TaskStatus, Wait)>,
    quiet: bool,
    ended: bool,
}

/// A task with its place in the tree and consistent times.
struct FlatTask<'s> {
    key: String,
    parent: Option<usize>,
    observed: &'s ObservedTask,
    began: Timestamp,
    written: Timestamp,
    ended: Timestamp,
}

impl ProgressTracker {
    /// Starts with a first observation.
    pub fn new(observed: &ObservedTask, now: Timestamp) -> Self {
        let flat = flatten(observed, now);
        let origin = flat.iter().map(|node| node.began).min().unwrap_or(now);
        let clock = VirtualClock::new();
        let operation = Operation::new(&observed.name, clock.clock());
        let mut this = Self { clock, origin, operation, tasks: BTreeMap::new(), rates: BTreeMap::new(), ended: false };
        this.replay(&flat, now);
        this.record_first_rates();
        this
    }

    /// Adds an observation.
    pub fn observe(&mut self, observed: &ObservedTask, now: Timestamp) {
        if self.ended {
            return;
        }
        self.advance_to(now);
        let flat = flatten(observed, now);
        self.apply(&flat, |_| true);
    }

    /// The current tree.
    pub fn snapshot(&mut self) -> Snapshot {
        let mut tree = self.operation.snapshot();
        let now = self.clock.now();
        let moved = tree.nodes.iter().any(|node| self.has_moved(node));
        for node in &mut tree.nodes {
            // A task without meters moves with its children.
            if self.has_moved(node) || (node.meters.is_empty() && moved) {
                let last = LastRate { meters: node.meters.clone(), rate: node.rate, left: node.left, at: now };
                self.rates.insert(Arc::clone(&node.path), last);
            } else if let Some(last) = self.rates.get(&node.path) {
                let open = node.state.is_active() && node.stall.is_none();
                node.rate = last.rate.filter(|_| open);
                node.left = last.left.filter(|_| open).map(|left| reduce(left, now.saturating_sub(last.at)));
            }
        }
        tree
    }

    fn has_moved(&self, node: &Node) -> bool {
        !node.meters.is_empty() && self.rates.get(&node.path).is_none_or(|last| last.meters != node.meters)
    }

    /// The first observation has counts and no rates.
    fn record_first_rates(&mut self) {
        let at = self.clock.now();
        for node in self.operation.snapshot().nodes {
            self.rates.insert(node.path, LastRate { meters: node.meters, rate: None, left: None, at });
        }
    }

    /// Whether the operation has ended.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    fn advance_to(&self, then: Timestamp) {
        let target = then.duration_since(self.origin).try_into().unwrap_or_default();
        let step = Duration::saturating_sub(target, self.clock.now());
        self.clock.advance(step);
    }

    /// Replays every recorded time up to now.
    fn replay(&mut self, flat: &[FlatTask<'_>], now: Timestamp) {
        let mut moments: Vec<(Timestamp, bool)> = Vec::new();
        for node in flat {
            let open = !node.observed.status.is_ended();
            moments.extend([(node.began, false), (node.written, open)]);
            moments.extend((!open).then_some((node.ended, false)));
        }
        moments.sort();
        for (place, (moment, sample)) in moments.iter().enumerate() {
            if moments.get(place + 1).is_none_or(|(next, _)| next != moment) {
                self.advance_to(*moment);
                self.apply(flat, |then| then <= *moment);
                // Only a snapshot records when a counter advanced.
                if *sample {
                    self.operation.snapshot();
                }
            }
        }
        self.advance_to(now);
    }

    /// Applies what has happened by now.
    fn apply(&mut self, flat: &[FlatTask<'_>], happened: impl Fn(Timestamp) -> bool) {
        // All tasks from the start: a percentage never falls, so the total must be known from the first observation.
        for node in flat {
            self.create(node, flat);
        }
        for node in flat.iter().filter(|node| happened(node.began)) {
            self.begin(node);
            if happened(node.written) {
                self.update(node);
            }
        }
        for node in flat.iter().rev().filter(|node| node.observed.status.is_ended() && happened(node.ended)) {
            self.end(node);
        }
    }

    fn create(&mut self, node: &FlatTask<'_>, flat: &[FlatTask<'_>]) {
        if self.tasks.contains_key(&node.key) {
            return;
        }
        let above = node.parent.and_then(|parent| self.tasks.get(&flat[parent].key)).map(|held| held.task.clone());
        let task = match above {
            None => self.operation.root(),
            Some(above) => above.planned(&node.observed.name),
        };
        if node.observed.equal_weights {
            task.equal_weights();
        }
        if let Some(shares) = node.observed.shares {
            task.shares(shares);
        }
        self.tasks.insert(node.key.clone(), TrackedTask { task, wait: None, quiet: false, ended: false });
    }

    fn begin(&mut self, node: &FlatTask<'_>) {
        if let Some(held) = self.tasks.get(&node.key).filter(|_| node.observed.status != TaskStatus::Pending) {
            held.task.start();
        }
    }

    fn update(&mut self, node: &FlatTask<'_>) {
        let Some(held) = self.tasks.get_mut(&node.key).filter(|held| !held.ended) else { return };
        let (task, observed) = (&held.task, node.observed);
        observed.meters.iter().for_each(|counts| count(task, counts));
        if let Some(item) = &observed.item {
            task.say(item);
        }
        if let Some(hint) = &observed.hint {
            task.hint(hint);
        }
        let quiet = observed.status == TaskStatus::Quiet;
        match (held.quiet, quiet) {
            (false, true) => task.quiet(),
            // A task without a signal at first may count later.
            (true, false) => task.loud(),
            _ => {}
        }
        held.quiet = quiet;
        if held.wait.as_ref().is_none_or(|(status, _)| *status != observed.status) {
            held.wait = match &observed.status {
                TaskStatus::Waiting(reason) => Some((observed.status.clone(), task.wait(waiting_for(reason)))),
                TaskStatus::Queued(reason) => Some((observed.status.clone(), task.wait_in_queue(waiting_for(reason)))),
                _ => None,
            };
        }
    }

    fn end(&mut self, node: &FlatTask<'_>) {
        let Some(held) = self.tasks.get_mut(&node.key).filter(|held| !held.ended) else { return };
        (held.ended, held.wait) = (true, None);
        let is_root = node.parent.is_none();
        match &node.observed.status {
            TaskStatus::Done if is_root => self.operation.end(Ending::Succeeded),
            TaskStatus::Done => held.task.finish(),
            TaskStatus::Failed(reason) => held.task.fail(reason),
            TaskStatus::Cancelled(reason) => held.task.cancel(reason),
            _ => {}
        }
        self.ended |= is_root;
    }
}

/// The time left after some time has passed.
fn reduce(left: TimeLeft, by: Duration) -> TimeLeft {
    let sooner = |seconds: u64| seconds.saturating_sub(by.as_secs()).max(1);
    TimeLeft { low: sooner(left.low), high: sooner(left.high) }
}

fn waiting_for(reason: &str) -> String {
    format!("waiting for {reason}")
}

fn count(task: &Task, counts: &Counts) {
    let meter = task.meter(counts.unit);
    let before = meter.counts();
    meter.set_total(counts.total);
    meter.set_done(counts.done);
    meter.skip(counts.skipped.saturating_sub(before.skipped));
    meter.fail(counts.failed.saturating_sub(before.failed));
}

/// All tasks, each after its parent, with consistent times: none starts before its parent, is updated before it started, or
/// lies in the future.
fn flatten(observed: &ObservedTask, now: Timestamp) -> Vec<FlatTask<'_>> {
    let mut flat = Vec::new();
    push(observed, None, "", now, &mut flat);
    flat
}

fn push<'s>(
    observed: &'s ObservedTask,
    parent: Option<usize>,
    key: &str,
    now: Timestamp,
    flat: &mut Vec<FlatTask<'s>>,
) {
    let least = parent.map_or(Timestamp::MIN, |parent| flat[parent].began);
    let began = observed.began.unwrap_or(if parent.is_some() { least } else { now }).clamp(least, now.max(least));
    let written = observed.written.unwrap_or(began).clamp(began, now.max(began));
    let latest =
        parent.filter(|parent| flat[*parent].observed.status.is_ended()).map_or(now, |parent| flat[parent].ended);
    let ended = observed.ended.unwrap_or(written).clamp(began, latest.max(began));
    // An ended task was updated before its end.
    let written = if observed.status.is_ended() { written.min(ended) } else { written };
    let place = flat.len();
    flat.push(FlatTask { key: key.to_owned(), parent, observed, began, written, ended });
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for child in &observed.children {
        let nth = names.entry(&child.name).or_default();
        *nth += 1;
        push(child, Some(place), &format!("{key}\n{}\t{nth}", child.name), now, flat);
    }
}
