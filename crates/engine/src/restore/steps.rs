//! What happens to one item on its way from the archive into the cluster, step by step.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::labels::RESTORE_MUST_INCLUDE_ADDITIONAL_ITEMS as MUST_INCLUDE;
use plimsoll_archive::spool::SpooledObject;
use plimsoll_progress::Task;
use serde_json::Value;

use super::action::{Identifier, Input, Output, RestoreItemAction};
use super::create::Ready;
use super::item::{address, finished, restores_status, strip};
use super::namespaces::NAMESPACES;
use super::ownership::Ownership;
use super::run::{POLL, RestoreRun, failed};
use super::volumes::{Decision, release_volume};
use crate::Error;
use crate::asked::asked;
use crate::backup::actions::ItemId;
use crate::cluster::collection_path;
use crate::operations::Begun;
use crate::outcome::{ItemOutcome, ItemRef, Scope};

const VOLUMES: &str = "persistentvolumes";
const CLAIMS: &str = "persistentvolumeclaims";
/// Read by the actions of claims, never created: they need no namespace.
const RECORDS: &str = "datauploads.velero.io";

/// Either goes on with something, or ends here.
pub(super) enum Step<T> {
    On(T),
    End(ItemOutcome),
}

impl RestoreRun {
    /// All steps of an item.
    pub(super) async fn restore(
        &self,
        row: usize,
        spooled: &SpooledObject,
        object: Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        let resource = spooled.group_resource.as_str();
        if let Some(reason) = finished(resource, &object) {
            return Ok(ItemOutcome::Skipped { reason });
        }
        if resource == NAMESPACES {
            return self.restore_namespace(&spooled.name, task).await;
        }
        if let Some(namespace) = &spooled.namespace
            && resource != RECORDS
            && let Err(message) = self.namespace_ready(namespace, task).await?
        {
            return Ok(failed("NamespaceNotReady", message));
        }
        let from_backup = object.clone();
        let changed = match self.prepare(resource, object, item, task).await? {
            Step::On((object, status)) => match self.act(row, resource, object, &from_backup, task).await? {
                Step::On(object) => self.modify(resource, object, status),
                Step::End(outcome) => Step::End(outcome),
            },
            Step::End(outcome) => Step::End(outcome),
        };
        match changed {
            Step::On((object, status)) => self.finish(resource, object, status, from_backup, item, task).await,
            Step::End(outcome) => Ok(outcome),
        }
    }

