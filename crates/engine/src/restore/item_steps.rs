//! The steps of one item from the archive to the cluster.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::labels::RESTORE_MUST_INCLUDE_ADDITIONAL_ITEMS as MUST_INCLUDE;
use plimsoll_archive::spool::SpooledObject;
use plimsoll_progress::Task;
use serde_json::Value;

use super::action::{ItemId, RestoreActionInput, RestoreActionOutput, RestoreItemAction};
use super::backup_volumes::{VolumeDecision, release_volume};
use super::create::PreparedObject;
use super::field_ownership::FieldOwnership;
use super::item::{restores_status, set_namespace_and_labels, skip_reason, strip};
use super::namespaces::NAMESPACES;
use super::run::{POLL_INTERVAL, RestoreRun, failed};
use crate::Error;
use crate::action_call::call_action;
use crate::cluster::collection_path;
use crate::item_operations::StartedOperation;
use crate::outcome::{ItemOutcome, ItemRef, Scope};

const VOLUMES: &str = "persistentvolumes";
const CLAIMS: &str = "persistentvolumeclaims";
/// Read by the actions of claims and never created: no namespace is needed.
const RECORDS: &str = "datauploads.velero.io";

/// The result of a step: continue with a value, or done.
pub(super) enum Step<T> {
    Continue(T),
    Done(ItemOutcome),
}

impl RestoreRun {
    /// Runs all steps of an item.
    pub(super) async fn restore(
        &self,
        row: usize,
        spooled: &SpooledObject,
        object: Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        let resource = spooled.group_resource.as_str();
        if let Some(reason) = skip_reason(resource, &object) {
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
            Step::Continue((object, status)) => {
                match self.run_actions(row, resource, object, &from_backup, task).await? {
                    Step::Continue(object) => self.modify(resource, object, status),
                    Step::Done(outcome) => Step::Done(outcome),
                }
            }
            Step::Done(outcome) => Step::Done(outcome),
        };
        match changed {
            Step::Continue((object, status)) => self.finish(resource, object, status, from_backup, item, task).await,
            Step::Done(outcome) => Ok(outcome),
        }
    }

