//! Runs a backup: reads items and writes the tarball, then the other files.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_archive::layout;
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_store::Store;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::actions::{BackupItemActions, ItemBlockActions};
use super::backup_files;
use super::item_reader::ItemReader;
use super::plan::BackupPlan;
use super::tarball_upload::TarballUpload;
use crate::cluster::Cluster;
use crate::hooks::{HookCounts, HookRules, HookRunner};
use crate::item_filter::ItemFilter;
use crate::item_operations::ItemOperations;
use crate::outcome::{Recorder, Results, Scope};
use crate::ports::{Effect, Journal, LeadershipGuard, VolumeBackupResults, VolumeBackupper};
use crate::{Error, PluginLogSink, show_store_waits};

/// Everything a backup of objects needs.
pub struct BackupRun {
    /// The backup's name.
    pub name: String,
    /// The Backup object, for actions.
    pub backup: Value,
    /// The cluster to read.
    pub cluster: Cluster,
    /// The location to write to.
    pub store: Store,
    /// What to read.
    pub plan: BackupPlan,
    /// The filters.
    pub item_filter: Arc<ItemFilter>,
    /// Backup item actions.
    pub actions: BackupItemActions,
    /// Item block actions.
    pub blocks: ItemBlockActions,
    /// Item operations that actions started.
    pub operations: Arc<ItemOperations>,
    /// Log lines of plugins.
    pub plugin_log: Arc<PluginLogSink>,
    /// Hooks.
    pub hooks: HookRules,
    /// Backs up volume data, if supported.
    pub volumes: Option<Arc<dyn VolumeBackupper>>,
    /// Errors that occurred before this run.
    pub problems: Vec<String>,
    /// Shows the progress of reading and uploading.
    pub reading: Task,
    /// Shows the progress of the metadata files; started when they are written.
    pub saving: Task,
    /// Checked before every effect.
    pub guard: Arc<dyn LeadershipGuard>,
    /// Journal of effects.
    pub journal: Arc<dyn Journal>,
    /// Cancels the run.
    pub cancel: CancellationToken,
    /// Scratch directory of this operation.
    pub scratch: PathBuf,
}

/// The results of a backup.
#[derive(Clone, Debug, Default)]
pub struct BackupResults {
    /// Errors and warnings.
    pub results: Results,
    /// Counts of hooks.
    pub hooks: HookCounts,
    /// Results of the volumes.
    pub volumes: VolumeBackupResults,
}

impl BackupRun {
    /// Writes the tarball and all files but `velero-backup.json`, which commits the backup.
    ///
    /// # Cancel safety
    /// Cancelling leaves uncommitted files in the location: see [`super::discard`]. Pending post-hooks run before this
    /// returns. If the future is dropped, a later attempt runs them from the journal.
    pub async fn run(self) -> Result<BackupResults, Error> {
        let hooks = HookRunner::new(self.cluster.client().clone(), Arc::clone(&self.journal), Arc::clone(&self.guard));
        let (cancel, reading) = (self.cancel.clone(), self.reading.clone());
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Error::Cancelled),
            answer = self.run_to_end(&hooks) => answer,
        };
        let to_results = |(results, volumes)| BackupResults { results, hooks: hooks.counts(), volumes };
        if matches!(answer, Err(Error::Fenced(_))) {
            return answer.map(to_results);
        }
        for problem in hooks.run_pending(&reading).await {
            tracing::warn!("{problem}");
        }
        answer.map(to_results)
    }

    async fn run_to_end(self, hooks: &HookRunner) -> Result<(Results, VolumeBackupResults), Error> {
        let recorder = Arc::new(Recorder::create(&self.scratch)?);
        self.plugin_log.attach(&recorder);
        for problem in self.problems.iter().chain(&self.plan.errors) {
            recorder.error(&Scope::Operation, problem);
        }
        for warning in &self.plan.warnings {
            recorder.warn(&Scope::Operation, warning);
        }
        self.guard.check_effect()?;
        let intent = self.journal.record_intent(Effect::Begin { prefix: layout::backup_directory(&self.name) }).await?;
        self.read_and_upload(hooks, &recorder).await?;
        self.reading.finish();
        let volumes = self.finish_volumes(&recorder).await?;
        self.journal.record_result(intent, "packed".into()).await?;
        self.saving.start();
        self.plugin_log.detach();
        let recorder = Arc::into_inner(recorder).ok_or_else(|| {
            Error::scratch(&self.scratch, std::io::Error::other("the recorder is still in use after reading"))
        })?;
        let recorded = recorder.finish()?;
        let _waits = show_store_waits(&self.store, &self.saving);
        backup_files::save_files(&self.store, &self.name, &recorded, &volumes, &self.saving, self.guard.as_ref())
            .await?;
        self.saving.finish();
        Ok((recorded.results, volumes))
    }

    /// Waits for the remaining volumes.
    async fn finish_volumes(&self, recorder: &Recorder) -> Result<VolumeBackupResults, Error> {
        let Some(volumes) = &self.volumes else { return Ok(VolumeBackupResults::default()) };
        let results = volumes.finish().await?;
        for (namespace, error) in &results.errors {
            recorder.error(&Scope::within(namespace), error);
        }
        for (namespace, warning) in &results.warnings {
            recorder.warn(&Scope::within(namespace), warning);
        }
        Ok(results)
    }

    async fn read_and_upload(&self, hooks: &HookRunner, recorder: &Arc<Recorder>) -> Result<(), Error> {
        let _waits = show_store_waits(&self.store, &self.reading);
        let items = self.reading.meter(Unit::Items);
        items.set_total(self.plan.expected().map_or(Total::Unknown, Total::Growing));
        let (batches, uploaded) = mpsc::channel(1);
        let upload = TarballUpload {
            store: self.store.clone(),
            key: layout::backup_contents(&self.name),
            recorder: Arc::clone(recorder),
            items: items.clone(),
            bytes: self.reading.meter(Unit::Bytes),
            guard: Arc::clone(&self.guard),
        };
        let reader = ItemReader::new(self, recorder, hooks);
        let read = async move {
            let answer = reader.read_all(&batches).await;
            drop(batches);
            answer
        };
        // A failed upload closes the channel, and reading ends with an error of the channel: the error of the upload is the cause.
        let (read, uploaded) = tokio::join!(read, upload.run(uploaded));
        uploaded?;
        read?;
        items.finalize_total();
        Ok(())
    }
}
