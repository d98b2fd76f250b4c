//! Parameters of the volumes of a Restore, by method.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_api::velero::v1::{Backup, PodVolumeBackup, RestoreSpec, UploaderConfigForRestore, UploaderSettings};
use plimsoll_archive::volume_info::RestoreVolumeInfo;
use plimsoll_engine::Error;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::item_operations::ItemOperations;
use plimsoll_engine::outcome::{Recorder, Scope};
use plimsoll_engine::ports::{Journal, SnapshotRestorer, VolumeRestorer};
use plimsoll_engine::restore::actions::Actions;
use plimsoll_engine::restore::{BackupVolumes, RestoreRun};
use plimsoll_operations::{Job, Stages};
use plimsoll_select::resources::DiscoveredResources;
use plimsoll_volumes::VolumeJob;
use plimsoll_volumes::csi::CsiRestoreParameters;
use plimsoll_volumes::fs_backup::{self, FsRestore, FsRestoreParameters};
use plimsoll_volumes::snapshotter::{SnapshotRestore, SnapshotRestoreParameters};

use super::RestoreController;
use super::finish::operation_limit;
use super::plugins::RestorePlugins;
use crate::plugins;

/// Parameters of CSI snapshots.
pub(super) fn csi_parameters(job: &Job<RestoreController>, backup: &Backup, stages: &Stages) -> CsiRestoreParameters {
    CsiRestoreParameters {
        services: Arc::clone(&job.context.transfers),
        job: volume_job(job, stages),
        namespaces: job.subject.spec.namespace_mapping.clone(),
        location: backup.spec.storage_location.clone().unwrap_or_default(),
        with_data: job.subject.spec.restore_pvs != Some(false),
        limit: job.context.settings.resource_timeout,
        settings: uploader_settings(&job.subject.spec),
    }
}

/// Creates volumes from the snapshots of plugins, where the backup has any.
pub(super) fn snapshot_restore(
    job: &Job<RestoreController>,
    backup: &Backup,
    volumes: &BackupVolumes,
    operations: &Arc<ItemOperations>,
    plugins: &RestorePlugins,
    stages: &Stages,
) -> Option<Arc<dyn SnapshotRestorer>> {
    if volumes.native_snapshots().is_empty() {
        return None;
    }
    let parameters = SnapshotRestoreParameters {
        services: Arc::clone(&job.context.snapshots),
        job: volume_job(job, stages),
        created: job.subject.metadata.creation_timestamp.clone().map_or(Timestamp::MIN, |time| time.0),
        backup: backup.name_any(),
        snapshots: volumes.native_snapshots().to_vec(),
        journal: Arc::clone(&job.journal) as Arc<dyn Journal>,
        known: job.journal_entries.clone(),
        operations: Arc::clone(operations),
        plugin_log: Arc::clone(&plugins.plugin_log),
        logs: plugins::lines(&plugins.plugin_log),
        limit: operation_limit(&job.subject.spec),
    };
    let made = Arc::new(SnapshotRestore::new(parameters));
    let _ = plugins.snapshots.set(Arc::clone(&made));
    Some(made)
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
    backup: &Backup,
    files: Vec<PodVolumeBackup>,
    limit: Duration,
    actions: &mut Actions,
    catalog: &DiscoveredResources,
    stages: &Stages,
) -> Result<Option<Arc<dyn VolumeRestorer>>, Error> {
    let parameters = FsRestoreParameters {
        services: Arc::clone(&job.context.transfers),
        helper: job.context.settings.restore_helper.clone(),
        job: volume_job(job, stages),
        backups: files,
        location: backup.spec.storage_location.clone().unwrap_or_default(),
        namespaces: job.subject.spec.namespace_mapping.clone(),
        limit,
        settings: uploader_settings(&job.subject.spec),
    };
    let data = FsRestore::register(parameters, actions, catalog)?;
    Ok(data.map(|data| Arc::new(data) as Arc<dyn VolumeRestorer>))
}

/// Waits for the data of volumes. What went wrong with one is an error of the restore.
pub(super) async fn finish_volumes(
    run: &RestoreRun,
    recorder: &Recorder,
    stages: &Stages,
) -> Result<Vec<RestoreVolumeInfo>, Error> {
    let task = stages.planned("volumes");
    let Some(data) = &run.rules.data else {
        task.finish();
        return Ok(Vec::new());
    };
    let done = data.finish().await?;
    for (namespace, error) in &done.errors {
        recorder.error(&Scope::Namespace(namespace.clone()), error);
    }
    for (namespace, warning) in done.warnings {
        recorder.warn(&Scope::Namespace(namespace), warning);
    }
    Ok(done.infos)
}

/// The Restore, as whatever works on its volumes needs it.
fn volume_job(job: &Job<RestoreController>, stages: &Stages) -> VolumeJob {
    VolumeJob {
        name: job.id.name.clone(),
        uid: job.id.uid.clone(),
        owner: job.id.owner(),
        task: stages.planned("volumes"),
    }
}

/// The settings of the mover in a Restore.
fn uploader_settings(spec: &RestoreSpec) -> UploaderSettings {
    spec.uploader_config.as_ref().map(UploaderConfigForRestore::settings).unwrap_or_default()
}
