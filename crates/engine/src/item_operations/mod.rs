//! Item operations: asynchronous work that an item action started. It is polled every second until it ends or is cancelled.

mod abandoned;
mod wait;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use plimsoll_progress::{Task, Total, Unit};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::backup::actions::ItemId;
use crate::outcome::Scope;
use crate::ports::{Effect, IntentId, Journal, SupervisedProcess};
use crate::stages::Stage;
use crate::{Error, kill};

pub(crate) use self::abandoned::cancel_abandoned;
pub use self::wait::operation_timeout;
pub(crate) use self::wait::{OperationsFile, OperationsWait, wait_for_operations};

/// How often progress is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// So many polls in a row may fail; a plugin may be restarted in between.
const MAX_FAILED_POLLS: u32 = 30;

/// Progress of an item operation, or of the snapshot that a plugin takes or restores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemOperationProgress {
    /// Whether it has ended, successfully or not.
    pub completed: bool,
    /// The error; empty if there is none.
    pub error: String,
    /// Completed units.
    pub done: u64,
    /// Total units; zero while unknown.
    pub total: u64,
    /// Name of the unit.
    pub units: String,
    /// Description of the current step.
    pub description: String,
    /// Start time, if reported.
    pub started: Option<Timestamp>,
    /// Time of this report, if reported.
    pub updated: Option<Timestamp>,
    /// A defect of the report that was corrected.
    pub fault: Option<String>,
}

impl ItemOperationProgress {
    /// Whether the unit is bytes.
    pub fn counts_bytes(&self) -> bool {
        matches!(self.units.to_ascii_lowercase().as_str(), "" | "b" | "byte" | "bytes")
    }
}

/// Polls and cancels the operations of one action.
pub trait ItemOperationClient: Send + Sync {
    /// The progress of an operation. `subject` is the Backup or Restore.
    fn progress<'a>(
        &'a self,
        operation: &'a str,
        subject: &'a Value,
    ) -> BoxFuture<'a, Result<ItemOperationProgress, Error>>;
    /// Cancels an operation.
    fn cancel<'a>(&'a self, operation: &'a str, subject: &'a Value) -> BoxFuture<'a, Result<(), Error>>;

    /// Whether a new leader resumes the operations of its predecessor by calling the action again. Otherwise it cancels them
    /// first.
    fn resumes_operations(&self) -> bool {
        false
    }

    /// The process that runs the operations, if it is not this one.
    fn process(&self) -> Option<&dyn SupervisedProcess> {
        None
    }
}

/// An operation that an action started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedOperation {
    /// The ID that the action chose.
    pub id: String,
    /// Items to read again once it has ended.
    pub post: Vec<ItemId>,
}

/// Phase of an item operation, as in Velero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOperationPhase {
    /// Not polled yet.
    New,
    /// Running.
    InProgress,
    /// Ended successfully.
    Completed,
    /// Failed or timed out.
    Failed,
    /// Cancelled by the user.
    Canceled,
}

impl ItemOperationPhase {
    /// The spelling in the file.
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

struct ItemOperation {
    action: String,
    item: ItemId,
    started_operation: StartedOperation,
    client: Arc<dyn ItemOperationClient>,
    /// `None` if another journal entry covers it.
    intent: Option<IntentId>,
    created: Timestamp,
    phase: ItemOperationPhase,
    progress: ItemOperationProgress,
}

/// The item operations of one backup or restore.
pub struct ItemOperations {
    journal: Arc<dyn Journal>,
    entries: Mutex<Vec<ItemOperation>>,
}

/// The name of the task that shows the operation of an action on an item.
pub fn task_name(action: &str, item: &ItemId) -> String {
    format!("{action} {item}")
}

/// Counts of item operations by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemOperationCounts {
    /// Started.
    pub attempted: u64,
    /// Succeeded.
    pub completed: u64,
    /// Failed.
    pub failed: u64,
}

/// The Backup or Restore that owns the operations, for the file in the location.
#[derive(Clone, Copy, Debug)]
pub struct ItemOperationOwner<'a> {
    /// `backup` or `restore`.
    pub verb: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
}

impl ItemOperations {
    /// Without operations.
    pub fn new(journal: Arc<dyn Journal>) -> Self {
        Self { journal, entries: Mutex::default() }
    }

