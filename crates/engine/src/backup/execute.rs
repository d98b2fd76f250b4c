//! A backup from its first write to its commit, or to the removal of what it wrote.
//!
//! ```text
//!  pending hooks ──▶ begin ──▶ earlier attempt ──▶ prepare ──▶ collect ──▶ item operations ──▶ commit
//!                                │ committed: finalize, if another program left it unfinished
//!                                                                   any error before: discard
//! ```

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_progress::Work;
use plimsoll_store::Store;
use serde_json::Value;

use super::backup_files::{ExistingBackup, discard};
use super::collect::BackupResults;
use super::earlier_attempt::{remove_earlier_attempt, run_pending_hooks};
use super::env::{BackupEnv, BackupInput};
use super::left_unfinished;
use super::state::{BackupRun, BackupState};
use crate::item_operations::ItemOperations;
use crate::stages::Stages;
use crate::{Error, PluginLogSink, RetryPolicy, unless_cancelled};

/// The stages, and about how long they take for a few thousand objects: their weights in the percentage until more is known.
const STAGES: [(&str, Work); 5] = [
    ("planning", Work::fixed(Duration::from_secs(1))),
    ("reading", Work::assumed(Duration::from_secs(10))),
    // What the volumes need is planned for each of them.
    ("volumes", Work::fixed(Duration::from_millis(100))),
    ("saving", Work::fixed(Duration::from_secs(1))),
    ("committing", Work::fixed(Duration::from_millis(500))),
];

/// The outcome of a backup.
#[derive(Debug)]
pub enum BackupOutcome {
    /// It is committed.
    Committed(Box<BackupResults>),
    /// An earlier attempt committed it: its metadata.
    AlreadyCommitted(Box<Value>),
}

/// Backs up what `input` selects.
///
/// # Guarantees
/// The backup exists in the location if this returns `Ok`. On an error its files and volume data are removed, unless the
/// location has another backup of this name, or this process no longer leads.
///
/// # Cancel safety
/// If the future is dropped, the next attempt runs pending post-hooks from the journal and removes the files.
pub async fn execute(input: BackupInput, env: BackupEnv<'_>) -> Result<BackupOutcome, Error> {
    let stages = Stages::plan(&env.operation.root, &STAGES);
    // Before anything else: applications may be frozen.
    let problems = run_pending_hooks(&input, &env).await;
    let opened = RetryPolicy::default().run(&env.operation.root, || env.object.open_location()).await;
    let (store, outcome) = match opened {
        Ok(store) => (Some(store.clone()), Box::pin(attempt(&input, &env, store, stages, &problems)).await),
        Err(error) => (None, Err(error)),
    };
    if let Err(error) = &outcome {
        discard_attempt(&input, &env, store.as_ref(), error).await;
    }
    match (outcome?, store) {
        (BackupOutcome::AlreadyCommitted(metadata), Some(store)) => {
            let metadata = left_unfinished::finalize(&input, &env, &store, *metadata).await?;
            env.extensions.release().await;
            Ok(BackupOutcome::AlreadyCommitted(Box::new(metadata)))
        }
        (outcome, _) => Ok(outcome),
    }
}

async fn attempt(
    input: &BackupInput,
    env: &BackupEnv<'_>,
    store: Store,
    stages: Stages,
    problems: &[String],
) -> Result<BackupOutcome, Error> {
    let backup = env.object.begin().await?;
    let existing = unless_cancelled(&env.operation.cancel, remove_earlier_attempt(input, env, &store)).await?;
    if let ExistingBackup::Committed(metadata) = existing {
        return Ok(BackupOutcome::AlreadyCommitted(metadata));
    }
    let operations = Arc::new(ItemOperations::new(Arc::clone(&env.operation.journal)));
    let plugin_log = Arc::new(PluginLogSink::default());
    let run = BackupRun { input, env, state: BackupState { store, backup, stages, operations, plugin_log } };
    let written = run.write_files(problems).await;
    env.extensions.close().await;
    let results = written?;
    run.commit(&results).await?;
    env.extensions.release().await;
    Ok(BackupOutcome::Committed(Box::new(results)))
}

/// Removes what a failed attempt left. What another backup or another leader wrote is not touched.
async fn discard_attempt(input: &BackupInput, env: &BackupEnv<'_>, store: Option<&Store>, error: &Error) {
    if matches!(error, Error::Fenced(_) | Error::BackupExists { .. } | Error::UnfinishedBackupExists { .. }) {
        return;
    }
    if let Err(error) = discard_parts(input, env, store).await {
        tracing::warn!("backup {}: cannot remove what it left: {error}", input.name);
    }
}

/// A new leader works on the same files and snapshots: that this process still leads is proved before each of both.
async fn discard_parts(input: &BackupInput, env: &BackupEnv<'_>, store: Option<&Store>) -> Result<(), Error> {
    let guard = env.operation.guard.as_ref();
    guard.check_commit().await?;
    env.extensions.discard().await;
    let Some(store) = store else { return Ok(()) };
    guard.check_commit().await?;
    discard(store, &input.name, guard).await
}

impl BackupRun<'_> {
    /// Writes all files but `velero-backup.json`.
    async fn write_files(&self, problems: &[String]) -> Result<BackupResults, Error> {
        let planned = self.prepare().await?;
        let collected = self.collect(&planned, problems).await;
        if collected.is_err() {
            self.state.operations.cancel(&self.state.backup).await;
        }
        let mut results = collected?;
        self.wait_for_operations(results.results.errors.count > 0).await?;
        self.record_failed_operations(&mut results.results).await?;
        self.env.object.show_finalizing(results.results.errors.count > 0).await?;
        self.update_post_operation_items(&mut results.contents).await?;
        self.update_volumes(&planned, &mut results.volumes).await?;
        results.operations = self.state.operations.counts();
        results.completed = Timestamp::now();
        Ok(results)
    }
}
