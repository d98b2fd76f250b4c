//! From cells to nodes: one pass down to read, one pass up to add, one to put everything in order.

use std::sync::Arc;
use std::time::Duration;

use crate::child_summary::{ChildSummary, Share};
use crate::counts::Counts;
use crate::estimate::{Estimate, seconds};
use crate::gain::Gains;
use crate::percent::Percent;
use crate::queue::{self, Job, JobState};
use crate::rate::{TimeLeft, as_f64};
use crate::sampler::{Silence, Track};
use crate::snapshot::{Ages, FoldedCounts, Node, Snapshot};
use crate::stall::{StallReason, StallRule};
use crate::stall_check::{deepest_stall, judge};
use crate::state::State;
use crate::task_cell::{Cell, PARENT_ENDED, TaskFields, WaitEntry, lock};
use crate::token::{Sequence, Token};
use crate::tree::Tree;
use crate::tree_order::TreeOrder;
use crate::work::{Basis, Source, Work};

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
    pub(crate) verdict: Option<(StallReason, Arc<str>)>,
    pub(crate) gains: Gains,
    equal_weights: bool,
    /// Its percentage follows a rule of its own.
    ruled: bool,
    shares: u32,
    work: Option<Work>,
    slots: Option<usize>,
    /// How long it will take from now.
    estimate: Option<Estimate>,
    /// The child that its end waits for.
    critical: Option<usize>,
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
    sequence: &mut Sequence,
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
        nodes[place].waits_for = drafts[place].critical.and_then(|child| path_to_end(nodes.get(child)?));
        if let Some(parent) = order.parents[place] {
            let (above, rest) = drafts.split_at_mut(place);
            above[parent].take_child(&rest[0], &nodes[place], track, place);
        }
    }
    excuse_idle_queues(&mut nodes, drafts, &order.parents);
    if drafts.iter().any(|draft| draft.hidden || !draft.grafts.is_empty()) {
        nodes = with_grafts(nodes, drafts, &order.parents);
    }
    if let Some(root) = nodes.first_mut().filter(|root| root.state.is_open()) {
        root.earlier = tree.earlier_runs();
    }
    let stall = deepest_stall(&nodes);
    let token = tree.epoch().map(|epoch| Token { epoch, sequence: sequence.of(&nodes) });
    Snapshot { operation: Arc::clone(&tree.name), nodes, stall, token, whole: None }
}

