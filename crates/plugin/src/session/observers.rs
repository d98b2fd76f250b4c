//! The tasks that show the health of a plugin process.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_progress::Task;

/// The tasks that observe a process.
#[derive(Clone, Default)]
pub(super) struct Observers(Arc<Mutex<Vec<(u64, Task)>>>);

impl Observers {
    pub fn add(&self, task: &Task) -> ObserverGuard {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = tasks.last().map_or(0, |(id, _)| id + 1);
        tasks.push((id, task.clone()));
        ObserverGuard { observers: self.clone(), id }
    }

    pub fn for_each(&self, notify: impl Fn(&Task)) {
        for (_, task) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            notify(task);
        }
    }
}

/// Ends the observation of a process on drop.
pub struct ObserverGuard {
    observers: Observers,
    id: u64,
}

impl Drop for ObserverGuard {
    fn drop(&mut self) {
        self.observers.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(id, _)| *id != self.id);
    }
}
