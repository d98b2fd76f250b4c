//! Sketches of one operation, one after the other, become its progress: rates, time left, stalls.
//!
//! The tree is an ordinary `progress::Operation` on a clock that we move. So the first look already knows how long nothing has
//! moved: the clock begins where the operation did, and passes every moment at which the cluster says that something was written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_progress::{Counts, Ending, Node, Operation, Snapshot, Task, TimeLeft, VirtualClock, Wait};

use crate::sketch::{Sketch, Standing};

/// Follows one operation.
#[derive(Debug)]
pub struct Follower {
    clock: VirtualClock,
    origin: Timestamp,
    operation: Operation,
    held: BTreeMap<String, Held>,
    /// What could be said about speed when a number last changed, by path.
    paces: BTreeMap<Arc<str>, Pace>,
    ended: bool,
}

/// The speed of a task, as of the moment at which its numbers last changed.
///
/// A stock object is written every few seconds. Between two writes nothing is known, and in particular not that nothing moves.
#[derive(Debug)]
struct Pace {
    meters: Vec<Counts>,
    rate: Option<u64>,
    left: Option<TimeLeft>,
    at: Duration,
}

#[derive(Debug)]
struct Held {
    task: Task,
    wait: Option<(Standing, Wait)>,
    quiet: bool,
    ended: bool,
}

/// A node of a sketch with its place and its moments put in order.
struct Flat<'s> {
    key: String,
    parent: Option<usize>,
    sketch: &'s Sketch,
    began: Timestamp,
    written: Timestamp,
    ended: Timestamp,
}

impl Follower {
    /// Begins with a first look.
    pub fn new(sketch: &Sketch, now: Timestamp) -> Self {
        let flat = flatten(sketch, now);
        let origin = flat.iter().map(|node| node.began).min().unwrap_or(now);
        let clock = VirtualClock::new();
        let operation = Operation::new(&sketch.name, clock.clock());
        let mut this = Self { clock, origin, operation, held: BTreeMap::new(), paces: BTreeMap::new(), ended: false };
        this.replay(&flat, now);
        this.begin_paces();
        this
    }

    /// Takes another look.
    pub fn observe(&mut self, sketch: &Sketch, now: Timestamp) {
        if self.ended {
            return;
        }
        self.move_to(now);
        let flat = flatten(sketch, now);
        self.step(&flat, |_| true);
    }

    /// The tree as it is now.
    pub fn snapshot(&mut self) -> Snapshot {
        let mut tree = self.operation.snapshot();
        let now = self.clock.now();
        let moved = tree.nodes.iter().any(|node| self.has_moved(node));
        for node in &mut tree.nodes {
            // What has no numbers of its own moves with what is below it.
            if self.has_moved(node) || (node.meters.is_empty() && moved) {
                let pace = Pace { meters: node.meters.clone(), rate: node.rate, left: node.left, at: now };
                self.paces.insert(Arc::clone(&node.path), pace);
            } else if let Some(pace) = self.paces.get(&node.path) {
                let open = node.state.is_active() && node.stall.is_none();
                node.rate = pace.rate.filter(|_| open);
                node.left = pace.left.filter(|_| open).map(|left| less(left, now.saturating_sub(pace.at)));
            }
        }
        tree
    }

    fn has_moved(&self, node: &Node) -> bool {
        !node.meters.is_empty() && self.paces.get(&node.path).is_none_or(|pace| pace.meters != node.meters)
    }

    /// The first look knows numbers, and nothing of their speed.
    fn begin_paces(&mut self) {
        let at = self.clock.now();
        for node in self.operation.snapshot().nodes {
            self.paces.insert(node.path, Pace { meters: node.meters, rate: None, left: None, at });
        }
    }

