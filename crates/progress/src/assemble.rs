//! From cells to nodes: one pass down to read, one pass up to add, one to put everything in order.

use std::sync::Arc;
use std::time::Duration;

use crate::cell::{Cell, Live, PARENT_ENDED, lock};
use crate::counts::{Counts, Total};
use crate::order::Order;
use crate::percent::Percent;
use crate::rate::TimeLeft;
use crate::sampler::Track;
use crate::snapshot::{Ages, Folded, Node, Snapshot, depths};
use crate::stall::{Stall, StallReason, StallRule};
use crate::state::State;
use crate::tree::Tree;

/// What is known about a node on its way, and what its children add to it.
#[derive(Debug)]
pub(crate) struct Draft {
    /// What was really counted by the first meter, for the rate: settled and total.
    counted: Option<(u64, Total)>,
    /// When it last advanced.
    advanced: Duration,
    patience: Duration,
    patient: bool,
    liveness: Option<Arc<str>>,
    equal_weights: bool,
    /// Nodes of other processes, each list headed by its root.
    grafts: Vec<Vec<Node>>,
    /// Another process whose work this is, and how long it has been silent.
    silent: Option<(Arc<str>, Duration)>,
    /// It comes from a saved tree, and another process reports on it again.
    hidden: bool,
    below: Below,
}

/// What the children of a task come to.
#[derive(Debug, Default)]
struct Below {
    active: bool,
    approximate: bool,
    measured: bool,
    advance: Option<Duration>,
    shares: Shares,
    left: Left,
}

/// The sums behind a weighted mean.
#[derive(Debug, Default)]
struct Shares {
    all: f64,
    count: f64,
    weighted: f64,
    weight: f64,
    weighed: f64,
    weighed_all: f64,
}

impl Shares {
    fn add(&mut self, fraction: f64, expected: Option<Duration>) {
        self.all += fraction;
        self.count += 1.0;
        if let Some(expected) = expected {
            self.weighted += fraction * expected.as_secs_f64();
            self.weight += expected.as_secs_f64();
            self.weighed += 1.0;
            self.weighed_all += fraction;
        }
    }

    /// The mean, by expected duration where that is known. A task of unknown duration weighs as much as the average one of
    /// known duration.
    fn mean(&self, equal: bool) -> Option<f64> {
        if self.count == 0.0 {
            return None;
        }
        if equal || self.weight <= 0.0 {
            return Some(self.all / self.count);
        }
        let usual = self.weight / self.weighed;
        let rest = self.count - self.weighed;
        Some((self.weighted + usual * (self.all - self.weighed_all)) / (self.weight + usual * rest))
    }
}

/// Bounds for the time that tasks need together: all at once, or one after the other.
#[derive(Debug, Default)]
struct Left {
    longest: u64,
    sum: u64,
    missing: bool,
}

impl Left {
    fn add(&mut self, left: Option<TimeLeft>) {
        match left {
            Some(left) => {
                self.longest = self.longest.max(left.low);
                self.sum = self.sum.saturating_add(left.high);
            }
            None => self.missing = true,
        }
    }

    fn together(&self) -> Option<TimeLeft> {
        (!self.missing && self.longest > 0).then_some(TimeLeft { low: self.longest, high: self.sum.max(self.longest) })
    }
}

pub(crate) fn snapshot(
    tree: &Tree,
    cells: &[Arc<Cell>],
    order: &Order,
    tracks: &mut [Track],
    drafts: &mut Vec<Draft>,
) -> Snapshot {
    let now = tree.now();
    let rule = tree.rule();
    let mut nodes: Vec<Node> = Vec::with_capacity(cells.len());
    drafts.clear();
    for (index, parent) in order.cells.iter().zip(&order.parents) {
        let above = parent.map(|parent| (&drafts[parent], &nodes[parent]));
        let (draft, node) = read(&cells[*index], &mut tracks[*index], above, now, &rule);
        drafts.push(draft);
        nodes.push(node);
    }
    for place in (0..nodes.len()).rev() {
        let track = &mut tracks[order.cells[place]];
        complete(&mut drafts[place], &mut nodes[place], track, now);
        if let Some(parent) = order.parents[place] {
            let (above, rest) = drafts.split_at_mut(place);
            above[parent].take_child(&rest[0], &nodes[place], track);
        }
    }
    if drafts.iter().any(|draft| draft.hidden || !draft.grafts.is_empty()) {
        nodes = with_grafts(nodes, drafts, &order.parents);
    }
    let stall = deepest_stall(&nodes);
    Snapshot { operation: Arc::clone(&tree.name), nodes, stall }
}