    /// Takes off what belonged to the old object; decides about volumes.
    async fn prepare(
        &self,
        resource: &str,
        mut object: Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<Step<(Value, Option<Value>)>, Error> {
        if resource == VOLUMES {
            match self.rules.volumes.decide(&object) {
                Decision::AsItIs => release_volume(&mut object, &self.origin),
                Decision::MadeAnew(lost) => return Ok(self.make_volume_anew(item, lost)),
                Decision::FromSnapshot => match self.volume_from_snapshot(object, item, task).await? {
                    Ok(made) => object = made,
                    Err(outcome) => return Ok(Step::End(outcome)),
                },
            }
        }
        let status = strip(&mut object);
        Ok(Step::On((object, status)))
    }

    fn make_volume_anew<T>(&self, item: &ItemRef, lost: Option<String>) -> Step<T> {
        self.rules.volumes.make_anew(&item.name);
        if let Some(lost) = lost {
            self.recorder.error(&Scope::Cluster, format!("{} {}: {lost}", item.kind, item.path()));
        }
        Step::End(ItemOutcome::Skipped { reason: "WillBeProvisioned" })
    }

    /// Runs the actions that want the object, in their order, and restores what they ask for.
    async fn act(
        &self,
        row: usize,
        resource: &str,
        mut object: Value,
        from_backup: &Value,
        task: &Task,
    ) -> Result<Step<Value>, Error> {
        if !self.rules.actions.touches(resource) {
            return Ok(Step::On(object));
        }
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        let namespace = namespace.map(|namespace| self.origin.target(namespace).to_owned());
        let labels = object.pointer("/metadata/labels").cloned().unwrap_or_default();
        for (name, action) in self.rules.actions.applying(resource, namespace.as_deref(), &labels) {
            let input = Input { item: object, from_backup, restore: &self.rules.restore };
            let called = from_backup.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            let mut output = match asked(name, called, action.process(), task, action.execute(input)).await {
                Ok(output) => output,
                Err(problem) => return Ok(Step::End(failed("ActionFailed", format!("item action {name}: {problem}")))),
            };
            for warning in std::mem::take(&mut output.warnings) {
                self.recorder.warn(&Scope::Operation, format!("item action {name}: {warning}"));
            }
            if let Some(operation) = output.operation.take() {
                self.recorder.log().info(format!("item action {name} began operation {operation}"));
                if let Some(background) = Arc::clone(action).background() {
                    let at = from_backup.pointer("/metadata/namespace").and_then(Value::as_str);
                    let begun = Begun { id: operation, post: Vec::new() };
                    self.operations.begin(name, ItemId::new(resource, at, called), begun, background).await?;
                }
            }
            if output.skip {
                self.recorder.log().info(format!("item action {name} leaves the item out"));
                return Ok(Step::End(ItemOutcome::Skipped { reason: "SkippedByAction" }));
            }
            let must = take_must_include(&mut output.item);
            let there = self.restore_all_additional(row, &output.additional, must, task).await?;
            if let Err(problem) = self.additional_ready(action.as_ref(), &output, &there, task).await {
                return Ok(Step::End(failed("AdditionalItemsNotReady", format!("item action {name}: {problem}"))));
            }
            object = output.item;
        }
        if resource == CLAIMS {
            self.rules.volumes.release_claim(&mut object);
        }
        Ok(Step::On(object))
    }

    /// Those of the additional items that are in the cluster afterwards.
    async fn restore_all_additional(
        &self,
        row: usize,
        wanted: &[Identifier],
        must: bool,
        task: &Task,
    ) -> Result<Vec<Identifier>, Error> {
        let mut there = Vec::new();
        for wanted in wanted {
            if self.restore_additional(row, wanted, must, task).await? {
                there.push(wanted.clone());
            }
        }
        Ok(there)
    }

    /// Waits for what an action wants to wait for, visibly and not for ever.
    async fn additional_ready(
        &self,
        action: &dyn RestoreItemAction,
        output: &Output,
        there: &[Identifier],
        task: &Task,
    ) -> Result<(), String> {
        let Some(limit) = output.wait_for_additional else { return Ok(()) };
        let limit = if limit.is_zero() { self.rules.limits.resource } else { limit };
        let started = tokio::time::Instant::now();
        let mut waiting = None;
        while !action.additional_ready(there, &self.rules.restore).await? {
            if started.elapsed() >= limit {
                return Err(format!("the items it asked for are not ready after {limit:?}"));
            }
            waiting.get_or_insert_with(|| task.wait("waiting for additional items to be ready"));
            tokio::time::sleep(POLL.max(Duration::from_millis(1))).await;
        }
        Ok(())
    }

    /// Applies the user's own patches. An object that one of them fails on is not created without it.
    fn modify(&self, resource: &str, mut object: Value, status: Option<Value>) -> Step<(Value, Option<Value>)> {
        let errors = self.rules.modifiers.as_ref().map(|rules| rules.apply(&mut object, resource)).unwrap_or_default();
        match errors.first() {
            Some(error) => Step::End(failed(error.reason(), error.to_string())),
            None => Step::On((object, status)),
        }
    }

    /// Gives the object its new address, and brings it there.
    async fn finish(
        &self,
        resource: &str,
        mut object: Value,
        status: Option<Value>,
        mut original: Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        address(&mut object, &self.origin);
        strip(&mut original);
        address(&mut original, &self.origin);
        let ownership = Ownership::take(&mut object);
        let by_spec = self.rules.status.as_ref().is_some_and(|resources| resources.includes(resource));
        let status = status.filter(|_| restores_status(&object, by_spec));
        let Some(collection) = self.collection(resource, &object, &original) else {
            return Ok(failed(
                "KindNotServed",
                format!("kind {} {} is not served here", object["apiVersion"], object["kind"]),
            ));
        };
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let ready = Ready { path: format!("{collection}/{name}"), collection, object, original, status, ownership };
        self.create(resource, &ready, item, task).await
    }

    /// Where the object is created: an action may have made another kind of it.
    fn collection(&self, resource: &str, object: &Value, original: &Value) -> Option<String> {
        let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(object, "apiVersion"), text(object, "kind"));
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        if kind == text(original, "kind") {
            let plural = resource.split('.').next().unwrap_or_default();
            return Some(collection_path(&version, plural, namespace));
        }
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        let served = self.rules.resources.iter().find(|served| served.kind == kind && served.group == group)?;
        Some(collection_path(&version, &served.plural, namespace))
    }
}

/// Whether the filters do not matter for what an action asks for. The annotation that says so never reaches the cluster.
fn take_must_include(item: &mut Value) -> bool {
    let annotations = item.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    annotations.and_then(|all| all.remove(MUST_INCLUDE)).is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_annotation_that_lifts_the_filters_is_taken_off() {
        for (value, lifts) in [("true", true), ("false", false)] {
            let mut item = json!({"metadata": {"annotations": {MUST_INCLUDE: value, "mine": "kept"}}});
            assert_eq!(take_must_include(&mut item), lifts);
            assert_eq!(item, json!({"metadata": {"annotations": {"mine": "kept"}}}));
        }
        assert!(!take_must_include(&mut json!({})));
    }
}
