//! The handle through which work reports on one task.

use std::sync::Arc;
use std::time::Duration;

use crate::counts::Unit;
use crate::graft::Graft;
use crate::meter::Meter;
use crate::percent::PercentRule;
use crate::stall::StallReason;
use crate::state::State;
use crate::task_cell::{Cell, TaskFields, WaitKind};
use crate::text::{clean, clean_reason};
use crate::tree::Tree;
use crate::wait::Wait;
use crate::work::Work;

/// A handle on one task. Cheap to clone.
///
/// # Guarantees
/// - Nothing here waits for a reader: reporting costs the same with and without one.
/// - Once a task has ended, nothing changes it any more; later calls are ignored.
///
/// # Cancel safety
/// A task whose last handle is dropped before it ended is [`State::Interrupted`]: it never stays running for ever. Its
/// children, its meters and its waits are handles too.
#[derive(Clone, Debug)]
pub struct Task(Arc<Handle>);

/// What all clones of a handle share.
#[derive(Debug)]
pub(crate) struct Handle {
    tree: Arc<Tree>,
    cell: Arc<Cell>,
    /// Keeps the tasks above from being interrupted while this one is held.
    parent: Option<Arc<Handle>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let reason = if std::thread::panicking() { "its work panicked" } else { "its work stopped without a word" };
        self.end(State::Interrupted, Some(reason));
    }
}

impl Handle {
    fn change(&self, work: impl FnOnce(&mut TaskFields)) {
        let mut live = self.cell.live();
        if live.state.is_open() {
            work(&mut live);
        }
    }

    /// A change that is also a sign of life.
    fn advance(&self, work: impl FnOnce(&mut TaskFields)) {
        let now = self.tree.now();
        self.change(|live| {
            work(live);
            live.signal(now);
        });
    }

    fn end(&self, state: State, reason: Option<&str>) {
        let now = self.tree.now();
        if self.cell.end(state, reason.map(clean_reason), now)
            && let Some(parent) = &self.parent
        {
            parent.change(|live| if state.is_bad() { live.signal(now) } else { live.gain(now) });
        }
    }

    fn parent_path(&self) -> Option<&str> {
        self.parent.as_ref().map(|parent| &*parent.cell.path)
    }

    pub(crate) fn reword(&self, id: u64, reason: &str) {
        self.change(|live| {
            if let Some(wait) = live.waits.iter_mut().find(|wait| wait.id == id) {
                wait.reason = clean_reason(reason);
            }
        });
    }

    pub(crate) fn stop_waiting(&self, id: u64) {
        let now = self.tree.now();
        self.advance(|live| live.end_wait(id, now));
    }
}

impl Task {
    pub(crate) fn new(tree: Arc<Tree>, cell: Arc<Cell>, parent: Option<Arc<Handle>>) -> Self {
        Self(Arc::new(Handle { tree, cell, parent }))
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.0.tree
    }

    pub(crate) fn cell(&self) -> &Arc<Cell> {
        &self.0.cell
    }

    fn make_child(&self, name: &str, state: State) -> Task {
        let cell = self.0.tree.child(&self.0.cell, name, state);
        Task::new(Arc::clone(&self.0.tree), cell, Some(Arc::clone(&self.0)))
    }

    /// A task below this one, at work from now on. A second one of the same name gets a number (`name#2`); one that comes
    /// from a saved tree is taken up again.
    #[must_use = "a task without a handle is interrupted"]
    pub fn child(&self, name: impl AsRef<str>) -> Task {
        self.make_child(name.as_ref(), State::Running)
    }

    /// A task below this one that has not begun: it counts in the percentage, and begins with [`Task::start`].
    #[must_use = "a task without a handle is interrupted"]
    pub fn planned(&self, name: impl AsRef<str>) -> Task {
        self.make_child(name.as_ref(), State::Pending)
    }

    /// A task at work that is expected to take this long: its weight in the percentage.
    #[must_use = "a task without a handle is interrupted"]
    pub fn child_with_expected(&self, name: impl AsRef<str>, expected: Duration) -> Task {
        let child = self.child(name);
        child.expect_duration(expected);
        child
    }

