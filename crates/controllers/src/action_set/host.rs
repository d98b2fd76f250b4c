//! Services of the server for functions: leadership check, durable notes, log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use plimsoll_blueprint as blueprint;
use plimsoll_blueprint::functions::Host;
use plimsoll_engine::kill;
use plimsoll_engine::ports::{Effect, IntentId, Journal, JournalEntry, LeadershipGuard};
use plimsoll_operations::{ConfigMapJournal, Job, OperationRecord};

use super::ActionSetController;
use super::status_publisher::Publisher;

/// Journal entries of an earlier attempt of one phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Left {
    /// It had begun.
    pub intent: Option<IntentId>,
    /// It had ended like this.
    pub result: Option<String>,
    /// Its notes.
    pub notes: BTreeMap<String, String>,
}

/// Reads the journal of an earlier attempt.
pub fn left(known: &[JournalEntry], action: usize, phase: &str) -> Left {
    let mut left = Left::default();
    for entry in known {
        match &entry.effect {
            Effect::Phase { action: a, phase: p } if *a == action && p == phase => {
                left.intent = Some(entry.id);
                left.result.clone_from(&entry.result);
            }
            Effect::Note { action: a, phase: p, key, value } if *a == action && p == phase => {
                left.notes.insert(key.clone(), value.clone());
            }
            _ => {}
        }
    }
    left
}

/// The server, as the function of one phase sees it.
pub struct Server {
    record: Arc<OperationRecord>,
    journal: Arc<ConfigMapJournal>,
    publisher: Arc<Publisher>,
    action: usize,
    phase: String,
    notes: Mutex<BTreeMap<String, String>>,
}

impl Server {
    pub fn new(
        job: &Job<ActionSetController>,
        publisher: &Arc<Publisher>,
        action: usize,
        phase: &str,
        left: &Left,
    ) -> Self {
        Self {
            record: Arc::clone(&job.record),
            journal: Arc::clone(&job.journal),
            publisher: Arc::clone(publisher),
            action,
            phase: phase.to_owned(),
            notes: Mutex::new(left.notes.clone()),
        }
    }
}

impl Host for Server {
    fn authorize_effect(&self) -> Result<(), blueprint::Error> {
        self.record.check_effect().map_err(|error| blueprint::Error::Host(error.to_string()))
    }

    fn failpoint(&self, name: &'static str) {
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
        self.publisher.log().info(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_tells_each_phase_only_what_is_its_own() {
        let entry = |id, effect, result: Option<&str>| JournalEntry {
            id: IntentId(id),
            effect,
            result: result.map(str::to_owned),
        };
        let phase = |action, phase: &str| Effect::Phase { action, phase: phase.into() };
        let note =
            |action, value: &str| Effect::Note { action, phase: "p".into(), key: "k".into(), value: value.into() };
        let known = [
            entry(0, phase(0, "p"), Some("done")),
            entry(1, phase(1, "p"), None),
            entry(2, note(1, "mine"), None),
            entry(3, note(0, "other"), None),
        ];
        let expected = Left { intent: Some(IntentId(1)), result: None, notes: [("k".into(), "mine".into())].into() };
        assert_eq!(left(&known, 1, "p"), expected);
        assert_eq!(left(&known, 0, "p").result.as_deref(), Some("done"));
        assert_eq!(left(&known, 0, "q"), Left::default());
    }
}
