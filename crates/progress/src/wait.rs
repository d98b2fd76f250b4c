//! Waiting, with a reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::task::Handle;
use crate::task_cell::{WaitEntry, WaitKind};

/// A task waits for as long as this guard lives.
#[derive(Debug)]
pub struct Wait {
    task: Arc<Handle>,
    id: u64,
}

impl Wait {
    pub(crate) fn new(task: Arc<Handle>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { task, id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    pub(crate) fn waiting(&self, reason: Arc<str>, kind: WaitKind, since: Duration) -> WaitEntry {
        WaitEntry { id: self.id, reason, kind, since }
    }

    /// Says the same waiting in other words. No sign of life: what has stood still too long stays stalled.
    pub fn reword(&self, reason: impl AsRef<str>) {
        self.task.reword(self.id, reason.as_ref());
    }

    /// Ends the waiting; the same as dropping the guard.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.task.stop_waiting(self.id);
    }
}