/// The pass down: what the cell says by itself.
fn read(
    cell: &Cell,
    track: &mut Track,
    above: Option<(&Draft, &Node)>,
    now: Duration,
    rule: &StallRule,
) -> (Draft, Node) {
    let live = cell.live();
    let counted = live.readings();
    let rule = StallRule { floor: live.floor.unwrap_or(rule.floor), ..*rule };
    let patience = rule.patience(track.cadence.mean());
    let advanced = track.observe(now, live.signalled, &counted, patience);
    let mut node = node(cell, &live, now);
    let mut draft = Draft {
        counted: counted.first().map(|counts| (counts.settled(), counts.total)),
        advanced,
        patience,
        patient: live.waits.last().is_some_and(|wait| wait.patient) || live.state == State::TakenOver,
        liveness: live.liveness.clone(),
        equal_weights: live.equal_weights,
        grafts: Vec::new(),
        silent: None,
        hidden: above.is_some_and(|(above, _)| above.hides(cell, &live)),
        below: Below::default(),
    };
    draft.take_grafts(&live, &node, now);
    drop(live);
    // The task above may have ended since the list was taken: then this one has, too.
    if above.is_some_and(|(_, above)| above.state.is_ended()) && node.state.is_open() {
        node.state = State::Interrupted;
        node.reason = Some(Arc::from(PARENT_ENDED));
    }
    let well = node.state == State::Done;
    node.meters = counted.into_iter().map(|counts| track.show(counts, well)).collect();
    (draft, node)
}

fn node(cell: &Cell, live: &Live, now: Duration) -> Node {
    let state = live.shown_state();
    let waiting = live.waits.last().filter(|_| state == State::Waiting);
    Node {
        path: Arc::clone(&cell.path),
        name: Arc::clone(&cell.name),
        state,
        reason: waiting.map(|wait| Arc::clone(&wait.reason)).or_else(|| live.reason.clone()),
        item: live.item.clone(),
        hint: live.hint.clone(),
        meters: Vec::new(),
        percent: None,
        rate: None,
        left: None,
        expected: live.expected,
        quiet: live.quiet,
        overdue: state.is_open() && live.deadline.is_some_and(|deadline| now > deadline),
        stall: None,
        signals: live.signals,
        folded: Folded::default(),
        ages: Ages {
            elapsed: live.started.map(|started| live.ended.unwrap_or(now).saturating_sub(started)),
            advance: Duration::ZERO,
        },
    }
}

impl Draft {
    /// Whether a task from a saved tree has made way for the process that reports on it again.
    fn hides(&self, cell: &Cell, live: &Live) -> bool {
        let grafted = || self.grafts.iter().filter_map(|nodes| nodes.first()).any(|root| root.name == cell.name);
        self.hidden || (live.orphaned && grafted())
    }

    fn take_grafts(&mut self, live: &Live, node: &Node, now: Duration) {
        for graft in &live.grafts {
            let replica = lock(&graft.replica);
            let nodes = replica.nodes_under(&node.path, &graft.name, now);
            let Some(root) = nodes.first() else { continue };
            let silence = replica.silence(now);
            if root.state.is_active() && silence > self.patience {
                self.silent = Some((Arc::clone(&root.name), silence));
            }
            self.grafts.push(nodes);
        }
    }

