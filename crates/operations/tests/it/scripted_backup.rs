//! A lifecycle of Backups whose work waits for the test.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::plimsoll::v1alpha1::OperationState;
use plimsoll_api::velero::v1::Backup;
use plimsoll_engine::Error;
use plimsoll_engine::ports::{Effect, Journal, JournalEntry};
use plimsoll_operations::lifecycle::run_lifecycle;
use plimsoll_operations::{Completion, ItemCounters, Job, Lifecycle, OperationRuntime, Requirements, SubjectState};
use plimsoll_progress::{Total, Unit};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

pub struct ScriptedBackup;

/// What the work needs of the test.
pub struct Script {
    concurrency: usize,
    started: mpsc::UnboundedSender<StartedWork>,
    failed: mpsc::UnboundedSender<&'static str>,
}

/// Work that has started. It ends when this is dropped.
pub struct StartedWork {
    pub name: String,
    /// The entries of the journal at the start.
    pub journal_entries: Vec<JournalEntry>,
    _finish: oneshot::Sender<()>,
}

/// A server that leads, until it is dropped. Its work goes on, as that of a process that does not know it yet.
pub struct Server {
    started: mpsc::UnboundedReceiver<StartedWork>,
    failed: mpsc::UnboundedReceiver<&'static str>,
    controller: JoinSet<()>,
}

impl Server {
    pub fn start(runtime: Arc<OperationRuntime>, concurrency: usize) -> Self {
        let ((started, starts), (failed, failures)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let mut controller = JoinSet::new();
        controller.spawn(run_lifecycle::<ScriptedBackup>(runtime, Arc::new(Script { concurrency, started, failed })));
        Self { started: starts, failed: failures, controller }
    }

    /// The next work that starts.
    pub async fn next_start(&mut self) -> StartedWork {
        timeout(Duration::from_mins(1), self.started.recv()).await.unwrap().unwrap()
    }

    /// Whether no other work has started.
    pub fn is_idle(&self) -> bool {
        self.started.is_empty()
    }

    /// Why the journal refused the result of some work.
    pub async fn next_failure(&mut self) -> &'static str {
        timeout(Duration::from_mins(1), self.failed.recv()).await.unwrap().unwrap()
    }

    /// Stops to observe the cluster.
    pub async fn stop_controller(&mut self) {
        self.controller.shutdown().await;
    }
}

impl Lifecycle for ScriptedBackup {
    type Resource = Backup;
    type Context = Script;
    type LiveState = ();
    const VERB: &'static str = "backup";
    const ITEM_COUNTERS: ItemCounters = ItemCounters { stage: "reading", done: "itemsBackedUp" };

    fn state(phase: &str) -> SubjectState {
        match phase {
            "" | "New" | "Queued" | "ReadyToStart" => SubjectState::New,
            "InProgress" => SubjectState::InProgress,
            _ => SubjectState::Ended,
        }
    }

    fn validate(raw: &Value) -> Vec<String> {
        assert_ne!(raw["metadata"]["name"], "unreadable", "a test asked for it");
        let invalid = raw.pointer("/metadata/name").and_then(Value::as_str) == Some("invalid");
        invalid.then(|| "metadata.name: this name is invalid".to_owned()).into_iter().collect()
    }

    async fn check_requirements(_: &Backup, _: &Script) -> Result<Requirements, Error> {
        Ok(Requirements::default())
    }

    fn queued_status(position: usize) -> Option<Value> {
        Some(json!({ "phase": "Queued", "queuePosition": position }))
    }

    fn concurrency(context: &Script) -> usize {
        context.concurrency
    }

    /// One effect: its intent is durable before the work, its result after it.
    async fn execute(job: &Job<Self>) -> Result<Completion, Error> {
        job.patch_subject(&json!({ "status": { "phase": "InProgress" } })).await?;
        let reading = job.tree.root().planned("reading");
        reading.start();
        let items = reading.meter(Unit::Items);
        items.set_total(Total::Final(4));
        items.set_done(1);
        let intent = match job.journal_entries.iter().find(|entry| entry.result.is_none()) {
            Some(open) => open.id,
            None => job.journal.record_intent(Effect::Begin { prefix: "backups/".to_owned() }).await?,
        };
        wait_for_test(job).await?;
        assert_ne!(job.id.name, "defective", "a test asked for it");
        let recorded = job.journal.record_result(intent, "done".to_owned()).await;
        if let Err(error) = &recorded {
            let _ = job.context.failed.send(error.reason());
        }
        recorded?;
        items.set_done(4);
        reading.finish();
        Ok(Completion {
            status: json!({ "phase": "Completed" }),
            state: OperationState::Succeeded,
            reasons: Vec::new(),
            ending: None,
        })
    }

    async fn abort(_: &Job<Self>, _: &Error) {}
}

async fn wait_for_test(job: &Job<ScriptedBackup>) -> Result<(), Error> {
    let (finish, finished) = oneshot::channel();
    let (name, journal_entries) = (job.id.name.clone(), job.journal_entries.clone());
    let _ = job.context.started.send(StartedWork { name, journal_entries, _finish: finish });
    tokio::select! {
        () = job.cancel.cancelled() => Err(Error::Cancelled),
        // Dropping the sender is the signal.
        _ = finished => Ok(()),
    }
}
