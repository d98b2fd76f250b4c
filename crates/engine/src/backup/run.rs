//! The run: reading and packing at the same time, then the files beside the tarball.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_archive::layout;
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_store::Store;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::actions::{BackupItemActions, ItemBlockActions};
use super::pack::Packing;
use super::plan::BackupPlan;
use super::read::Reader;
use super::save;
use crate::cluster::Cluster;
use crate::hooks::{HookCounts, HookRules, Hooks};
use crate::operations::Operations;
use crate::outcome::{Recorder, Results, Scope};
use crate::ports::{Effect, Guard, Journal, VolumeResults, Volumes};
use crate::selection::Selecting;
use crate::{Error, Heard, show_waits};

/// Everything a backup of objects needs.
pub struct BackupRun {
    /// The backup's name.
    pub name: String,
    /// The Backup as it stands in the cluster, for actions.
    pub backup: Value,
    /// The cluster to read.
    pub cluster: Cluster,
    /// The location to write to.
    pub store: Store,
    /// What to read.
    pub plan: BackupPlan,
    /// What to keep of it.
    pub selecting: Arc<Selecting>,
    /// What is done to items on their way.
    pub actions: BackupItemActions,
    /// What belongs together.
    pub blocks: ItemBlockActions,
    /// What actions began in the background.
    pub operations: Arc<Operations>,
    /// What plugins say.
    pub heard: Arc<Heard>,
    /// Which commands run around which pods.
    pub hooks: HookRules,
    /// Who backs up volumes, if anybody does.
    pub volumes: Option<Arc<dyn Volumes>>,
    /// What went wrong before this run, and counts as its errors.
    pub problems: Vec<String>,
    /// Shows how far reading and packing is.
    pub reading: Task,
    /// Shows how far the files beside the tarball are; begun when it is their turn.
    pub saving: Task,
    /// Leave to act.
    pub guard: Arc<dyn Guard>,
    /// What cannot be repeated.
    pub journal: Arc<dyn Journal>,
    /// Stops it.
    pub cancel: CancellationToken,
    /// This operation's own directory.
    pub scratch: PathBuf,
}

/// What a backup amounts to.
#[derive(Clone, Debug, Default)]
pub struct BackedUp {
    /// Errors and warnings.
    pub results: Results,
    /// Commands that were run.
    pub hooks: HookCounts,
    /// What became of the volumes.
    pub volumes: VolumeResults,
}

impl BackupRun {
    /// Reads, packs and saves everything but the metadata file, whose presence makes it a backup.
    ///
    /// # Cancel safety
    /// Cancelling leaves files in the location that no metadata refers to: see [`super::discard`]. Pods whose pre-hooks have
    /// run get their post-hooks before this returns. Dropping the future leaves that to the journal's next reader.
    pub async fn run(self) -> Result<BackedUp, Error> {
        let hooks = Hooks::new(self.cluster.client().clone(), Arc::clone(&self.journal), Arc::clone(&self.guard));
        let (cancel, reading) = (self.cancel.clone(), self.reading.clone());
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Error::Cancelled),
            answer = self.run_to_end(&hooks) => answer,
        };
        let whole = |(results, volumes)| BackedUp { results, hooks: hooks.counts(), volumes };
        if matches!(answer, Err(Error::Fenced(_))) {
            return answer.map(whole);
        }
        for problem in hooks.close_open(&reading).await {
            tracing::warn!("{problem}");
        }
        answer.map(whole)
    }

    async fn run_to_end(self, hooks: &Hooks) -> Result<(Results, VolumeResults), Error> {
        let recorder = Arc::new(Recorder::create(&self.scratch)?);
        self.heard.attach(&recorder);
        for problem in self.problems.iter().chain(&self.plan.errors) {
            recorder.error(&Scope::Operation, problem);
        }
        for warning in &self.plan.warnings {
            recorder.warn(&Scope::Operation, warning);
        }
        self.guard.effect()?;
        let begun = self.journal.intend(Effect::Begin { prefix: layout::backup_directory(&self.name) }).await?;
        self.read_and_pack(hooks, &recorder).await?;
        self.reading.finish();
        let volumes = self.finish_volumes(&recorder).await?;
        self.journal.settle(begun, "packed".into()).await?;
        self.saving.start();
        self.heard.detach();
        let recorder = Arc::into_inner(recorder).ok_or_else(|| {
            Error::scratch(&self.scratch, std::io::Error::other("the recorder is still in use after reading"))
        })?;
        let recorded = recorder.finish()?;
        let _waits = show_waits(&self.store, &self.saving);
        save::save_files(&self.store, &self.name, &recorded, &volumes, &self.saving, self.guard.as_ref()).await?;
        self.saving.finish();
        Ok((recorded.results, volumes))
    }

    /// Waits for the volumes that no pod stood still for.
    async fn finish_volumes(&self, recorder: &Recorder) -> Result<VolumeResults, Error> {
        let Some(volumes) = &self.volumes else { return Ok(VolumeResults::default()) };
        let results = volumes.finish().await?;
        for (namespace, error) in &results.errors {
            recorder.error(&Scope::within(namespace), error);
        }
        for (namespace, warning) in &results.warnings {
            recorder.warn(&Scope::within(namespace), warning);
        }
        Ok(results)
    }

    async fn read_and_pack(&self, hooks: &Hooks, recorder: &Arc<Recorder>) -> Result<(), Error> {
        let _waits = show_waits(&self.store, &self.reading);
        let items = self.reading.meter(Unit::Items);
        items.set_total(self.plan.expected().map_or(Total::Unknown, Total::Growing));
        let (batches, packed) = mpsc::channel(1);
        let packing = Packing {
            store: self.store.clone(),
            key: layout::backup_contents(&self.name),
            recorder: Arc::clone(recorder),
            items: items.clone(),
            bytes: self.reading.meter(Unit::Bytes),
            guard: Arc::clone(&self.guard),
        };
        let reader = Reader::new(self, recorder, hooks);
        let read = async move {
            let answer = reader.read_all(&batches).await;
            drop(batches);
            answer
        };
        // When packing fails it closes the channel, and reading ends with a broken one: the packer knows why.
        let (read, packed) = tokio::join!(read, packing.run(packed));
        packed?;
        read?;
        items.finalize_total();
        Ok(())
    }
}
