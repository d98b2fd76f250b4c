//! The operations that this process runs.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// The operations that this process runs.
pub struct ActiveOperations {
    running: Mutex<HashMap<String, ActiveOperation>>,
    ended: broadcast::Sender<()>,
}

struct ActiveOperation {
    verb: &'static str,
    name: String,
    cancel: CancellationToken,
}

impl Default for ActiveOperations {
    fn default() -> Self {
        Self { running: Mutex::default(), ended: broadcast::channel(16).0 }
    }
}

impl ActiveOperations {
    /// Adds the operation of a subject, unless it runs already or `limit` others of its verb do.
    pub fn begin(&self, uid: &str, verb: &'static str, name: &str, limit: usize) -> Option<CancellationToken> {
        let mut running = self.lock();
        let busy = running.values().filter(|run| run.verb == verb).count() >= limit;
        if busy || running.contains_key(uid) {
            return None;
        }
        let cancel = CancellationToken::new();
        running.insert(uid.to_owned(), ActiveOperation { verb, name: name.to_owned(), cancel: cancel.clone() });
        Some(cancel)
    }

    /// Removes the operation of a subject and notifies those that wait for an ending.
    pub fn end(&self, uid: &str) {
        self.lock().remove(uid);
        let _ = self.ended.send(());
    }

    /// Whether the operation of this subject runs.
    pub fn contains(&self, uid: &str) -> bool {
        self.lock().contains_key(uid)
    }

    /// Names of the subjects of a verb whose operations run.
    pub fn names(&self, verb: &str) -> Vec<String> {
        self.lock().values().filter(|run| run.verb == verb).map(|run| run.name.clone()).collect()
    }

    /// Cancels the operation of a subject.
    pub fn cancel(&self, uid: &str) {
        if let Some(run) = self.lock().get(uid) {
            run.cancel.cancel();
        }
    }

    /// Receives a message each time an operation has ended.
    pub fn endings(&self) -> broadcast::Receiver<()> {
        self.ended.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ActiveOperation>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
