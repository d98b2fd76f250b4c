//! What a user asked for: the handle on a whole tree.

use std::sync::Arc;

use crate::clock::Clock;
use crate::resume;
use crate::snapshot::Snapshot;
use crate::stall::StallRule;
use crate::state::{Ending, State};
use crate::task::Task;
use crate::tree::{Earlier, Tree};
use crate::wait::Wait;

/// One operation and its tree of tasks. Cheap to clone.
///
/// An operation that is dropped before it ended is interrupted, like any task: so an observer should hold an
/// [`Observer`], which keeps nothing alive.
#[derive(Clone, Debug)]
pub struct Operation {
    root: Task,
}

impl Operation {
    /// A new operation, at work from now on.
    pub fn new(name: impl AsRef<str>, clock: Clock) -> Self {
        let (tree, root) = Tree::new(name.as_ref(), clock, State::Running);
        Self { root: Task::new(tree, root, None) }
    }

    /// Takes up a saved tree again, in the place of `who` (the process that is gone).
    ///
    /// Its counts and percentages become floors: nothing shown goes back. What was at work is "taken over from `who`" until
    /// it is taken up again, which [`Task::child`] does by name. Rates start empty. The guard stands for the gap: the root
    /// waits until it is dropped, and that is never a stall.
    pub fn resume(saved: &Snapshot, who: impl AsRef<str>, clock: Clock) -> (Self, Wait) {
        let (tree, root) = resume::tree(saved, who.as_ref(), clock);
        let root = Task::new(tree, root, None);
        let gap = root.wait_in_queue(resume::taken_over_from(who.as_ref()));
        (Self { root }, gap)
    }

    /// With another rule for what counts as stalled.
    #[must_use]
    pub fn with_stall_rule(self, rule: StallRule) -> Self {
        self.root.tree().set_rule(rule);
        self
    }

    /// What earlier runs of the same operation showed: the weight of tasks in the percentage, and their time left until their own
    /// pace is known.
    pub fn expect(&self, earlier: Earlier) {
        self.root.tree().set_earlier(earlier);
    }

    /// Gives its snapshots tokens ([`crate::Token`]) of this epoch, or of a later one if the saved tree has none that is earlier.
    pub fn begin_epoch(&self, epoch: u64) {
        self.root.tree().begin_epoch(epoch);
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.root.tree().name
    }

    /// The task that stands for the whole.
    pub fn root(&self) -> Task {
        self.root.clone()
    }

    /// The clock it runs by.
    pub fn clock(&self) -> &Clock {
        &self.root.tree().clock
    }

    /// Where it is in its life.
    pub fn state(&self) -> State {
        self.root.state()
    }

    /// The whole tree at this moment. No worker waits for it.
    pub fn snapshot(&self) -> Snapshot {
        self.root.tree().snapshot()
    }

    /// Ends it, and everything below that has not ended.
    pub fn end(&self, ending: Ending) {
        let (state, reason) = ending.into_parts();
        self.root.end(state, reason.as_deref());
    }

    /// A way to look at it that does not keep it alive.
    pub fn observer(&self) -> Observer {
        Observer { tree: Arc::clone(self.root.tree()) }
    }
}

/// Looks at an operation without keeping it alive: for status writers, streams and metrics.
#[derive(Clone, Debug)]
pub struct Observer {
    tree: Arc<Tree>,
}

impl Observer {
    /// The operation's name.
    pub fn name(&self) -> &str {
        &self.tree.name
    }

    /// The clock it runs by.
    pub fn clock(&self) -> &Clock {
        &self.tree.clock
    }

    /// The whole tree at this moment. No worker waits for it.
    pub fn snapshot(&self) -> Snapshot {
        self.tree.snapshot()
    }
}
