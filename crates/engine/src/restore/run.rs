//! Second step: group-resources in their order, the items of one in parallel.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use plimsoll_archive::spool::Spooled;
use plimsoll_progress::{Meter, Task, Total, Unit};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::item::{Existing, Origin, field_manager, finished, judge, prepare};
use super::plan::RestorePlan;
use crate::cluster::{Cluster, collection_path};
use crate::outcome::{ItemOutcome, ItemRef, Recorder, Scope};
use crate::ports::Guard;
use crate::{Error, Patience, kill};

/// Items of one group-resource that are created at the same time.
const PARALLEL_ITEMS: usize = 32;
/// A namespace that is being deleted is waited for this long.
const TERMINATING_LIMIT: Duration = Duration::from_mins(10);
/// A definition is waited for this long.
const ESTABLISHED_LIMIT: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(250);

const NAMESPACES: &str = "namespaces";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Everything a restore of objects needs.
pub struct RestoreRun {
    /// The cluster to write to.
    pub cluster: Cluster,
    /// Whose restore it is.
    pub origin: Origin,
    /// What to restore.
    pub plan: RestorePlan,
    /// Shows how far it is.
    pub task: Task,
    /// Leave to act.
    pub guard: Arc<dyn Guard>,
    /// Stops it.
    pub cancel: CancellationToken,
    /// Takes down what happens.
    pub recorder: Arc<Recorder>,
}

impl RestoreRun {
    /// Creates everything in the plan. Partial failure is an outcome, not an error.
    ///
    /// # Cancel safety
    /// Cancelling leaves what was created until then; every item is either counted or was not begun.
    pub async fn run(self) -> Result<(), Error> {
        let items = self.task.meter(Unit::Items);
        items.set_total(Total::Final(self.plan.total()));
        items.fail(self.plan.damaged);
        let cancel = self.cancel.clone();
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Error::Cancelled),
            answer = self.run_resources(&items) => answer,
        }
    }

    async fn run_resources(&self, items: &Meter) -> Result<(), Error> {
        let namespaces = Namespaces { run: self, ready: Mutex::default() };
        for (group_resource, range) in self.plan.spool.resources() {
            let task = self.task.child(group_resource);
            let own = task.meter(Unit::Items);
            own.set_total(Total::Final(range.len() as u64));
            stream::iter(range)
                .map(|index| self.run_item(index, &namespaces, &task, items, &own))
                .buffer_unordered(PARALLEL_ITEMS)
                .try_collect::<()>()
                .await?;
            task.finish();
        }
        Ok(())
    }

    async fn run_item(
        &self,
        index: usize,
        namespaces: &Namespaces<'_>,
        task: &Task,
        items: &Meter,
        own: &Meter,
    ) -> Result<(), Error> {
        self.guard.effect()?;
        let spooled = self.plan.spool.read(index).map_err(|source| Error::Archive { name: "spool".into(), source })?;
        let object: Result<Value, _> = serde_json::from_slice(&spooled.json);
        let (item, outcome) = match object {
            Ok(object) => {
                let item = item_ref(&spooled, &object, &self.origin);
                task.say(item.path());
                let outcome = self.restore(&spooled, object, &item, namespaces, task).await?;
                (item, outcome)
            }
            Err(error) => (unreadable(&spooled), failed("Unreadable", error.to_string())),
        };
        self.recorder.item(&item, &outcome);
        for meter in [items, own] {
            match outcome {
                ItemOutcome::Skipped { .. } => meter.skip(1),
                ItemOutcome::Failed { .. } => meter.fail(1),
                _ => meter.add(1),
            }
        }
        kill::point("restore.item.counted");
        Ok(())
    }

    async fn restore(
        &self,
        spooled: &Spooled,
        mut object: Value,
        item: &ItemRef,
        namespaces: &Namespaces<'_>,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        if let Some(reason) = finished(&spooled.group_resource, &object) {
            self.recorder.log().info(format!("{} {}: skipped: {reason}", item.kind, item.path()));
            return Ok(ItemOutcome::Skipped { reason });
        }
        let manager = field_manager(&object);
        prepare(&mut object, &self.origin);
        if let Some(namespace) = &item.namespace
            && let Err(error) = namespaces.ready(namespace, task).await
        {
            return outcome_of(error);
        }
        if spooled.group_resource == NAMESPACES {
            namespaces.wait_while_terminating(&item.name, task).await?;
        }
        let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let plural = spooled.group_resource.split('.').next().unwrap_or_default();
        let collection = collection_path(&api_version, plural, item.namespace.as_deref());
        let outcome = self.create(&collection, &manager, &object, item, task).await?;
        if spooled.group_resource == DEFINITIONS && outcome == ItemOutcome::Created {
            self.wait_until_established(&format!("{collection}/{}", item.name), &item.name, task).await?;
        }
        Ok(outcome)
    }

    async fn create(
        &self,
        collection: &str,
        manager: &str,
        object: &Value,
        item: &ItemRef,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        let body = object.to_string().into_bytes();
        kill::point("restore.create.before");
        let create = || self.cluster.create(collection, manager, body.clone());
        let answer = Patience::default().run(task, create).await;
        kill::point("restore.create.after");
        match answer {
            Ok(_) => Ok(ItemOutcome::Created),
            Err(error) if error.code() == Some(409) => {
                self.meet(&format!("{collection}/{}", item.name), object, item, error, task).await
            }
            Err(error) => outcome_of(error),
        }
    }

    /// Something of this name is there already.
    async fn meet(
        &self,
        path: &str,
        wanted: &Value,
        item: &ItemRef,
        refused: Error,
        task: &Task,
    ) -> Result<ItemOutcome, Error> {
        let found = match Patience::default().run(task, || self.cluster.get(path)).await {
            Ok(Some(found)) => found,
            Ok(None) => return outcome_of(refused),
            Err(error) => return outcome_of(error),
        };
        let there: Value = serde_json::from_slice(&found).unwrap_or_default();
        Ok(match judge(&there, wanted, &self.origin) {
            Existing::Ours => ItemOutcome::Created,
            Existing::Equal => ItemOutcome::Skipped { reason: "AlreadyThere" },
            Existing::Different => {
                let text = format!(
                    "{} {} is already there and differs from the backup; it is left as it is",
                    item.kind,
                    item.path()
                );
                self.recorder.warn(&Scope::of(item), text);
                ItemOutcome::Skipped { reason: "AlreadyThereAndDifferent" }
            }
        })
    }

    /// What needs a definition can be created once the API server has taken it up.
    async fn wait_until_established(&self, path: &str, name: &str, task: &Task) -> Result<(), Error> {
        let started = tokio::time::Instant::now();
        let mut waiting = None;
        loop {
            let found = Patience::default().run(task, || self.cluster.get(path)).await?;
            let definition: Value = found.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
            let conditions =
                definition.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
            if conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True") {
                return Ok(());
            }
            if started.elapsed() > ESTABLISHED_LIMIT {
                let text =
                    format!("definition {name} is not established after {ESTABLISHED_LIMIT:?}; its objects may fail");
                self.recorder.warn(&Scope::Cluster, text);
                return Ok(());
            }
            waiting.get_or_insert_with(|| task.wait(format!("waiting for definition {name} to be established")));
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Namespaces that objects go into: there, or made on the way.
struct Namespaces<'a> {
    run: &'a RestoreRun,
    ready: Mutex<HashMap<String, Arc<OnceCell<()>>>>,
}

