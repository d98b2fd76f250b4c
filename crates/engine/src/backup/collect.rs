//! Reads items and writes the tarball, then the other files.

use std::sync::Arc;

use jiff::Timestamp;
use plimsoll_archive::layout;
use plimsoll_archive::proof::FileDigest;
use plimsoll_progress::{Task, Total, Unit};
use tokio::sync::mpsc;

use super::backup_files;
use super::item_reader::ItemReader;
use super::state::{BackupRun, PlannedBackup};
use super::tarball_upload::TarballUpload;
use crate::hooks::{HookCounts, HookRunner};
use crate::item_operations::ItemOperationCounts;
use crate::outcome::{RecordedFiles, Recorder, Results, Scope};
use crate::ports::{Effect, VolumeBackupResults};
use crate::{Error, show_store_waits, unless_cancelled};

/// The results of a backup.
#[derive(Clone, Debug, Default)]
pub struct BackupResults {
    /// Errors and warnings.
    pub results: Results,
    /// Counts of hooks.
    pub hooks: HookCounts,
    /// Results of the volumes.
    pub volumes: VolumeBackupResults,
    /// The digest of the tarball.
    pub contents: FileDigest,
    /// Counts of item operations.
    pub operations: ItemOperationCounts,
    /// When everything but the commit was done.
    pub completed: Timestamp,
}

impl BackupRun<'_> {
    /// Writes the tarball and all files but `velero-backup.json`. `problems` are errors that occurred before. Pending
    /// post-hooks run before this returns, unless this process no longer leads.
    pub(super) async fn collect(&self, planned: &PlannedBackup, problems: &[String]) -> Result<BackupResults, Error> {
        let env = self.env;
        let hooks = HookRunner::new(
            env.operation.cluster.client().clone(),
            Arc::clone(&env.operation.journal),
            Arc::clone(&env.operation.guard),
        );
        let reading = self.state.stages.start("reading");
        let work = Box::pin(self.read_and_save(planned, problems, &hooks, &reading));
        let answer = unless_cancelled(&env.operation.cancel, work).await;
        if !matches!(answer, Err(Error::Fenced(_))) {
            for problem in hooks.run_pending(&reading).await {
                tracing::warn!("{problem}");
            }
        }
        let results = answer?;
        Ok(BackupResults { hooks: hooks.counts(), ..results })
    }

    async fn read_and_save(
        &self,
        planned: &PlannedBackup,
        problems: &[String],
        hooks: &HookRunner,
        reading: &Task,
    ) -> Result<BackupResults, Error> {
        let Self { input, env, state } = self;
        let recorder = Arc::new(Recorder::create(&env.operation.scratch)?);
        state.plugin_log.attach(&recorder);
        record_problems(planned, problems, &recorder);
        env.operation.guard.check_effect()?;
        let effect = Effect::Begin { prefix: layout::backup_directory(&input.name) };
        let intent = env.operation.journal.record_intent(effect).await?;
        let contents = self.read_and_upload(planned, hooks, reading, &recorder).await?;
        reading.finish();
        let volumes = finish_volumes(planned, &recorder).await?;
        env.operation.journal.record_result(intent, "packed".into()).await?;
        let saving = state.stages.start("saving");
        let recorded = self.finish_recording(recorder)?;
        let _waits = show_store_waits(&state.store, &saving);
        backup_files::save_files(&state.store, &input.name, &recorded, &volumes, &saving, env.operation.guard.as_ref())
            .await?;
        saving.finish();
        Ok(BackupResults { results: recorded.results, volumes, contents, ..BackupResults::default() })
    }

    fn finish_recording(&self, recorder: Arc<Recorder>) -> Result<RecordedFiles, Error> {
        self.state.plugin_log.detach();
        let recorder = Arc::into_inner(recorder).ok_or_else(|| {
            Error::scratch(
                &self.env.operation.scratch,
                std::io::Error::other("the recorder is still in use after reading"),
            )
        })?;
        recorder.finish()
    }

    async fn read_and_upload(
        &self,
        planned: &PlannedBackup,
        hooks: &HookRunner,
        reading: &Task,
        recorder: &Arc<Recorder>,
    ) -> Result<FileDigest, Error> {
        let store = &self.state.store;
        let _waits = show_store_waits(store, reading);
        let items = reading.meter(Unit::Items);
        items.set_total(planned.plan.expected().map_or(Total::Unknown, Total::Growing));
        let (batches, uploaded) = mpsc::channel(1);
        let upload = TarballUpload {
            store: store.clone(),
            key: layout::backup_contents(&self.input.name),
            recorder: Arc::clone(recorder),
            items: items.clone(),
            bytes: reading.meter(Unit::Bytes),
            guard: Arc::clone(&self.env.operation.guard),
            task: reading.clone(),
        };
        let reader = ItemReader::new(self, planned, reading, recorder, hooks);
        let read = async move {
            let answer = reader.read_all(&batches).await;
            drop(batches);
            answer
        };
        // A failed upload closes the channel, and reading ends with an error of the channel: the error of the upload is the cause.
        let (read, uploaded) = tokio::join!(read, upload.run(uploaded));
        let contents = uploaded?;
        read?;
        items.finalize_total();
        Ok(contents)
    }
}

fn record_problems(planned: &PlannedBackup, problems: &[String], recorder: &Recorder) {
    for problem in problems.iter().chain(&planned.plan.errors) {
        recorder.error(&Scope::Operation, problem);
    }
    for warning in &planned.plan.warnings {
        recorder.warn(&Scope::Operation, warning);
    }
}

/// Waits for the remaining volumes.
async fn finish_volumes(planned: &PlannedBackup, recorder: &Recorder) -> Result<VolumeBackupResults, Error> {
    let Some(volumes) = &planned.volumes else { return Ok(VolumeBackupResults::default()) };
    let results = volumes.finish().await?;
    for (namespace, error) in &results.errors {
        recorder.error(&Scope::within(namespace), error);
    }
    for (namespace, warning) in &results.warnings {
        recorder.warn(&Scope::within(namespace), warning);
    }
    Ok(results)
}