    /// Begins a planned task. Does nothing to one that has begun.
    pub fn start(&self) {
        let now = self.0.tree.now();
        self.0.change(|live| {
            if live.state == State::Pending {
                live.state = State::Running;
                live.started = Some(now);
                live.gain(now);
            }
        });
    }

    /// How long it is expected to take in all. Earlier runs ([`crate::Operation::expect`]) know better than a guess.
    pub fn expect_duration(&self, expected: Duration) {
        self.plan(Work::fixed(expected));
    }

    /// The work that is expected of it: its weight in the percentage, and its time left until its own pace is known. Earlier runs
    /// ([`crate::Operation::expect`]) know its rate better than a guess.
    pub fn plan(&self, work: Work) {
        let work = self.0.tree.earlier_work(&self.0.cell.path, self.0.parent_path(), work);
        self.0.change(|live| live.work = Some(work));
    }

    /// The node of the cluster on which it runs. The tasks of one node share its slots ([`Task::queue`]).
    pub fn runs_on(&self, node: impl AsRef<str>) {
        let node = Some(clean(node.as_ref())).filter(|node| !node.is_empty());
        self.0.change(|live| live.runs_on = node);
    }

    /// Its children are a queue: so many of them run at a time on each node, and each weighs what it has to do. Without this,
    /// children are stages, one after the other.
    pub fn queue(&self, slots: usize) {
        self.0.change(|live| live.slots = Some(slots.max(1)));
    }

    /// The seconds left as the program at work reports them; `None` when it reports none.
    pub fn report_left(&self, seconds: Option<u64>) {
        self.0.change(|live| live.reported_left = seconds);
    }

    /// All children weigh the same, whatever their durations: blueprint actions.
    pub fn equal_weights(&self) {
        self.0.change(|live| live.equal_weights = true);
    }

    /// It counts as so many children below a task whose children all weigh the same. One that counts as none is shown, and is no
    /// part of the percentage.
    pub fn shares(&self, shares: u32) {
        self.0.change(|live| live.shares = Some(shares));
    }

    /// Its percentage follows this rule instead of its first meter, and is shown without a mark.
    pub fn percent_rule(&self, rule: PercentRule) {
        self.0.change(|live| live.percent_rule = Some(rule));
    }

    /// The meter of this unit, made if there is none. The first one made is the one the percentage speaks of.
    #[must_use]
    pub fn meter(&self, unit: Unit) -> Meter {
        let cell = self.0.cell.live().meter(unit);
        Meter::new(cell, Arc::clone(&self.0))
    }

    /// What is being worked on right now. Something new to work on is an advance, and where nothing is counted it is a gain.
    pub fn say(&self, item: impl AsRef<str>) {
        let item = clean(item.as_ref());
        let now = self.0.tree.now();
        self.0.change(|live| {
            if live.item.as_ref() != Some(&item) {
                live.item = Some(item);
                live.activity.named = now;
                live.signal(now);
            }
        });
    }

    /// The last event, error or log line: the why of a stall. It is no advance, since an error that repeats is none.
    pub fn hint(&self, text: impl AsRef<str>) {
        let text = clean(text.as_ref());
        self.0.change(|live| live.hint = Some(text));
    }

    /// A sign of life, for work that has nothing to count.
    pub fn touch(&self) {
        let now = self.0.tree.now();
        self.0.change(|live| live.gain(now));
    }

    /// New bytes have moved for something that is counted later.
    pub fn moved(&self, bytes: u64) {
        self.0.advance(|live| live.activity.moved += bytes);
    }

    /// The process at work has read or written so many bytes, whatever for. A gain only as far as they may still be counted.
    pub fn process_moved(&self, bytes: u64) {
        self.0.advance(|live| live.activity.process_bytes += bytes);
    }

    /// It tries again what it has done before, such as sending the same data: a sign of life, and no gain.
    pub fn retried(&self) {
        self.0.advance(|_| {});
    }

