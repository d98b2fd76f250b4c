//! Processes one item of a backup: item actions, hooks, volumes.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use plimsoll_api::labels;
use plimsoll_progress::{Task, Unit};
use serde_json::Value;

use super::actions::ItemId;
use super::item_tracker::ItemTracker;
use super::state::{BackupRun, PlannedBackup};
use super::tarball_upload::item_ref;
use crate::Error;
use crate::action_call::call_action;
use crate::cluster::{ItemMeta, Resource, add_type_meta};
use crate::hooks::{HookRunner, PodHooks};
use crate::outcome::{ItemOutcome, Recorder, Scope};

/// Annotation that an action sets on an item to exclude it.
const SKIP_ANNOTATION: &str = "velero.io/skip-from-backup";

/// Resource whose data may be backed up too.
const VOLUMES: &str = "persistentvolumes";

/// The result of processing an item.
pub(super) enum ProcessedItem {
    /// The item can be written to the tarball.
    Ready(ItemMeta, Bytes),
    /// A pod with hooks or with volumes to back up: it becomes a task.
    Pod(Box<Pod>),
    /// The item is not in the backup; the outcome is recorded.
    Excluded,
}

/// A pod with hooks or with volumes to back up.
pub(super) struct Pod {
    pub(super) meta: ItemMeta,
    bytes: Bytes,
    pub(super) object: Value,
    hooks: PodHooks,
}

/// Processes items of one resource.
pub(super) struct ItemProcessor<'a> {
    pub(super) run: &'a BackupRun<'a>,
    pub(super) planned: &'a PlannedBackup,
    pub(super) resource: &'a Arc<Resource>,
    pub(super) reading: &'a Task,
    pub(super) recorder: &'a Recorder,
    pub(super) tracker: &'a ItemTracker,
    pub(super) hooks: &'a HookRunner,
}

