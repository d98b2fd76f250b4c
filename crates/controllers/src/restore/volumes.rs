//! Parameters of the volumes of a Restore, by method.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use plimsoll_api::velero::v1::{PodVolumeBackup, RestoreSpec, UploaderConfigForRestore, UploaderSettings};
use plimsoll_engine::Error;
use plimsoll_engine::backup::actions::ItemId;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::item_operations::task_name;
use plimsoll_engine::outcome::{Recorder, Scope};
use plimsoll_engine::ports::VolumeRestorer;
use plimsoll_engine::restore::actions::Actions;
use plimsoll_engine::restore::{BackupVolumes, RestoreRules, RestoreState};
use plimsoll_operations::Job;
use plimsoll_progress::Basis;
use plimsoll_select::resources::DiscoveredResources;
use plimsoll_volumes::csi::{CLAIM_RESTORE_ACTION, CsiRestoreParameters};
use plimsoll_volumes::fs_backup::{self, FsRestore, FsRestoreParameters};
use plimsoll_volumes::movement_work;
use plimsoll_volumes::snapshotter::{SnapshotRestore, SnapshotRestoreParameters};

use super::RestoreController;
use crate::job_extensions::{SnapshotParts, snapshot_job, volume_job};

/// Parameters of CSI snapshots.
pub(super) fn csi_parameters(job: &Job<RestoreController>, state: &RestoreState) -> CsiRestoreParameters {
    CsiRestoreParameters {
        services: Arc::clone(&job.context.transfers),
        job: volume_job(job, &state.stages),
        namespaces: job.subject.spec.namespace_mapping.clone(),
        location: location(state),
        with_data: job.subject.spec.restore_pvs != Some(false),
        limit: job.context.settings.resource_timeout,
        settings: uploader_settings(&job.subject.spec),
    }
}

/// Plans the data that is moved back out of the repository: its size is known exactly.
pub(super) fn plan_movement(job: &Job<RestoreController>, rules: &RestoreRules, state: &RestoreState) {
    let slots = job.context.settings.node_agent_config.transfers_on_a_node();
    state.stages.stage("volumes").task.queue(slots);
    for (namespace, claim, bytes) in rules.volumes.moved() {
        if !rules.item_filter.includes_claims() {
            return;
        }
        let namespace = job.subject.spec.namespace_mapping.get(namespace).unwrap_or(namespace);
        let item = ItemId::new("persistentvolumeclaims", Some(namespace), claim);
        let operations = state.stages.operations();
        operations.task.queue(slots);
        operations.plan(&task_name(CLAIM_RESTORE_ACTION, &item), movement_work(*bytes, Basis::Exact), None);
    }
}

/// Creates volumes from the snapshots of plugins, where the backup has any.
pub(super) fn snapshot_restore(
    job: &Job<RestoreController>,
    rules: &RestoreRules,
    state: &RestoreState,
) -> Option<Arc<SnapshotRestore>> {
    let snapshots = rules.volumes.native_snapshots();
    if snapshots.is_empty() {
        return None;
    }
    let parts = SnapshotParts {
        stages: &state.stages,
        operations: &state.operations,
        plugin_log: &state.plugin_log,
        timeout: job.subject.spec.item_operation_timeout.as_ref(),
    };
    let parameters = SnapshotRestoreParameters {
        job: snapshot_job(job, state.begun.backup.name_any(), &parts),
        snapshots: snapshots.to_vec(),
        plugin_log: Arc::clone(&state.plugin_log),
    };
    Some(Arc::new(SnapshotRestore::new(parameters)))
}

/// The backups of files that are restored. Where claims are left out, those of claims are not: they would be written over whatever
/// the claim of that name holds now.
pub(super) fn files_to_restore(
    volumes: &BackupVolumes,
    item_filter: &ItemFilter,
    recorder: &Recorder,
) -> Vec<PodVolumeBackup> {
    let why = |backup: &PodVolumeBackup| match volumes.restores_data() {
        false => Some("spec.restorePVs is false"),
        true if !item_filter.includes_claims() && fs_backup::is_of_claim(backup) => {
            Some("the restore leaves persistentvolumeclaims out")
        }
        true => None,
    };
    let mut files = Vec::new();
    for backup in volumes.pod_volume_backups() {
        let Some(why) = why(backup) else {
            files.push(backup.clone());
            continue;
        };
        let pod = backup.spec.pod.clone().unwrap_or_default();
        let (namespace, pod) = (pod.namespace.unwrap_or_default(), pod.name.unwrap_or_default());
        if item_filter.includes_pods_of(&namespace) {
            let volume = backup.spec.volume.as_deref().unwrap_or_default();
            let line = format!("the files of volume {namespace}/{pod}/{volume} are not restored: {why}");
            recorder.warn(&Scope::Namespace(namespace), line);
        }
    }
    files
}

/// Restores the files of the volumes of pods, where the backup has any.
pub(super) fn fs_restore(
    job: &Job<RestoreController>,
    state: &RestoreState,
    files: Vec<PodVolumeBackup>,
    limit: Duration,
    actions: &mut Actions,
    catalog: &DiscoveredResources,
) -> Result<Option<Arc<dyn VolumeRestorer>>, Error> {
    let parameters = FsRestoreParameters {
        services: Arc::clone(&job.context.transfers),
        helper: job.context.settings.restore_helper.clone(),
        job: volume_job(job, &state.stages),
        backups: files,
        location: location(state),
        namespaces: job.subject.spec.namespace_mapping.clone(),
        limit,
        settings: uploader_settings(&job.subject.spec),
    };
    let data = FsRestore::register(parameters, actions, catalog)?;
    Ok(data.map(|data| Arc::new(data) as Arc<dyn VolumeRestorer>))
}

/// The name of the location of the backup.
fn location(state: &RestoreState) -> String {
    state.begun.backup.spec.storage_location.clone().unwrap_or_default()
}

/// The settings of the mover in a Restore.
fn uploader_settings(spec: &RestoreSpec) -> UploaderSettings {
    spec.uploader_config.as_ref().map(UploaderConfigForRestore::settings).unwrap_or_default()
}
