//! Items that no list of the plan contains: those that actions request, and the CustomResourceDefinitions of custom resources.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use plimsoll_progress::{Task, Unit};

use super::actions::ItemId;
use super::item_processor::ProcessedItem;
use super::item_reader::{Batches, ItemReader, send};
use crate::cluster::{ItemMeta, Resource};
use crate::outcome::Scope;
use crate::{Error, RetryPolicy};

/// Single objects read in parallel.
const PARALLEL_OBJECTS: usize = 8;

impl ItemReader<'_> {
    /// Reads additional items that no list contained, until actions request no more.
    pub(super) async fn read_additional(&self, batches: &Batches) -> Result<(), Error> {
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
    pub(super) async fn read_crds(&self, batches: &Batches) -> Result<(), Error> {
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
