//! Second step: group-resources in their order, the items of one in parallel.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use plimsoll_archive::spool::SpooledObject;
use plimsoll_progress::{Meter, Task, Unit};
use plimsoll_select::includes::IncludesExcludes;
use plimsoll_select::resource_modifiers::ResourceModifiers;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::action::Identifier;
use super::actions::Actions;
use super::claims::{Claims, Settled};
use super::existing::ExistingPolicy;
use super::hooks::PodHooks;
use super::item::Origin;
use super::namespaces::Namespaces;
use super::pace::{MOST, Pace};
use super::plan::RestorePlan;
use super::requests::Webhooks;
use super::volumes::Volumes;
use crate::cluster::{Cluster, Resource};
use crate::operations::Operations;
use crate::outcome::{ItemOutcome, ItemRef, Recorder, Scope};
use crate::ports::{Guard, SnapshotVolumes, VolumeData};
use crate::selection::Selecting;
use crate::{Error, kill};

pub(super) const POLL: Duration = Duration::from_millis(250);

/// How long a restore waits for others.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For a definition to be established, and for what actions want to wait for.
    pub resource: Duration,
    /// For what is being deleted to be gone.
    pub terminating: Duration,
    /// For an admission webhook that the API server cannot reach.
    pub webhook: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            resource: Duration::from_mins(10),
            terminating: Duration::from_mins(10),
            webhook: Duration::from_secs(30),
        }
    }
}

/// What the Restore says about the objects on their way.
pub struct Rules {
    /// Its filters.
    pub selecting: Arc<Selecting>,
    /// The resources the cluster had before anything was restored.
    pub resources: Vec<Resource>,
    /// What changes objects.
    pub actions: Actions,
    /// The Restore itself, for the actions.
    pub restore: Value,
    /// What happens to objects that are there already.
    pub existing: ExistingPolicy,
    /// The resources whose status is restored.
    pub status: Option<IncludesExcludes>,
    /// Patches from the user.
    pub modifiers: Option<ResourceModifiers>,
    /// What is known of the volumes.
    pub volumes: Volumes,
    /// Commands in restored pods.
    pub hooks: Arc<PodHooks>,
    /// Who restores the data of pods' volumes, if anybody does.
    pub data: Option<Arc<dyn VolumeData>>,
    /// Who makes volumes from the snapshots of plugins, if anybody does.
    pub snapshots: Option<Arc<dyn SnapshotVolumes>>,
    /// How long to wait.
    pub limits: Limits,
}

/// Everything a restore of objects needs.
pub struct RestoreRun {
    /// The cluster to write to.
    pub cluster: Cluster,
    /// Whose restore it is.
    pub origin: Origin,
    /// What to restore.
    pub plan: RestorePlan,
    /// What happens to it on the way.
    pub rules: Rules,
    /// Shows how far it is.
    pub task: Task,
    /// Leave to act.
    pub guard: Arc<dyn Guard>,
    /// Stops it.
    pub cancel: CancellationToken,
    /// Takes down what happens.
    pub recorder: Arc<Recorder>,
    /// What actions began in the background.
    pub operations: Arc<Operations>,
    /// What is found out on the way.
    pub inner: Inner,
}

/// What a run finds out on its way.
pub struct Inner {
    pub(super) claims: Claims,
    pub(super) namespaces: Namespaces,
    pub(super) pace: Pace,
    pub(super) webhooks: Webhooks,
    items: Meter,
}

impl Inner {
    /// Nothing found out yet, about this plan.
    pub fn new(plan: &RestorePlan, task: &Task) -> Self {
        Self {
            claims: Claims::new(plan.spool.len() + plan.reserve.len()),
            namespaces: Namespaces::default(),
            pace: Pace::new(),
            webhooks: Webhooks::default(),
            items: task.meter(Unit::Items),
        }
    }
}

