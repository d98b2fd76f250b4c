//! Item blocks: pods that are backed up together, because item block actions relate them.

use std::collections::VecDeque;

use plimsoll_progress::Task;
use serde_json::Value;

use super::actions::ItemId;
use super::item_processor::{ItemProcessor, Pod, ProcessedItem};
use super::item_reader::ItemReader;
use crate::action_call::call_action;
use crate::cluster::{ItemMeta, add_type_meta};
use crate::outcome::Scope;
use crate::{Error, RetryPolicy};

/// Maximum number of items in an item block.
const MAX_BLOCK_ITEMS: usize = 1000;
const PODS: &str = "pods";

impl ItemReader<'_> {
    /// Groups pods into item blocks with the related pods of the backup.
    pub(super) async fn group_into_blocks(
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
}
