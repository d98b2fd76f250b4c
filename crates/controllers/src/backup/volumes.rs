//! Parameters of the volumes of a Backup, by method.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_api::go::GoDuration;
use plimsoll_api::velero::v1::{BackupSpec, UploaderConfigForBackup, UploaderSettings};
use plimsoll_archive::volume_info::BackupVolumeInfo;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::item_operations::ItemOperations;
use plimsoll_engine::ports::Journal;
use plimsoll_engine::{Error, PluginLogSink};
use plimsoll_operations::{Completion, Job, Stages};
use plimsoll_select::resource_policies::ResourcePolicies;
use plimsoll_volumes::VolumeJob;
use plimsoll_volumes::csi::{self, CsiBackupParameters, DataMovement};
use plimsoll_volumes::fs_backup::{FsBackup, FsBackupParameters, FsBackupPolicy};
use plimsoll_volumes::snapshotter::{self, SnapshotBackupParameters};
use serde_json::{Value, json};

use super::BackupController;
use super::run::operation_limit;
use crate::plugins;

/// Default timeout of a CSI snapshot.
const DEFAULT_CSI_SNAPSHOT_TIMEOUT: Duration = Duration::from_mins(10);

/// Parameters of CSI snapshots.
pub(super) async fn csi_parameters(
    job: &Job<BackupController>,
    begun: &Value,
    policy: FsBackupPolicy,
    item_filter: &Arc<ItemFilter>,
    plugin_log: &Arc<PluginLogSink>,
    stages: &Stages,
) -> Result<CsiBackupParameters, Error> {
    let spec = &job.subject.spec;
    let limit = spec.csi_snapshot_timeout.as_ref().and_then(GoDuration::as_std);
    let task = stages.planned("volumes");
    let movement = match spec.snapshot_move_data {
        Some(true) => Some(DataMovement {
            location: begun.pointer("/spec/storageLocation").and_then(Value::as_str).unwrap_or_default().to_owned(),
            kind: job.context.settings.mover.resolve(&job.context.leader, &task).await?,
            mover: spec.data_mover.clone(),
            settings: uploader_settings(spec),
        }),
        _ => None,
    };
    Ok(CsiBackupParameters {
        services: Arc::clone(&job.context.transfers),
        job: volume_job(job, stages),
        backup: begun.clone(),
        wanted: spec.snapshot_volumes,
        plugins: false,
        item_filter: Arc::clone(item_filter),
        policy,
        limit: limit.filter(|limit| !limit.is_zero()).unwrap_or(DEFAULT_CSI_SNAPSHOT_TIMEOUT),
        movement,
        plugin_log: Arc::clone(plugin_log),
    })
}

/// Parameters of volume snapshotters.
pub(super) fn snapshot_parameters(
    job: &Job<BackupController>,
    locations: snapshotter::ChosenLocations,
    policies: Option<ResourcePolicies>,
    item_filter: &Arc<ItemFilter>,
    operations: &Arc<ItemOperations>,
    plugin_log: &Arc<PluginLogSink>,
    stages: &Stages,
) -> SnapshotBackupParameters {
    let metadata = &job.subject.metadata;
    SnapshotBackupParameters {
        services: Arc::clone(&job.context.snapshots),
        job: volume_job(job, stages),
        created: metadata.creation_timestamp.clone().map_or(Timestamp::MIN, |time| time.0),
        labels: metadata.labels.clone().unwrap_or_default(),
        wanted: job.subject.spec.snapshot_volumes,
        policies,
        locations,
        item_filter: Arc::clone(item_filter),
        journal: Arc::clone(&job.journal) as Arc<dyn Journal>,
        known: job.journal_entries.clone(),
        operations: Arc::clone(operations),
        logs: plugins::lines(plugin_log),
        limit: operation_limit(&job.subject.spec),
    }
}

/// The file-system backup of the volumes that this Backup selects.
pub(super) async fn fs_backup_of(
    job: &Job<BackupController>,
    begun: &Value,
    policy: FsBackupPolicy,
    limit: Duration,
    stages: &Stages,
) -> Result<FsBackup, Error> {
    FsBackup::new(FsBackupParameters {
        services: Arc::clone(&job.context.transfers),
        job: volume_job(job, stages),
        location: begun.pointer("/spec/storageLocation").and_then(Value::as_str).unwrap_or_default().to_owned(),
        policy,
        limit,
        settings: uploader_settings(&job.subject.spec),
    })
    .await
}

/// The Backup, as whatever works on its volumes needs it.
fn volume_job(job: &Job<BackupController>, stages: &Stages) -> VolumeJob {
    VolumeJob {
        name: job.id.name.clone(),
        uid: job.id.uid.clone(),
        owner: job.id.owner(),
        task: stages.planned("volumes"),
    }
}

/// The settings of the mover in a Backup.
fn uploader_settings(spec: &BackupSpec) -> UploaderSettings {
    spec.uploader_config.as_ref().map(UploaderConfigForBackup::settings).unwrap_or_default()
}

/// Snapshots whose data was moved are counted as operations, not as snapshots: they do not stay.
pub(super) fn count_csi_snapshots(infos: &[BackupVolumeInfo], completion: &mut Completion) {
    let taken = |info: &&BackupVolumeInfo| info.backup_method == "CSISnapshot" && !info.snapshot_data_moved;
    let ready =
        |info: &&BackupVolumeInfo| info.csi_snapshot_info.as_ref().and_then(|csi| csi.ready_to_use) == Some(true);
    let attempted = infos.iter().filter(taken).count();
    if attempted > 0 {
        completion.status["csiVolumeSnapshotsAttempted"] = json!(attempted);
        completion.status["csiVolumeSnapshotsCompleted"] = json!(infos.iter().filter(taken).filter(ready).count());
    }
}

/// The objects of CSI snapshots go when the backup has ended; what they stand for stays, unless its data is elsewhere.
pub(super) async fn release_snapshots(job: &Job<BackupController>) {
    match job.subject.spec.snapshot_move_data {
        Some(true) => csi::delete_snapshots(&job.context.leader, &job.id.uid).await,
        _ => csi::release_snapshots(&job.context.leader, &job.id.uid).await,
    }
}
