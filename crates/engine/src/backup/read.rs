//! Reading: a few resources at a time, page by page; a page is filtered, acted on and handed on at once.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use plimsoll_progress::{Task, Unit};
use serde_json::Value;
use tokio::sync::mpsc;

use super::act::{Acted, Acting, Pod};
use super::actions::ItemId;
use super::found::Found;
use super::pack::{Batch, item_ref};
use super::plan::{PlannedResource, is_namespaces};
use super::run::BackupRun;
use crate::asked::asked;
use crate::cluster::{ItemMeta, PageQuery, Resource, complete, pages};
use crate::hooks::Hooks;
use crate::outcome::{ItemOutcome, Recorder, Scope};
use crate::{Error, Patience, kill};

/// Resources read at the same time: enough to hide latency, few enough for the API server's fairness.
const PARALLEL_RESOURCES: usize = 3;
/// Pods with hooks at the same time: each holds an application still.
const PARALLEL_PODS: usize = 4;
/// Single objects read at the same time.
const PARALLEL_OBJECTS: usize = 8;

/// No block has more items.
const LARGEST_BLOCK: usize = 1000;
const PODS: &str = "pods";

type Batches = mpsc::Sender<Batch>;

fn is_pods(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

pub(super) struct Reader<'a> {
    run: &'a BackupRun,
    reading: &'a Task,
    recorder: &'a Recorder,
    found: Found,
    hooks: &'a Hooks,
}

impl<'a> Reader<'a> {
    pub(super) fn new(run: &'a BackupRun, recorder: &'a Recorder, hooks: &'a Hooks) -> Self {
        Self { run, reading: &run.reading, recorder, found: Found::default(), hooks }
    }

    pub(super) async fn read_all(&self, batches: &Batches) -> Result<(), Error> {
        // Namespaces come last: some are kept only because something in them is.
        let (namespaces, others): (Vec<_>, Vec<_>) =
            self.run.plan.resources.iter().partition(|planned| is_namespaces(&planned.resource));
        if !others.iter().any(|planned| is_pods(&planned.resource)) {
            self.pods_are_read();
        }
        self.read_part(others, batches).await?;
        self.read_wanted(batches).await?;
        self.read_part(namespaces, batches).await?;
        self.read_definitions(batches).await
    }

    fn pods_are_read(&self) {
        if let Some(volumes) = &self.run.volumes {
            volumes.pods_are_read();
        }
    }

    async fn read_part(&self, part: Vec<&PlannedResource>, batches: &Batches) -> Result<(), Error> {
        let reads: Vec<_> = part.into_iter().map(|planned| self.read_planned(planned, batches)).collect();
        stream::iter(reads).buffer_unordered(PARALLEL_RESOURCES).try_collect().await
    }

    async fn read_planned(&self, planned: &PlannedResource, batches: &Batches) -> Result<(), Error> {
        self.read_resource(Arc::new(planned.resource.clone()), planned.expected, batches).await?;
        if is_pods(&planned.resource) {
            self.pods_are_read();
        }
        Ok(())
    }

