//! An operation of a plugin that continues after its call has returned.

use futures::future::BoxFuture;
use plimsoll_engine::Error;
use plimsoll_engine::item_operations::{ItemOperationClient, ItemOperationProgress};
use serde_json::Value;
use tokio::sync::Mutex;

use super::plugin_operation::{PluginOperation, PluginState};

/// Answers for it, as item actions do for theirs.
pub(super) struct PendingSnapshot {
    pub live: Mutex<PluginOperation>,
}

impl PendingSnapshot {
    pub fn new(live: PluginOperation) -> Self {
        Self { live: Mutex::new(live) }
    }
}

impl ItemOperationClient for PendingSnapshot {
    fn progress<'a>(&'a self, _: &'a str, _: &'a Value) -> BoxFuture<'a, Result<ItemOperationProgress, Error>> {
        Box::pin(async {
            let mut live = self.live.lock().await;
            let ended = match live.poll().await {
                // Only the error of an operation that has ended counts.
                PluginState::InProgress(progress) => {
                    return Ok(ItemOperationProgress { error: String::new(), ..progress });
                }
                PluginState::Silent(message) => return Err(Error::Plugin { reason: "PluginSilent", message }),
                PluginState::Unknown => Ok(()),
                PluginState::Ended(how) => how,
            };
            live.end(&ended).await?;
            Ok(ItemOperationProgress {
                completed: true,
                error: ended.err().unwrap_or_default(),
                ..ItemOperationProgress::default()
            })
        })
    }

    /// The protocol has no word for it: it is only no longer waited for.
    fn cancel<'a>(&'a self, _: &'a str, _: &'a Value) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { self.live.lock().await.abandon("it is no longer waited for").await })
    }
}
