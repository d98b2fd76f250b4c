//! The shared state of one task, behind a lock of its own that is held for an assignment at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::counts::{Counts, Total, Unit};
use crate::gain::Activity;
use crate::meter::MeterCell;
use crate::percent::PercentRule;
use crate::replica::Replica;
use crate::stall::StallReason;
use crate::state::State;
use crate::work::Work;

/// A lock whose holder may have panicked: the data is plain values, none of them half-written.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One task in the tree.
#[derive(Debug)]
pub(crate) struct Cell {
    /// Its index in the tree; parents have smaller ones than their children.
    pub(crate) index: usize,
    pub(crate) parent: Option<usize>,
    pub(crate) path: Arc<str>,
    pub(crate) name: Arc<str>,
    live: Mutex<TaskFields>,
}

/// The fields of a task that change.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct TaskFields {
    pub(crate) state: State,
    pub(crate) reason: Option<Arc<str>>,
    pub(crate) item: Option<Arc<str>>,
    pub(crate) hint: Option<Arc<str>>,
    pub(crate) waits: Vec<WaitEntry>,
    /// For how long it has waited for its turn, without the wait that goes on.
    pub(crate) queued: Duration,
    pub(crate) meters: Vec<Arc<MeterCell>>,
    /// The counts at its end; later counts are not shown.
    pub(crate) frozen: Option<Vec<Counts>>,
    pub(crate) started: Option<Duration>,
    pub(crate) ended: Option<Duration>,
    /// Its last signal other than a count.
    pub(crate) signalled: Duration,
    pub(crate) signals: u64,
    /// What it says about its gains.
    pub(crate) activity: Activity,
    /// The seconds left as the program at work reports them.
    pub(crate) reported_left: Option<u64>,
    /// What was planned for it.
    pub(crate) work: Option<Work>,
    /// The node of the cluster on which it runs.
    pub(crate) runs_on: Option<Arc<str>>,
    /// So many of its children run at a time on each node; the others wait.
    pub(crate) slots: Option<usize>,
    pub(crate) equal_weights: bool,
    /// It counts as so many children where all weigh the same; without a number as one.
    pub(crate) shares: Option<u32>,
    /// Its percentage by a rule of its own.
    pub(crate) percent_rule: Option<PercentRule>,
    pub(crate) quiet: bool,
    /// A check found it so, and says why.
    pub(crate) verdict: Option<(StallReason, Arc<str>)>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) floor: Option<Duration>,
    pub(crate) children: Vec<Arc<Cell>>,
    pub(crate) grafts: Vec<GraftedReplica>,
    /// Comes from a saved tree, and no worker has resumed it.
    pub(crate) orphaned: bool,
}

/// The tree of another process, and its name here.
#[derive(Clone, Debug)]
pub(crate) struct GraftedReplica {
    pub(crate) name: Arc<str>,
    pub(crate) replica: Arc<Mutex<Replica>>,
}

/// One reason to wait.
#[derive(Clone, Debug)]
pub(crate) struct WaitEntry {
    pub(crate) id: u64,
    pub(crate) reason: Arc<str>,
    pub(crate) kind: WaitKind,
    pub(crate) since: Duration,
}

/// What a wait means for the verdict on its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitKind {
    /// For something that should come soon: too long is a stall.
    Event,
    /// For its turn: it may take any time, and is never a stall.
    Turn,
    /// For work that sends no signal by nature: a stall after this moment.
    Quiet { until: Option<Duration> },
}

impl WaitEntry {
    pub(crate) fn is_for_turn(&self) -> bool {
        self.kind == WaitKind::Turn
    }
}

impl Cell {
    pub(crate) fn new(index: usize, parent: Option<usize>, path: Arc<str>, name: Arc<str>, live: TaskFields) -> Self {
        Self { index, parent, path, name, live: Mutex::new(live) }
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, TaskFields> {
        lock(&self.live)
    }

    /// Ends it and everything open below it. Says whether it was still open.
    pub(crate) fn end(&self, state: State, reason: Option<Arc<str>>, now: Duration) -> bool {
        let children = {
            let mut live = self.live();
            if live.state.is_ended() {
                return false;
            }
            live.close(state, reason, now);
            std::mem::take(&mut live.children)
        };
        for child in children {
            child.end(State::Interrupted, Some(Arc::from(PARENT_ENDED)), now);
        }
        true
    }
}

/// The reason of a task that outlived its parent.
pub(crate) const PARENT_ENDED: &str = "the task above it has ended";

impl TaskFields {
    pub(crate) fn new(state: State, now: Duration) -> Self {
        let started = (state != State::Pending).then_some(now);
        let activity = Activity { gained: now, ..Activity::default() };
        Self { state, started, signalled: now, activity, ..Self::default() }
    }

    fn close(&mut self, state: State, reason: Option<Arc<str>>, now: Duration) {
        self.frozen = Some(self.readings());
        self.queued = self.queued(now);
        self.state = state;
        self.reason = reason;
        self.waits.clear();
        self.ended = Some(now);
        if state.is_bad() { self.signal(now) } else { self.gain(now) }
    }

    /// A sign of life.
    pub(crate) fn signal(&mut self, now: Duration) {
        self.signalled = now;
        self.signals += 1;
        self.verdict = None;
    }

    /// A sign of life that is a gain.
    pub(crate) fn gain(&mut self, now: Duration) {
        self.activity.gained = now;
        self.signal(now);
    }

    pub(crate) fn readings(&self) -> Vec<Counts> {
        match &self.frozen {
            Some(frozen) => frozen.clone(),
            None => self.meters.iter().map(|meter| meter.read()).collect(),
        }
    }

    /// Ends a wait.
    pub(crate) fn end_wait(&mut self, id: u64, now: Duration) {
        let queued = self.queued(now);
        self.waits.retain(|wait| wait.id != id);
        if !self.waits.iter().any(WaitEntry::is_for_turn) {
            self.queued = queued;
        }
    }

    /// For how long it has waited for its turn so far.
    pub(crate) fn queued(&self, now: Duration) -> Duration {
        let since = self.waits.iter().filter(|wait| wait.is_for_turn()).map(|wait| wait.since).min();
        self.queued + since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Whether its silence means nothing by nature.
    pub(crate) fn is_quiet(&self) -> bool {
        match self.waits.last() {
            Some(wait) => self.quiet || matches!(wait.kind, WaitKind::Quiet { .. }),
            None => self.quiet,
        }
    }

    /// When it should have ended: its deadline, or that of the work that it waits for.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let waits_until = self.waits.last().and_then(|wait| match wait.kind {
            WaitKind::Quiet { until } => until,
            WaitKind::Event | WaitKind::Turn => None,
        });
        self.deadline.into_iter().chain(waits_until).min()
    }

    /// The state as shown: waiting is a state of its own.
    pub(crate) fn shown_state(&self) -> State {
        if self.waits.is_empty() || self.state.is_ended() { self.state } else { State::Waiting }
    }

    pub(crate) fn meter(&mut self, unit: Unit) -> Arc<MeterCell> {
        if let Some(meter) = self.meters.iter().find(|meter| meter.unit() == unit) {
            return Arc::clone(meter);
        }
        let meter = Arc::new(MeterCell::new(unit, Total::Unknown));
        self.meters.push(Arc::clone(&meter));
        meter
    }
}
