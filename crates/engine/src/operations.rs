//! Work of item actions that goes on in the background: begun with an item, asked about each second, ended or cancelled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use plimsoll_progress::{Task, Total, Unit};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::backup::actions::ItemId;
use crate::ports::{Effect, IntentId, Journal, Supervised};
use crate::{Error, kill};

/// How often is asked.
const EVERY: Duration = Duration::from_secs(1);
/// So many questions in a row may go unanswered; between them a plugin may be started again.
const UNANSWERED: u32 = 30;

/// What is known of a piece of work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Whether it has ended, well or not.
    pub completed: bool,
    /// Why it failed; empty if it did not.
    pub error: String,
    /// How much is done.
    pub done: u64,
    /// Of how much; zero while that is unknown.
    pub total: u64,
    /// What is counted.
    pub units: String,
    /// What is being done.
    pub description: String,
    /// When it began, if that was said.
    pub started: Option<Timestamp>,
    /// When this was so, if that was said.
    pub updated: Option<Timestamp>,
    /// What was wrong with the report and has been put right.
    pub fault: Option<String>,
}

/// Answers questions about work in the background.
pub trait Background: Send + Sync {
    /// How far it is. `subject` is the Backup or Restore.
    fn progress<'a>(&'a self, operation: &'a str, subject: &'a Value) -> BoxFuture<'a, Result<Reading, Error>>;
    /// Asks for its end.
    fn cancel<'a>(&'a self, operation: &'a str, subject: &'a Value) -> BoxFuture<'a, Result<(), Error>>;

    /// Whether work that a server which died had begun is taken up again by asking the action anew; otherwise it is ended first.
    fn is_found_again(&self) -> bool {
        false
    }

    /// The process that does it, if that is not this one.
    fn process(&self) -> Option<&dyn Supervised> {
        None
    }
}

/// What an action began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The action's own name for it.
    pub id: String,
    /// What is to be read again once it has ended.
    pub post: Vec<ItemId>,
}

/// Where a piece of work is, in Velero's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nobody has asked yet.
    New,
    /// It goes on.
    InProgress,
    /// It ended well.
    Completed,
    /// It ended badly, or took too long.
    Failed,
    /// Its user asked for its end.
    Canceled,
}

impl Phase {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "New",
            Self::InProgress => "InProgress",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Canceled => "Canceled",
        }
    }
}

struct Entry {
    action: String,
    item: ItemId,
    begun: Begun,
    background: Arc<dyn Background>,
    /// None where another effect of the journal stands for it.
    intent: Option<IntentId>,
    created: Timestamp,
    phase: Phase,
    reading: Reading,
}

/// The work that the actions of one operation began.
pub struct Operations {
    journal: Arc<dyn Journal>,
    entries: Mutex<Vec<Entry>>,
}

/// How many there were and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    /// Begun.
    pub attempted: u64,
    /// Ended well.
    pub completed: u64,
    /// Ended badly.
    pub failed: u64,
}

/// Whose operations they are, for the file in the location.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// `backup` or `restore`.
    pub verb: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
}

impl Operations {
    /// None yet.
    pub fn new(journal: Arc<dyn Journal>) -> Self {
        Self { journal, entries: Mutex::default() }
    }

    /// Takes down what an action began, durably: whoever takes over must be able to end it.
    pub async fn begin(
        &self,
        action: &str,
        item: ItemId,
        begun: Begun,
        background: Arc<dyn Background>,
    ) -> Result<(), Error> {
        kill::point("operation.begun.before");
        let effect = Effect::Operation { action: action.to_owned(), id: begun.id.clone(), item: item.to_string() };
        let intent = self.journal.intend(effect).await?;
        kill::point("operation.begun.after");
        self.add(action, item, begun, background, Some(intent));
        Ok(())
    }

    /// Takes along what goes on in the background and is in the journal already, as an effect of its own.
    pub fn take_along(&self, action: &str, item: ItemId, id: &str, background: Arc<dyn Background>) {
        let begun = Begun { id: id.to_owned(), post: Vec::new() };
        self.add(action, item, begun, background, None);
    }

