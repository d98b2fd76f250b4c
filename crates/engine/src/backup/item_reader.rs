//! Reads items: a few resources in parallel, page by page. Each page is filtered, processed and sent to the tarball at once.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use plimsoll_progress::{Task, Unit};
use tokio::sync::mpsc;

use super::item_processor::{ItemProcessor, ProcessedItem};
use super::item_tracker::ItemTracker;
use super::plan::{PlannedResource, is_namespaces};
use super::state::{BackupRun, PlannedBackup};
use super::tarball_upload::{Batch, item_ref};
use crate::cluster::{ItemMeta, PageQuery, Resource, list_pages};
use crate::hooks::HookRunner;
use crate::outcome::{ItemOutcome, Recorder, Scope};
use crate::{Error, RetryPolicy, kill};

/// Resources read in parallel: enough to hide latency, few enough for the fairness of the API server.
const PARALLEL_RESOURCES: usize = 3;

pub(super) type Batches = mpsc::Sender<Batch>;

fn is_pods(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

pub(super) struct ItemReader<'a> {
    pub(super) run: &'a BackupRun<'a>,
    pub(super) planned: &'a PlannedBackup,
    pub(super) reading: &'a Task,
    pub(super) recorder: &'a Recorder,
    pub(super) tracker: ItemTracker,
    hooks: &'a HookRunner,
}

impl<'a> ItemReader<'a> {
    pub(super) fn new(
        run: &'a BackupRun<'a>,
        planned: &'a PlannedBackup,
        reading: &'a Task,
        recorder: &'a Recorder,
        hooks: &'a HookRunner,
    ) -> Self {
        Self { run, planned, reading, recorder, tracker: ItemTracker::default(), hooks }
    }

    pub(super) async fn read_all(&self, batches: &Batches) -> Result<(), Error> {
        // Namespaces come last: some are included only because of their items.
        let (namespaces, others): (Vec<_>, Vec<_>) =
            self.planned.plan.resources.iter().partition(|planned| is_namespaces(&planned.resource));
        if !others.iter().any(|planned| is_pods(&planned.resource)) {
            self.all_pods_read();
        }
        self.read_resources(others, batches).await?;
        self.read_additional(batches).await?;
        self.read_resources(namespaces, batches).await?;
        self.read_crds(batches).await
    }

    fn all_pods_read(&self) {
        if let Some(volumes) = &self.planned.volumes {
            volumes.all_pods_read();
        }
    }

    async fn read_resources(&self, part: Vec<&PlannedResource>, batches: &Batches) -> Result<(), Error> {
        let reads: Vec<_> = part.into_iter().map(|planned| self.read_planned(planned, batches)).collect();
        stream::iter(reads).buffer_unordered(PARALLEL_RESOURCES).try_collect().await
    }

    async fn read_planned(&self, planned: &PlannedResource, batches: &Batches) -> Result<(), Error> {
        self.read_resource(Arc::new(planned.resource.clone()), planned.expected, batches).await?;
        if is_pods(&planned.resource) {
            self.all_pods_read();
        }
        Ok(())
    }