    /// A resource that cannot be listed costs an error, not the backup.
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
        match self.read_resource_by(&resource, &task, batches).await {
            Ok(()) => {
                self.recorder.log().info(format!("{}: read", resource.group_resource()));
                task.finish();
            }
            // Its definition was deleted while we read, and its objects with it: there is nothing to miss.
            Err(error) if error.code() == Some(404) => {
                self.recorder.log().info(format!("{} is no longer served: {error}", resource.group_resource()));
                task.skip("no longer served");
            }
            Err(error @ (Error::Api { .. } | Error::Answer { .. })) => {
                self.recorder.error(&Scope::Operation, error.to_string());
                task.fail(error.to_string());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn read_resource_by(&self, resource: &Arc<Resource>, task: &Task, batches: &Batches) -> Result<(), Error> {
        self.read_ordered(resource, task, batches).await?;
        for query in self.run.plan.queries(resource) {
            self.read_query(resource, query, task, batches).await?;
        }
        Ok(())
    }

    /// The objects that the user wants first, one after the other.
    async fn read_ordered(&self, resource: &Arc<Resource>, task: &Task, batches: &Batches) -> Result<(), Error> {
        for wanted in self.run.selecting.ordered().of(&resource.plural) {
            let (namespace, name) =
                wanted.split_once('/').map_or((None, wanted.as_str()), |(ns, name)| (Some(ns), name));
            let path = format!("{}/{name}", resource.path(namespace));
            let found = Patience::default().run(task, || self.run.cluster.get(&path)).await?;
            if found.is_none() {
                let text = format!("orderedResources: there is no {} {wanted}", resource.group_resource());
                self.recorder.warn(&Scope::Operation, text);
            }
            self.take_page(resource, found.into_iter().collect(), task, batches).await?;
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
            let text = format!(
                "{}: the list changed while it was read; it goes on from newer data",
                resource.group_resource()
            );
            self.recorder.warn(&Scope::Operation, text);
        };
        let mut found = std::pin::pin!(pages(&self.run.cluster, resource, query, task, &expired));
        while let Some(page) = found.next().await {
            self.take_page(resource, page?.items, task, batches).await?;
            kill::point("backup.page");
        }
        Ok(())
    }

    /// Filters items, acts on them and hands them on.
    async fn take_page(
        &self,
        resource: &Arc<Resource>,
        items: Vec<Bytes>,
        task: &Task,
        batches: &Batches,
    ) -> Result<(), Error> {
        let group_resource = resource.group_resource();
        let acting = self.acting(resource);
        let (mut ready, mut apart) = (Vec::with_capacity(items.len()), Vec::new());
        for item in items {
            let Some(meta) = self.admit(resource, &group_resource, &item) else { continue };
            match acting.act(meta, item, task).await? {
                Acted::Ready(meta, object) => ready.push((meta, object)),
                Acted::Apart(pod) => apart.push(*pod),
                Acted::Gone => {}
            }
        }
        if let Some((last, _)) = ready.last() {
            task.say(last.path());
        }
        send(batches, resource, ready).await?;
        let blocks = self.blocks(&acting, apart, task).await?;
        let pods = blocks.into_iter().map(|block| async {
            let items = acting.back_up_pods(block, task).await?;
            send(batches, resource, items).await
        });
        stream::iter(pods.collect::<Vec<_>>()).buffer_unordered(PARALLEL_PODS).try_collect().await
    }

    fn acting<'b>(&'b self, resource: &'b Arc<Resource>) -> Acting<'b> {
        Acting { run: self.run, resource, recorder: self.recorder, found: &self.found, hooks: self.hooks }
    }

    /// The metadata of an item that is selected and not taken yet.
    fn admit(&self, resource: &Resource, group_resource: &str, item: &Bytes) -> Option<ItemMeta> {
        let meta = match ItemMeta::of(item) {
            Ok(meta) => meta,
            Err(error) => {
                self.refuse(resource, &error);
                return None;
            }
        };
        let taken = self.keeps(resource, group_resource, &meta)
            && self.found.take(group_resource, meta.namespace.as_deref(), &meta.name);
        taken.then_some(meta)
    }

    /// Pods in blocks: those that plugins say belong together, and that are a part of the backup.
    async fn blocks(&self, acting: &Acting<'_>, pods: Vec<Pod>, task: &Task) -> Result<Vec<Vec<Pod>>, Error> {
        if self.run.blocks.is_empty() {
            return Ok(pods.into_iter().map(|pod| vec![pod]).collect());
        }
        let (mut left, mut blocks) = (VecDeque::from(pods), Vec::new());
        while let Some(first) = left.pop_front() {
            let related = self.related_pods(&first, task).await?;
            let mut block = vec![first];
            for item in related {
                let place =
                    left.iter().position(|pod| pod.meta.namespace == item.namespace && pod.meta.name == item.name);
                match place {
                    Some(place) => block.extend(left.remove(place)),
                    None => block.extend(self.fetch_pod(acting, &item, task).await?),
                }
            }
            blocks.push(block);
        }
        Ok(blocks)
    }

    /// The other pods that belong to a pod, by way of whatever belongs to it and is a part of the backup.
    async fn related_pods(&self, pod: &Pod, task: &Task) -> Result<Vec<ItemId>, Error> {
        let mut known = vec![ItemId::new(PODS, pod.meta.namespace.as_deref(), &pod.meta.name)];
        let mut object = Some(pod.object.clone());
        let mut next = 0;
        while let Some(item) = known.get(next).cloned() {
            if next > 0 {
                object = self.selected(&item, task).await?;
            }
            next += 1;
            let Some(object) = &object else { continue };
            for wanted in self.related(&item, object, task).await? {
                if known.len() < LARGEST_BLOCK && !known.contains(&wanted) {
                    known.push(wanted);
                }
            }
        }
        Ok(known.into_iter().skip(1).filter(|item| item.group_resource == PODS).collect())
    }

    /// What belongs to an item, as the actions that want to see it say.
    async fn related(&self, item: &ItemId, object: &Value, task: &Task) -> Result<Vec<ItemId>, Error> {
        let labels = object.pointer("/metadata/labels").cloned().unwrap_or_default();
        let mut found = Vec::new();
        for (name, action) in self.run.blocks.applying(&item.group_resource, item.namespace.as_deref(), &labels) {
            let answering = action.related(object, &self.run.backup);
            match asked(name, &item.to_string(), action.process(), task, answering).await {
                Ok(related) => found.extend(related),
                Err(error @ (Error::Fenced(_) | Error::Cancelled)) => return Err(error),
                // What it would have kept together is backed up all the same.
                Err(error) => {
                    let scope = Scope::within(item.namespace.as_deref().unwrap_or_default());
                    self.recorder.warn(&scope, format!("what belongs to {item} is not known: {error}"));
                }
            }
        }
        Ok(found)
    }

    /// An item that belongs to another one, if it is a part of the backup and an action may want to see it.
    async fn selected(&self, item: &ItemId, task: &Task) -> Result<Option<Value>, Error> {
        let served = self.run.plan.served.get(&item.group_resource);
        let Some(resource) = served.filter(|_| self.run.blocks.touches(&item.group_resource)) else { return Ok(None) };
        let path = format!("{}/{}", resource.path(item.namespace.as_deref()), item.name);
        let Some(bytes) = Patience::default().run(task, || self.run.cluster.get(&path)).await? else { return Ok(None) };
        let kept = ItemMeta::of(&bytes).is_ok_and(|meta| self.keeps(resource, &item.group_resource, &meta));
        Ok(serde_json::from_slice(&complete(&bytes, resource)).ok().filter(|_| kept))
    }

    /// A pod that its own list has not brought yet, if it is a part of the backup.
    async fn fetch_pod(&self, acting: &Acting<'_>, item: &ItemId, task: &Task) -> Result<Option<Pod>, Error> {
        let path = format!("{}/{}", acting.resource.path(item.namespace.as_deref()), item.name);
        let Some(bytes) = Patience::default().run(task, || self.run.cluster.get(&path)).await? else { return Ok(None) };
        let Some(meta) = self.admit(acting.resource, PODS, &bytes) else { return Ok(None) };
        match acting.act(meta, bytes, task).await? {
            Acted::Apart(pod) => Ok(Some(*pod)),
            Acted::Ready(..) | Acted::Gone => Ok(None),
        }
    }

    fn keeps(&self, resource: &Resource, group_resource: &str, meta: &ItemMeta) -> bool {
        let selecting = &self.run.selecting;
        if is_namespaces(resource) {
            return selecting.keeps_namespace(meta, self.found.inhabits(&meta.name));
        }
        let chosen = |name: &str| self.run.plan.namespaces.as_ref().is_none_or(|chosen| chosen.contains(name));
        meta.namespace.as_deref().is_none_or(chosen) && selecting.keeps(group_resource, meta)
    }

    fn refuse(&self, resource: &Resource, error: &serde_json::Error) {
        let meta = ItemMeta { name: "(unreadable)".into(), ..ItemMeta::default() };
        let outcome =
            ItemOutcome::Failed { reason: "Unreadable".into(), message: format!("its metadata is not valid: {error}") };
        self.recorder.item(&item_ref(resource, &meta), &outcome);
        self.reading.meter(Unit::Items).fail(1);
    }

    /// What actions asked for and no list has brought; that may ask for more.
    async fn read_wanted(&self, batches: &Batches) -> Result<(), Error> {
        loop {
            let wanted = self.found.wanted();
            if wanted.is_empty() {
                return Ok(());
            }
            let task = self.reading.child("additional items");
            let reads: Vec<_> =
                wanted.into_iter().map(|(item, forced)| self.read_one_wanted(item, forced, &task, batches)).collect();
            stream::iter(reads).buffer_unordered(PARALLEL_OBJECTS).try_collect::<()>().await?;
            task.finish();
        }
    }

    async fn read_one_wanted(&self, item: ItemId, forced: bool, task: &Task, batches: &Batches) -> Result<(), Error> {
        let Some(resource) = self.run.plan.served.get(&item.group_resource) else {
            self.recorder.warn(
                &Scope::Operation,
                format!("{item} is asked for by an action, and this cluster serves no such resource"),
            );
            return Ok(());
        };
        let path = format!("{}/{}", resource.path(item.namespace.as_deref()), item.name);
        let Some(object) = Patience::default().run(task, || self.run.cluster.get(&path)).await? else {
            self.recorder.warn(&Scope::Operation, format!("{item} is asked for by an action, and is not there"));
            return Ok(());
        };
        let Ok(meta) = ItemMeta::of(&object) else { return Ok(()) };
        let wanted = forced || self.run.selecting.adds(&item.group_resource, &meta);
        if !wanted || !self.found.take(&item.group_resource, item.namespace.as_deref(), &item.name) {
            return Ok(());
        }
        self.reading.meter(Unit::Items).grow_total(1);
        task.say(item.to_string());
        self.hand_on(&Arc::new(resource.clone()), meta, object, task, batches).await
    }

    /// Acts on one object and hands it on.
    async fn hand_on(
        &self,
        resource: &Arc<Resource>,
        meta: ItemMeta,
        object: Bytes,
        task: &Task,
        batches: &Batches,
    ) -> Result<(), Error> {
        let acting = self.acting(resource);
        let items = match acting.act(meta, object, task).await? {
            Acted::Ready(meta, object) => vec![(meta, object)],
            Acted::Apart(pod) => acting.back_up_pods(vec![*pod], task).await?,
            Acted::Gone => Vec::new(),
        };
        send(batches, resource, items).await
    }

    /// Definitions of the custom resources that were kept, unless the user decided about definitions.
    async fn read_definitions(&self, batches: &Batches) -> Result<(), Error> {
        const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
        let Some(resource) = self.run.plan.served.get(DEFINITIONS).filter(|_| self.run.selecting.adds_definitions())
        else {
            return Ok(());
        };
        let resource = Arc::new(resource.clone());
        for name in self.found.kinds().iter().filter(|kind| kind.contains('.')) {
            let path = format!("{}/{name}", resource.path(None));
            let found = Patience::default().run(self.reading, || self.run.cluster.get(&path)).await?;
            let Some(object) = found.filter(|_| self.found.take(DEFINITIONS, None, name)) else { continue };
            self.reading.meter(Unit::Items).grow_total(1);
            let meta = ItemMeta { name: name.clone(), ..ItemMeta::default() };
            self.hand_on(&resource, meta, object, self.reading, batches).await?;
        }
        Ok(())
    }
}

async fn send(batches: &Batches, resource: &Arc<Resource>, items: Vec<(ItemMeta, Bytes)>) -> Result<(), Error> {
    if items.is_empty() {
        return Ok(());
    }
    // Never shown: whoever closed the channel has the real error.
    let gone = |_| Error::Selection("packing ended early".into());
    batches.send(Batch { resource: Arc::clone(resource), items }).await.map_err(gone)
}