    fn add(&self, action: &str, item: ItemId, begun: Begun, background: Arc<dyn Background>, intent: Option<IntentId>) {
        let (action, created) = (action.to_owned(), Timestamp::now());
        let (phase, reading) = (Phase::New, Reading::default());
        self.entries().push(Entry { action, item, begun, background, intent, created, phase, reading });
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// How many there are, by what became of them.
    pub fn counts(&self) -> OperationCounts {
        let entries = self.entries();
        let count = |wanted: &[Phase]| entries.iter().filter(|entry| wanted.contains(&entry.phase)).count() as u64;
        OperationCounts {
            attempted: entries.len() as u64,
            completed: count(&[Phase::Completed]),
            failed: count(&[Phase::Failed, Phase::Canceled]),
        }
    }

    /// What went wrong, in words.
    pub fn failures(&self) -> Vec<String> {
        let entries = self.entries();
        let failed = entries.iter().filter(|entry| matches!(entry.phase, Phase::Failed | Phase::Canceled));
        failed.map(|e| format!("operation {} of {} on {}: {}", e.begun.id, e.action, e.item, e.reading.error)).collect()
    }

    /// What is to be read again, of those that ended well.
    pub fn post_items(&self) -> Vec<ItemId> {
        let entries = self.entries();
        let well = entries.iter().filter(|entry| entry.phase == Phase::Completed);
        well.flat_map(|entry| entry.begun.post.iter().cloned()).collect()
    }

    /// All of them, as the file in the location has them.
    pub fn list(&self, owner: Owner<'_>) -> Value {
        Value::Array(self.entries().iter().map(|entry| entry.json(owner)).collect())
    }

    /// Asks about all of them until each has ended. One that takes longer than `limit` is cancelled, and has failed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the work going on; [`Operations::cancel`] ends it.
    pub async fn follow(&self, subject: &Value, task: &Task, limit: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + limit;
        let count = self.entries().len();
        let followed = join_all((0..count).map(|place| self.follow_one(place, subject, task, deadline, limit))).await;
        followed.into_iter().collect()
    }

    async fn follow_one(
        &self,
        place: usize,
        subject: &Value,
        task: &Task,
        deadline: Instant,
        limit: Duration,
    ) -> Result<(), Error> {
        let (background, id, intent, name) = {
            let entries = self.entries();
            let entry = &entries[place];
            let name = format!("{} {}", entry.action, entry.item);
            (Arc::clone(&entry.background), entry.begun.id.clone(), entry.intent, name)
        };
        let task = task.child(name);
        task.quiet();
        let _attention = background.process().map(|process| process.observe(&task));
        let mut unanswered = 0;
        let (phase, error) = loop {
            match background.progress(&id, subject).await {
                Ok(reading) => {
                    unanswered = 0;
                    self.show(place, &reading, &task);
                    match (reading.completed, reading.error.is_empty()) {
                        (true, true) => break (Phase::Completed, String::new()),
                        (true, false) => break (Phase::Failed, reading.error),
                        (false, _) => {}
                    }
                }
                Err(error @ (Error::Fenced(_) | Error::Cancelled)) => return Err(error),
                Err(error) => {
                    unanswered += 1;
                    task.hint(error.to_string());
                    if unanswered >= UNANSWERED {
                        break (Phase::Failed, format!("it no longer answers: {error}"));
                    }
                }
            }
            if Instant::now() >= deadline {
                let _ = background.cancel(&id, subject).await;
                break (Phase::Failed, format!("it took longer than {} s and was cancelled", limit.as_secs()));
            }
            tokio::time::sleep(EVERY).await;
        };
        match phase {
            Phase::Completed => task.finish(),
            _ => task.fail(&error),
        }
        self.settle(place, phase, error);
        match intent {
            Some(intent) => self.journal.settle(intent, phase.as_str().to_owned()).await,
            None => Ok(()),
        }
    }

    fn show(&self, place: usize, reading: &Reading, task: &Task) {
        let bytes = matches!(reading.units.to_ascii_lowercase().as_str(), "" | "b" | "byte" | "bytes");
        let meter = task.meter(if bytes { Unit::Bytes } else { Unit::Steps });
        if reading.total > 0 {
            meter.set_total(Total::Growing(reading.total));
        }
        meter.set_done(reading.done);
        if !reading.description.is_empty() {
            task.say(&reading.description);
        }
        if let Some(fault) = &reading.fault {
            task.hint(fault);
        }
        let mut entries = self.entries();
        (entries[place].phase, entries[place].reading) = (Phase::InProgress, reading.clone());
    }

    fn settle(&self, place: usize, phase: Phase, error: String) {
        let mut entries = self.entries();
        entries[place].phase = phase;
        entries[place].reading.error = error;
    }

    /// Ends everything that goes on, because its user asked. Best effort.
    pub async fn cancel(&self, subject: &Value) {
        let open: Vec<_> = {
            let entries = self.entries();
            let open = entries.iter().enumerate().filter(|(_, e)| matches!(e.phase, Phase::New | Phase::InProgress));
            open.map(|(place, e)| (place, Arc::clone(&e.background), e.begun.id.clone(), e.intent)).collect()
        };
        for (place, background, id, intent) in open {
            if let Err(error) = background.cancel(&id, subject).await {
                tracing::warn!("operation {id} could not be cancelled: {error}");
            }
            self.settle(place, Phase::Canceled, "cancelled".to_owned());
            if let Some(intent) = intent {
                let _ = self.journal.settle(intent, "cancelled".to_owned()).await;
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Velero's spelling: the identifiers have capital letters.
    fn json(&self, owner: Owner<'_>) -> Value {
        let identifier = |item: &ItemId| {
            let (resource, group) = item.group_resource.split_once('.').unwrap_or((&item.group_resource, ""));
            let namespace = item.namespace.as_deref().unwrap_or_default();
            json!({ "Group": group, "Resource": resource, "Namespace": namespace, "Name": item.name })
        };
        let time = |time: Option<Timestamp>| time.map(|time| format!("{time:.0}"));
        let reading = &self.reading;
        let mut spec = json!({
            format!("{}Name", owner.verb): owner.name,
            format!("{}UID", owner.verb): owner.uid,
            format!("{}ItemAction", owner.verb): self.action,
            "resourceIdentifier": identifier(&self.item),
            "operationID": self.begun.id,
        });
        if !self.begun.post.is_empty() {
            spec["postOperationItems"] = self.begun.post.iter().map(identifier).collect();
        }
        let mut status = json!({
            "phase": self.phase.as_str(),
            "nCompleted": reading.done,
            "nTotal": reading.total,
            "operationUnits": reading.units,
            "description": reading.description,
            "created": time(Some(self.created)),
            "started": time(reading.started),
            "updated": time(reading.updated),
        });
        if !reading.error.is_empty() {
            status["error"] = json!(reading.error);
        }
        json!({ "spec": spec, "status": status })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Clock, Operation};

    use super::*;

    #[derive(Default)]
    struct Book(Mutex<Vec<String>>);

    impl Journal for Book {
        fn intend(&self, effect: Effect) -> BoxFuture<'_, Result<IntentId, Error>> {
            self.0.lock().unwrap().push(effect.to_string());
            Box::pin(async { Ok(IntentId(7)) })
        }

        fn settle(&self, _: IntentId, result: String) -> BoxFuture<'_, Result<(), Error>> {
            self.0.lock().unwrap().push(result);
            Box::pin(async { Ok(()) })
        }
    }

    /// Answers with the readings in turn, the last one again and again.
    struct Script(Mutex<Vec<Reading>>, Mutex<bool>);

    impl Background for Script {
        fn progress<'a>(&'a self, _: &'a str, _: &'a Value) -> BoxFuture<'a, Result<Reading, Error>> {
            let mut left = self.0.lock().unwrap();
            let next = if left.len() > 1 { left.remove(0) } else { left[0].clone() };
            Box::pin(async { Ok(next) })
        }

        fn cancel<'a>(&'a self, _: &'a str, _: &'a Value) -> BoxFuture<'a, Result<(), Error>> {
            *self.1.lock().unwrap() = true;
            Box::pin(async { Ok(()) })
        }
    }

    fn reading(done: u64, completed: bool, error: &str) -> Reading {
        Reading { done, total: 30, completed, error: error.to_owned(), ..Reading::default() }
    }

    async fn with(scripts: Vec<Arc<Script>>, book: &Arc<Book>) -> Operations {
        let operations = Operations::new(Arc::clone(book) as Arc<dyn Journal>);
        for (number, script) in scripts.into_iter().enumerate() {
            let item = ItemId::new("configmaps", Some("n"), "c");
            let begun = Begun { id: format!("o{number}"), post: vec![ItemId::new("pods", Some("n"), "p")] };
            operations.begin("x.io/slow", item, begun, script).await.unwrap();
        }
        operations
    }

    fn script(readings: Vec<Reading>) -> Arc<Script> {
        Arc::new(Script(Mutex::new(readings), Mutex::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn each_is_followed_to_its_end_and_the_file_says_how_it_ended() {
        let book = Arc::new(Book::default());
        let well = script(vec![reading(10, false, ""), reading(30, true, "")]);
        let badly = script(vec![reading(10, true, "no space")]);
        let operations = with(vec![well, badly], &book).await;
        let tree = Operation::new("backup-b", Clock::system());
        operations.follow(&json!({}), &tree.root(), Duration::from_mins(1)).await.unwrap();
        assert_eq!(operations.counts(), OperationCounts { attempted: 2, completed: 1, failed: 1 });
        assert_eq!(operations.failures(), ["operation o1 of x.io/slow on configmaps n/c: no space"]);
        assert_eq!(operations.post_items(), [ItemId::new("pods", Some("n"), "p")]);
        let list = operations.list(Owner { verb: "backup", name: "b", uid: "u" });
        assert_eq!(
            list[0]["spec"],
            json!({ "backupName": "b", "backupUID": "u", "backupItemAction": "x.io/slow", "operationID": "o0",
                "resourceIdentifier": { "Group": "", "Resource": "configmaps", "Namespace": "n", "Name": "c" },
                "postOperationItems": [{ "Group": "", "Resource": "pods", "Namespace": "n", "Name": "p" }] })
        );
        assert_eq!(
            (&list[0]["status"]["phase"], &list[1]["status"]["error"]),
            (&json!("Completed"), &json!("no space"))
        );
        let said = book.0.lock().unwrap().join("; ");
        assert!(said.starts_with("operation o0 of x.io/slow") && said.contains("Completed") && said.contains("Failed"));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_never_ends_is_cancelled_at_its_limit() {
        let endless = script(vec![reading(10, false, "")]);
        let operations = with(vec![Arc::clone(&endless)], &Arc::default()).await;
        let tree = Operation::new("backup-b", Clock::system());
        operations.follow(&json!({}), &tree.root(), Duration::from_secs(90)).await.unwrap();
        assert!(*endless.1.lock().unwrap());
        assert_eq!(
            operations.failures(),
            ["operation o0 of x.io/slow on configmaps n/c: it took longer than 90 s and was cancelled"]
        );
    }
}