    /// Whether nothing will change any more.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    fn move_to(&self, then: Timestamp) {
        let target = then.duration_since(self.origin).try_into().unwrap_or_default();
        let step = Duration::saturating_sub(target, self.clock.now());
        self.clock.advance(step);
    }

    /// Passes every moment of which something is known, up to now.
    fn replay(&mut self, flat: &[Flat<'_>], now: Timestamp) {
        let mut moments: Vec<(Timestamp, bool)> = Vec::new();
        for node in flat {
            let open = !node.sketch.standing.is_ended();
            moments.extend([(node.began, false), (node.written, open)]);
            moments.extend((!open).then_some((node.ended, false)));
        }
        moments.sort();
        for (place, (moment, look)) in moments.iter().enumerate() {
            if moments.get(place + 1).is_none_or(|(next, _)| next != moment) {
                self.move_to(*moment);
                self.step(flat, |then| then <= *moment);
                // Only a look tells the tree when a counter moved.
                if *look {
                    self.operation.snapshot();
                }
            }
        }
        self.move_to(now);
    }

    /// Brings in what has happened by now.
    fn step(&mut self, flat: &[Flat<'_>], happened: impl Fn(Timestamp) -> bool) {
        // All of it from the beginning: a percentage never falls, so it must know from the first look what there is to do.
        for node in flat {
            self.create(node, flat);
        }
        for node in flat.iter().filter(|node| happened(node.began)) {
            self.begin(node);
            if happened(node.written) {
                self.update(node);
            }
        }
        for node in flat.iter().rev().filter(|node| node.sketch.standing.is_ended() && happened(node.ended)) {
            self.end(node);
        }
    }

    fn create(&mut self, node: &Flat<'_>, flat: &[Flat<'_>]) {
        if self.held.contains_key(&node.key) {
            return;
        }
        let above = node.parent.and_then(|parent| self.held.get(&flat[parent].key)).map(|held| held.task.clone());
        let task = match above {
            None => self.operation.root(),
            Some(above) => above.planned(&node.sketch.name),
        };
        if node.sketch.equal_weights {
            task.equal_weights();
        }
        self.held.insert(node.key.clone(), Held { task, wait: None, quiet: false, ended: false });
    }

    fn begin(&mut self, node: &Flat<'_>) {
        if let Some(held) = self.held.get(&node.key).filter(|_| node.sketch.standing != Standing::Pending) {
            held.task.start();
        }
    }

    fn update(&mut self, node: &Flat<'_>) {
        let Some(held) = self.held.get_mut(&node.key).filter(|held| !held.ended) else { return };
        let (task, sketch) = (&held.task, node.sketch);
        sketch.meters.iter().for_each(|counts| count(task, counts));
        if let Some(item) = &sketch.item {
            task.say(item);
        }
        if let Some(hint) = &sketch.hint {
            task.hint(hint);
        }
        let quiet = sketch.standing == Standing::Quiet;
        match (held.quiet, quiet) {
            (false, true) => task.quiet(),
            // What said nothing at first may count later on.
            (true, false) => task.loud(),
            _ => {}
        }
        held.quiet = quiet;
        if held.wait.as_ref().is_none_or(|(standing, _)| *standing != sketch.standing) {
            held.wait = match &sketch.standing {
                Standing::Waiting(reason) => Some((sketch.standing.clone(), task.wait(waiting_for(reason)))),
                Standing::Patient(reason) => Some((sketch.standing.clone(), task.wait_patiently(waiting_for(reason)))),
                _ => None,
            };
        }
    }

    fn end(&mut self, node: &Flat<'_>) {
        let Some(held) = self.held.get_mut(&node.key).filter(|held| !held.ended) else { return };
        (held.ended, held.wait) = (true, None);
        let is_root = node.parent.is_none();
        match &node.sketch.standing {
            Standing::Done if is_root => self.operation.end(Ending::Succeeded),
            Standing::Done => held.task.finish(),
            Standing::Failed(reason) => held.task.fail(reason),
            Standing::Cancelled(reason) => held.task.cancel(reason),
            _ => {}
        }
        self.ended |= is_root;
    }
}

/// A time left, so much later.
fn less(left: TimeLeft, by: Duration) -> TimeLeft {
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

/// All nodes, each after its parent, with moments that are in order: nothing begins before its parent, is written before it
/// began, or happens in the future.
fn flatten(sketch: &Sketch, now: Timestamp) -> Vec<Flat<'_>> {
    let mut flat = Vec::new();
    push(sketch, None, "", now, &mut flat);
    flat
}

fn push<'s>(sketch: &'s Sketch, parent: Option<usize>, key: &str, now: Timestamp, flat: &mut Vec<Flat<'s>>) {
    let least = parent.map_or(Timestamp::MIN, |parent| flat[parent].began);
    let began = sketch.began.unwrap_or(if parent.is_some() { least } else { now }).clamp(least, now.max(least));
    let written = sketch.written.unwrap_or(began).clamp(began, now.max(began));
    let latest =
        parent.filter(|parent| flat[*parent].sketch.standing.is_ended()).map_or(now, |parent| flat[parent].ended);
    let ended = sketch.ended.unwrap_or(written).clamp(began, latest.max(began));
    // What ended has been written by then.
    let written = if sketch.standing.is_ended() { written.min(ended) } else { written };
    let place = flat.len();
    flat.push(Flat { key: key.to_owned(), parent, sketch, began, written, ended });
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for child in &sketch.children {
        let nth = names.entry(&child.name).or_default();
        *nth += 1;
        push(child, Some(place), &format!("{key}\n{}\t{nth}", child.name), now, flat);
    }
}
