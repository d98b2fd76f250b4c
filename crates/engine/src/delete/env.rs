//! The environment of a deletion.

use futures::future::BoxFuture;
use plimsoll_api::velero::v1::PodVolumeBackup;
use plimsoll_archive::proof::ProofKey;
use plimsoll_archive::volume_info::VolumeSnapshot;
use plimsoll_progress::Task;
use plimsoll_store::Store;

use super::DeleteItemActions;
use crate::{Error, OperationEnv};

/// The environment of a deletion.
pub struct DeleteEnv<'a> {
    /// The environment of every operation.
    pub operation: OperationEnv,
    /// The namespace of the Backup.
    pub namespace: String,
    /// Why the backup is deleted.
    pub cause: DeletionCause,
    /// Location, plugins and volumes.
    pub extensions: &'a dyn DeleteExtensions,
}

/// Why a backup is deleted. A person with write access to a location can write an expired backup into it, but cannot request a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionCause {
    /// A person requested it.
    Requested,
    /// Its time is over.
    Expired,
}

/// Extensions of a deletion by the caller: the location, item actions of plugins, and the data of volumes. The inner lists are
/// what could not be deleted.
pub trait DeleteExtensions: Send + Sync {
    /// Opens the location of the backup; `None` if it has none. Retried while the error is retryable.
    fn open_location(&self) -> BoxFuture<'_, Result<Option<Store>, Error>>;
    /// The key that proves which backups this cluster made; `None` if it has made none. Retried while the error is retryable.
    fn proof_key(&self) -> BoxFuture<'_, Result<Option<ProofKey>, Error>>;
    /// The delete item actions, and the problems of those that cannot be called.
    fn item_actions<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<(DeleteItemActions, Vec<String>), Error>>;
    /// Ends the processes of plugins, after the last item action.
    fn close(&self) -> BoxFuture<'_, ()>;
    /// Deletes the snapshots of volume snapshotters.
    fn delete_snapshots<'a>(
        &'a self,
        snapshots: &'a [VolumeSnapshot],
        task: &'a Task,
    ) -> BoxFuture<'a, Result<Vec<String>, Error>>;
    /// Deletes volume data from its repositories: that of these file-system backups, and data that was moved.
    fn forget_volume_data<'a>(
        &'a self,
        backups: Vec<PodVolumeBackup>,
        task: &'a Task,
    ) -> BoxFuture<'a, Result<Vec<String>, Error>>;
}
