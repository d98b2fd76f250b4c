//! The removal of a backup and of all that belongs to it, in an order that can be resumed.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Preconditions};
use plimsoll_api::velero::v1::{Backup, BackupStorageLocation, PodVolumeBackup, Restore};
use plimsoll_archive::volume_info::VolumeSnapshot;
use plimsoll_archive::{codec, layout};
use plimsoll_engine::ports::LeadershipGuard;
use plimsoll_engine::{Error, RetryPolicy, delete, kill, show_store_waits};
use plimsoll_operations::{Job, Stages};
use plimsoll_progress::Task;
use plimsoll_store::Store;
use plimsoll_volumes::csi::MovedSnapshots;
use plimsoll_volumes::{repositories, snapshotter};
use serde::de::DeserializeOwned;

use super::DeleteBackupRequestController;
use crate::plugins;

/// Timeout of the deletion of the files of restores.
const RESTORE_FILES_TIMEOUT: Duration = Duration::from_mins(1);

/// Everything but the backup's own record. Returns what could not be removed.
pub(super) async fn remove_all(
    job: &Job<DeleteBackupRequestController>,
    backup: &Backup,
    stages: &Stages,
) -> Result<Vec<String>, Error> {
    let mut errors = Vec::new();
    if let Some(store) = open_store(job, backup).await? {
        let _shown = show_store_waits(&store, &job.tree.root());
        let moved = MovedSnapshots::default();
        errors.extend(run_actions(job, backup, &store, &moved, &stages.start("actions")).await?);
        errors.extend(delete_native_snapshots(job, backup, &store).await?);
        errors.extend(forget_volume_data(job, backup, &store, &moved, &stages.start("volumes")).await?);
        // What is needed to try again stays until all that depends on it is gone.
        if errors.is_empty() {
            let objects = stages.start("objects");
            let name = backup.name_any();
            let (folder, first) = (layout::backup_directory(&name), layout::backup_metadata(&name));
            delete::remove_folder(&store, &folder, Some(&first), &objects, job.record.as_ref()).await?;
            objects.finish();
        }
    }
    let restores = stages.start("restores");
    errors.extend(remove_restores(job, backup, &restores).await?);
    restores.finish();
    Ok(errors)
}

async fn open_store(job: &Job<DeleteBackupRequestController>, backup: &Backup) -> Result<Option<Store>, Error> {
    let Some(name) = backup.spec.storage_location.clone().filter(|name| !name.is_empty()) else { return Ok(None) };
    let open = || async {
        let found = job.context.leader.api::<BackupStorageLocation>().get_opt(&name).await;
        let found = found.map_err(|e| Error::api(format!("read location {name}"), e))?;
        let location = found.ok_or_else(|| Error::Selection(format!("backup storage location {name} not found")))?;
        job.context.storage.open(&location).await
    };
    RetryPolicy::default().run(&job.tree.root(), open).await.map(Some)
}

async fn run_actions(
    job: &Job<DeleteBackupRequestController>,
    backup: &Backup,
    store: &Store,
    moved: &MovedSnapshots,
    task: &Task,
) -> Result<Vec<String>, Error> {
    let raw = serde_json::to_value(backup).unwrap_or_default();
    let status = backup.status.clone().unwrap_or_default();
    let any = |count: Option<i64>| count.is_some_and(|count| count > 0);
    let moved =
        (any(status.csi_volume_snapshots_attempted) || any(status.backup_item_operations_attempted)).then_some(moved);
    let (actions, plugins, mut failures) = plugins::delete_actions(&job.context, moved, task).await?;
    if failures.is_empty() {
        failures = delete::run_actions(store, &raw, &actions, job.scratch.path(), task).await?;
    }
    plugins.close().await;
    task.finish();
    Ok(failures)
}