impl Namespaces<'_> {
    /// Sees to it, once, that a namespace is there and not on its way out.
    async fn ready(&self, name: &str, task: &Task) -> Result<(), Error> {
        let cell = {
            let mut ready = self.ready.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            Arc::clone(ready.entry(name.to_owned()).or_default())
        };
        cell.get_or_try_init(|| self.make_ready(name, task)).await?;
        Ok(())
    }

    async fn make_ready(&self, name: &str, task: &Task) -> Result<(), Error> {
        if self.wait_while_terminating(name, task).await? {
            return Ok(());
        }
        let mut object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        prepare(&mut object, &self.run.origin);
        let body = object.to_string().into_bytes();
        let create = || self.run.cluster.create("/api/v1/namespaces", "plimsoll", body.clone());
        match Patience::default().run(task, create).await {
            Err(error) if error.code() != Some(409) => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the namespace is there, once it is not going away any more.
    async fn wait_while_terminating(&self, name: &str, task: &Task) -> Result<bool, Error> {
        let path = format!("/api/v1/namespaces/{name}");
        let started = tokio::time::Instant::now();
        let mut waiting = None;
        loop {
            let Some(found) = Patience::default().run(task, || self.run.cluster.get(&path)).await? else {
                return Ok(false);
            };
            let namespace: Value = serde_json::from_slice(&found).unwrap_or_default();
            let terminating = namespace.pointer("/metadata/deletionTimestamp").is_some();
            if !terminating || started.elapsed() > TERMINATING_LIMIT {
                return Ok(true);
            }
            waiting.get_or_insert_with(|| {
                task.wait(format!("waiting for namespace {name}, which is being deleted, to go"))
            });
            tokio::time::sleep(POLL).await;
        }
    }
}

fn item_ref(spooled: &Spooled, object: &Value, origin: &Origin) -> ItemRef {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    ItemRef {
        kind: format!("{}/{}", text("apiVersion"), text("kind")),
        namespace: spooled.namespace.as_deref().map(|namespace| origin.target(namespace).to_owned()),
        name: spooled.name.clone(),
    }
}

fn unreadable(spooled: &Spooled) -> ItemRef {
    ItemRef { kind: spooled.group_resource.clone(), namespace: spooled.namespace.clone(), name: spooled.name.clone() }
}

fn failed(reason: &str, message: String) -> ItemOutcome {
    ItemOutcome::Failed { reason: reason.to_owned(), message }
}

/// A refused item is an outcome; a process that may not act any more is not.
fn outcome_of(error: Error) -> Result<ItemOutcome, Error> {
    match error {
        Error::Api { .. } | Error::Answer { .. } => {
            let hint = match error.code() {
                Some(404) => " (its kind is not served here: is a CustomResourceDefinition missing?)",
                _ => "",
            };
            Ok(failed(error.reason(), format!("{error}{hint}")))
        }
        error => Err(error),
    }
}