    fn take_grafted(&mut self) -> impl Iterator<Item = Node> + use<> {
        let grafts = if self.hidden { Vec::new() } else { std::mem::take(&mut self.grafts) };
        grafts.into_iter().flatten()
    }

    /// The pass up: what a child adds.
    fn take_child(&mut self, child: &Draft, node: &Node, track: &Track) {
        if !child.hidden {
            self.below.add(node, if node.state == State::Skipped { 1.0 } else { track.fraction });
        }
    }
}

impl Draft {
    /// The share its children have reached, and the percentage if that says anything.
    fn mean(&self) -> (f64, Option<Percent>) {
        let mean = self.below.shares.mean(self.equal_weights);
        let measured = self.below.measured || self.equal_weights;
        let percent = mean.filter(|_| measured).map(Percent::of_fraction);
        (mean.unwrap_or(0.0), percent.map(|percent| percent.approximately(self.below.approximate)))
    }
}

impl Below {
    fn add(&mut self, child: &Node, fraction: f64) {
        let open = child.state.is_open();
        let unknown = child.percent.is_none() && !child.meters.is_empty();
        self.active |= child.state.is_active();
        self.approximate |= open && (unknown || child.percent.is_some_and(Percent::is_approximate));
        self.measured |= child.percent.is_some() || matches!(child.state, State::Pending | State::Skipped);
        self.advance = Some(self.advance.map_or(child.ages.advance, |age| age.min(child.ages.advance)));
        self.shares.add(fraction, child.expected);
        if open {
            self.left.add(child.left);
        }
    }
}

/// The pass up: what needs the children to be known.
fn complete(draft: &mut Draft, node: &mut Node, track: &mut Track, now: Duration) {
    for root in draft.grafts.iter().filter_map(|nodes| nodes.first()) {
        draft.below.add(root, if root.state == State::Skipped { 1.0 } else { share(root) });
    }
    draft.below.active &= draft.silent.is_none();
    measure(draft, node, track);
    time(draft, node, track, now);
    let own = now.saturating_sub(draft.advanced);
    node.ages.advance = draft.below.advance.map_or(own, |below| below.min(own));
    node.stall = judge(draft, node, own);
    if node.stall.is_some() {
        node.left = None;
    }
}

fn share(node: &Node) -> f64 {
    node.percent.map_or(0.0, Percent::fraction)
}

/// The percentage: of its own meter if that has a total, else of its children; never less than was shown.
fn measure(draft: &Draft, node: &mut Node, track: &mut Track) {
    if node.state == State::Done {
        node.percent = Some(Percent::COMPLETE);
        track.percent = Some(Percent::COMPLETE.hundredths());
        track.fraction = 1.0;
        return;
    }
    let own = node.meters.first().and_then(own_percent);
    let (fraction, percent) = own.map_or_else(|| draft.mean(), |(fraction, percent)| (fraction, Some(percent)));
    track.fraction = track.fraction.max(fraction);
    // What was shown once stays shown, even if right now nothing is known.
    let guess = !node.meters.is_empty() || draft.below.approximate;
    let held = track.percent.map(|_| Percent::default().approximately(guess));
    let shown = percent.or(held).map(|percent| percent.at_least(track.percent.unwrap_or(0)));
    let shown = shown.map(|percent| if node.path.is_empty() { percent.below_whole() } else { percent });
    track.percent = shown.map(Percent::hundredths);
    node.percent = shown.filter(|_| node.state != State::Skipped);
}

fn own_percent(counts: &Counts) -> Option<(f64, Percent)> {
    let total = counts.total.value()?;
    let percent = Percent::of(counts.settled(), total).approximately(matches!(counts.total, Total::Growing(_)));
    Some((counts.fraction()?, percent))
}

