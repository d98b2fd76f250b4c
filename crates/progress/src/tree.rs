//! The structure of a tree: which tasks there are.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::Clock;
use crate::sampler::Sampler;
use crate::snapshot::{Node, Snapshot, join, subtree};
use crate::stall::StallRule;
use crate::state::State;
use crate::task_cell::{Cell, PARENT_ENDED, TaskFields, lock};
use crate::text::clean_name;
use crate::work::{EarlierRate, EarlierRuns, Work};

/// All tasks of one operation.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) name: Arc<str>,
    pub(crate) clock: Clock,
    rule: Mutex<StallRule>,
    structure: Mutex<Structure>,
    /// The tree this one was taken up from: floors for the processes that will report on parts of it again.
    saved: Mutex<Vec<Node>>,
    /// What earlier runs showed.
    earlier: Mutex<Earlier>,
    /// The epoch of the tree this one was taken up from, and its own; 0 without one.
    saved_epoch: AtomicU64,
    epoch: AtomicU64,
    /// What is remembered from one snapshot to the next. Only those who take snapshots ever wait for it.
    sampler: Mutex<Sampler>,
}

/// What earlier runs of the same operation showed.
#[derive(Clone, Debug, Default)]
pub struct Earlier {
    /// How long the tasks at these paths took; the empty path is the whole.
    pub durations: HashMap<String, Duration>,
    /// The rate of the transfers below the tasks at these paths.
    pub rates: HashMap<String, EarlierRate>,
    /// How long the runs took.
    pub runs: Option<Arc<EarlierRuns>>,
}

/// The list is shared with snapshots, and copied only if it grows meanwhile: a snapshot keeps no worker
/// from adding a task.
#[derive(Debug, Default)]
struct Structure {
    cells: Arc<Vec<Arc<Cell>>>,
    by_path: HashMap<Arc<str>, usize>,
}

/// Stands for a name that is taken, but not by a cell.
const NO_CELL: usize = usize::MAX;

impl Structure {
    fn add(&mut self, parent: Option<usize>, path: Arc<str>, name: Arc<str>, live: TaskFields) -> Arc<Cell> {
        let cell = Arc::new(Cell::new(self.cells.len(), parent, Arc::clone(&path), name, live));
        self.by_path.insert(path, cell.index);
        Arc::make_mut(&mut self.cells).push(Arc::clone(&cell));
        cell
    }

    fn at(&self, path: &str) -> Option<&Arc<Cell>> {
        self.by_path.get(path).and_then(|index| self.cells.get(*index))
    }

    /// The name and path for a new child: a second one of the same name gets a number.
    fn free_name(&self, parent: &str, wanted: &Arc<str>) -> (Arc<str>, Arc<str>) {
        let path = join(parent, wanted);
        if !self.by_path.contains_key(path.as_str()) {
            return (Arc::clone(wanted), path.into());
        }
        let mut number = 2_u64;
        loop {
            let name = format!("{wanted}#{number}");
            let path = join(parent, &name);
            if !self.by_path.contains_key(path.as_str()) {
                return (name.into(), path.into());
            }
            number += 1;
        }
    }
}