/// A queue whose transfers have all ended waits for what the task beside it may still add: while that one goes on, it is not stalled.
fn excuse_idle_queues(nodes: &mut [Node], drafts: &[Draft], parents: &[Option<usize>]) {
    let is_idle = |place: usize| drafts[place].slots.is_some() && !drafts[place].below.is_empty();
    let stalled: Vec<usize> =
        (0..nodes.len()).filter(|place| nodes[*place].stall.is_some() && is_idle(*place)).collect();
    for place in stalled {
        let goes_on = |other: usize| {
            other != place
                && parents[other] == parents[place]
                && nodes[other].state.is_active()
                && nodes[other].stall.is_none()
        };
        if (0..nodes.len()).any(goes_on) {
            nodes[place].stall = None;
        }
    }
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
    let patient = live.waits.last().is_some_and(WaitEntry::is_for_turn) || live.state == State::TakenOver;
    let silence = match live.state.is_active() {
        false => Silence::Ended,
        true if patient || live.is_quiet() => Silence::Expected,
        true => Silence::Counts,
    };
    let (advanced, gains) = track.observe(now, (live.signalled, live.activity), &counted, patience, silence);
    let mut node = node(cell, &live, now);
    let mut draft = Draft {
        own: Own::default(),
        advanced,
        patience,
        patient,
        verdict: live.verdict.clone(),
        gains,
        equal_weights: live.equal_weights,
        ruled: live.percent_rule.is_some(),
        shares: live.shares.unwrap_or(1),
        work: live.work,
        slots: live.slots,
        estimate: None,
        critical: None,
        grafts: Vec::new(),
        silent: None,
        hidden: above.is_some_and(|(above, _)| above.hides(cell, &live)),
        below: ChildSummary::default(),
    };
    draft.take_grafts(&live, &node, now);
    let rule_of_percent = live.percent_rule;
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
    if let Some(percent_of) = rule_of_percent {
        let percent = Percent::of(percent_of(&node.meters).into(), Percent::COMPLETE.hundredths().into());
        draft.own.share = Some((percent.fraction(), percent));
    }
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
        from: None,
        waits_for: None,
        runs_on: live.runs_on.clone(),
        earlier: None,
        reported_left: live.reported_left.filter(|_| state.is_open()),
        expected: live.work.map(|work| work.duration()),
        quiet: live.is_quiet(),
        overdue: state.is_open() && live.deadline().is_some_and(|deadline| now > deadline),
        stall: None,
        signals: live.signals,
        folded: FoldedCounts::default(),
        folded_meters: Vec::new(),
        ages: Ages {
            elapsed: live.started.map(|started| live.ended.unwrap_or(now).saturating_sub(started)),
            queued: live.queued(now),
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
    fn take_child(&mut self, child: &Draft, node: &Node, track: &Track, place: usize) {
        if child.hidden {
            return;
        }
        let queued = self.slots.is_some();
        let reached = if node.state == State::Skipped { 1.0 } else { child.reached(track.computed, queued) };
        let (weight, estimated) = (child.weight(node, queued), child.is_estimated());
        self.below.add(node, Share { reached, weight, estimated, equal: child.equal_share(node) });
        self.below.gains =
            Some(child.gains.and(self.below.gains)).filter(|gains| gains.has_gained).or(self.below.gains);
        if queued {
            self.below.jobs.extend(child.job(node, place));
        } else if node.state.is_open() {
            // What waits for the others ends soon after them, as far as anything is known of it: Velero's objects wait for volumes.
            let follows = child.estimate.is_none() && node.state == State::Waiting;
            if !follows {
                self.below.sequence.add(child.estimate, node.state != State::Pending, place);
            }
        }
    }

    /// The share of its work that it has reached. With its first byte, most of a transfer's fixed part is behind it.
    fn reached(&self, fraction: f64, queued: bool) -> f64 {
        let Some(work) = self.work.filter(|work| queued && work.amount.is_some() && fraction < 1.0) else {
            return fraction;
        };
        let (all, fixed) = (work.seconds(self.own.total), work.fixed.as_secs_f64());
        let begun = if fraction > 0.0 { PART_BEFORE_FIRST_BYTE * fixed } else { 0.0 };
        if all > 0.0 { (begun + fraction * (all - fixed)) / all } else { fraction }
    }

    /// Its work in seconds. A stage weighs what it took or will take; a transfer of a queue weighs what it has to do, since it runs
    /// beside others.
    fn weight(&self, node: &Node, queued: bool) -> Option<f64> {
        let left = self.estimate.map(|estimate| estimate.median);
        let planned = self.work.map(|work| work.seconds(self.own.total));
        let known = planned.or(left)?;
        let elapsed = seconds(node.ages.elapsed);
        Some(match node.state {
            State::Skipped => 0.0,
            _ if queued => known,
            state if state.is_ended() => elapsed,
            State::Pending => left.unwrap_or(known),
            _ => left.map_or(known.max(elapsed), |left| elapsed + left),
        })
    }

    /// What it adds to a parent whose children all weigh the same. What it stands for adds its own percentages: the mean of means
    /// would be cut twice.
    fn equal_share(&self, node: &Node) -> (u64, u64) {
        let count = u64::from(self.shares);
        let shown = u64::from(node.percent.map_or(0, Percent::hundredths)) * count;
        let (sum, counted) = self.below.equal;
        (if self.equal_weights && counted == count { sum.max(shown) } else { shown }, count)
    }

    /// Whether the size of its work is an estimate.
    fn is_estimated(&self) -> bool {
        let planned = self.work.is_some_and(|work| work.amount.is_some() && work.basis != Basis::Exact);
        planned && !self.own.total_is_final
    }

    /// As a transfer of a queue.
    fn job(&self, node: &Node, place: usize) -> Option<Job> {
        let state = match node.state {
            State::Skipped => return None,
            State::Done => JobState::Done,
            state if state.is_ended() => JobState::Lost,
            State::Pending => JobState::Queued,
            State::Waiting if self.own.settled == 0.0 => JobState::Queued,
            _ => JobState::Active,
        };
        Some(Job {
            place,
            runs_on: node.runs_on.clone(),
            state,
            own: self.estimate.filter(|estimate| estimate.source == Source::Pace),
            work: self.work,
            settled: self.own.settled,
            total: self.own.total,
            elapsed: node.ages.busy().as_secs_f64(),
        })
    }
}

/// This part of a transfer's fixed seconds is before its first byte.
const PART_BEFORE_FIRST_BYTE: f64 = 0.8;

/// The path of the task that the end of this one waits for: the one it waits for itself, or its own.
fn path_to_end(node: &Node) -> Option<Arc<str>> {
    Some(node.waits_for.as_ref().unwrap_or(&node.path)).filter(|path| !path.is_empty()).cloned()
}

impl Draft {
    /// The share its children have reached, and the percentage if that says anything.
    fn mean(&self) -> (f64, Option<Percent>) {
        if self.equal_weights {
            let percent = self.below.equal_mean();
            return (percent.map_or(0.0, Percent::fraction), percent);
        }
        let mean = self.below.mean();
        let percent = mean.filter(|_| self.below.measured).map(Percent::of_fraction);
        (mean.unwrap_or(0.0), percent.map(|percent| percent.approximately(self.below.approximate)))
    }
}

/// The pass up: what needs the children to be known.
fn complete(draft: &mut Draft, node: &mut Node, track: &mut Track, now: Duration) {
    for root in draft.grafts.iter().filter_map(|nodes| nodes.first()) {
        let reached = if root.state == State::Skipped { 1.0 } else { share(root) };
        let weight = root.expected.map(|expected| expected.as_secs_f64());
        let equal = (root.percent.map_or(0, Percent::hundredths).into(), 1);
        draft.below.add(root, Share { reached, weight, estimated: false, equal });
        if root.state.is_open() {
            let left = root.left.map(|left| Estimate::of_range(left, root.from.unwrap_or(Source::Pace)));
            draft.below.sequence.add(left, root.state != State::Pending, usize::MAX);
        }
        let at = now.saturating_sub(root.ages.advance);
        draft.gains = draft.gains.and(Some(Gains { gained: at, usual: at, has_gained: true }));
    }
    draft.below.active &= draft.silent.is_none();
    draft.gains = draft.gains.and(draft.below.gains);
    measure(draft, node, track);
    let age = now.saturating_sub(draft.advanced);
    node.ages.advance = draft.below.advance.map_or(age, |below| below.min(age));
    node.stall = judge(draft, node, &track.gain, age, now);
    estimate(draft, node, track, now);
}

fn share(node: &Node) -> f64 {
    node.percent.map_or(0.0, Percent::fraction)
}

/// The percentage: of its own meter if that has a total, else of its children; never less than was shown.
fn measure(draft: &Draft, node: &mut Node, track: &mut Track) {
    if node.state == State::Done {
        node.percent = Some(Percent::COMPLETE);
        track.percent = Some(Percent::COMPLETE.hundredths());
        (track.fraction, track.computed) = (1.0, 1.0);
        return;
    }
    let percent = match draft.own.share {
        Some((fraction, percent)) => {
            track.fraction = track.fraction.max(fraction);
            track.computed = fraction;
            Some(percent)
        }
        // What was cut off below it when it failed is no progress. Tasks that count equally are counted, as Kanister's phases are.
        None if node.state.is_bad() && !draft.equal_weights => None,
        None => {
            let (fraction, percent) = draft.mean();
            if draft.equal_weights {
                (track.fraction, track.computed) = (track.fraction.max(fraction), fraction);
                percent
            } else {
                percent.map(|percent| catch_up(percent, fraction, track))
            }
        }
    };
    // Percentages by a rule bear no mark.
    let plain = draft.ruled || draft.equal_weights;
    // What was shown once stays shown, even if right now nothing is known.
    let guess = !plain && (!node.meters.is_empty() || draft.below.approximate);
    let kept = || track.percent.map(|floor| Percent::default().approximately(guess).floored(floor));
    // A task that an earlier process had finished, and that is done again, is not complete until it is.
    let floor = track.percent.map_or(0, |floor| Percent::of_fraction(1.0).hundredths().min(floor));
    let raised = |percent: Percent| if plain { percent.floored(floor) } else { percent.at_least(floor) };
    let shown = percent.map(raised).or_else(kept);
    let shown = shown.map(Percent::below_whole);
    track.percent = shown.map(Percent::hundredths);
    node.percent = shown.filter(|_| node.state != State::Skipped);
}

/// The share of tasks whose work grew is held, and the work catches up with it. Meanwhile it goes on at a tenth of the pace: a number
/// that stands for an hour looks like work that stands.
fn catch_up(percent: Percent, fraction: f64, track: &mut Track) -> Percent {
    let advance = (fraction - track.computed).max(0.0);
    track.computed = fraction;
    if fraction >= track.fraction {
        track.fraction = fraction;
        return percent;
    }
    let room = ((1.0 - track.fraction) / (1.0 - fraction)).min(1.0);
    track.fraction += HELD_PACE * room * advance;
    percent.at_least(Percent::of_fraction(track.fraction).hundredths())
}

/// A held percentage advances at this share of the pace of the work.
const HELD_PACE: f64 = 0.1;

/// What a task's first meter says by itself. Found out on the way down, while the meter is still at hand in the cache.
#[derive(Debug, Default)]
struct Own {
    share: Option<(f64, Percent)>,
    left: Option<TimeLeft>,
    /// There is a total, and something left of it.
    unsettled: bool,
    /// What is settled, and the total if it is known, in the unit that its work is planned in.
    settled: f64,
    total: Option<f64>,
    total_is_final: bool,
}

impl Own {
    /// The share is taken from what is shown; the rate from what was really counted, which may lag behind a floor.
    fn of(counted: Option<Counts>, node: &mut Node, track: &mut Track, now: Duration) -> Self {
        let share = node.meters.first().and_then(own_percent);
        let at_work = matches!(node.state, State::Running | State::Waiting);
        let shown = node.meters.first();
        let total = shown.and_then(|shown| shown.total.value()).filter(|total| *total > 0).map(as_f64);
        let own = Self {
            share,
            settled: shown.map_or(0.0, |shown| as_f64(shown.settled())),
            total,
            total_is_final: shown.is_some_and(|shown| shown.total.is_final()),
            ..Self::default()
        };
        let Some(counted) = counted.filter(|_| at_work) else {
            track.window.clear();
            return own;
        };
        track.window.push(now, counted.settled(), counted.total.value());
        node.rate = track.window.rate().and_then(whole_rate);
        let left = track.window.time_left(counted.total.is_final());
        Self { left, unsettled: counted.remaining().is_some_and(|left| left > 0), ..own }
    }
}

fn own_percent(counts: &Counts) -> Option<(f64, Percent)> {
    Some((counts.fraction()?, Percent::of_counts(counts)?))
}

/// The time left: by its own meter if that can tell, else by its children, else by what was planned.
fn estimate(draft: &mut Draft, node: &mut Node, track: &mut Track, now: Duration) {
    if node.state.is_ended() {
        return;
    }
    let own = draft.own.left.filter(|_| draft.own.unsettled);
    draft.estimate = match own {
        Some(left) => Some(Estimate::of_range(left, Source::Pace)),
        None if draft.own.unsettled => planned(draft, node),
        None if draft.below.is_empty() => planned(draft, node),
        // A guess made for weights would only look like knowledge beside what counts.
        None => below(draft, track, now).or_else(|| planned(draft, node).filter(|own| own.source == Source::History)),
    };
    if node.stall.is_none() {
        node.left = own.or_else(|| draft.estimate.and_then(|estimate| estimate.range()));
        node.from = node.left.and(draft.estimate).map(|estimate| estimate.source);
    }
}

/// What its children need together.
fn below(draft: &mut Draft, track: &mut Track, now: Duration) -> Option<Estimate> {
    let Some(slots) = draft.slots.filter(|_| !draft.below.jobs.is_empty()) else {
        draft.critical = draft.below.sequence.critical;
        return draft.below.sequence.together();
    };
    let jobs = &draft.below.jobs;
    let known = track.outlook.filter(|(at, count, _)| now.saturating_sub(*at) < QUEUE_INTERVAL && *count == jobs.len());
    let (.., outlook) = *track.outlook.insert(known.unwrap_or_else(|| (now, jobs.len(), queue::outlook(jobs, slots))));
    draft.critical = outlook.map(|outlook| outlook.last);
    outlook.map(|outlook| outlook.estimate)
}

/// A queue of thousands of transfers is simulated no more often than this.
const QUEUE_INTERVAL: Duration = Duration::from_secs(1);

/// What is left of what was planned. Where something is counted, a usual duration says nothing about it.
fn planned(draft: &Draft, node: &Node) -> Option<Estimate> {
    let work = draft.work?;
    let elapsed = node.ages.busy().as_secs_f64();
    let estimate =
        Estimate::planned(&work, draft.own.total.filter(|_| work.amount.is_some()), draft.own.settled, elapsed)?;
    let usual = draft.own.unsettled && work.source == Source::Plan;
    Some(if usual { Estimate { assumed: estimate.median, ..estimate } } else { estimate })
}

/// A whole number a second. Something that moves, but less than once a second, has none: 0 would be a lie.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are not negative, and saturate")]
fn whole_rate(rate: f64) -> Option<u64> {
    (rate == 0.0 || rate >= 1.0).then_some(rate as u64)
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
