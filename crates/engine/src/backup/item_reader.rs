//! Reads items: a few resources in parallel, page by page. Each page is filtered, processed and sent to the tarball at once.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use plimsoll_progress::{Task, Unit};
use serde_json::Value;
use tokio::sync::mpsc;

use super::actions::ItemId;
use super::item_processor::{ItemProcessor, Pod, ProcessedItem};
use super::item_tracker::ItemTracker;
use super::plan::{PlannedResource, is_namespaces};
use super::state::{BackupRun, PlannedBackup};
use super::tarball_upload::{Batch, item_ref};
use crate::action_call::call_action;
use crate::cluster::{ItemMeta, PageQuery, Resource, add_type_meta, list_pages};
use crate::hooks::HookRunner;
use crate::outcome::{ItemOutcome, Recorder, Scope};
use crate::{Error, RetryPolicy, kill};

/// Resources read in parallel: enough to hide latency, few enough for the fairness of the API server.
const PARALLEL_RESOURCES: usize = 3;
/// Pods with hooks in parallel: each freezes an application.
const PARALLEL_PODS: usize = 4;
/// Single objects read in parallel.
const PARALLEL_OBJECTS: usize = 8;

/// Maximum number of items in an item block.
const MAX_BLOCK_ITEMS: usize = 1000;
const PODS: &str = "pods";

type Batches = mpsc::Sender<Batch>;

