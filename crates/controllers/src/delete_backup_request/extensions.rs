//! Location, plugins and volumes of a backup that is deleted.

use std::sync::OnceLock;

use futures::future::BoxFuture;
use plimsoll_api::velero::v1::{Backup, BackupStorageLocation, PodVolumeBackup};
use plimsoll_archive::proof::ProofKey;
use plimsoll_archive::volume_info::VolumeSnapshot;
use plimsoll_engine::Error;
use plimsoll_engine::delete::{DeleteExtensions, DeleteItemActions};
use plimsoll_operations::Job;
use plimsoll_plugin::PluginActions;
use plimsoll_progress::Task;
use plimsoll_store::Store;
use plimsoll_volumes::csi::MovedSnapshots;
use plimsoll_volumes::{repositories, snapshotter};

use super::DeleteBackupRequestController;
use crate::{plugins, proof_key};

/// The location, plugins and volumes of one backup that is deleted.
pub(super) struct JobExtensions<'a> {
    job: &'a Job<DeleteBackupRequestController>,
    backup: &'a Backup,
    plugins: OnceLock<PluginActions>,
    moved: MovedSnapshots,
}

impl<'a> JobExtensions<'a> {
    pub(super) fn new(job: &'a Job<DeleteBackupRequestController>, backup: &'a Backup) -> Self {
        Self { job, backup, plugins: OnceLock::new(), moved: MovedSnapshots::default() }
    }

    fn location(&self) -> &str {
        self.backup.spec.storage_location.as_deref().unwrap_or_default()
    }

    /// Whether the backup may have CSI snapshots or data that was moved.
    fn may_have_moved_data(&self) -> bool {
        let status = self.backup.status.clone().unwrap_or_default();
        let any = |count: Option<i64>| count.is_some_and(|count| count > 0);
        any(status.csi_volume_snapshots_attempted) || any(status.backup_item_operations_attempted)
    }
}

impl DeleteExtensions for JobExtensions<'_> {
    fn open_location(&self) -> BoxFuture<'_, Result<Option<Store>, Error>> {
        Box::pin(async {
            let name = self.location();
            if name.is_empty() {
                return Ok(None);
            }
            let found = self.job.context.leader.api::<BackupStorageLocation>().get_opt(name).await;
            let found = found.map_err(|e| Error::api(format!("read location {name}"), e))?;
            let location =
                found.ok_or_else(|| Error::Selection(format!("backup storage location {name} not found")))?;
            self.job.context.storage.open(&location).await.map(Some)
        })
    }

    fn proof_key(&self) -> BoxFuture<'_, Result<Option<ProofKey>, Error>> {
        Box::pin(proof_key::find(&self.job.context.leader))
    }

    fn item_actions<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<(DeleteItemActions, Vec<String>), Error>> {
        Box::pin(async move {
            let moved = self.may_have_moved_data().then_some(&self.moved);
            let (actions, plugins, problems) = plugins::delete_actions(&self.job.context, moved, task).await?;
            let _ = self.plugins.set(plugins);
            Ok((actions, problems))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(plugins) = self.plugins.get() {
                plugins.close().await;
            }
        })
    }

    fn delete_snapshots<'a>(
        &'a self,
        snapshots: &'a [VolumeSnapshot],
        task: &'a Task,
    ) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(snapshotter::delete_snapshots(&self.job.context.snapshots, snapshots, task))
    }

    fn forget_volume_data<'a>(
        &'a self,
        mut backups: Vec<PodVolumeBackup>,
        task: &'a Task,
    ) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(async move {
            backups.extend(self.moved.transfers());
            repositories::forget(&self.job.context.repositories, self.location(), &backups, task).await
        })
    }
}
