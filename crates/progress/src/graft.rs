//! The tree of another process, shown below a task of this one.

use std::sync::{Arc, Mutex};

use crate::frame::{Frame, FrameError};
use crate::replica::{FrameOutcome, Replica};
use crate::snapshot::join;
use crate::task::Task;
use crate::task_cell::{GraftedReplica, lock};

/// A place in a tree where another process's frames are shown.
///
/// Frames may come by several ways, fresh by a stream and durable from a CR: the newer (epoch, sequence) wins. The graft
/// keeps its task from being interrupted, and leaves what it showed when it is dropped.
#[derive(Clone, Debug)]
pub struct Graft {
    task: Task,
    replica: Arc<Mutex<Replica>>,
}

impl Graft {
    pub(crate) fn new(task: &Task, name: &str) -> Self {
        let tree = task.tree();
        let name = tree.reserve(task.cell(), name);
        let floors = tree.saved_below(&join(task.path(), &name));
        let replica = Arc::new(Mutex::new(Replica::with_floors(tree.clock.clone(), floors)));
        task.cell().live().grafts.push(GraftedReplica { name, replica: Arc::clone(&replica) });
        Self { task: task.clone(), replica }
    }

    /// Shows a frame, if it is newer than what is shown.
    pub fn apply(&self, frame: &Frame) -> Result<FrameOutcome, FrameError> {
        lock(&self.replica).apply(frame)
    }

    /// The other process sends no more frames: its open tasks are interrupted for this reason.
    pub fn interrupt(&self, reason: impl AsRef<str>) {
        lock(&self.replica).interrupt(reason.as_ref());
    }

    /// Another process does the same work from now on. What was shown stays until it has counted as much.
    pub fn restart(&self) {
        lock(&self.replica).expect_another();
    }

    /// Whether the process at work has counted something, or knows how much there is to count.
    pub fn has_counted(&self) -> bool {
        lock(&self.replica).has_counted()
    }

    /// The (epoch, sequence) of what is shown.
    pub fn position(&self) -> Option<(u64, u64)> {
        lock(&self.replica).position()
    }

    /// The task it hangs under.
    pub fn task(&self) -> &Task {
        &self.task
    }
}