    /// Records an operation durably, so that a new leader can resume or cancel it.
    pub async fn start(
        &self,
        action: &str,
        item: ItemId,
        started_operation: StartedOperation,
        client: Arc<dyn ItemOperationClient>,
    ) -> Result<(), Error> {
        kill::point("operation.begun.before");
        let effect =
            Effect::Operation { action: action.to_owned(), id: started_operation.id.clone(), item: item.to_string() };
        let intent = self.journal.record_intent(effect).await?;
        kill::point("operation.begun.after");
        self.add(action, item, started_operation, client, Some(intent));
        Ok(())
    }

    /// Tracks an operation that has a journal entry of its own already.
    pub fn track_existing(&self, action: &str, item: ItemId, id: &str, client: Arc<dyn ItemOperationClient>) {
        let started_operation = StartedOperation { id: id.to_owned(), post: Vec::new() };
        self.add(action, item, started_operation, client, None);
    }

    fn add(
        &self,
        action: &str,
        item: ItemId,
        started_operation: StartedOperation,
        client: Arc<dyn ItemOperationClient>,
        intent: Option<IntentId>,
    ) {
        let (action, created) = (action.to_owned(), Timestamp::now());
        let (phase, progress) = (ItemOperationPhase::New, ItemOperationProgress::default());
        self.entries().push(ItemOperation {
            action,
            item,
            started_operation,
            client,
            intent,
            created,
            phase,
            progress,
        });
    }

    /// Whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Counts by result.
    pub fn counts(&self) -> ItemOperationCounts {
        let entries = self.entries();
        let count =
            |wanted: &[ItemOperationPhase]| entries.iter().filter(|entry| wanted.contains(&entry.phase)).count() as u64;
        ItemOperationCounts {
            attempted: entries.len() as u64,
            completed: count(&[ItemOperationPhase::Completed]),
            failed: count(&[ItemOperationPhase::Failed, ItemOperationPhase::Canceled]),
        }
    }

    /// A message for each failed operation, with where it belongs.
    pub fn failures(&self) -> Vec<(Scope, String)> {
        let entries = self.entries();
        let failed = entries
            .iter()
            .filter(|entry| matches!(entry.phase, ItemOperationPhase::Failed | ItemOperationPhase::Canceled));
        failed.map(ItemOperation::failure).collect()
    }

    /// The items to read again, of the operations that succeeded.
    pub fn post_items(&self) -> Vec<ItemId> {
        let entries = self.entries();
        let succeeding = entries.iter().filter(|entry| entry.phase == ItemOperationPhase::Completed);
        succeeding.flat_map(|entry| entry.started_operation.post.iter().cloned()).collect()
    }

    /// All operations, in the format of the file in the location.
    pub fn list(&self, owner: ItemOperationOwner<'_>) -> Value {
        Value::Array(self.entries().iter().map(|entry| entry.json(owner)).collect())
    }

    /// Polls all operations until each has ended. An operation that takes longer than `limit` is cancelled and fails.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the operations running; [`ItemOperations::cancel`] ends them.
    pub async fn poll_until_done(&self, subject: &Value, stage: &Stage, limit: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + limit;
        let count = self.entries().len();
        let results = join_all((0..count).map(|index| self.poll_one(index, subject, stage, deadline, limit))).await;
        results.into_iter().collect()
    }

