//! Runs a restore: resources in order, the items of a resource in parallel.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use plimsoll_archive::spool::SpooledObject;
use plimsoll_progress::{Meter, Task, Unit};
use plimsoll_select::includes::IncludesExcludes;
use plimsoll_select::resource_modifiers::ResourceModifiers;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::action::ItemId;
use super::actions::Actions;
use super::api_requests::Webhooks;
use super::backup_volumes::BackupVolumes;
use super::concurrency_limiter::{ConcurrencyLimiter, MAX_CONCURRENCY};
use super::existing_object::ExistingPolicy;
use super::hooks::RestoreHookRunner;
use super::item::RestoreOrigin;
use super::item_states::{ItemResult, ItemStates};
use super::namespaces::Namespaces;
use super::plan::RestorePlan;
use crate::cluster::{Cluster, Resource};
use crate::item_filter::ItemFilter;
use crate::item_operations::ItemOperations;
use crate::outcome::{ItemOutcome, ItemRef, Recorder, Scope};
use crate::ports::{LeadershipGuard, SnapshotRestorer, VolumeRestorer};
use crate::{Error, kill, unless_cancelled};

pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Timeouts of a restore.
#[derive(Clone, Copy, Debug)]
pub struct RestoreTimeouts {
    /// For CustomResourceDefinitions and additional items.
    pub resource: Duration,
    /// For objects that are being deleted.
    pub terminating: Duration,
    /// For unreachable admission webhooks.
    pub webhook: Duration,
}

impl Default for RestoreTimeouts {
    fn default() -> Self {
        Self {
            resource: Duration::from_mins(10),
            terminating: Duration::from_mins(10),
            webhook: Duration::from_secs(30),
        }
    }
}

/// Settings of a Restore for its items.
pub struct RestoreRules {
    /// The filters.
    pub item_filter: Arc<ItemFilter>,
    /// The resources of the cluster before the restore.
    pub resources: Vec<Resource>,
    /// Restore item actions.
    pub actions: Actions,
    /// The Restore object, for actions.
    pub restore: Value,
    /// `existingResourcePolicy`.
    pub existing: ExistingPolicy,
    /// The resources whose status is restored.
    pub status: Option<IncludesExcludes>,
    /// Resource modifiers.
    pub modifiers: Option<ResourceModifiers>,
    /// The volumes of the backup.
    pub volumes: BackupVolumes,
    /// Hooks.
    pub hooks: Arc<RestoreHookRunner>,
    /// Restores the data of pod volumes, if supported.
    pub data: Option<Arc<dyn VolumeRestorer>>,
    /// Creates volumes from snapshots of volume snapshotters, if supported.
    pub snapshots: Option<Arc<dyn SnapshotRestorer>>,
    /// Timeouts.
    pub timeouts: RestoreTimeouts,
}

/// A restore of objects.
pub(super) struct RestoreRun {
    /// The cluster to write to.
    pub(super) cluster: Cluster,
    /// The restore and its namespace mapping.
    pub(super) origin: RestoreOrigin,
    /// The plan.
    pub(super) plan: RestorePlan,
    /// Settings.
    pub(super) rules: RestoreRules,
    /// Shows the progress.
    pub(super) task: Task,
    /// Checked before every effect.
    pub(super) guard: Arc<dyn LeadershipGuard>,
    /// Cancels the run.
    pub(super) cancel: CancellationToken,
    /// Records outcomes and messages.
    pub(super) recorder: Arc<Recorder>,
    /// Item operations that actions started.
    pub(super) operations: Arc<ItemOperations>,
    /// State of the run.
    pub(super) state: RunState,
}

/// State of a run.
pub(super) struct RunState {
    pub(super) item_states: ItemStates,
    pub(super) namespaces: Namespaces,
    pub(super) limiter: ConcurrencyLimiter,
    pub(super) webhooks: Webhooks,
    items: Meter,
}

impl RunState {
    /// The initial state for a plan.
    pub(super) fn new(plan: &RestorePlan, task: &Task) -> Self {
        Self {
            item_states: ItemStates::new(plan.spool.len() + plan.reserve.len()),
            namespaces: Namespaces::default(),
            limiter: ConcurrencyLimiter::new(),
            webhooks: Webhooks::default(),
            items: task.meter(Unit::Items),
        }
    }
}

impl RestoreRun {
    /// Restores all items of the plan. Failed items are outcomes, not errors.
    ///
    /// # Cancel safety
    /// Cancelling keeps the objects that were created. Every item is either counted or was not started.
    pub(super) async fn run(&self) -> Result<(), Error> {
        let items = &self.state.items;
        items.set_total(self.plan.initial_total(&self.rules.actions));
        items.fail(self.plan.damaged);
        unless_cancelled(&self.cancel, Box::pin(self.run_resources())).await
    }

    async fn run_resources(&self) -> Result<(), Error> {
        let resources: Vec<_> = self.plan.spool.resources().collect();
        let grows: Vec<bool> =
            resources.iter().map(|(resource, _)| self.plan.may_grow(&self.rules.actions, resource)).collect();
        let last = grows.iter().rposition(|grows| *grows);
        for (index, (group_resource, range)) in resources.into_iter().enumerate() {
            if last.is_none_or(|last| index > last) {
                self.state.items.finalize_total();
            }
            let task = self.task.child(group_resource);
            let resource_items = task.meter(Unit::Items);
            resource_items.set_total(plimsoll_progress::Total::Final(range.len() as u64));
            self.recorder.log().info(format!("{group_resource}: {} items", range.len()));
            stream::iter(range)
                .map(|row| self.restore_in_order(row, &task, &resource_items))
                .buffer_unordered(MAX_CONCURRENCY)
                .try_collect::<()>()
                .await?;
            task.finish();
        }
        self.state.items.finalize_total();
        Ok(())
    }

