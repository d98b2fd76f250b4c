//! What an earlier attempt of a backup left: pending post-hooks, and files in the location.

use plimsoll_archive::layout;
use plimsoll_store::Store;

use super::backup_files::{ExistingBackup, discard, find_existing_backup};
use super::env::{BackupEnv, BackupInput};
use crate::hooks::{PendingPostHooks, run_pending_post_hooks};
use crate::ports::Effect;
use crate::{Error, RetryPolicy, kill, show_store_waits};

/// Runs the post-hooks that an earlier attempt left pending. Returns the errors.
pub(super) async fn run_pending_hooks(input: &BackupInput, env: &BackupEnv<'_>) -> Vec<String> {
    let unfinished = input.journal_entries.iter().filter(|entry| entry.result.is_none());
    let pending = unfinished.filter_map(|entry| match &entry.effect {
        Effect::Hooks { uid, post, .. } => Some((entry.id, PendingPostHooks { uid: uid.clone(), post: post.clone() })),
        _ => None,
    });
    let (journal, guard) = (env.operation.journal.as_ref(), env.operation.guard.as_ref());
    run_pending_post_hooks(&env.operation.cluster, pending.collect(), journal, guard, &env.operation.root).await
}

/// Looks for files of the backup in the location, and deletes those of an earlier attempt that did not commit.
pub(super) async fn remove_earlier_attempt(
    input: &BackupInput,
    env: &BackupEnv<'_>,
    store: &Store,
) -> Result<ExistingBackup, Error> {
    let _waits = show_store_waits(store, &env.operation.root);
    let find = || find_existing_backup(store, &input.name, &input.uid);
    let existing = RetryPolicy::default().run(&env.operation.root, find).await?;
    if existing == ExistingBackup::Unfinished {
        if !has_written(input) {
            return Err(Error::UnfinishedBackupExists { name: input.name.clone(), location: store.name().to_owned() });
        }
        env.operation.guard.check_commit().await?;
        kill::point("backup.discard.before");
        discard(store, &input.name, env.operation.guard.as_ref()).await?;
    }
    Ok(existing)
}

/// Whether an earlier attempt may have written into the location.
fn has_written(input: &BackupInput) -> bool {
    let begin = Effect::Begin { prefix: layout::backup_directory(&input.name) };
    input.journal_entries.iter().any(|entry| entry.effect == begin)
}
