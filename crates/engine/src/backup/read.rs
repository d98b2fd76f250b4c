//! The run: a few resources at a time, page by page, each page filtered and handed on at once.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use plimsoll_archive::layout;
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_store::Store;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::pack::{Batch, Packing, item_ref};
use super::plan::{BackupPlan, PlannedResource, is_namespaces};
use super::save;
use crate::cluster::{Cluster, ItemMeta, PageQuery, Resource, complete, pages};
use crate::outcome::{ItemOutcome, Recorder, Results, Scope};
use crate::ports::{Effect, Guard, Journal};
use crate::selection::Selecting;
use crate::{Error, Patience, kill};

/// Resources read at the same time: enough to hide latency, few enough for the API server's fairness.
const PARALLEL_RESOURCES: usize = 4;

/// Everything a backup of objects needs.
pub struct BackupRun {
    /// The backup's name.
    pub name: String,
    /// The cluster to read.
    pub cluster: Cluster,
    /// The location to write to.
    pub store: Store,
    /// What to read.
    pub plan: BackupPlan,
    /// What to keep of it.
    pub selecting: Selecting,
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

impl BackupRun {
    /// Reads, packs and saves everything but the metadata file, whose presence makes it a backup. Returns errors and warnings.
    ///
    /// # Cancel safety
    /// Cancelling, or dropping the future, leaves files in the location that no metadata refers to: see
    /// [`super::discard`].
    pub async fn run(self) -> Result<Results, Error> {
        let cancel = self.cancel.clone();
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Error::Cancelled),
            answer = self.run_to_end() => answer,
        }
    }

    async fn run_to_end(self) -> Result<Results, Error> {
        let recorder = Arc::new(Recorder::create(&self.scratch)?);
        for warning in &self.plan.warnings {
            recorder.warn(&Scope::Operation, warning);
        }
        self.guard.effect()?;
        let begun = self.journal.intend(Effect::Begin { prefix: layout::backup_directory(&self.name) }).await?;
        self.read_and_pack(&self.reading, &recorder).await?;
        self.reading.finish();
        self.journal.settle(begun, "packed".into()).await?;
        self.saving.start();
        let recorder = Arc::into_inner(recorder).ok_or_else(|| {
            Error::scratch(&self.scratch, std::io::Error::other("the recorder is still in use after reading"))
        })?;
        let recorded = recorder.finish()?;
        save::save_files(&self.store, &self.name, &recorded, &self.saving, self.guard.as_ref()).await?;
        self.saving.finish();
        Ok(recorded.results)
    }

    async fn read_and_pack(&self, reading: &Task, recorder: &Arc<Recorder>) -> Result<(), Error> {
        let items = reading.meter(Unit::Items);
        items.set_total(self.plan.expected().map_or(Total::Unknown, Total::Growing));
        let (batches, packed) = mpsc::channel(8);
        let packing = Packing {
            store: self.store.clone(),
            key: layout::backup_contents(&self.name),
            recorder: Arc::clone(recorder),
            items: items.clone(),
            bytes: reading.meter(Unit::Bytes),
            guard: Arc::clone(&self.guard),
        };
        let reader = Reader { run: self, reading, recorder, found: Mutex::default() };
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

struct Reader<'a> {
    run: &'a BackupRun,
    reading: &'a Task,
    recorder: &'a Recorder,
    found: Mutex<Found>,
}

/// What something was kept of, or in.
#[derive(Default)]
struct Found {
    /// Group-resources.
    kinds: BTreeSet<String>,
    /// Namespaces.
    namespaces: BTreeSet<String>,
}

