//! One item on its way into a backup: item actions, hooks, volumes.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use plimsoll_api::labels;
use plimsoll_progress::{Task, Unit};
use serde_json::Value;

use super::actions::ItemId;
use super::found::Found;
use super::pack::item_ref;
use super::run::BackupRun;
use crate::Error;
use crate::asked::asked;
use crate::cluster::{ItemMeta, Resource, complete};
use crate::hooks::{Hooks, PodHooks};
use crate::outcome::{ItemOutcome, Recorder, Scope};

/// Set by an action on an item that is to be left out.
const SKIP: &str = "velero.io/skip-from-backup";

/// Their data may have to be backed up.
const VOLUMES: &str = "persistentvolumes";

/// What became of an item.
pub(super) enum Acted {
    /// It can be packed.
    Ready(ItemMeta, Bytes),
    /// A pod that must stand still, or whose volumes are backed up: a task of its own.
    Apart(Box<Pod>),
    /// It is not in the backup; that has been noted.
    Gone,
}

/// A pod that is a task of its own.
pub(super) struct Pod {
    pub(super) meta: ItemMeta,
    bytes: Bytes,
    pub(super) object: Value,
    hooks: PodHooks,
}

/// Acts on items of one resource.
pub(super) struct Acting<'a> {
    pub(super) run: &'a BackupRun,
    pub(super) resource: &'a Arc<Resource>,
    pub(super) recorder: &'a Recorder,
    pub(super) found: &'a Found,
    pub(super) hooks: &'a Hooks,
}