    /// A resource that cannot be listed is an error of the results; the backup continues.
    async fn read_resource(
        &self,
        resource: Arc<Resource>,
        expected: Option<u64>,
        batches: &Batches,
    ) -> Result<(), Error> {
        if expected == Some(0) {
            return Ok(());
        }
        let task = self.reading.child(resource.group_resource());
        match self.read_selected(&resource, &task, batches).await {
            Ok(()) => {
                self.recorder.log().info(format!("{}: read", resource.group_resource()));
                task.finish();
            }
            // Its CustomResourceDefinition was deleted meanwhile, and its objects with it.
            Err(error) if error.code() == Some(404) => {
                self.recorder.log().info(format!("{} is no longer served: {error}", resource.group_resource()));
                task.skip("no longer served");
            }
            Err(error @ (Error::Api { .. } | Error::InvalidResponse { .. })) => {
                self.recorder.error(&Scope::Operation, error.to_string());
                task.fail(error.to_string());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn read_selected(&self, resource: &Arc<Resource>, task: &Task, batches: &Batches) -> Result<(), Error> {
        self.read_ordered(resource, task, batches).await?;
        for query in self.planned.plan.queries(resource) {
            self.read_query(resource, query, task, batches).await?;
        }
        Ok(())
    }

    /// Reads the objects of `orderedResources`, in order.
    async fn read_ordered(&self, resource: &Arc<Resource>, task: &Task, batches: &Batches) -> Result<(), Error> {
        for wanted in self.planned.item_filter.ordered().of(&resource.plural) {
            let (namespace, name) =
                wanted.split_once('/').map_or((None, wanted.as_str()), |(ns, name)| (Some(ns), name));
            let path = format!("{}/{name}", resource.path(namespace));
            let found = RetryPolicy::default().run(task, || self.run.env.operation.cluster.get(&path)).await?;
            if found.is_none() {
                let text = format!("orderedResources: {} {wanted} not found", resource.group_resource());
                self.recorder.warn(&Scope::Operation, text);
            }
            self.process_page(resource, found.into_iter().collect(), task, batches).await?;
        }
        Ok(())
    }

    async fn read_query(
        &self,
        resource: &Arc<Resource>,
        query: PageQuery,
        task: &Task,
        batches: &Batches,
    ) -> Result<(), Error> {
        let expired = || {
            let text =
                format!("{}: the continue token expired; the rest of the list is newer", resource.group_resource());
            self.recorder.warn(&Scope::Operation, text);
        };
        let mut found = std::pin::pin!(list_pages(&self.run.env.operation.cluster, resource, query, task, &expired));
        while let Some(page) = found.next().await {
            self.process_page(resource, page?.items, task, batches).await?;
            kill::point("backup.page");
        }
        Ok(())
    }

    /// Filters and processes items, and sends them to the tarball.
    async fn process_page(
        &self,
        resource: &Arc<Resource>,
        items: Vec<Bytes>,
        task: &Task,
        batches: &Batches,
    ) -> Result<(), Error> {
        let group_resource = resource.group_resource();
        let processor = self.processor(resource);
        let (mut ready, mut separate_pods) = (Vec::with_capacity(items.len()), Vec::new());
        let select = |item: Bytes| Some((self.select_item(resource, &group_resource, &item)?, item));
        let selected: Vec<_> = items.into_iter().filter_map(select).collect();
        let process = |(meta, item): (ItemMeta, Bytes)| processor.process(meta, item, task);
        // In order, also where an action of one item takes longer than that of the next.
        let mut processed = std::pin::pin!(stream::iter(selected).map(process).buffered(self.run.env.item_workers));
        while let Some(item) = processed.try_next().await? {
            match item {
                ProcessedItem::Ready(meta, object) => ready.push((meta, object)),
                ProcessedItem::Pod(pod) => separate_pods.push(*pod),
                ProcessedItem::Excluded => {}
            }
        }
        if let Some((last, _)) = ready.last() {
            task.say(last.path());
        }
        send(batches, resource, ready).await?;
        let blocks = self.group_into_blocks(&processor, separate_pods, task).await?;
        let pods = blocks.into_iter().map(|block| async {
            let items = processor.back_up_pods(block, task).await?;
            send(batches, resource, items).await
        });
        stream::iter(pods.collect::<Vec<_>>()).buffer_unordered(self.run.env.item_workers).try_collect().await
    }

    pub(super) fn processor<'b>(&'b self, resource: &'b Arc<Resource>) -> ItemProcessor<'b> {
        ItemProcessor {
            run: self.run,
            planned: self.planned,
            resource,
            reading: self.reading,
            recorder: self.recorder,
            tracker: &self.tracker,
            hooks: self.hooks,
        }
    }

    /// The metadata of an item, if it is selected and not in the backup yet.
    pub(super) fn select_item(&self, resource: &Resource, group_resource: &str, item: &Bytes) -> Option<ItemMeta> {
        let meta = match ItemMeta::of(item) {
            Ok(meta) => meta,
            Err(error) => {
                self.record_invalid(resource, &error);
                return None;
            }
        };
        let selected = self.is_selected(resource, group_resource, &meta)
            && self.tracker.add(group_resource, meta.namespace.as_deref(), &meta.name);
        selected.then_some(meta)
    }

    pub(super) fn is_selected(&self, resource: &Resource, group_resource: &str, meta: &ItemMeta) -> bool {
        let item_filter = &self.planned.item_filter;
        if is_namespaces(resource) {
            return item_filter.includes_namespace_object(meta, self.tracker.has_items_in(&meta.name));
        }
        let included =
            |name: &str| self.planned.plan.namespaces.as_ref().is_none_or(|included| included.contains(name));
        meta.namespace.as_deref().is_none_or(included) && item_filter.includes_item(group_resource, meta)
    }

    fn record_invalid(&self, resource: &Resource, error: &serde_json::Error) {
        let meta = ItemMeta { name: "(unreadable)".into(), ..ItemMeta::default() };
        let outcome =
            ItemOutcome::Failed { reason: "Unreadable".into(), message: format!("invalid metadata: {error}") };
        self.recorder.item(&item_ref(resource, &meta), &outcome);
        self.reading.meter(Unit::Items).fail(1);
    }
}

pub(super) async fn send(
    batches: &Batches,
    resource: &Arc<Resource>,
    items: Vec<(ItemMeta, Bytes)>,
) -> Result<(), Error> {
    if items.is_empty() {
        return Ok(());
    }
    // Never shown: the receiver has the real error.
    let closed = |_| Error::Selection("the tarball upload ended early".into());
    batches.send(Batch { resource: Arc::clone(resource), items }).await.map_err(closed)
}
