//! Plugins and volumes of a Backup.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::PodVolumeBackup;
use plimsoll_api::velero::v2alpha1::DataUpload;
use plimsoll_engine::backup::{BackupExtensions, BackupState, PlannedBackup};
use plimsoll_engine::{Error, RetryPolicy};
use plimsoll_operations::Job;
use plimsoll_volumes::csi::{self, CsiBackup};
use plimsoll_volumes::fs_backup::{self, FsBackupPolicy};
use plimsoll_volumes::plan_work;
use plimsoll_volumes::snapshotter::{self, CombinedVolumeBackup, SnapshotBackup};

use super::BackupController;
use super::volumes::{csi_parameters, fs_backup_of, snapshot_parameters, work_plan};
use crate::job_extensions::{OpenedPlugins, transfer_timeout};
use crate::plugins;

/// The plugins and volumes of one Backup.
pub(super) struct JobExtensions<'a> {
    job: &'a Job<BackupController>,
    plugins: OpenedPlugins,
}

impl<'a> JobExtensions<'a> {
    pub(super) fn new(job: &'a Job<BackupController>) -> Self {
        Self { job, plugins: OpenedPlugins::default() }
    }

    async fn add_plugins_and_volumes(&self, planned: &mut PlannedBackup, state: &BackupState) -> Result<(), Error> {
        let (limit, unread) = transfer_timeout(self.job);
        planned.plan.warnings.extend(unread);
        let added = plugins::add_backup_actions(&self.job.context, planned, &state.plugin_log).await;
        let _ = self.plugins.actions.set(added);
        self.add_volumes(planned, state, limit).await
    }

    async fn add_volumes(
        &self,
        planned: &mut PlannedBackup,
        state: &BackupState,
        limit: Duration,
    ) -> Result<(), Error> {
        let (job, context, spec) = (self.job, &self.job.context, &self.job.subject.spec);
        let choose = || snapshotter::choose(&context.snapshots, spec);
        let planning = state.stages.planned("planning");
        let locations = RetryPolicy::default().run(&planning, choose).await?.map_err(Error::Selection)?;
        let all_volumes = context.settings.default_volumes_to_fs_backup;
        let policy = FsBackupPolicy::of(spec, planned.policies.clone(), &planned.item_filter, all_volumes);
        let work = work_plan(job, planned, &policy, &planning);
        plan_work(&work, &state.stages).await;
        let parameters = csi_parameters(job, planned, state, policy.clone(), !locations.0.is_empty()).await?;
        let csi = CsiBackup::register(parameters, &mut planned.actions, planned.item_filter.catalog())?;
        let snapshots = Arc::new(SnapshotBackup::new(snapshot_parameters(job, planned, state, locations)));
        let _ = self.plugins.snapshots.set(Arc::clone(snapshots.context()));
        let pods = fs_backup_of(job, state, policy, limit).await?;
        planned.volumes = Some(Arc::new(CombinedVolumeBackup { pods, snapshots, csi }));
        Ok(())
    }
}

impl BackupExtensions for JobExtensions<'_> {
    fn prepare<'a>(
        &'a self,
        planned: &'a mut PlannedBackup,
        state: &'a BackupState,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.add_plugins_and_volumes(planned, state))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.plugins.close())
    }

    /// The objects of CSI snapshots are deleted when the backup has ended; the snapshots stay, unless their data was moved.
    fn release(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            match self.job.subject.spec.snapshot_move_data {
                Some(true) => csi::delete_snapshots(&self.job.context.leader, &self.job.id.uid).await,
                _ => csi::release_snapshots(&self.job.context.leader, &self.job.id.uid).await,
            }
        })
    }

    fn discard(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let (context, uid, root) = (&self.job.context, &self.job.id.uid, self.job.tree.root());
            let own = format!("{}={uid}", labels::BACKUP_UID);
            fs_backup::cancel_transfers::<PodVolumeBackup>(&context.leader, &own, &root).await;
            fs_backup::cancel_transfers::<DataUpload>(&context.leader, &own, &root).await;
            snapshotter::discard(&context.snapshots, uid).await;
            csi::delete_snapshots(&context.leader, uid).await;
        })
    }
}
