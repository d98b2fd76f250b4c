//! A deletion, in an order that can be resumed.

use std::time::Duration;

use kube::ResourceExt;
use plimsoll_api::velero::v1::{Backup, PodVolumeBackup};
use plimsoll_archive::layout;
use plimsoll_archive::volume_info::VolumeSnapshot;
use plimsoll_progress::Task;
use plimsoll_store::Store;

use super::env::DeleteEnv;
use super::item_actions::run_actions;
use super::location_files::{read_list, remove_files};
use super::records::{remove_backup, remove_restores};
use crate::stages::Stages;
use crate::{Error, RetryPolicy, show_store_waits, unless_cancelled};

/// The stages, and about how long they take: their weights in the percentage.
const STAGES: [(&str, Duration); 5] = [
    ("actions", Duration::from_secs(1)),
    ("volumes", Duration::from_secs(2)),
    ("objects", Duration::from_secs(2)),
    ("restores", Duration::from_secs(1)),
    ("record", Duration::from_millis(200)),
];

/// How a deletion ended.
#[derive(Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The backup and all that belongs to it is deleted.
    Deleted,
    /// The backup is kept, because these parts could not be deleted.
    Kept(Vec<String>),
}

/// Deletes a backup: its volume data, its files, its Restores, and at last the Backup itself.
///
/// # Cancel safety
/// Cancelling or dropping keeps the Backup. Another call continues.
pub async fn execute(backup: &Backup, env: DeleteEnv<'_>) -> Result<DeleteOutcome, Error> {
    let stages = Stages::plan(&env.operation.root, &STAGES);
    let errors = unless_cancelled(&env.operation.cancel, Box::pin(remove_parts(backup, &env, &stages))).await?;
    if !errors.is_empty() {
        return Ok(DeleteOutcome::Kept(errors));
    }
    remove_backup(backup, &env, &stages.start("record")).await?;
    Ok(DeleteOutcome::Deleted)
}

/// Removes everything but the Backup itself. Returns what could not be removed.
async fn remove_parts(backup: &Backup, env: &DeleteEnv<'_>, stages: &Stages) -> Result<Vec<String>, Error> {
    let mut errors = Vec::new();
    if let Some(store) = RetryPolicy::default().run(&env.operation.root, || env.extensions.open_location()).await? {
        errors = empty_location(backup, env, &store, stages).await?;
    }
    let restores = stages.start("restores");
    errors.extend(remove_restores(backup, env, &restores).await?);
    restores.finish();
    Ok(errors)
}

async fn empty_location(
    backup: &Backup,
    env: &DeleteEnv<'_>,
    store: &Store,
    stages: &Stages,
) -> Result<Vec<String>, Error> {
    let _waits = show_store_waits(store, &env.operation.root);
    let mut errors = clean_up_items(backup, env, store, &stages.start("actions")).await?;
    errors.extend(delete_snapshots(backup, env, store).await?);
    errors.extend(forget_volume_data(backup, env, store, &stages.start("volumes")).await?);
    // What is needed to try again stays until all that depends on it is gone.
    if errors.is_empty() {
        let objects = stages.start("objects");
        remove_files(store, &backup.name_any(), &objects, env.operation.guard.as_ref()).await?;
        objects.finish();
    }
    Ok(errors)
}

/// Runs the delete item actions, unless one of them cannot be called.
async fn clean_up_items(
    backup: &Backup,
    env: &DeleteEnv<'_>,
    store: &Store,
    task: &Task,
) -> Result<Vec<String>, Error> {
    let (actions, mut errors) = env.extensions.item_actions(task).await?;
    if errors.is_empty() {
        let object = serde_json::to_value(backup).unwrap_or_default();
        errors = run_actions(store, &object, &actions, &env.operation.scratch, task).await?;
    }
    env.extensions.close().await;
    task.finish();
    Ok(errors)
}

/// Deletes the snapshots of volume snapshotters: without the backup they would be orphans.
async fn delete_snapshots(backup: &Backup, env: &DeleteEnv<'_>, store: &Store) -> Result<Vec<String>, Error> {
    let key = layout::backup_volume_snapshots(&backup.name_any());
    let snapshots: Vec<VolumeSnapshot> = read_list(store, &key, &env.operation.root).await?;
    if snapshots.is_empty() {
        return Ok(Vec::new());
    }
    let task = env.operation.root.child("snapshots");
    let errors = env.extensions.delete_snapshots(&snapshots, &task).await?;
    end(&task, &errors);
    Ok(errors)
}

async fn forget_volume_data(
    backup: &Backup,
    env: &DeleteEnv<'_>,
    store: &Store,
    task: &Task,
) -> Result<Vec<String>, Error> {
    let key = layout::backup_pod_volume_backups(&backup.name_any());
    let backups: Vec<PodVolumeBackup> = read_list(store, &key, task).await?;
    let errors = env.extensions.forget_volume_data(backups, task).await?;
    end(task, &errors);
    Ok(errors)
}

fn end(task: &Task, errors: &[String]) {
    if errors.is_empty() {
        task.finish();
    } else {
        task.fail(errors.join("; "));
    }
}
