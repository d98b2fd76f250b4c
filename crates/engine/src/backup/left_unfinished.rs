//! A backup that another program has committed before it was complete.
//!
//! Velero writes `velero-backup.json` before the item operations of the backup have ended, and finalizes the backup later: it reads
//! the post-operation items again and writes the last phase. A server that takes over in between does the same.

use plimsoll_archive::item_operations::{BackupItemOperation, ResourceIdentifier};
use plimsoll_archive::{codec, layout};
use plimsoll_store::Store;
use serde_json::Value;

use super::actions::ItemId;
use super::backup_files::save_metadata;
use super::env::{BackupEnv, BackupInput};
use super::post_operation_items::{Archive, update_post_operation_items};
use crate::{Error, RetryPolicy, read_backup_list, unless_cancelled};

/// Finalizes a committed backup that is not complete. Returns its metadata; unchanged if it is complete, or if the result of an item
/// operation is not known.
///
/// # Cancel safety
/// The next attempt repeats it.
pub(super) async fn finalize(
    input: &BackupInput,
    env: &BackupEnv<'_>,
    store: &Store,
    committed: Value,
) -> Result<Value, Error> {
    let Some(had_errors) = errors_before_the_end(&committed) else { return Ok(committed) };
    let root = &env.operation.root;
    let key = layout::backup_item_operations(&input.name);
    let operations: Vec<BackupItemOperation> =
        RetryPolicy::default().run(root, || read_backup_list(store, &key)).await?;
    let Some(outcome) = OperationsOutcome::of(&operations) else { return Ok(committed) };
    let failed = had_errors || outcome.any_failed;
    env.object.show_finalizing(failed).await?;
    if !outcome.post_items.is_empty() {
        let task = root.child("reading again");
        let (scratch, guard) = (env.operation.scratch.as_path(), env.operation.guard.as_ref());
        let cluster = &env.operation.cluster;
        // Its archive has no proof of this cluster, and gets none.
        let archive = Archive { store, name: &input.name, contents: None };
        let update = update_post_operation_items(cluster, archive, outcome.post_items, scratch, &task, guard);
        for missing in unless_cancelled(&env.operation.cancel, update).await? {
            tracing::warn!("backup {}: {missing}", input.name);
        }
        task.finish();
    }
    env.operation.guard.check_commit().await?;
    let finalized = env.object.finalized_metadata(&committed, failed);
    let metadata = codec::pretty_json(&finalized)
        .map_err(|source| Error::Archive { name: layout::backup_metadata(&input.name), source })?
        .into();
    RetryPolicy::default().run(root, || save_metadata(store, &input.name, &metadata)).await?;
    Ok(finalized)
}

/// Whether a backup that has not ended has errors; `None` if it has ended.
fn errors_before_the_end(metadata: &Value) -> Option<bool> {
    match metadata.pointer("/status/phase")?.as_str()? {
        "Finalizing" | "WaitingForPluginOperations" => Some(false),
        "FinalizingPartiallyFailed" | "WaitingForPluginOperationsPartiallyFailed" => Some(true),
        _ => None,
    }
}

/// The results of the item operations of a backup.
struct OperationsOutcome {
    any_failed: bool,
    /// The items to read again.
    post_items: Vec<ItemId>,
}

impl OperationsOutcome {
    /// `None` if one has not ended.
    fn of(operations: &[BackupItemOperation]) -> Option<Self> {
        let (mut any_failed, mut post_items) = (false, Vec::new());
        for operation in operations {
            match operation.status.phase.as_str() {
                "Completed" => post_items.extend(operation.spec.post_operation_items.iter().map(item_id)),
                "Failed" | "Canceled" => any_failed = true,
                _ => return None,
            }
        }
        Some(Self { any_failed, post_items })
    }
}

fn item_id(identifier: &ResourceIdentifier) -> ItemId {
    let ResourceIdentifier { group, resource, namespace, name } = identifier;
    let group_resource = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
    ItemId::new(&group_resource, Some(namespace.as_str()).filter(|namespace| !namespace.is_empty()), name)
}
