//! Shows waits of object storage on a task.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_progress::{Task, Wait};
use plimsoll_store::{Observer, ObserverGuard, Store};

struct StoreWaitObserver {
    task: Task,
    waiting: Mutex<Option<Wait>>,
}

impl StoreWaitObserver {
    fn set(&self, wait: Option<Wait>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = wait;
    }
}

impl Observer for StoreWaitObserver {
    fn on_wait(&self, wait: &plimsoll_store::Wait) {
        self.task.hint(&wait.reason);
        // The old wait ends first: a guard that is replaced while it is held would show both.
        self.set(None);
        self.set(Some(self.task.wait(&wait.reason)));
    }

    fn on_resume(&self) {
        self.set(None);
    }
}

/// Shows on `task` what `store` waits for, until the guard is dropped.
pub(crate) fn show_store_waits(store: &Store, task: &Task) -> ObserverGuard {
    store.observe(Arc::new(StoreWaitObserver { task: task.clone(), waiting: Mutex::default() }))
}
