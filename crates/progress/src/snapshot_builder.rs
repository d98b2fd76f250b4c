//! From cells to nodes: one pass down to read, one pass up to add, one to put everything in order.

use std::sync::Arc;
use std::time::Duration;

use crate::child_summary::ChildSummary;
use crate::counts::{Counts, Total};
use crate::percent::Percent;
use crate::rate::TimeLeft;
use crate::sampler::Track;
use crate::snapshot::{Ages, FoldedCounts, Node, Snapshot};
use crate::stall::StallRule;
use crate::stall_check::{deepest_stall, judge};
use crate::state::State;
use crate::task_cell::{Cell, PARENT_ENDED, TaskFields, lock};
use crate::tree::Tree;
use crate::tree_order::TreeOrder;

/// What is known about a node on its way, and what its children add to it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Draft {
    /// What its first meter says.
    own: Own,
    /// When it last advanced.
    advanced: Duration,
    pub(crate) patience: Duration,
    pub(crate) patient: bool,
    pub(crate) liveness: Option<Arc<str>>,
    equal_weights: bool,
    expected_by_history: bool,
    /// Nodes of other processes, each list headed by its root.
    grafts: Vec<Vec<Node>>,
    /// Another process whose work this is, and how long it has been silent.
    pub(crate) silent: Option<(Arc<str>, Duration)>,
    /// It comes from a saved tree, and another process reports on it again.
    hidden: bool,
    pub(crate) below: ChildSummary,
}

pub(crate) fn snapshot(
    tree: &Tree,
    cells: &[Arc<Cell>],
    order: &TreeOrder,
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
    let patience = rule.patience(track.cadence.usual());
    let advanced = track.observe(now, live.signalled, &counted, patience);
    let mut node = node(cell, &live, now);
    let mut draft = Draft {
        own: Own::default(),
        advanced,
        patience,
        patient: live.waits.last().is_some_and(|wait| wait.patient) || live.state == State::TakenOver,
        liveness: live.liveness.clone(),
        equal_weights: live.equal_weights,
        expected_by_history: live.expected_by_history,
        grafts: Vec::new(),
        silent: None,
        hidden: above.is_some_and(|(above, _)| above.hides(cell, &live)),
        below: ChildSummary::default(),
    };
    draft.take_grafts(&live, &node, now);
    drop(live);
    // The task above may have ended since the list was taken: then this one has, too.
    if above.is_some_and(|(_, above)| above.state.is_ended()) && node.state.is_open() {
        node.state = State::Interrupted;
        node.reason = Some(Arc::from(PARENT_ENDED));
    }
    let first = counted.first().copied();
    let well = node.state == State::Done;
    node.meters = counted.into_iter().map(|counts| track.show(counts, well)).collect();
    draft.own = Own::of(first, &mut node, track, now);
    (draft, node)
}

fn node(cell: &Cell, live: &TaskFields, now: Duration) -> Node {
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
        reported_left: live.reported_left.filter(|_| state.is_open()),
        expected: live.expected,
        quiet: live.quiet,
        overdue: state.is_open() && live.deadline.is_some_and(|deadline| now > deadline),
        stall: None,
        signals: live.signals,
        folded: FoldedCounts::default(),
        ages: Ages {
            elapsed: live.started.map(|started| live.ended.unwrap_or(now).saturating_sub(started)),
            advance: Duration::ZERO,
        },
    }
}

impl Draft {
    /// Whether a task from a saved tree has made way for the process that reports on it again.
    fn hides(&self, cell: &Cell, live: &TaskFields) -> bool {
        let grafted = || self.grafts.iter().filter_map(|nodes| nodes.first()).any(|root| root.name == cell.name);
        self.hidden || (live.orphaned && grafted())
    }

    fn take_grafts(&mut self, live: &TaskFields, node: &Node, now: Duration) {
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
        let mean = self.below.mean(self.equal_weights);
        let measured = self.below.measured || self.equal_weights;
        let percent = mean.filter(|_| measured).map(Percent::of_fraction);
        (mean.unwrap_or(0.0), percent.map(|percent| percent.approximately(self.below.approximate)))
    }
}

