//! Parameters of the volumes of a Backup, by method.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::go::GoDuration;
use plimsoll_api::velero::v1::{BackupSpec, UploaderConfigForBackup, UploaderSettings};
use plimsoll_engine::Error;
use plimsoll_engine::backup::{BackupState, PlannedBackup};
use plimsoll_operations::Job;
use plimsoll_progress::Task;
use plimsoll_volumes::WorkPlan;
use plimsoll_volumes::csi::{CsiBackupParameters, DataMovement};
use plimsoll_volumes::fs_backup::{FsBackup, FsBackupParameters, FsBackupPolicy};
use plimsoll_volumes::snapshotter::{self, SnapshotBackupParameters};
use plimsoll_volumes::volume_plan::SnapshotRequest;
use serde_json::Value;

use super::BackupController;
use crate::job_extensions::{SnapshotParts, snapshot_job, volume_job};

/// Default timeout of a CSI snapshot.
const DEFAULT_CSI_SNAPSHOT_TIMEOUT: Duration = Duration::from_mins(10);

/// What the work of the volumes is planned from.
pub(super) fn work_plan<'a>(
    job: &'a Job<BackupController>,
    planned: &'a PlannedBackup,
    policy: &'a FsBackupPolicy,
    task: &'a Task,
) -> WorkPlan<'a> {
    let spec = &job.subject.spec;
    WorkPlan {
        cluster: &job.runtime.leader.cluster,
        plan: &planned.plan,
        item_filter: &planned.item_filter,
        policy,
        snapshots: SnapshotRequest { wanted: spec.snapshot_volumes, moves_data: spec.snapshot_move_data == Some(true) },
        namespace: &job.id.namespace,
        task,
        history: &job.history,
        slots: job.context.settings.node_agent_config.transfers_on_a_node(),
    }
}

/// Parameters of CSI snapshots.
pub(super) async fn csi_parameters(
    job: &Job<BackupController>,
    planned: &PlannedBackup,
    state: &BackupState,
    policy: FsBackupPolicy,
    plugins: bool,
) -> Result<CsiBackupParameters, Error> {
    let spec = &job.subject.spec;
    let limit = spec.csi_snapshot_timeout.as_ref().and_then(GoDuration::as_std);
    let task = state.stages.planned("volumes");
    let movement = match spec.snapshot_move_data {
        Some(true) => Some(DataMovement {
            location: location(state),
            kind: job.context.settings.mover.resolve(&job.context.leader, &task).await?,
            mover: spec.data_mover.clone(),
            settings: uploader_settings(spec),
        }),
        _ => None,
    };
    Ok(CsiBackupParameters {
        services: Arc::clone(&job.context.transfers),
        job: volume_job(job, &state.stages),
        backup: state.backup.clone(),
        wanted: spec.snapshot_volumes,
        plugins,
        item_filter: Arc::clone(&planned.item_filter),
        policy,
        limit: limit.filter(|limit| !limit.is_zero()).unwrap_or(DEFAULT_CSI_SNAPSHOT_TIMEOUT),
        movement,
        plugin_log: Arc::clone(&state.plugin_log),
    })
}

/// Parameters of volume snapshotters.
pub(super) fn snapshot_parameters(
    job: &Job<BackupController>,
    planned: &PlannedBackup,
    state: &BackupState,
    locations: snapshotter::ChosenLocations,
) -> SnapshotBackupParameters {
    let parts = SnapshotParts {
        stages: &state.stages,
        operations: &state.operations,
        plugin_log: &state.plugin_log,
        timeout: job.subject.spec.item_operation_timeout.as_ref(),
    };
    SnapshotBackupParameters {
        job: snapshot_job(job, job.id.name.clone(), &parts),
        labels: job.subject.metadata.labels.clone().unwrap_or_default(),
        wanted: job.subject.spec.snapshot_volumes,
        policies: planned.policies.clone(),
        locations,
        item_filter: Arc::clone(&planned.item_filter),
    }
}

/// The file-system backup of the volumes that this Backup selects.
pub(super) async fn fs_backup_of(
    job: &Job<BackupController>,
    state: &BackupState,
    policy: FsBackupPolicy,
    limit: Duration,
) -> Result<FsBackup, Error> {
    FsBackup::new(FsBackupParameters {
        services: Arc::clone(&job.context.transfers),
        job: volume_job(job, &state.stages),
        location: location(state),
        policy,
        limit,
        settings: uploader_settings(&job.subject.spec),
    })
    .await
}

/// The name of the location, defaults included.
fn location(state: &BackupState) -> String {
    state.backup.pointer("/spec/storageLocation").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The settings of the mover in a Backup.
fn uploader_settings(spec: &BackupSpec) -> UploaderSettings {
    spec.uploader_config.as_ref().map(UploaderConfigForBackup::settings).unwrap_or_default()
}
