//! The shared state of one task, behind a lock of its own that is held for an assignment at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::counts::{Counts, Total, Unit};
use crate::meter::MeterCell;
use crate::percent::PercentRule;
use crate::replica::Replica;
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
    pub(crate) liveness: Option<Arc<str>>,
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
    /// This wait may take any time, and is never a stall.
    pub(crate) patient: bool,
    pub(crate) since: Duration,
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
        Self { state, started, signalled: now, ..Self::default() }
    }

    fn close(&mut self, state: State, reason: Option<Arc<str>>, now: Duration) {
        self.frozen = Some(self.readings());
        self.queued = self.queued(now);
        self.state = state;
        self.reason = reason;
        self.waits.clear();
        self.ended = Some(now);
        self.signal(now);
    }

    /// A sign of life.
    pub(crate) fn signal(&mut self, now: Duration) {
        self.signalled = now;
        self.signals += 1;
        self.liveness = None;
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
        if !self.waits.iter().any(|wait| wait.patient) {
            self.queued = queued;
        }
    }

    /// For how long it has waited for its turn so far.
    pub(crate) fn queued(&self, now: Duration) -> Duration {
        let since = self.waits.iter().filter(|wait| wait.patient).map(|wait| wait.since).min();
        self.queued + since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
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