/// Rate and time left.
fn time(draft: &Draft, node: &mut Node, track: &mut Track, now: Duration) {
    if node.state.is_ended() {
        track.window.clear();
        return;
    }
    let counted = draft.counted.filter(|_| node.state.is_active());
    if let Some((settled, total)) = counted {
        track.window.push(now, settled, total.value());
        node.rate = track.window.rate().and_then(whole_rate);
    }
    let own = counted.and_then(|(_, total)| track.window.time_left(total.is_final()));
    let measured_by_itself = counted.is_some_and(|(settled, total)| total.value().is_some_and(|total| total > settled));
    node.left = own.or_else(|| if measured_by_itself { None } else { draft.below.left.together() });
    if node.left.is_none() && draft.below.shares.count == 0.0 && !measured_by_itself {
        node.left = expected_left(node);
    }
}

/// A whole number a second. Something that moves, but less than once a second, has none: 0 would be a lie.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are not negative, and saturate")]
fn whole_rate(rate: f64) -> Option<u64> {
    (rate == 0.0 || rate >= 1.0).then_some(rate as u64)
}

/// What an expected duration is worth: half to double of what is left of it, and nothing once it is over.
fn expected_left(node: &Node) -> Option<TimeLeft> {
    let left = node.expected?.checked_sub(node.ages.elapsed.unwrap_or_default())?.as_secs_f64();
    (left > 0.0).then(|| TimeLeft::between(left / 2.0, left * 2.0)).flatten()
}

/// The verdict on one task. A task with active children is judged by them, so the verdict falls on the deepest.
fn judge(draft: &Draft, node: &Node, age: Duration) -> Option<Stall> {
    if !node.state.is_active() {
        return None;
    }
    if let Some(liveness) = &draft.liveness {
        return Some(stall(node, age, StallReason::LivenessFailed, Arc::clone(liveness)));
    }
    if draft.below.active || draft.patient {
        return None;
    }
    if let Some((who, silence)) = &draft.silent {
        return Some(stall(node, *silence, StallReason::NoWord, format!("no word from {who}").into()));
    }
    if node.quiet {
        return node.overdue.then(|| stall(node, age, StallReason::DeadlineExceeded, why(node)));
    }
    let reason = if node.state == State::Waiting { StallReason::WaitingTooLong } else { StallReason::NoAdvance };
    (age > draft.patience).then(|| stall(node, age, reason, why(node)))
}

fn stall(node: &Node, age: Duration, reason: StallReason, message: Arc<str>) -> Stall {
    Stall { task: Arc::clone(node.label()), age, reason, message }
}

/// Why, as far as it can be known.
fn why(node: &Node) -> Arc<str> {
    let about = node.reason.as_ref().or(node.item.as_ref());
    match (about, &node.hint) {
        (Some(about), Some(hint)) => format!("{about}: {hint}").into(),
        (Some(about), None) => Arc::clone(about),
        (None, Some(hint)) => Arc::clone(hint),
        (None, None) => Arc::from("nothing is known about why"),
    }
}

/// The nodes without the hidden ones, and with the grafts, each after the last node below its task.
fn with_grafts(nodes: Vec<Node>, drafts: &mut [Draft], parents: &[Option<usize>]) -> Vec<Node> {
    let mut all = Vec::with_capacity(nodes.len());
    let mut open: Vec<usize> = Vec::new();
    for (place, node) in nodes.into_iter().enumerate() {
        while open.last().is_some_and(|above| Some(*above) != parents[place]) {
            all.extend(open.pop().into_iter().flat_map(|above| drafts[above].take_grafted()));
        }
        open.push(place);
        if !drafts[place].hidden {
            all.push(node);
        }
    }
    while let Some(above) = open.pop() {
        all.extend(drafts[above].take_grafted());
    }
    all
}

/// The verdict on the whole tree: the deepest stalled task; among equals the one that has been so for longest.
pub(crate) fn deepest_stall(nodes: &[Node]) -> Option<Stall> {
    if nodes.iter().all(|node| node.stall.is_none()) {
        return None;
    }
    let stalls = nodes.iter().zip(depths(nodes)).filter_map(|(node, depth)| Some((depth, node.stall.as_ref()?)));
    stalls.max_by_key(|(depth, stall)| (*depth, stall.age)).map(|(_, stall)| stall.clone())
}