impl Tree {
    pub(crate) fn new(name: &str, clock: Clock, root: State) -> (Arc<Self>, Arc<Cell>) {
        let name = clean_name(name);
        let mut structure = Structure::default();
        let root = structure.add(None, "".into(), Arc::clone(&name), TaskFields::new(root, clock.now()));
        let tree = Self {
            name,
            clock,
            rule: Mutex::default(),
            structure: Mutex::new(structure),
            saved: Mutex::default(),
            earlier: Mutex::default(),
            saved_epoch: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            sampler: Mutex::default(),
        };
        (Arc::new(tree), root)
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    pub(crate) fn rule(&self) -> StallRule {
        *lock(&self.rule)
    }

    pub(crate) fn set_rule(&self, rule: StallRule) {
        *lock(&self.rule) = rule;
    }

    /// What earlier runs showed: the tasks that are there expect it, and those that come will.
    pub(crate) fn set_earlier(&self, earlier: Earlier) {
        for cell in self.cells().iter() {
            let mut live = cell.live();
            if let Some(duration) = earlier.durations.get(&*cell.path) {
                live.work = Some(Work::earlier(*duration));
            }
        }
        *lock(&self.earlier) = earlier;
    }

    /// Planned work as earlier runs know it: a fixed duration is that of the task at this path, a rate that of the tasks below its
    /// parent.
    pub(crate) fn earlier_work(&self, path: &str, parent: Option<&str>, work: Work) -> Work {
        let earlier = lock(&self.earlier);
        let duration = earlier.durations.get(path).filter(|_| work.amount.is_none());
        match (duration, parent.and_then(|parent| earlier.rates.get(parent))) {
            (Some(duration), _) => Work::earlier(*duration),
            (None, Some(rate)) => work.at_earlier_rate(*rate),
            (None, None) => work,
        }
    }

    /// The durations of earlier runs.
    pub(crate) fn earlier_runs(&self) -> Option<Arc<EarlierRuns>> {
        lock(&self.earlier).runs.clone()
    }

    pub(crate) fn keep_saved(&self, saved: &Snapshot) {
        (*lock(&self.saved)).clone_from(&saved.nodes);
        self.saved_epoch.store(saved.token.map_or(0, |token| token.epoch), Ordering::Release);
    }

    pub(crate) fn begin_epoch(&self, epoch: u64) {
        let least = self.saved_epoch.load(Ordering::Acquire).saturating_add(1);
        self.epoch.store(epoch.max(least), Ordering::Release);
    }

    pub(crate) fn epoch(&self) -> Option<u64> {
        Some(self.epoch.load(Ordering::Acquire)).filter(|epoch| *epoch > 0)
    }

    /// The saved nodes at and below a path, with paths as seen from there.
    pub(crate) fn saved_below(&self, path: &str) -> Vec<Node> {
        let saved = lock(&self.saved);
        let from_there = |node: &Node| {
            let inner = &node.path[path.len()..];
            Node { path: inner.strip_prefix('/').unwrap_or(inner).into(), ..node.clone() }
        };
        subtree(&saved, path).iter().map(from_there).collect()
    }

    pub(crate) fn cells(&self) -> Arc<Vec<Arc<Cell>>> {
        Arc::clone(&lock(&self.structure).cells)
    }

    pub(crate) fn with_sampler<T>(&self, work: impl FnOnce(&mut Sampler) -> T) -> T {
        work(&mut lock(&self.sampler))
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        // The sampler first: two snapshots must not see the tree in one order and remember it in the other.
        self.with_sampler(|sampler| sampler.snapshot(self))
    }

    /// A task below `parent`: the task of that name in a saved tree that was not resumed yet, or a new one.
    pub(crate) fn child(&self, parent: &Arc<Cell>, name: &str, state: State) -> Arc<Cell> {
        let wanted = clean_name(name);
        let now = self.now();
        let mut structure = lock(&self.structure);
        if let Some(cell) = structure.at(&join(&parent.path, &wanted))
            && adopt(cell, parent, state, now)
        {
            let cell = Arc::clone(cell);
            attach(parent, &cell, false, now);
            return cell;
        }
        let (name, path) = structure.free_name(&parent.path, &wanted);
        let work = lock(&self.earlier).durations.get(&*path).copied().map(Work::earlier);
        let live = TaskFields { work, ..TaskFields::new(state, now) };
        let cell = structure.add(Some(parent.index), path, name, live);
        attach(parent, &cell, true, now);
        cell
    }

    /// A name below `parent` for the tree of another process: one that no task has, or that only a saved task has.
    pub(crate) fn reserve(&self, parent: &Cell, name: &str) -> Arc<str> {
        let wanted = clean_name(name);
        let mut structure = lock(&self.structure);
        if structure.at(&join(&parent.path, &wanted)).is_some_and(|cell| cell.live().orphaned) {
            return wanted;
        }
        let (name, path) = structure.free_name(&parent.path, &wanted);
        structure.by_path.insert(path, NO_CELL);
        name
    }

    /// A task of a saved tree, put back in its place.
    pub(crate) fn put_back(&self, parent: &str, name: &Arc<str>, live: TaskFields) -> Option<Arc<Cell>> {
        let mut structure = lock(&self.structure);
        let above = Arc::clone(structure.at(parent)?);
        let path = join(parent, name);
        if structure.by_path.contains_key(path.as_str()) {
            return None;
        }
        let cell = structure.add(Some(above.index), path.into(), Arc::clone(name), live);
        above.live().children.push(Arc::clone(&cell));
        Some(cell)
    }
}

/// Takes up a task of a saved tree again.
fn adopt(cell: &Arc<Cell>, parent: &Arc<Cell>, state: State, now: Duration) -> bool {
    let mut live = cell.live();
    if !live.orphaned || cell.parent != Some(parent.index) {
        return false;
    }
    live.orphaned = false;
    live.frozen = None;
    live.ended = None;
    live.reason = None;
    live.state = state;
    live.started = live.started.or((state != State::Pending).then_some(now));
    live.signal(now);
    true
}

/// Hangs a task under its parent, unless it hangs there already. Under one that has ended it is over before it began.
fn attach(parent: &Arc<Cell>, cell: &Arc<Cell>, new: bool, now: Duration) {
    let open = {
        let mut above = parent.live();
        let open = above.state.is_open();
        if open {
            if new {
                above.children.push(Arc::clone(cell));
            }
            above.signal(now);
        }
        open
    };
    if !open {
        cell.end(State::Interrupted, Some(Arc::from(PARENT_ENDED)), now);
    }
}