impl Acting<'_> {
    /// Lets every action that wants it see an item. One that none wants passes as it is.
    pub(super) async fn act(&self, meta: ItemMeta, bytes: Bytes, task: &Task) -> Result<Acted, Error> {
        let is_pod = self.resource.group.is_empty() && self.resource.plural == "pods";
        let group_resource = self.resource.group_resource();
        let volume = group_resource == VOLUMES && self.run.volumes.is_some();
        let blocks = is_pod && !self.run.blocks.is_empty();
        if !is_pod && !volume && !self.run.actions.touches(&group_resource) {
            return Ok(Acted::Ready(meta, bytes));
        }
        let bytes = complete(&bytes, self.resource);
        let object: Value = match serde_json::from_slice(&bytes) {
            Ok(object) => object,
            Err(error) => {
                self.fail(&meta, "Unreadable", format!("it is not valid: {error}"));
                return Ok(Acted::Gone);
            }
        };
        if is_pod {
            let hooks = self.run.hooks.of_pod(&object);
            if !hooks.is_empty() || self.wants_volumes(&object) || blocks {
                return Ok(Acted::Apart(Box::new(Pod { meta, bytes, object, hooks })));
            }
        }
        let acted = self.apply(meta, bytes, object, task).await?;
        Ok(acted.map_or(Acted::Gone, |(meta, bytes)| Acted::Ready(meta, bytes)))
    }

    fn wants_volumes(&self, pod: &Value) -> bool {
        let Some(volumes) = &self.run.volumes else {
            self.warn_of_volumes(pod);
            return false;
        };
        volumes.wants(pod)
    }

    /// Nobody may believe that data is in a backup when it is not.
    fn warn_of_volumes(&self, pod: &Value) {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let asked = pod.pointer("/metadata/annotations").and_then(|all| all.get(labels::BACKUP_VOLUMES));
        if let Some(volumes) = asked.and_then(Value::as_str).filter(|names| !names.is_empty()) {
            let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
            let line = format!(
                "pod {namespace}/{name} asks for its volumes {volumes} to be backed up: this server backs up no volume data"
            );
            self.recorder.warn(&Scope::Namespace(namespace.to_owned()), line);
        }
    }

    /// Backs up pods that belong together, most often one alone, between the pre-hooks and the post-hooks of all of them. The
    /// post-hooks run whatever happens before them.
    pub(super) async fn back_up_pods(&self, block: Vec<Pod>, task: &Task) -> Result<Vec<(ItemMeta, Bytes)>, Error> {
        let still = block.iter().any(|pod| !pod.hooks.is_empty());
        let mut opened = Vec::with_capacity(block.len());
        for pod in &block {
            let task = task.child(pod.meta.path());
            for warning in &pod.hooks.warnings {
                let scope = Scope::Namespace(pod.meta.namespace.clone().unwrap_or_default());
                self.recorder.warn(&scope, format!("pod {}: {warning}", pod.meta.path()));
            }
            let open = self.hooks.before(&pod.object, &pod.hooks, &task, self.recorder).await?;
            opened.push((open, task));
        }
        let works = block.iter().zip(&opened).map(|(pod, (open, task))| async move {
            if open.problem.is_some() {
                return Ok(None);
            }
            let item = self.apply(pod.meta.clone(), pod.bytes.clone(), pod.object.clone(), task).await?;
            if let Some(volumes) = &self.run.volumes {
                volumes.back_up(&pod.object, still, task).await?;
            }
            Ok(item)
        });
        let done: Result<Vec<_>, Error> = join_all(works.collect::<Vec<_>>()).await.into_iter().collect();
        if matches!(done, Err(Error::Fenced(_))) {
            return done.map(|_| Vec::new());
        }
        for (pod, (open, task)) in block.iter().zip(opened) {
            let problem = open.problem.clone();
            self.hooks.after(open, &pod.hooks, &task, self.recorder).await?;
            match problem {
                None => task.finish(),
                Some(problem) => {
                    task.fail(&problem);
                    self.fail(&pod.meta, "HookFailed", problem);
                }
            }
        }
        Ok(done?.into_iter().flatten().collect())
    }

    /// Runs the item actions.
    async fn apply(
        &self,
        meta: ItemMeta,
        bytes: Bytes,
        mut object: Value,
        task: &Task,
    ) -> Result<Option<(ItemMeta, Bytes)>, Error> {
        let group_resource = self.resource.group_resource();
        let item_labels = meta.labels.clone().unwrap_or_default();
        let mut changed = false;
        for (name, action) in self.run.actions.applying(&group_resource, meta.namespace.as_deref(), &item_labels) {
            let answering = action.execute(&object, &self.run.backup);
            let answer = match asked(name, &meta.path(), action.process(), task, answering).await {
                Ok(answer) => answer,
                Err(error @ (Error::Fenced(_) | Error::Cancelled)) => return Err(error),
                Err(error) => {
                    self.fail(&meta, error.reason(), format!("item action {name}: {error}"));
                    return Ok(None);
                }
            };
            if let (Some(begun), Some(background)) = (answer.operation, Arc::clone(action).background()) {
                let item = ItemId::new(&group_resource, meta.namespace.as_deref(), &meta.name);
                self.run.operations.begin(name, item, begun, background).await?;
            }
            if let Some(item) = answer.item {
                (object, changed) = (item, true);
            }
            let forced = take_annotation(&mut object, labels::MUST_INCLUDE_ADDITIONAL_ITEMS);
            changed |= forced;
            for wanted in answer.additional.into_iter().filter(|wanted| forced || !self.comes_by_itself(wanted)) {
                self.found.want(wanted, forced);
            }
            if take_annotation(&mut object, SKIP) {
                self.recorder
                    .item(&item_ref(self.resource, &meta), &ItemOutcome::Skipped { reason: "SkippedByAction" });
                task.meter(Unit::Items).skip(1);
                return Ok(None);
            }
        }
        if let (VOLUMES, Some(volumes)) = (group_resource.as_str(), &self.run.volumes) {
            volumes.persistent(&object);
        }
        let bytes = if changed { Bytes::from(object.to_string()) } else { bytes };
        Ok(Some((meta, bytes)))
    }

    /// Whether an object's own list brings it, or leaves it out for a reason that holds here too.
    fn comes_by_itself(&self, item: &ItemId) -> bool {
        let plan = &self.run.plan;
        let chosen = |name: &String| plan.namespaces.as_ref().is_none_or(|chosen| chosen.contains(name));
        let planned = plan.resources.iter().any(|planned| planned.resource.group_resource() == item.group_resource);
        planned && !self.run.selecting.is_finer_than_resources() && item.namespace.as_ref().is_none_or(chosen)
    }

    fn fail(&self, meta: &ItemMeta, reason: &str, message: String) {
        let outcome = ItemOutcome::Failed { reason: reason.to_owned(), message };
        self.recorder.item(&item_ref(self.resource, meta), &outcome);
        self.run.reading.meter(Unit::Items).fail(1);
    }
}

/// Takes a mark that an action left for us off an item. Whether it was there and says yes.
fn take_annotation(object: &mut Value, key: &str) -> bool {
    let all = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    all.and_then(|all| all.remove(key)).is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mark_for_us_does_not_reach_the_archive() {
        let mut object = json!({"metadata": {"annotations": {SKIP: "true", "keep": "me"}}});
        assert!(take_annotation(&mut object, SKIP) && !take_annotation(&mut object, SKIP));
        assert_eq!(object, json!({"metadata": {"annotations": {"keep": "me"}}}));
    }
}