/// The pass up: what needs the children to be known.
fn complete(draft: &mut Draft, node: &mut Node, track: &mut Track, now: Duration) {
    for root in draft.grafts.iter().filter_map(|nodes| nodes.first()) {
        draft.below.add(root, if root.state == State::Skipped { 1.0 } else { share(root) });
    }
    draft.below.active &= draft.silent.is_none();
    measure(draft, node, track);
    let age = now.saturating_sub(draft.advanced);
    node.ages.advance = draft.below.advance.map_or(age, |below| below.min(age));
    node.stall = judge(draft, node, age);
    node.left = time_left(draft, node).filter(|_| node.stall.is_none());
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
    let (fraction, percent) =
        draft.own.share.map_or_else(|| draft.mean(), |(fraction, percent)| (fraction, Some(percent)));
    track.fraction = track.fraction.max(fraction);
    // What was shown once stays shown, even if right now nothing is known.
    let guess = !node.meters.is_empty() || draft.below.approximate;
    let held = track.percent.map(|_| Percent::default().approximately(guess));
    let shown = percent.or(held).map(|percent| percent.at_least(track.percent.unwrap_or(0)));
    // A task that an earlier process had finished, and that is done again, is not complete until it is.
    let shown = shown.map(Percent::below_whole);
    track.percent = shown.map(Percent::hundredths);
    node.percent = shown.filter(|_| node.state != State::Skipped);
}

/// What a task's first meter says by itself. Found out on the way down, while the meter is still at hand in the cache.
#[derive(Debug, Default)]
struct Own {
    share: Option<(f64, Percent)>,
    left: Option<TimeLeft>,
    /// There is a total, and something left of it.
    unsettled: bool,
}

impl Own {
    /// The share is taken from what is shown; the rate from what was really counted, which may lag behind a floor.
    fn of(counted: Option<Counts>, node: &mut Node, track: &mut Track, now: Duration) -> Self {
        let share = node.meters.first().and_then(own_percent);
        let at_work = matches!(node.state, State::Running | State::Waiting);
        let Some(counted) = counted.filter(|_| at_work) else {
            track.window.clear();
            return Self { share, ..Self::default() };
        };
        track.window.push(now, counted.settled(), counted.total.value());
        node.rate = track.window.rate().and_then(whole_rate);
        let left = track.window.time_left(counted.total.is_final());
        Self { share, left, unsettled: counted.remaining().is_some_and(|left| left > 0) }
    }
}

fn own_percent(counts: &Counts) -> Option<(f64, Percent)> {
    let total = counts.total.value()?;
    let percent = Percent::of(counts.settled(), total).approximately(matches!(counts.total, Total::Growing(_)));
    Some((counts.fraction()?, percent))
}

/// The time left: by its own meter if that can tell, else by its children, else by what was expected.
fn time_left(draft: &Draft, node: &Node) -> Option<TimeLeft> {
    if node.state.is_ended() {
        return None;
    }
    let counted = if draft.own.unsettled { draft.own.left } else { draft.below.left.together() };
    // Where something counts, or something below does, a guess made for weights would only look like knowledge.
    let quiet = !draft.own.unsettled && draft.below.is_empty();
    counted.or_else(|| expected_left(node).filter(|_| quiet || draft.expected_by_history))
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

#[cfg(test)]
mod tests {
    use crate::{Clock, Operation, State};

    /// The moment between the end of a task and the end of what is below it, which lasts nanoseconds, held still.
    #[test]
    fn no_look_finds_work_going_on_below_a_task_that_has_ended() {
        let operation = Operation::new("backup", Clock::system());
        let stage = operation.root().child("stage");
        let _volume = stage.child("volume");
        stage.cell().live().state = State::Done;
        let states: Vec<State> = operation.snapshot().nodes.iter().map(|node| node.state).collect();
        assert_eq!(states, [State::Running, State::Done, State::Interrupted]);
    }
}