    /// Restores an item in its order, unless it was restored as an additional item.
    async fn restore_in_order(&self, row: usize, task: &Task, resource_items: &Meter) -> Result<(), Error> {
        let result = if self.state.item_states.try_start(row) {
            self.restore_row(row, task).await?
        } else {
            self.state.item_states.wait_for_result(row).await
        };
        count(resource_items, result);
        Ok(())
    }

    /// Restores and counts a started item.
    async fn restore_row(&self, row: usize, task: &Task) -> Result<ItemResult, Error> {
        self.guard.check_effect()?;
        let spooled = self.read(row)?;
        let (item, outcome) = match serde_json::from_slice::<Value>(&spooled.json) {
            Ok(object) => {
                let item = item_ref(&spooled, &object, &self.origin);
                task.say(item.path());
                let outcome = self.restore(row, &spooled, object, &item, task).await?;
                (item, outcome)
            }
            Err(error) => (unreadable(&spooled), failed("Unreadable", error.to_string())),
        };
        if let ItemOutcome::Skipped { reason } = &outcome {
            self.recorder.log().info(format!("{} {}: skipped: {reason}", item.kind, item.path()));
        }
        self.recorder.item(&item, &outcome);
        let result = item_result(&outcome);
        count(&self.state.items, result);
        self.state.item_states.set_result(row, result);
        kill::point("restore.item.counted");
        Ok(result)
    }

    /// Restores an additional item. Returns whether it is in the cluster.
    pub(super) async fn restore_additional(
        &self,
        parent: usize,
        wanted: &ItemId,
        must_include: bool,
        task: &Task,
    ) -> Result<bool, Error> {
        let Some((row, planned)) = self.find(&wanted.group_resource, wanted.namespace.as_deref(), &wanted.name)? else {
            let scope = wanted.namespace.clone().map_or(Scope::Cluster, Scope::Namespace);
            self.recorder.warn(&scope, format!("additional item {wanted} not found in the backup"));
            return Ok(false);
        };
        let selected = planned || must_include || {
            let name = &wanted.name;
            self.rules.item_filter.restores_additional_item(&wanted.group_resource, wanted.namespace.as_deref(), name)
        };
        if !selected {
            self.recorder.log().info(format!("additional item {wanted} is excluded by the filters"));
            return Ok(false);
        }
        let Some(_waiting) = self.state.item_states.add_dependency(parent, row) else { return Ok(false) };
        if !self.state.item_states.try_start(row) {
            return Ok(self.state.item_states.wait_for_result(row).await.exists());
        }
        if !planned {
            self.state.items.grow_total(1);
        }
        Ok(Box::pin(self.restore_row(row, task)).await?.exists())
    }

    /// The row of an object, and whether it is in the plan rather than in the reserve.
    pub(super) fn find(
        &self,
        resource: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<(usize, bool)>, Error> {
        let RestorePlan { spool, reserve, .. } = &self.plan;
        if let Some(row) = spool.find(resource, namespace, name).map_err(spool_error)? {
            return Ok(Some((row, true)));
        }
        let row = reserve.find(resource, namespace, name).map_err(spool_error)?;
        Ok(row.map(|row| (spool.len() + row, false)))
    }

    /// Reads an object of the backup, selected or not.
    pub(super) fn find_object(
        &self,
        resource: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, Error> {
        let Some((row, _)) = self.find(resource, namespace, name)? else { return Ok(None) };
        Ok(serde_json::from_slice(&self.read(row)?.json).ok())
    }

    fn read(&self, row: usize) -> Result<SpooledObject, Error> {
        let planned = self.plan.spool.len();
        let read = match row.checked_sub(planned) {
            None => self.plan.spool.read(row),
            Some(row) => self.plan.reserve.read(row),
        };
        read.map_err(spool_error)
    }
}

fn spool_error(source: plimsoll_archive::Error) -> Error {
    Error::Archive { name: "spool".into(), source }
}

fn count(meter: &Meter, result: ItemResult) {
    match result {
        ItemResult::Restored => meter.add(1),
        ItemResult::Skipped { .. } => meter.skip(1),
        ItemResult::Failed => meter.fail(1),
    }
}

fn item_result(outcome: &ItemOutcome) -> ItemResult {
    match outcome {
        ItemOutcome::Skipped { reason } => ItemResult::Skipped { exists: reason.starts_with("AlreadyExists") },
        ItemOutcome::Failed { .. } => ItemResult::Failed,
        _ => ItemResult::Restored,
    }
}

fn item_ref(spooled: &SpooledObject, object: &Value, origin: &RestoreOrigin) -> ItemRef {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let name = match spooled.group_resource.as_str() {
        super::namespaces::NAMESPACES => origin.target(&spooled.name),
        _ => &spooled.name,
    };
    ItemRef {
        kind: format!("{}/{}", text("apiVersion"), text("kind")),
        namespace: spooled.namespace.as_deref().map(|namespace| origin.target(namespace).to_owned()),
        name: name.to_owned(),
    }
}

fn unreadable(spooled: &SpooledObject) -> ItemRef {
    ItemRef { kind: spooled.group_resource.clone(), namespace: spooled.namespace.clone(), name: spooled.name.clone() }
}

pub(super) fn failed(reason: &str, message: String) -> ItemOutcome {
    ItemOutcome::Failed { reason: reason.to_owned(), message }
}