fn is_pods(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

pub(super) struct ItemReader<'a> {
    run: &'a BackupRun<'a>,
    planned: &'a PlannedBackup,
    reading: &'a Task,
    recorder: &'a Recorder,
    tracker: ItemTracker,
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
        for item in items {
            let Some(meta) = self.select_item(resource, &group_resource, &item) else { continue };
            match processor.process(meta, item, task).await? {
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
        stream::iter(pods.collect::<Vec<_>>()).buffer_unordered(PARALLEL_PODS).try_collect().await
    }

    fn processor<'b>(&'b self, resource: &'b Arc<Resource>) -> ItemProcessor<'b> {
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
    fn select_item(&self, resource: &Resource, group_resource: &str, item: &Bytes) -> Option<ItemMeta> {
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

    /// Groups pods into item blocks with the related pods of the backup.
    async fn group_into_blocks(
        &self,
        processor: &ItemProcessor<'_>,
        pods: Vec<Pod>,
        task: &Task,
    ) -> Result<Vec<Vec<Pod>>, Error> {
        if self.planned.blocks.is_empty() {
            return Ok(pods.into_iter().map(|pod| vec![pod]).collect());
        }
        let (mut left, mut blocks) = (VecDeque::from(pods), Vec::new());
        while let Some(first) = left.pop_front() {
            let related = self.related_pods(&first, task).await?;
            let mut block = vec![first];
            for item in related {
                let index =
                    left.iter().position(|pod| pod.meta.namespace == item.namespace && pod.meta.name == item.name);
                match index {
                    Some(index) => block.extend(left.remove(index)),
                    None => block.extend(self.fetch_pod(processor, &item, task).await?),
                }
            }
            blocks.push(block);
        }
        Ok(blocks)
    }

    /// The pods that are related to a pod, directly or through other items of the backup.
    async fn related_pods(&self, pod: &Pod, task: &Task) -> Result<Vec<ItemId>, Error> {
        let mut related_items = vec![ItemId::new(PODS, pod.meta.namespace.as_deref(), &pod.meta.name)];
        let mut object = Some(pod.object.clone());
        let mut next = 0;
        while let Some(item) = related_items.get(next).cloned() {
            if next > 0 {
                object = self.selected(&item, task).await?;
            }
            next += 1;
            let Some(object) = &object else { continue };
            for wanted in self.related(&item, object, task).await? {
                if related_items.len() < MAX_BLOCK_ITEMS && !related_items.contains(&wanted) {
                    related_items.push(wanted);
                }
            }
        }
        Ok(related_items.into_iter().skip(1).filter(|item| item.group_resource == PODS).collect())
    }

    /// The related items of an item, from the item block actions.
    async fn related(&self, item: &ItemId, object: &Value, task: &Task) -> Result<Vec<ItemId>, Error> {
        let labels = object.pointer("/metadata/labels").cloned().unwrap_or_default();
        let mut found = Vec::new();
        for (name, action) in self.planned.blocks.for_item(&item.group_resource, item.namespace.as_deref(), &labels) {
            let call = action.related(object, &self.run.state.backup);
            match call_action(name, &item.to_string(), action.process(), task, call).await {
                Ok(related) => found.extend(related),
                Err(error @ (Error::Fenced(_) | Error::Cancelled)) => return Err(error),
                // The items are backed up nevertheless, only not together.
                Err(error) => {
                    let scope = Scope::within(item.namespace.as_deref().unwrap_or_default());
                    self.recorder.warn(&scope, format!("failed to get the related items of {item}: {error}"));
                }
            }
        }
        Ok(found)
    }

    /// A related item, if it is selected and an item block action applies to it.
    async fn selected(&self, item: &ItemId, task: &Task) -> Result<Option<Value>, Error> {
        let served = self.planned.plan.served.get(&item.group_resource);
        let Some(resource) = served.filter(|_| self.planned.blocks.applies_to_resource(&item.group_resource)) else {
            return Ok(None);
        };
        let path = format!("{}/{}", resource.path(item.namespace.as_deref()), item.name);
        let Some(bytes) = RetryPolicy::default().run(task, || self.run.env.operation.cluster.get(&path)).await? else {
            return Ok(None);
        };
        let kept = ItemMeta::of(&bytes).is_ok_and(|meta| self.is_selected(resource, &item.group_resource, &meta));
        Ok(serde_json::from_slice(&add_type_meta(&bytes, resource)).ok().filter(|_| kept))
    }

    /// Reads a pod that was not listed yet, if it is selected.
    async fn fetch_pod(&self, processor: &ItemProcessor<'_>, item: &ItemId, task: &Task) -> Result<Option<Pod>, Error> {
        let path = format!("{}/{}", processor.resource.path(item.namespace.as_deref()), item.name);
        let Some(bytes) = RetryPolicy::default().run(task, || self.run.env.operation.cluster.get(&path)).await? else {
            return Ok(None);
        };
        let Some(meta) = self.select_item(processor.resource, PODS, &bytes) else { return Ok(None) };
        match processor.process(meta, bytes, task).await? {
            ProcessedItem::Pod(pod) => Ok(Some(*pod)),
            ProcessedItem::Ready(..) | ProcessedItem::Excluded => Ok(None),
        }
    }

    fn is_selected(&self, resource: &Resource, group_resource: &str, meta: &ItemMeta) -> bool {
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

    /// Reads additional items that no list contained, until actions request no more.
    async fn read_additional(&self, batches: &Batches) -> Result<(), Error> {
        loop {
            let wanted = self.tracker.take_requested();
            if wanted.is_empty() {
                return Ok(());
            }
            let task = self.reading.child("additional items");
            let reads: Vec<_> = wanted
                .into_iter()
                .map(|(item, forced)| self.read_additional_item(item, forced, &task, batches))
                .collect();
            stream::iter(reads).buffer_unordered(PARALLEL_OBJECTS).try_collect::<()>().await?;
            task.finish();
        }
    }

    async fn read_additional_item(
        &self,
        item: ItemId,
        forced: bool,
        task: &Task,
        batches: &Batches,
    ) -> Result<(), Error> {
        let Some(resource) = self.planned.plan.served.get(&item.group_resource) else {
            self.recorder
                .warn(&Scope::Operation, format!("additional item {item}: the cluster does not serve this resource"));
            return Ok(());
        };
        let path = format!("{}/{}", resource.path(item.namespace.as_deref()), item.name);
        let Some(object) = RetryPolicy::default().run(task, || self.run.env.operation.cluster.get(&path)).await? else {
            self.recorder.warn(&Scope::Operation, format!("additional item {item} not found"));
            return Ok(());
        };
        let Ok(meta) = ItemMeta::of(&object) else { return Ok(()) };
        let wanted = forced || self.planned.item_filter.includes_additional_item(&item.group_resource, &meta);
        if !wanted || !self.tracker.add(&item.group_resource, item.namespace.as_deref(), &item.name) {
            return Ok(());
        }
        self.reading.meter(Unit::Items).grow_total(1);
        task.say(item.to_string());
        self.process_and_send(&Arc::new(resource.clone()), meta, object, task, batches).await
    }

    /// Processes one object and sends it to the tarball.
    async fn process_and_send(
        &self,
        resource: &Arc<Resource>,
        meta: ItemMeta,
        object: Bytes,
        task: &Task,
        batches: &Batches,
    ) -> Result<(), Error> {
        let processor = self.processor(resource);
        let items = match processor.process(meta, object, task).await? {
            ProcessedItem::Ready(meta, object) => vec![(meta, object)],
            ProcessedItem::Pod(pod) => processor.back_up_pods(vec![*pod], task).await?,
            ProcessedItem::Excluded => Vec::new(),
        };
        send(batches, resource, items).await
    }

    /// Reads the CustomResourceDefinitions of included custom resources, unless the filters mention them.
    async fn read_crds(&self, batches: &Batches) -> Result<(), Error> {
        const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
        let Some(resource) =
            self.planned.plan.served.get(CRDS).filter(|_| self.planned.item_filter.adds_crds_of_items())
        else {
            return Ok(());
        };
        let resource = Arc::new(resource.clone());
        for name in self.tracker.group_resources().iter().filter(|kind| kind.contains('.')) {
            let path = format!("{}/{name}", resource.path(None));
            let found = RetryPolicy::default().run(self.reading, || self.run.env.operation.cluster.get(&path)).await?;
            let Some(object) = found.filter(|_| self.tracker.add(CRDS, None, name)) else { continue };
            self.reading.meter(Unit::Items).grow_total(1);
            let meta = ItemMeta { name: name.clone(), ..ItemMeta::default() };
            self.process_and_send(&resource, meta, object, self.reading, batches).await?;
        }
        Ok(())
    }
}

async fn send(batches: &Batches, resource: &Arc<Resource>, items: Vec<(ItemMeta, Bytes)>) -> Result<(), Error> {
    if items.is_empty() {
        return Ok(());
    }
    // Never shown: the receiver has the real error.
    let closed = |_| Error::Selection("the tarball upload ended early".into());
    batches.send(Batch { resource: Arc::clone(resource), items }).await.map_err(closed)
}