    /// Waits until the guard is dropped, for a reason that is shown. Waiting longer than the stall rule allows is a stall.
    #[must_use = "the waiting ends when the guard is dropped"]
    pub fn wait(&self, reason: impl AsRef<str>) -> Wait {
        self.begin_wait(reason.as_ref(), WaitKind::Event)
    }

    /// Waits for something that may take any time, such as one's turn: never a stall.
    #[must_use = "the waiting ends when the guard is dropped"]
    pub fn wait_in_queue(&self, reason: impl AsRef<str>) -> Wait {
        self.begin_wait(reason.as_ref(), WaitKind::Turn)
    }

    /// Waits for work that sends no signal by nature, such as a hook or a flush: quiet, and a stall only after `limit`.
    #[must_use = "the waiting ends when the guard is dropped"]
    pub fn wait_quietly(&self, reason: impl AsRef<str>, limit: Option<Duration>) -> Wait {
        let until = limit.map(|limit| self.0.tree.now().saturating_add(limit));
        self.begin_wait(reason.as_ref(), WaitKind::Quiet { until })
    }

    fn begin_wait(&self, reason: &str, kind: WaitKind) -> Wait {
        let wait = Wait::new(Arc::clone(&self.0));
        let entry = wait.waiting(clean_reason(reason), kind, self.0.tree.now());
        self.0.advance(|live| live.waits.push(entry));
        wait
    }

    /// Its work sends no signal by nature: silence alone is no stall, but "no signal since".
    pub fn quiet(&self) {
        self.0.change(|live| live.quiet = true);
    }

    /// It sends signals after all: from now on silence counts again.
    pub fn loud(&self) {
        self.0.change(|live| live.quiet = false);
    }

    /// A check found the work dead. It is stalled from now on, until it gives a sign of life.
    pub fn liveness_failed(&self, reason: impl AsRef<str>) {
        self.judge(StallReason::LivenessFailed, reason);
    }

    /// The process at work has judged it so, and says why. It stays so until it gives a sign of life.
    pub fn judge(&self, reason: StallReason, message: impl AsRef<str>) {
        let message = clean_reason(message.as_ref());
        self.0.change(|live| live.verdict = Some((reason, message)));
    }

    /// A check found the work alive after all. This is no advance.
    pub fn liveness_ok(&self) {
        self.0.change(|live| live.verdict = None);
    }

    /// It should have ended this long from now. A deadline ends nothing by itself: it makes a quiet task stalled, and any
    /// task overdue.
    pub fn deadline(&self, from_now: Duration) {
        let deadline = self.0.tree.now().saturating_add(from_now);
        self.0.change(|live| live.deadline = Some(deadline));
    }

    /// A floor of its own for the stall rule.
    pub fn stall_floor(&self, floor: Duration) {
        self.0.change(|live| live.floor = Some(floor));
    }

    /// Ends it well.
    pub fn finish(&self) {
        self.0.end(State::Done, None);
    }

    /// Ends it badly.
    pub fn fail(&self, reason: impl AsRef<str>) {
        self.0.end(State::Failed, Some(reason.as_ref()));
    }

    /// Ends it without work.
    pub fn skip(&self, reason: impl AsRef<str>) {
        self.0.end(State::Skipped, Some(reason.as_ref()));
    }

    /// Ends it as cancelled on request.
    pub fn cancel(&self, reason: impl AsRef<str>) {
        self.0.end(State::Cancelled, Some(reason.as_ref()));
    }

    pub(crate) fn end(&self, state: State, reason: Option<&str>) {
        self.0.end(state, reason);
    }

    /// A place below this task for the tree of another process. What arrives is shown there, under this name.
    #[must_use]
    pub fn graft(&self, name: impl AsRef<str>) -> Graft {
        Graft::new(self, name.as_ref())
    }

    /// Its place in the tree; empty for the root.
    pub fn path(&self) -> &str {
        &self.0.cell.path
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.cell.name
    }

    /// Where it is in its life.
    pub fn state(&self) -> State {
        self.0.cell.live().shown_state()
    }
}
