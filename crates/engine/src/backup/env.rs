//! Input and environment of a backup: what to back up, and what it is done with.

use futures::future::BoxFuture;
use plimsoll_api::velero::v1::BackupSpec;
use plimsoll_archive::proof::ProofKey;
use plimsoll_select::resource_policies::ResourcePolicies;
use plimsoll_store::Store;
use serde_json::Value;

use super::collect::BackupResults;
use super::state::{BackupState, PlannedBackup};
use crate::item_operations::ItemOperationCounts;
use crate::ports::JournalEntry;
use crate::{Error, OperationEnv};

/// The input of a backup.
pub struct BackupInput {
    /// The backup's name.
    pub name: String,
    /// The backup's uid.
    pub uid: String,
    /// The spec of the Backup.
    pub spec: BackupSpec,
    /// The journal of earlier attempts.
    pub journal_entries: Vec<JournalEntry>,
}

/// The environment of a backup.
pub struct BackupEnv<'a> {
    /// The environment of every operation.
    pub operation: OperationEnv,
    /// The Backup object.
    pub object: &'a dyn BackupObject,
    /// Plugins and volumes.
    pub extensions: &'a dyn BackupExtensions,
    /// How many items of a resource, and how many item blocks, are processed in parallel. Each block may freeze an application.
    pub item_workers: usize,
}

/// The Backup object of a backup, and the objects that it refers to.
pub trait BackupObject: Send + Sync {
    /// Opens the location. Retried while the error is retryable.
    fn open_location(&self) -> BoxFuture<'_, Result<Store, Error>>;
    /// Shows that the backup runs. Every attempt repeats it with the same result: the object with all defaults.
    fn begin(&self) -> BoxFuture<'_, Result<Value, Error>>;
    /// Reads `resourcePolicy`. Retried while the error is retryable.
    fn resource_policies(&self) -> BoxFuture<'_, Result<Option<ResourcePolicies>, Error>>;
    /// Shows that the backup waits for item operations. `failed` if it has errors already.
    fn show_waiting(&self, counts: ItemOperationCounts, failed: bool) -> BoxFuture<'_, Result<(), Error>>;
    /// The key that proves that this cluster made the backup. Retried while the error is retryable.
    fn proof_key(&self) -> BoxFuture<'_, Result<ProofKey, Error>>;
    /// Shows that the item operations of the backup have ended. `failed` if it has errors.
    fn show_finalizing(&self, failed: bool) -> BoxFuture<'_, Result<(), Error>>;
    /// The metadata of a backup that another program left unfinished, as it is once the backup has ended.
    fn finalized_metadata(&self, left: &Value, failed: bool) -> Value;
    /// The object as it is once the backup has ended: `velero-backup.json`.
    fn metadata(&self, begun: &Value, results: &BackupResults) -> Value;
}

/// Extensions of a backup by the caller: item actions of plugins, and the data of volumes.
pub trait BackupExtensions: Send + Sync {
    /// Adds item actions and the volumes to a planned backup.
    fn prepare<'a>(
        &'a self,
        planned: &'a mut PlannedBackup,
        state: &'a BackupState,
    ) -> BoxFuture<'a, Result<(), Error>>;
    /// Ends the processes of plugins, when the files of the backup are complete or cannot be completed.
    fn close(&self) -> BoxFuture<'_, ()>;
    /// Removes what is no longer needed in the cluster after the commit.
    fn release(&self) -> BoxFuture<'_, ()>;
    /// Cancels and deletes the volume data of a backup that failed. Best effort.
    fn discard(&self) -> BoxFuture<'_, ()>;
}