/// Snapshots that only their plugin can delete: without the backup they would be orphans.
async fn delete_native_snapshots(
    job: &Job<DeleteBackupRequestController>,
    backup: &Backup,
    store: &Store,
) -> Result<Vec<String>, Error> {
    let key = layout::backup_volume_snapshots(&backup.name_any());
    let list: Vec<VolumeSnapshot> = read_list(store, &key, &job.tree.root()).await?;
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let task = job.tree.root().child("snapshots");
    let errors = snapshotter::delete_snapshots(&job.context.snapshots, &list, &task).await?;
    if errors.is_empty() {
        task.finish();
    } else {
        task.fail(errors.join("; "));
    }
    Ok(errors)
}

/// The backup's own snapshots in the repositories of volume data.
async fn forget_volume_data(
    job: &Job<DeleteBackupRequestController>,
    backup: &Backup,
    store: &Store,
    moved: &MovedSnapshots,
    task: &Task,
) -> Result<Vec<String>, Error> {
    let key = layout::backup_pod_volume_backups(&backup.name_any());
    let mut transfers: Vec<PodVolumeBackup> = read_list(store, &key, task).await?;
    transfers.extend(moved.transfers());
    let location = backup.spec.storage_location.clone().unwrap_or_default();
    let errors = repositories::forget(&job.context.repositories, &location, &transfers, task).await?;
    if errors.is_empty() {
        task.finish();
    } else {
        task.fail(errors.join("; "));
    }
    Ok(errors)
}

async fn read_list<T: DeserializeOwned>(store: &Store, key: &str, task: &Task) -> Result<Vec<T>, Error> {
    match RetryPolicy::default().run(task, || async { Ok(store.get(key).await?) }).await {
        Ok(bytes) => {
            codec::read_gzip_list(bytes.as_ref()).map_err(|source| Error::Archive { name: key.into(), source })
        }
        Err(Error::Store(error)) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn restores_of(job: &Job<DeleteBackupRequestController>, backup: &Backup) -> Result<Vec<String>, Error> {
    let all = job.context.leader.api::<Restore>().list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api("list restores", e))?;
    let name = backup.name_any();
    let of_backup = |restore: &Restore| restore.spec.backup_name.as_deref() == Some(&name);
    Ok(all.items.into_iter().filter(of_backup).map(|restore| restore.name_any()).collect())
}

/// Their files go with them: see the finalizer. Returns those that do not go in time.
async fn remove_restores(
    job: &Job<DeleteBackupRequestController>,
    backup: &Backup,
    task: &Task,
) -> Result<Vec<String>, Error> {
    let list = || restores_of(job, backup);
    for restore in RetryPolicy::default().run(task, list).await? {
        kill::point("deletion.restore.before");
        RetryPolicy::default().run(task, || job.context.leader.delete::<Restore>(&restore)).await?;
        kill::point("deletion.restore.after");
    }
    let deadline = tokio::time::Instant::now() + RESTORE_FILES_TIMEOUT;
    loop {
        let left = RetryPolicy::default().run(task, list).await?;
        if left.is_empty() {
            return Ok(Vec::new());
        }
        if tokio::time::Instant::now() >= deadline {
            return Ok(left.iter().map(|name| format!("error deleting restore {name}: it does not go")).collect());
        }
        let waiting = task.wait(format!("waiting for the files of restore {} to be deleted", left.join(", ")));
        tokio::time::sleep(Duration::from_millis(250)).await;
        drop(waiting);
    }
}

pub(super) async fn remove_record(
    job: &Job<DeleteBackupRequestController>,
    backup: &Backup,
    task: &Task,
) -> Result<(), Error> {
    job.record.check_commit().await?;
    let name = backup.name_any();
    let preconditions = Preconditions { uid: backup.uid(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let delete = || async {
        match job.context.leader.api::<Backup>().delete(&name, &parameters).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            Err(error) => Err(Error::api(format!("delete backup {name}"), error)),
        }
    };
    kill::point("deletion.record.before");
    RetryPolicy::default().run(task, delete).await?;
    kill::point("deletion.record.after");
    task.finish();
    Ok(())
}