    async fn poll_one(
        &self,
        index: usize,
        subject: &Value,
        stage: &Stage,
        deadline: Instant,
        limit: Duration,
    ) -> Result<(), Error> {
        let (client, id, intent, name) = {
            let entries = self.entries();
            let entry = &entries[index];
            let name = task_name(&entry.action, &entry.item);
            (Arc::clone(&entry.client), entry.started_operation.id.clone(), entry.intent, name)
        };
        let task = stage.take(&name);
        task.start();
        task.quiet();
        let _observing = client.process().map(|process| process.observe(&task));
        let mut failed_polls = 0;
        let (phase, error) = loop {
            match client.progress(&id, subject).await {
                Ok(progress) => {
                    failed_polls = 0;
                    self.show_progress(index, &progress, &task);
                    match (progress.completed, progress.error.is_empty()) {
                        (true, true) => break (ItemOperationPhase::Completed, String::new()),
                        (true, false) => break (ItemOperationPhase::Failed, progress.error),
                        (false, _) => {}
                    }
                }
                Err(error @ (Error::Fenced(_) | Error::Cancelled)) => return Err(error),
                Err(error) => {
                    failed_polls += 1;
                    task.hint(error.to_string());
                    if failed_polls >= MAX_FAILED_POLLS {
                        break (
                            ItemOperationPhase::Failed,
                            format!("{MAX_FAILED_POLLS} progress polls in a row failed: {error}"),
                        );
                    }
                }
            }
            if Instant::now() >= deadline {
                let _ = client.cancel(&id, subject).await;
                break (ItemOperationPhase::Failed, format!("timed out after {} s; cancelled", limit.as_secs()));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        match phase {
            ItemOperationPhase::Completed => task.finish(),
            _ => task.fail(&error),
        }
        self.finish_entry(index, phase, error);
        match intent {
            Some(intent) => self.journal.record_result(intent, phase.as_str().to_owned()).await,
            None => Ok(()),
        }
    }

    fn show_progress(&self, index: usize, progress: &ItemOperationProgress, task: &Task) {
        // Without a number there is nothing to count: a meter without a total would make that of the whole unknown.
        if progress.done > 0 || progress.total > 0 {
            let meter = task.meter(if progress.counts_bytes() { Unit::Bytes } else { Unit::Steps });
            if progress.total > 0 {
                meter.set_total(Total::Growing(progress.total.max(progress.done)));
            }
            meter.set_done(progress.done);
        }
        if !progress.description.is_empty() {
            task.say(&progress.description);
        }
        if let Some(fault) = &progress.fault {
            task.hint(fault);
        }
        let mut entries = self.entries();
        (entries[index].phase, entries[index].progress) = (ItemOperationPhase::InProgress, progress.clone());
    }

    fn finish_entry(&self, index: usize, phase: ItemOperationPhase, error: String) {
        let mut entries = self.entries();
        entries[index].phase = phase;
        entries[index].progress.error = error;
    }

    /// Cancels all running operations, on request of the user. Best effort.
    pub async fn cancel(&self, subject: &Value) {
        let open: Vec<_> = {
            let entries = self.entries();
            let open = entries
                .iter()
                .enumerate()
                .filter(|(_, e)| matches!(e.phase, ItemOperationPhase::New | ItemOperationPhase::InProgress));
            open.map(|(index, e)| (index, Arc::clone(&e.client), e.started_operation.id.clone(), e.intent)).collect()
        };
        for (index, client, id, intent) in open {
            if let Err(error) = client.cancel(&id, subject).await {
                tracing::warn!("failed to cancel operation {id}: {error}");
            }
            self.finish_entry(index, ItemOperationPhase::Canceled, "cancelled".to_owned());
            if let Some(intent) = intent {
                let _ = self.journal.record_result(intent, "cancelled".to_owned()).await;
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<ItemOperation>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ItemOperation {
    fn failure(&self) -> (Scope, String) {
        let Self { action, item, started_operation, progress, .. } = self;
        let text = format!("operation {} of {action} on {item}: {}", started_operation.id, progress.error);
        (Scope::within(item.namespace.as_deref().unwrap_or_default()), text)
    }

    /// Velero's format: the fields of identifiers start with a capital letter.
    fn json(&self, owner: ItemOperationOwner<'_>) -> Value {
        let identifier = |item: &ItemId| {
            let (resource, group) = item.group_resource.split_once('.').unwrap_or((&item.group_resource, ""));
            let namespace = item.namespace.as_deref().unwrap_or_default();
            json!({ "Group": group, "Resource": resource, "Namespace": namespace, "Name": item.name })
        };
        let time = |time: Option<Timestamp>| time.map(|time| format!("{time:.0}"));
        let progress = &self.progress;
        let mut spec = json!({
            format!("{}Name", owner.verb): owner.name,
            format!("{}UID", owner.verb): owner.uid,
            format!("{}ItemAction", owner.verb): self.action,
            "resourceIdentifier": identifier(&self.item),
            "operationID": self.started_operation.id,
        });
        if !self.started_operation.post.is_empty() {
            spec["postOperationItems"] = self.started_operation.post.iter().map(identifier).collect();
        }
        let mut status = json!({
            "phase": self.phase.as_str(),
            "nCompleted": progress.done,
            "nTotal": if progress.total > 0 { progress.total.max(progress.done) } else { 0 },
            "operationUnits": progress.units,
            "description": progress.description,
            "created": time(Some(self.created)),
            "started": time(progress.started),
            "updated": time(progress.updated),
        });
        if !progress.error.is_empty() {
            status["error"] = json!(progress.error);
        }
        json!({ "spec": spec, "status": status })
    }
}
