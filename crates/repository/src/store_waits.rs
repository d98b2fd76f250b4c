//! What the store waits for, shown on the task that needs it.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_progress::Task;
use plimsoll_store::{Observer, Observing, Store, Wait};

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

    /// A pack counts once it is stored, or its files are written: on a slow line that is long after its first byte has moved.
    fn on_bytes(&self) {
        self.task.touch();
    }
}

/// Shows on `task` what `store` waits for, as long as the returned value is held.
pub(crate) fn show_waits(store: &Store, task: &Task) -> Observing {
    store.observe(Arc::new(StoreWaits { task: task.clone(), waiting: Mutex::default() }))
}

/// Says on `task` that there is no lock file, and why.
pub(crate) fn say_if_not_locked(lock: &Lock, task: &Task) {
    if !lock.is_visible() {
        task.hint("the store lets nothing be deleted, so no lock file is kept: others must not prune meanwhile");
    }
}
