//! Shows the waits of the store on a task.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_progress::Task;
use plimsoll_store::{Observer, ObserverGuard, Store, Wait};

use crate::lock::Lock;

struct StoreWaits {
    task: Task,
    waiting: Mutex<Option<plimsoll_progress::Wait>>,
}

impl Observer for StoreWaits {
    fn on_wait(&self, wait: &Wait) {
        let waiting = self.task.wait(&wait.reason);
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(waiting);
    }

    fn on_resume(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// A pack counts when it is stored, or when its files are written. On a slow connection that is long after its first byte.
    fn on_bytes(&self, new: u64) {
        if new > 0 { self.task.moved(new) } else { self.task.retried() }
    }
}

/// Shows the waits of `store` on `task` until the returned guard is dropped.
pub(crate) fn show_waits(store: &Store, task: &Task) -> ObserverGuard {
    store.observe(Arc::new(StoreWaits { task: task.clone(), waiting: Mutex::default() }))
}

/// Sets a hint on `task` if there is no lock file.
pub(crate) fn hint_if_not_locked(lock: &Lock, task: &Task) {
    if !lock.is_visible() {
        task.hint("the store does not allow deletes, so no lock file is kept: do not run prune meanwhile");
    }
}