    /// Removes fields of the old object; decides about volumes.
    async fn prepare(
        &self,
        resource: &str,
        mut object: Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<Step<(Value, Option<Value>)>, Error> {
        if resource == VOLUMES {
            match self.rules.volumes.decide(&object) {
                VolumeDecision::RestoreObject => release_volume(&mut object, &self.origin),
                VolumeDecision::Provision(lost_data) => return Ok(self.provision_volume(item, lost_data)),
                VolumeDecision::RestoreSnapshot => match self.volume_from_snapshot(object, item, task).await? {
                    Ok(volume) => object = volume,
                    Err(outcome) => return Ok(Step::Done(outcome)),
                },
            }
        }
        let status = strip(&mut object);
        Ok(Step::Continue((object, status)))
    }

    fn provision_volume<T>(&self, item: &ItemRef, lost_data: Option<String>) -> Step<T> {
        self.rules.volumes.mark_provisioned(&item.name);
        if let Some(lost_data) = lost_data {
            self.recorder.error(&Scope::Cluster, format!("{} {}: {lost_data}", item.kind, item.path()));
        }
        Step::Done(ItemOutcome::Skipped { reason: "WillBeProvisioned" })
    }

    /// Runs the restore item actions in order, and restores their additional items.
    async fn run_actions(
        &self,
        row: usize,
        resource: &str,
        mut object: Value,
        from_backup: &Value,
        task: &Task,
    ) -> Result<Step<Value>, Error> {
        if !self.rules.actions.applies_to_resource(resource) {
            return Ok(Step::Continue(object));
        }
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        let namespace = namespace.map(|namespace| self.origin.target(namespace).to_owned());
        let labels = object.pointer("/metadata/labels").cloned().unwrap_or_default();
        for (name, action) in self.rules.actions.for_item(resource, namespace.as_deref(), &labels) {
            let input = RestoreActionInput { item: object, from_backup, restore: &self.rules.restore };
            let item_name = from_backup.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            let mut output = match call_action(name, item_name, action.process(), task, action.execute(input)).await {
                Ok(output) => output,
                Err(error) => return Ok(Step::Done(failed("ActionFailed", format!("item action {name}: {error}")))),
            };
            for warning in std::mem::take(&mut output.warnings) {
                self.recorder.warn(&Scope::Operation, format!("item action {name}: {warning}"));
            }
            if let Some(operation) = output.operation.take() {
                self.recorder.log().info(format!("item action {name} started operation {operation}"));
                if let Some(client) = Arc::clone(action).operation_client() {
                    let namespace = from_backup.pointer("/metadata/namespace").and_then(Value::as_str);
                    let started = StartedOperation { id: operation, post: Vec::new() };
                    self.operations.start(name, ItemId::new(resource, namespace, item_name), started, client).await?;
                }
            }
            if output.skip {
                self.recorder.log().info(format!("item action {name} skipped the item"));
                return Ok(Step::Done(ItemOutcome::Skipped { reason: "SkippedByAction" }));
            }
            let must_include = take_must_include(&mut output.item);
            let existing = self.restore_all_additional(row, &output.additional, must_include, task).await?;
            if let Err(error) = self.additional_ready(action.as_ref(), &output, &existing, task).await {
                return Ok(Step::Done(failed("AdditionalItemsNotReady", format!("item action {name}: {error}"))));
            }
            object = output.item;
        }
        if resource == CLAIMS {
            self.rules.volumes.release_claim(&mut object);
        }
        Ok(Step::Continue(object))
    }

    /// Restores additional items. Returns those that are in the cluster afterwards.
    async fn restore_all_additional(
        &self,
        row: usize,
        wanted: &[ItemId],
        must_include: bool,
        task: &Task,
    ) -> Result<Vec<ItemId>, Error> {
        let mut existing = Vec::new();
        for wanted in wanted {
            if self.restore_additional(row, wanted, must_include, task).await? {
                existing.push(wanted.clone());
            }
        }
        Ok(existing)
    }

    /// Waits until the additional items are ready, if the action requests it.
    async fn additional_ready(
        &self,
        action: &dyn RestoreItemAction,
        output: &RestoreActionOutput,
        existing: &[ItemId],
        task: &Task,
    ) -> Result<(), String> {
        let Some(limit) = output.wait_for_additional else { return Ok(()) };
        let limit = if limit.is_zero() { self.rules.timeouts.resource } else { limit };
        let started = tokio::time::Instant::now();
        let mut waiting = None;
        while !action.additional_ready(existing, &self.rules.restore).await? {
            if started.elapsed() >= limit {
                return Err(format!("additional items are not ready after {limit:?}"));
            }
            waiting.get_or_insert_with(|| task.wait("waiting for additional items to be ready"));
            tokio::time::sleep(POLL_INTERVAL.max(Duration::from_millis(1))).await;
        }
        Ok(())
    }

    /// Applies the resource modifiers. An item fails if one of them fails.
    fn modify(&self, resource: &str, mut object: Value, status: Option<Value>) -> Step<(Value, Option<Value>)> {
        let errors = self.rules.modifiers.as_ref().map(|rules| rules.apply(&mut object, resource)).unwrap_or_default();
        match errors.first() {
            Some(error) => Step::Done(failed(error.reason(), error.to_string())),
            None => Step::Continue((object, status)),
        }
    }

    /// Sets namespace and labels, and creates the object.
    async fn finish(
        &self,
        resource: &str,
        mut object: Value,
        status: Option<Value>,
        mut original: Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        set_namespace_and_labels(&mut object, &self.origin);
        strip(&mut original);
        set_namespace_and_labels(&mut original, &self.origin);
        let ownership = FieldOwnership::remove_from(&mut object);
        let by_spec = self.rules.status.as_ref().is_some_and(|resources| resources.includes(resource));
        let status = status.filter(|_| restores_status(&object, by_spec));
        let Some(collection) = self.collection(resource, &object, &original) else {
            return Ok(failed(
                "KindNotServed",
                format!("the cluster does not serve kind {} {}", object["apiVersion"], object["kind"]),
            ));
        };
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let prepared =
            PreparedObject { path: format!("{collection}/{name}"), collection, object, original, status, ownership };
        self.create(resource, &prepared, item, task).await
    }

    /// The collection of the object: an action may have changed its kind.
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

/// Whether the filters do not apply to additional items. Removes the annotation.
fn take_must_include(item: &mut Value) -> bool {
    let annotations = item.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    annotations.and_then(|all| all.remove(MUST_INCLUDE)).is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_must_include_annotation_is_removed() {
        for (value, expected) in [("true", true), ("false", false)] {
            let mut item = json!({"metadata": {"annotations": {MUST_INCLUDE: value, "mine": "kept"}}});
            assert_eq!(take_must_include(&mut item), expected);
            assert_eq!(item, json!({"metadata": {"annotations": {"mine": "kept"}}}));
        }
        assert!(!take_must_include(&mut json!({})));
    }
}
