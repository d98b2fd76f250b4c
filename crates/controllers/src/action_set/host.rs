//! Services of the server for functions: leadership check, durable notes, log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use plimsoll_blueprint as blueprint;
use plimsoll_blueprint::functions::Host;
use plimsoll_engine::kill;
use plimsoll_engine::ports::{Effect, Journal, LeadershipGuard};
use plimsoll_operations::{ConfigMapJournal, Job, OperationRecord};

use super::ActionSetController;
use super::phase_journal::PhaseJournal;
use super::running::RunningActionSet;

/// The server, as the function of one phase sees it.
pub struct FunctionHost {
    record: Arc<OperationRecord>,
    journal: Arc<ConfigMapJournal>,
    set: Arc<RunningActionSet>,
    action: usize,
    phase: String,
    notes: Mutex<BTreeMap<String, String>>,
}

impl FunctionHost {
    pub fn new(
        job: &Job<ActionSetController>,
        set: &Arc<RunningActionSet>,
        action: usize,
        phase: &str,
        journal: &PhaseJournal,
    ) -> Self {
        Self {
            record: Arc::clone(&job.record),
            journal: Arc::clone(&job.journal),
            set: Arc::clone(set),
            action,
            phase: phase.to_owned(),
            notes: Mutex::new(journal.notes.clone()),
        }
    }
}

impl Host for FunctionHost {
    fn authorize_effect(&self) -> Result<(), blueprint::Error> {
        self.record.check_effect().map_err(|error| blueprint::Error::Host(error.to_string()))
    }

    fn kill_point(&self, name: &'static str) {
        kill::point(name);
    }

    fn recall(&self, key: &str) -> Option<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn remember<'a>(&'a self, key: &'a str, value: String) -> BoxFuture<'a, Result<(), blueprint::Error>> {
        Box::pin(async move {
            let note = Effect::Note {
                action: self.action,
                phase: self.phase.clone(),
                key: key.to_owned(),
                value: value.clone(),
            };
            self.journal.record_intent(note).await.map_err(|error| blueprint::Error::Host(error.to_string()))?;
            self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), value);
            Ok(())
        })
    }

    fn log(&self, line: &str) {
        self.set.log().info(line);
    }
}