impl Reader<'_> {
    async fn read_all(&self, batches: &mpsc::Sender<Batch>) -> Result<(), Error> {
        // Namespaces come last: some are kept only because something in them is.
        let (namespaces, others): (Vec<_>, Vec<_>) =
            self.run.plan.resources.iter().partition(|planned| is_namespaces(&planned.resource));
        for part in [others, namespaces] {
            self.read_part(part, batches).await?;
        }
        self.read_definitions(batches).await
    }

    async fn read_part(&self, part: Vec<&PlannedResource>, batches: &mpsc::Sender<Batch>) -> Result<(), Error> {
        let reads: Vec<_> = part
            .into_iter()
            .map(|planned| self.read_resource(Arc::new(planned.resource.clone()), planned.expected, batches))
            .collect();
        stream::iter(reads).buffer_unordered(PARALLEL_RESOURCES).try_collect().await
    }

    /// A resource that cannot be listed costs an error, not the backup.
    async fn read_resource(
        &self,
        resource: Arc<Resource>,
        expected: Option<u64>,
        batches: &mpsc::Sender<Batch>,
    ) -> Result<(), Error> {
        if expected == Some(0) {
            return Ok(());
        }
        let task = self.reading.child(resource.group_resource());
        let mut answer = Ok(());
        for query in self.run.plan.queries(&resource) {
            answer = self.read_query(&resource, query, &task, batches).await;
            if answer.is_err() {
                break;
            }
        }
        match answer {
            Ok(()) => task.finish(),
            Err(error @ (Error::Api { .. } | Error::Answer { .. })) => {
                self.recorder.error(&Scope::Operation, error.to_string());
                task.fail(error.to_string());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn read_query(
        &self,
        resource: &Arc<Resource>,
        query: PageQuery,
        task: &Task,
        batches: &mpsc::Sender<Batch>,
    ) -> Result<(), Error> {
        let group_resource = resource.group_resource();
        let expired = || {
            let text = format!("{group_resource}: the list changed while it was read; it goes on from newer data");
            self.recorder.warn(&Scope::Operation, text);
        };
        let mut found = std::pin::pin!(pages(&self.run.cluster, resource, query, task, &expired));
        while let Some(page) = found.next().await {
            let items = self.keep(resource, page?.items);
            if let Some((last, _)) = items.last() {
                task.say(last.path());
                self.note(&group_resource, &items);
            }
            kill::point("backup.page");
            let batch = Batch { resource: Arc::clone(resource), items };
            batches.send(batch).await.map_err(|_| packer_gone())?;
        }
        Ok(())
    }

    /// The selected ones, complete with apiVersion and kind.
    fn keep(&self, resource: &Resource, items: Vec<Bytes>) -> Vec<(ItemMeta, Bytes)> {
        let mut kept = Vec::with_capacity(items.len());
        for item in items {
            match ItemMeta::of(&item) {
                Ok(meta) if self.keeps(resource, &meta) => kept.push((meta, complete(&item, resource))),
                Ok(_) => {}
                Err(error) => self.refuse(resource, &error),
            }
        }
        kept
    }

    fn keeps(&self, resource: &Resource, meta: &ItemMeta) -> bool {
        let selecting = &self.run.selecting;
        if is_namespaces(resource) {
            return selecting.keeps_namespace(meta, self.found().namespaces.contains(&meta.name));
        }
        let chosen = |name: &str| self.run.plan.namespaces.as_ref().is_none_or(|chosen| chosen.contains(name));
        meta.namespace.as_deref().is_none_or(chosen) && selecting.keeps(&resource.group_resource(), meta)
    }

    fn note(&self, group_resource: &str, items: &[(ItemMeta, Bytes)]) {
        let mut found = self.found();
        if !found.kinds.contains(group_resource) {
            found.kinds.insert(group_resource.to_owned());
        }
        for namespace in items.iter().filter_map(|(meta, _)| meta.namespace.as_ref()) {
            if !found.namespaces.contains(namespace) {
                found.namespaces.insert(namespace.clone());
            }
        }
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn refuse(&self, resource: &Resource, error: &serde_json::Error) {
        let meta = ItemMeta { name: "(unreadable)".into(), ..ItemMeta::default() };
        let outcome =
            ItemOutcome::Failed { reason: "Unreadable".into(), message: format!("its metadata is not valid: {error}") };
        self.recorder.item(&item_ref(resource, &meta), &outcome);
        self.reading.meter(Unit::Items).fail(1);
    }

    /// Definitions of the custom resources that were kept, unless the user decided about definitions.
    async fn read_definitions(&self, batches: &mpsc::Sender<Batch>) -> Result<(), Error> {
        let definitions = Arc::new(Resource {
            group: "apiextensions.k8s.io".into(),
            version: "v1".into(),
            plural: "customresourcedefinitions".into(),
            kind: "CustomResourceDefinition".into(),
            namespaced: false,
            aliases: Vec::new(),
        });
        if !self.run.selecting.adds_definitions() {
            return Ok(());
        }
        let kinds = std::mem::take(&mut self.found().kinds);
        for name in kinds.iter().filter(|kind| kind.contains('.')) {
            let path = format!("{}/{name}", definitions.path(None));
            let found = Patience::default().run(self.reading, || self.run.cluster.get(&path)).await?;
            let Some(item) = found else { continue };
            self.reading.meter(Unit::Items).grow_total(1);
            let meta = ItemMeta { name: name.clone(), ..ItemMeta::default() };
            let batch = Batch { resource: Arc::clone(&definitions), items: vec![(meta, item)] };
            batches.send(batch).await.map_err(|_| packer_gone())?;
        }
        Ok(())
    }
}

/// Never shown: whoever closed the channel has the real error.
fn packer_gone() -> Error {
    Error::Selection("packing ended early".into())
}
