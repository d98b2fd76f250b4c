//! Item operations that an earlier attempt left running.

use std::sync::Arc;

use serde_json::Value;

use super::ItemOperationClient;
use crate::Error;
use crate::ports::{Effect, Journal, JournalEntry};
use crate::registry::Registry;

/// Cancels the operations that a dead server left running: their actions are called again and start them again.
pub(crate) async fn cancel_abandoned<A: ?Sized>(
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