impl ItemProcessor<'_> {
    /// Processes an item. An item that no action applies to is unchanged.
    pub(super) async fn process(&self, meta: ItemMeta, bytes: Bytes, task: &Task) -> Result<ProcessedItem, Error> {
        let is_pod = self.resource.group.is_empty() && self.resource.plural == "pods";
        let group_resource = self.resource.group_resource();
        let volume = group_resource == VOLUMES && self.planned.volumes.is_some();
        let blocks = is_pod && !self.planned.blocks.is_empty();
        if !is_pod && !volume && !self.planned.actions.applies_to_resource(&group_resource) {
            return Ok(ProcessedItem::Ready(meta, bytes));
        }
        let bytes = add_type_meta(&bytes, self.resource);
        let object: Value = match serde_json::from_slice(&bytes) {
            Ok(object) => object,
            Err(error) => {
                self.fail(&meta, "Unreadable", format!("invalid JSON: {error}"));
                return Ok(ProcessedItem::Excluded);
            }
        };
        if is_pod {
            let hooks = self.planned.hooks.for_pod(&object);
            if !hooks.is_empty() || self.has_volumes(&object) || blocks {
                return Ok(ProcessedItem::Pod(Box::new(Pod { meta, bytes, object, hooks })));
            }
        }
        let processed = self.run_actions(meta, bytes, object, task).await?;
        Ok(processed.map_or(ProcessedItem::Excluded, |(meta, bytes)| ProcessedItem::Ready(meta, bytes)))
    }

    fn has_volumes(&self, pod: &Value) -> bool {
        let Some(volumes) = &self.planned.volumes else {
            self.warn_about_volumes(pod);
            return false;
        };
        volumes.has_volumes(pod)
    }

    /// Warns of volumes that will not be in the backup.
    fn warn_about_volumes(&self, pod: &Value) {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let requested = pod.pointer("/metadata/annotations").and_then(|all| all.get(labels::BACKUP_VOLUMES));
        if let Some(volumes) = requested.and_then(Value::as_str).filter(|names| !names.is_empty()) {
            let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
            let line = format!(
                "pod {namespace}/{name} requests a backup of its volumes {volumes}: this server does not back up volume data"
            );
            self.recorder.warn(&Scope::Namespace(namespace.to_owned()), line);
        }
    }

    /// Backs up the pods of an item block, usually a single one, between the pre-hooks and the post-hooks of all of them. The
    /// post-hooks always run.
    pub(super) async fn back_up_pods(&self, block: Vec<Pod>, task: &Task) -> Result<Vec<(ItemMeta, Bytes)>, Error> {
        let frozen = block.iter().any(|pod| !pod.hooks.is_empty());
        let mut started = Vec::with_capacity(block.len());
        for pod in &block {
            let task = task.child(pod.meta.path());
            for warning in &pod.hooks.warnings {
                let scope = Scope::Namespace(pod.meta.namespace.clone().unwrap_or_default());
                self.recorder.warn(&scope, format!("pod {}: {warning}", pod.meta.path()));
            }
            let hooks = self.hooks.run_pre_hooks(&pod.object, &pod.hooks, &task, self.recorder).await?;
            started.push((hooks, task));
        }
        let backups = block.iter().zip(&started).map(|(pod, (hooks, task))| async move {
            if hooks.problem.is_some() {
                return Ok(None);
            }
            let item = self.run_actions(pod.meta.clone(), pod.bytes.clone(), pod.object.clone(), task).await?;
            if let Some(volumes) = &self.planned.volumes {
                volumes.back_up(&pod.object, frozen, task).await?;
            }
            Ok(item)
        });
        let results: Result<Vec<_>, Error> = join_all(backups.collect::<Vec<_>>()).await.into_iter().collect();
        if matches!(results, Err(Error::Fenced(_))) {
            return results.map(|_| Vec::new());
        }
        for (pod, (hooks, task)) in block.iter().zip(started) {
            let problem = hooks.problem.clone();
            self.hooks.run_post_hooks(hooks, &pod.hooks, &task, self.recorder).await?;
            match problem {
                None => task.finish(),
                Some(problem) => {
                    task.fail(&problem);
                    self.fail(&pod.meta, "HookFailed", problem);
                }
            }
        }
        Ok(results?.into_iter().flatten().collect())
    }

    /// Runs the item actions.
    async fn run_actions(
        &self,
        meta: ItemMeta,
        bytes: Bytes,
        mut object: Value,
        task: &Task,
    ) -> Result<Option<(ItemMeta, Bytes)>, Error> {
        let group_resource = self.resource.group_resource();
        let item_labels = meta.labels.clone().unwrap_or_default();
        let mut changed = false;
        for (name, action) in self.planned.actions.for_item(&group_resource, meta.namespace.as_deref(), &item_labels) {
            let call = action.execute(&object, &self.run.state.backup);
            let output = match call_action(name, &meta.path(), action.process(), task, call).await {
                Ok(output) => output,
                Err(error @ (Error::Fenced(_) | Error::Cancelled)) => return Err(error),
                Err(error) => {
                    self.fail(&meta, error.reason(), format!("item action {name}: {error}"));
                    return Ok(None);
                }
            };
            if let (Some(started), Some(client)) = (output.operation, Arc::clone(action).operation_client()) {
                let item = ItemId::new(&group_resource, meta.namespace.as_deref(), &meta.name);
                self.run.state.operations.start(name, item, started, client).await?;
            }
            if let Some(item) = output.item {
                (object, changed) = (item, true);
            }
            let forced = take_annotation(&mut object, labels::MUST_INCLUDE_ADDITIONAL_ITEMS);
            changed |= forced;
            for wanted in output.additional.into_iter().filter(|wanted| forced || !self.is_listed(wanted)) {
                self.tracker.request(wanted, forced);
            }
            if take_annotation(&mut object, SKIP_ANNOTATION) {
                self.recorder
                    .item(&item_ref(self.resource, &meta), &ItemOutcome::Skipped { reason: "SkippedByAction" });
                task.meter(Unit::Items).skip(1);
                return Ok(None);
            }
        }
        if let (VOLUMES, Some(volumes)) = (group_resource.as_str(), &self.planned.volumes) {
            volumes.add_persistent_volume(&object);
        }
        let bytes = if changed { Bytes::from(object.to_string()) } else { bytes };
        Ok(Some((meta, bytes)))
    }

    /// Whether the list of the resource of an item decides about it.
    fn is_listed(&self, item: &ItemId) -> bool {
        let plan = &self.planned.plan;
        let included = |name: &String| plan.namespaces.as_ref().is_none_or(|included| included.contains(name));
        let planned = plan.resources.iter().any(|planned| planned.resource.group_resource() == item.group_resource);
        planned && !self.planned.item_filter.filters_single_items() && item.namespace.as_ref().is_none_or(included)
    }

    fn fail(&self, meta: &ItemMeta, reason: &str, message: String) {
        let outcome = ItemOutcome::Failed { reason: reason.to_owned(), message };
        self.recorder.item(&item_ref(self.resource, meta), &outcome);
        self.reading.meter(Unit::Items).fail(1);
    }
}

/// Removes an annotation. Returns whether its value was `true`.
fn take_annotation(object: &mut Value, key: &str) -> bool {
    let all = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    all.and_then(|all| all.remove(key)).is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn internal_annotations_are_removed() {
        let mut object = json!({"metadata": {"annotations": {SKIP_ANNOTATION: "true", "keep": "me"}}});
        assert!(take_annotation(&mut object, SKIP_ANNOTATION) && !take_annotation(&mut object, SKIP_ANNOTATION));
        assert_eq!(object, json!({"metadata": {"annotations": {"keep": "me"}}}));
    }
}
