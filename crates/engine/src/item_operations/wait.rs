//! The wait for item operations, and their file in the location.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_api::go::GoDuration;
use plimsoll_archive::codec;
use plimsoll_progress::Task;
use plimsoll_store::Store;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{ItemOperationOwner, ItemOperations};
use crate::stages::Stage;
use crate::{Error, RetryPolicy};

/// How often the file of the operations is written while they run.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
/// Default timeout of item operations.
const DEFAULT_TIMEOUT: Duration = Duration::from_hours(4);

/// The timeout of item operations: `itemOperationTimeout` of a spec, or the default.
pub fn operation_timeout(requested: Option<&GoDuration>) -> Duration {
    requested.and_then(GoDuration::as_std).filter(|timeout| !timeout.is_zero()).unwrap_or(DEFAULT_TIMEOUT)
}

/// The file of the item operations of a backup or restore.
pub(crate) struct OperationsFile<'a> {
    pub(crate) store: &'a Store,
    pub(crate) key: String,
    pub(crate) owner: ItemOperationOwner<'a>,
}

impl OperationsFile<'_> {
    /// Writes the operations as they are now.
    pub(crate) async fn save(&self, operations: &ItemOperations, task: &Task) -> Result<(), Error> {
        let packed = codec::gzip_json(&operations.list(self.owner))
            .map_err(|source| Error::Archive { name: self.key.clone(), source })?;
        let packed = Bytes::from(packed);
        RetryPolicy::default().run(task, || async { Ok(self.store.put(&self.key, packed.clone()).await?) }).await
    }

    async fn save_repeatedly(&self, operations: &ItemOperations, task: &Task) -> Error {
        loop {
            tokio::time::sleep(SAVE_INTERVAL).await;
            if let Err(error) = self.save(operations, task).await {
                return error;
            }
        }
    }
}

/// Parameters of [`wait_for_operations`].
pub(crate) struct OperationsWait<'a> {
    pub(crate) file: OperationsFile<'a>,
    /// The Backup or Restore object, for the actions.
    pub(crate) subject: &'a Value,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) root: &'a Task,
    /// The stage in which they are shown.
    pub(crate) stage: Stage,
    pub(crate) timeout: Duration,
}

/// Polls the operations until each has ended, and keeps their file up to date. `announce` runs once the file is there.
/// Cancelling the backup or restore cancels its operations.
pub(crate) async fn wait_for_operations(
    operations: &ItemOperations,
    wait: OperationsWait<'_>,
    announce: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    let OperationsWait { file, subject, cancel, root, stage, timeout } = wait;
    let task = stage.task.clone();
    task.start();
    file.save(operations, &task).await?;
    announce.await?;
    let polled = tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Error::Cancelled),
        polled = operations.poll_until_done(subject, &stage, timeout) => polled,
        error = file.save_repeatedly(operations, &task) => Err(error),
    };
    if matches!(polled, Err(Error::Cancelled)) {
        operations.cancel(subject).await;
    }
    polled?;
    for (_, failure) in operations.failures() {
        tracing::warn!("{} {}: {failure}", file.owner.verb, file.owner.name);
    }
    stage.skip_rest("it has no operation");
    task.finish();
    file.save(operations, root).await
}
