//! An ActionSet that runs: its results and the status that was shown last.

use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use plimsoll_api::kanister::v1alpha1::ActionSetStatus;
use plimsoll_blueprint::action_set_status;
use plimsoll_blueprint::results::ActionSetResults;
use plimsoll_engine::log::OperationLog;
use plimsoll_progress::Snapshot;
use serde_json::Value;

/// Fields of `status.progress`: a merge patch leaves alone what it does not name.
const PROGRESS_FIELDS: [&str; 8] = [
    "runningPhase",
    "runningPhases",
    "percentCompleted",
    "sizeDownloadedB",
    "sizeUploadedB",
    "estimatedDownloadSizeB",
    "estimatedUploadSizeB",
    "lastTransitionTime",
];

/// An ActionSet that runs. Its progress is in the task tree.
pub struct RunningActionSet {
    results: Mutex<ActionSetResults>,
    shown: Mutex<ActionSetStatus>,
    log: OperationLog,
}

impl RunningActionSet {
    /// `saved` is the status that an earlier process wrote.
    pub fn new(results: ActionSetResults, saved: ActionSetStatus, log: OperationLog) -> Self {
        Self { results: Mutex::new(results), shown: Mutex::new(saved), log }
    }

    /// The log of the ActionSet.
    pub fn log(&self) -> &OperationLog {
        &self.log
    }

    pub fn results(&self) -> MutexGuard<'_, ActionSetResults> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the progress of the running phases into the status, before one of them ends.
    pub fn observe(&self, tree: &Snapshot) {
        let results = self.results();
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = action_set_status(tree, &results, &shown, Timestamp::now());
    }

    /// The status now, as a merge patch.
    pub fn status_patch(&self, tree: &Snapshot) -> Value {
        self.observe(tree);
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = serde_json::to_value(&*shown).unwrap_or_default();
        for field in PROGRESS_FIELDS {
            if status["progress"][field].is_null() {
                status["progress"][field] = Value::Null;
            }
        }
        status
    }
}
