//! A deletion, in an order that can be resumed.

use std::time::Duration;

use kube::ResourceExt;
use plimsoll_api::velero::v1::{Backup, PodVolumeBackup};
use plimsoll_archive::volume_info::VolumeSnapshot;
use plimsoll_archive::{codec, layout};
use plimsoll_progress::{Task, Work};
use plimsoll_store::Store;

use super::env::{DeleteEnv, DeletionCause};
use super::item_actions::{ActionResults, run_actions};
use super::location_files::remove_files;
use super::proof::ProofCheck;
use super::records::{remove_backup, remove_restores, wait_for_restores};
use crate::backup_lists::parse_backup_list;
use crate::stages::Stages;
use crate::{Error, RetryPolicy, read_backup_list, show_store_waits, unless_cancelled};

/// The stages, and about how long they take: their weights in the percentage.
const STAGES: [(&str, Work); 5] = [
    ("actions", Work::fixed(Duration::from_secs(1))),
    ("volumes", Work::fixed(Duration::from_secs(2))),
    ("objects", Work::fixed(Duration::from_secs(2))),
    ("restores", Work::fixed(Duration::from_secs(1))),
    ("record", Work::fixed(Duration::from_millis(200))),
];

/// The outcome of a deletion.
#[derive(Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The backup and all that belongs to it is deleted, but for these parts outside of the location: there is no proof that
    /// this cluster made them.
    Deleted(Vec<String>),
    /// The backup is kept, because these parts could not be deleted.
    Kept(Vec<String>),
}

/// Deletes a backup: its volume data, its files, its Restores, and at last the Backup itself.
///
/// # Cancel safety
/// Cancelling or dropping keeps the Backup. Another call continues.
pub async fn execute(backup: &Backup, env: DeleteEnv<'_>) -> Result<DeleteOutcome, Error> {
    let stages = Stages::plan(&env.operation.root, &STAGES);
    let parts = unless_cancelled(&env.operation.cancel, Box::pin(remove_parts(backup, &env, &stages))).await?;
    if !parts.failures.is_empty() {
        return Ok(DeleteOutcome::Kept(parts.failures));
    }
    remove_backup(backup, &env, &stages.start("record")).await?;
    Ok(DeleteOutcome::Deleted(parts.unproven))
}

/// Removes everything but the Backup itself.
async fn remove_parts(backup: &Backup, env: &DeleteEnv<'_>, stages: &Stages) -> Result<ActionResults, Error> {
    wait_for_restores(backup, env).await?;
    let mut parts = ActionResults::default();
    if let Some(store) = RetryPolicy::default().run(&env.operation.root, || env.extensions.open_location()).await? {
        parts = empty_location(backup, env, &store, stages).await?;
    }
    let restores = stages.start("restores");
    parts.failures.extend(remove_restores(backup, env, &restores).await?);
    restores.finish();
    Ok(parts)
}

async fn empty_location(
    backup: &Backup,
    env: &DeleteEnv<'_>,
    store: &Store,
    stages: &Stages,
) -> Result<ActionResults, Error> {
    let _waits = show_store_waits(store, &env.operation.root);
    let proof = ProofCheck::read(env, store, &backup.name_any(), &env.operation.root).await?;
    let mut parts = clean_up_items(backup, env, store, &proof, &stages.start("actions")).await?;
    let is_proven = delete_snapshots(backup, env, store, &proof, &mut parts).await?;
    forget_volume_data(backup, env, store, is_proven, &stages.start("volumes"), &mut parts).await?;
    // What is needed to try again stays until all that depends on it is gone.
    if parts.failures.is_empty() {
        let objects = stages.start("objects");
        remove_files(store, &backup.name_any(), &objects, env.operation.guard.as_ref()).await?;
        objects.finish();
    }
    Ok(parts)
}

/// Runs the delete item actions, unless one of them cannot be called.
async fn clean_up_items(
    backup: &Backup,
    env: &DeleteEnv<'_>,
    store: &Store,
    proof: &ProofCheck,
    task: &Task,
) -> Result<ActionResults, Error> {
    let (actions, failures) = env.extensions.item_actions(task).await?;
    let mut results = ActionResults { failures, ..ActionResults::default() };
    if results.failures.is_empty() {
        let object = serde_json::to_value(backup).unwrap_or_default();
        results = run_actions(store, &object, &actions, proof, &env.operation.scratch, task).await?;
    }
    env.extensions.close().await;
    task.finish();
    Ok(results)
}

/// Deletes the snapshots of volume snapshotters: without the backup they would be orphans. Returns whether their list is proven.
async fn delete_snapshots(
    backup: &Backup,
    env: &DeleteEnv<'_>,
    store: &Store,
    proof: &ProofCheck,
    parts: &mut ActionResults,
) -> Result<bool, Error> {
    let name = backup.name_any();
    let key = layout::backup_volume_snapshots(&name);
    let read = || async { Ok(store.get_at_most(&key, codec::MAX_PACKED_METADATA_BYTES).await?) };
    let packed = match RetryPolicy::default().run(&env.operation.root, read).await {
        Err(Error::Store(error)) if error.is_not_found() => return Ok(proof.covers_snapshots(&name, &[])),
        answer => answer,
    };
    let is_proven = packed.as_ref().is_ok_and(|packed| proof.covers_snapshots(&name, packed));
    let snapshots: Vec<VolumeSnapshot> = match packed.and_then(|packed| parse_backup_list(&key, &packed)) {
        Ok(snapshots) => snapshots,
        Err(error) if !is_proven && is_unreadable(&error, env) => {
            parts.keep(format!("snapshots, if there are any: {error}"));
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    if !is_proven {
        for VolumeSnapshot { spec, status } in &snapshots {
            parts.keep(format!("snapshot {} in location {}", status.provider_snapshot_id, spec.location));
        }
    } else if !snapshots.is_empty() {
        let task = env.operation.root.child("snapshots");
        let errors = env.extensions.delete_snapshots(&snapshots, &task).await?;
        end(&task, &errors);
        parts.failures.extend(errors);
    }
    Ok(is_proven)
}

/// Whether a file of an expired backup will never be read: such a backup must not stay for ever.
fn is_unreadable(error: &Error, env: &DeleteEnv<'_>) -> bool {
    env.cause == DeletionCause::Expired
        && matches!(error, Error::Store(_) | Error::Archive { .. })
        && !error.is_retryable()
}

async fn forget_volume_data(
    backup: &Backup,
    env: &DeleteEnv<'_>,
    store: &Store,
    is_proven: bool,
    task: &Task,
    parts: &mut ActionResults,
) -> Result<(), Error> {
    let key = layout::backup_pod_volume_backups(&backup.name_any());
    let backups: Vec<PodVolumeBackup> = match RetryPolicy::default().run(task, || read_backup_list(store, &key)).await {
        Err(error) if !is_proven && is_unreadable(&error, env) => {
            parts.keep(format!("volume data, if there is any: {error}"));
            Vec::new()
        }
        answer => answer?,
    };
    let errors = env.extensions.forget_volume_data(backups, task).await?;
    end(task, &errors);
    parts.failures.extend(errors);
    Ok(())
}

fn end(task: &Task, errors: &[String]) {
    if errors.is_empty() {
        task.finish();
    } else {
        task.fail(errors.join("; "));
    }
}