impl RestoreRun {
    /// Creates everything in the plan. Partial failure is an outcome, not an error.
    ///
    /// # Cancel safety
    /// Cancelling leaves what was created until then; every item is either counted or was not begun.
    pub async fn run(&self) -> Result<(), Error> {
        let items = &self.inner.items;
        items.set_total(self.plan.opening_total(&self.rules.actions));
        items.fail(self.plan.damaged);
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Error::Cancelled),
            answer = self.run_resources() => answer,
        }
    }

    async fn run_resources(&self) -> Result<(), Error> {
        let resources: Vec<_> = self.plan.spool.resources().collect();
        let grows: Vec<bool> =
            resources.iter().map(|(resource, _)| self.plan.may_grow(&self.rules.actions, resource)).collect();
        let last = grows.iter().rposition(|grows| *grows);
        for (place, (group_resource, range)) in resources.into_iter().enumerate() {
            if last.is_none_or(|last| place > last) {
                self.inner.items.finalize_total();
            }
            let task = self.task.child(group_resource);
            let own = task.meter(Unit::Items);
            own.set_total(plimsoll_progress::Total::Final(range.len() as u64));
            self.recorder.log().info(format!("{group_resource}: {} items", range.len()));
            stream::iter(range)
                .map(|row| self.turn(row, &task, &own))
                .buffer_unordered(MOST)
                .try_collect::<()>()
                .await?;
            task.finish();
        }
        self.inner.items.finalize_total();
        Ok(())
    }

    /// An item's own turn, unless another item needed it earlier.
    async fn turn(&self, row: usize, task: &Task, own: &Meter) -> Result<(), Error> {
        let settled = if self.inner.claims.take(row) {
            self.settle(row, task).await?
        } else {
            self.inner.claims.outcome(row).await
        };
        count(own, settled);
        Ok(())
    }

    /// Restores an item that was taken, and counts it: once.
    async fn settle(&self, row: usize, task: &Task) -> Result<Settled, Error> {
        self.guard.effect()?;
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
        let settled = settled(&outcome);
        count(&self.inner.items, settled);
        self.inner.claims.settle(row, settled);
        kill::point("restore.item.counted");
        Ok(settled)
    }

    /// Restores an item that another one needs, before that one. Says whether it is in the cluster.
    pub(super) async fn restore_additional(
        &self,
        parent: usize,
        wanted: &Identifier,
        must: bool,
        task: &Task,
    ) -> Result<bool, Error> {
        let Some((row, planned)) = self.find(&wanted.group_resource, wanted.namespace.as_deref(), &wanted.name)? else {
            let scope = wanted.namespace.clone().map_or(Scope::Cluster, Scope::Namespace);
            self.recorder.warn(&scope, format!("additional item {wanted} is not in the backup"));
            return Ok(false);
        };
        let admitted = planned || must || {
            let name = &wanted.name;
            self.rules.selecting.restores_additional(&wanted.group_resource, wanted.namespace.as_deref(), name)
        };
        if !admitted {
            self.recorder.log().info(format!("additional item {wanted} is left out by the filters"));
            return Ok(false);
        }
        let Some(_waiting) = self.inner.claims.wait_for(parent, row) else { return Ok(false) };
        if !self.inner.claims.take(row) {
            return Ok(self.inner.claims.outcome(row).await.is_there());
        }
        if !planned {
            self.inner.items.grow_total(1);
        }
        Ok(Box::pin(self.settle(row, task)).await?.is_there())
    }

    /// The row of an object, and whether it is planned rather than in reserve.
    fn find(&self, resource: &str, namespace: Option<&str>, name: &str) -> Result<Option<(usize, bool)>, Error> {
        let RestorePlan { spool, reserve, .. } = &self.plan;
        if let Some(row) = spool.find(resource, namespace, name).map_err(broken_spool)? {
            return Ok(Some((row, true)));
        }
        let row = reserve.find(resource, namespace, name).map_err(broken_spool)?;
        Ok(row.map(|row| (spool.len() + row, false)))
    }

    /// An object of the backup, selected or not.
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
        read.map_err(broken_spool)
    }
}

fn broken_spool(source: plimsoll_archive::Error) -> Error {
    Error::Archive { name: "spool".into(), source }
}

fn count(meter: &Meter, settled: Settled) {
    match settled {
        Settled::Restored => meter.add(1),
        Settled::Skipped { .. } => meter.skip(1),
        Settled::Failed => meter.fail(1),
    }
}

fn settled(outcome: &ItemOutcome) -> Settled {
    match outcome {
        ItemOutcome::Skipped { reason } => Settled::Skipped { there: reason.starts_with("AlreadyThere") },
        ItemOutcome::Failed { .. } => Settled::Failed,
        _ => Settled::Restored,
    }
}

fn item_ref(spooled: &SpooledObject, object: &Value, origin: &Origin) -> ItemRef {
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
