//! The end of a backup: item operations, what these changed, and the commit.

use bytes::Bytes;
use plimsoll_archive::proof::FileDigest;
use plimsoll_archive::{codec, layout};
use plimsoll_progress::Task;

use super::backup_files::{prove, save_metadata, save_results, save_snapshots};
use super::collect::BackupResults;
use super::post_operation_items::{Archive, update_post_operation_items};
use super::state::{BackupRun, PlannedBackup};
use crate::item_operations::{
    ItemOperationOwner, OperationsFile, OperationsWait, operation_timeout, wait_for_operations,
};
use crate::log::{Level, OperationLog};
use crate::operation_files::OperationFiles;
use crate::outcome::{self, Results};
use crate::ports::{Effect, VolumeBackupResults};
use crate::{Error, RetryPolicy, show_store_waits, unless_cancelled};

impl BackupRun<'_> {
    /// Waits for the item operations of the backup. `failed` if it has errors already.
    pub(super) async fn wait_for_operations(&self, failed: bool) -> Result<(), Error> {
        let Self { input, env, state } = self;
        if state.operations.is_empty() {
            state.stages.skip_operations();
            return Ok(());
        }
        let file = OperationsFile {
            store: &state.store,
            key: layout::backup_item_operations(&input.name),
            owner: ItemOperationOwner { verb: "backup", name: &input.name, uid: &input.uid },
        };
        let timeout = operation_timeout(input.spec.item_operation_timeout.as_ref());
        let wait = OperationsWait {
            file,
            subject: &state.backup,
            cancel: &env.operation.cancel,
            root: &env.operation.root,
            stage: state.stages.operations(),
            timeout,
        };
        let announce = async { env.object.show_waiting(state.operations.counts(), failed).await };
        wait_for_operations(&state.operations, wait, announce).await
    }

    /// Adds the failed item operations to the errors and to the log: both were written before the operations ended.
    pub(super) async fn record_failed_operations(&self, results: &mut Results) -> Result<(), Error> {
        let Self { input, env, state } = self;
        let failures = state.operations.failures();
        if failures.is_empty() {
            return Ok(());
        }
        let log = OperationLog::reopen(&outcome::log_path(&env.operation.scratch))?;
        for (scope, failure) in failures {
            log.line(Level::Error, &failure);
            results.errors.add(&scope, failure);
        }
        let log = log.finish()?;
        save_results(&state.store, &input.name, results, &log, &env.operation.root, env.operation.guard.as_ref()).await
    }

    /// Updates the post-operation items in the archive.
    pub(super) async fn update_post_operation_items(&self, contents: &mut FileDigest) -> Result<(), Error> {
        let Self { input, env, state } = self;
        let items = state.operations.post_items();
        if items.is_empty() {
            return Ok(());
        }
        let task = env.operation.root.child("reading again");
        let (scratch, guard) = (env.operation.scratch.as_path(), env.operation.guard.as_ref());
        let archive = Archive { store: &state.store, name: &input.name, contents: Some(contents) };
        let update = update_post_operation_items(&env.operation.cluster, archive, items, scratch, &task, guard);
        for missing in unless_cancelled(&env.operation.cancel, update).await? {
            tracing::warn!("backup {}: {missing}", input.name);
        }
        task.finish();
        Ok(())
    }

    /// Writes the files about volumes again, if item operations changed them.
    pub(super) async fn update_volumes(
        &self,
        planned: &PlannedBackup,
        results: &mut VolumeBackupResults,
    ) -> Result<(), Error> {
        let Self { input, env, state } = self;
        let Some(volumes) = planned.volumes.as_ref().filter(|_| !state.operations.is_empty()) else { return Ok(()) };
        let changed = volumes.final_results(results).await?;
        if let Some(changed) = changed {
            save_snapshots(&state.store, &input.name, &changed, &env.operation.root, env.operation.guard.as_ref())
                .await?;
            *results = changed;
        }
        Ok(())
    }

    /// Writes the metadata, as the last file: from here on it is a backup.
    pub(super) async fn commit(&self, results: &BackupResults) -> Result<(), Error> {
        let Self { input, env, state } = self;
        let committing = state.stages.start("committing");
        let _waits = show_store_waits(&state.store, &committing);
        let effect = Effect::Commit { key: layout::backup_metadata(&input.name) };
        let intent = env.operation.journal.record_intent(effect).await?;
        env.operation.guard.check_commit().await?;
        let metadata = codec::pretty_json(&env.object.metadata(&state.backup, results))
            .map_err(|source| Error::Archive { name: layout::backup_metadata(&input.name), source })?
            .into();
        self.save_proof(&metadata, results, &committing).await?;
        let save = || save_metadata(&state.store, &input.name, &metadata);
        RetryPolicy::default().run(&committing, save).await?;
        env.operation.journal.record_result(intent, "committed".into()).await?;
        committing.finish();
        Ok(())
    }

    /// Writes the proof that this cluster made the backup, before the metadata that it covers.
    async fn save_proof(&self, metadata: &Bytes, results: &BackupResults, task: &Task) -> Result<(), Error> {
        let Self { input, env, state } = self;
        let key = RetryPolicy::default().run(task, || env.object.proof_key()).await?;
        let proof = prove(&key, &input.name, metadata, &results.contents, &results.volumes.snapshots)?;
        OperationFiles::default()
            .json(layout::backup_proof(&input.name), &proof)?
            .write(&state.store, task, env.operation.guard.as_ref())
            .await
    }
}
