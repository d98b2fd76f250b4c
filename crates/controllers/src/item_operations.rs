//! Operations that item actions of plugins started in the background: Velero's item operations.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_engine::item_operations::{ItemOperationClient, ItemOperationOwner, ItemOperations};
use plimsoll_engine::ports::{Effect, Journal};
use plimsoll_engine::registry::Registry;
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_operations::{Job, JournalEntry, Lifecycle};
use plimsoll_progress::Task;
use plimsoll_store::Store;
use serde_json::{Value, json};

use crate::completion;

/// How often the file of the operations is written while they run.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);

/// Cancels the operations that a dead server left running: their actions are called again and start them again.
pub async fn cancel_abandoned<A: ?Sized>(
    entries: &[JournalEntry],
    actions: &Registry<A>,
    operation_client: impl Fn(&Arc<A>) -> Option<Arc<dyn ItemOperationClient>>,
    subject: &Value,
    journal: &dyn Journal,
) -> Result<(), Error> {
    for entry in entries.iter().filter(|entry| entry.result.is_none()) {
        let Effect::Operation { action, id, .. } = &entry.effect else { continue };
        match actions.get(action).and_then(&operation_client) {
            Some(operation_client) if operation_client.resumes_operations() => {}
            Some(operation_client) => {
                if let Err(error) = operation_client.cancel(id, subject).await {
                    tracing::warn!(
                        "operation {id} of {action}, started by a server that is gone, may still be running: {error}"
                    );
                }
            }
            None => {
                tracing::warn!(
                    "operation {id}, started by a server that is gone, may still be running: no plugin {action}"
                );
            }
        }
        journal.record_result(entry.id, "abandoned".to_owned()).await?;
    }
    Ok(())
}

/// Polls the operations until each has ended, shows that in the subject's phase, and keeps the file in the location up to date.
/// Cancelling the subject cancels its operations.
pub async fn wait_for_operations<K: Lifecycle>(
    job: &Job<K>,
    store: &Store,
    key: &str,
    subject: &Value,
    operations: &ItemOperations,
    phase: &str,
    limit: Duration,
) -> Result<(), Error> {
    let owner = ItemOperationOwner { verb: K::VERB, name: &job.id.name, uid: &job.id.uid };
    let task = job.tree.root().child("operations");
    save_operations(store, key, operations, owner, &task).await?;
    kill::point("status.waiting.before");
    let mut status = completion::operation_counts(K::VERB, operations.counts());
    status["phase"] = json!(phase);
    job.patch_subject(&json!({ "status": status })).await?;
    kill::point("status.waiting.after");
    let saving = async {
        loop {
            tokio::time::sleep(SAVE_INTERVAL).await;
            if let Err(error) = save_operations(store, key, operations, owner, &task).await {
                break error;
            }
        }
    };
    let polled = tokio::select! {
        biased;
        () = job.cancel.cancelled() => Err(Error::Cancelled),
        polled = operations.poll_until_done(subject, &task, limit) => polled,
        error = saving => Err(error),
    };
    if matches!(polled, Err(Error::Cancelled)) {
        operations.cancel(subject).await;
    }
    polled?;
    for failure in operations.failures() {
        tracing::warn!("{} {}: {failure}", K::VERB, job.id.name);
    }
    task.finish();
    save_operations(store, key, operations, owner, &job.tree.root()).await
}

/// Writes the operations into their file in the location.
pub async fn save_operations(
    store: &Store,
    key: &str,
    operations: &ItemOperations,
    owner: ItemOperationOwner<'_>,
    task: &Task,
) -> Result<(), Error> {
    let packed = plimsoll_archive::codec::gzip_json(&operations.list(owner))
        .map_err(|source| Error::Archive { name: key.to_owned(), source })?;
    let packed = bytes::Bytes::from(packed);
    RetryPolicy::default().run(task, || async { Ok(store.put(key, packed.clone()).await?) }).await
}
