//! The controller of one kind of subject: observe, decide, act.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::runtime::controller::{Action, Config};
use kube::runtime::{Controller, watcher};
use kube::{Api, Resource, ResourceExt};
use plimsoll_api::plimsoll::v1alpha1::{Operation, OperationState};
use plimsoll_engine::Error;
use serde_json::{Value, json};
use tokio_stream::wrappers::BroadcastStream;
use tracing::{info, warn};

use super::decide::{Decision, Observed, SubjectState, decide};
use super::run::{clean_up, remove_finalizer, start};
use super::settled::SettledSubjects;
use super::{Lifecycle, OperationRuntime, queueing};
use crate::event_recorder::EventType;
use crate::leader_client::LeaderClient;
use crate::observed_generation::{is_outdated, with_observed_generation};
use crate::operation_record;
use crate::pages::list_in_pages;
use crate::panics::catch_panic;
use crate::projection;
use crate::subject::{Subject, operation_name};
use crate::watch_backoff::WatchBackoff;

/// After the start of a server every subject is reconciled.
const MAX_CONCURRENT_RECONCILIATIONS: u16 = 32;

/// Context of a reconciliation.
pub(super) struct LifecycleController<K: Lifecycle> {
    pub runtime: Arc<OperationRuntime>,
    pub context: Arc<K::Context>,
    settled: SettledSubjects,
}

impl<K: Lifecycle> LifecycleController<K> {
    pub fn leader(&self) -> &LeaderClient {
        &self.runtime.leader
    }
}

/// Runs the controller of one kind until the future is dropped.
pub async fn run_lifecycle<K: Lifecycle>(runtime: Arc<OperationRuntime>, context: Arc<K::Context>) {
    let api_resource = ApiResource::erase::<K::Resource>(&());
    let leader = &runtime.leader;
    let api: Api<DynamicObject> = Api::namespaced_with(leader.client.clone(), &leader.namespace, &api_resource);
    let operations = leader.api::<Operation>();
    let endings = BroadcastStream::new(runtime.active.endings()).map(|_| ());
    let settled = SettledSubjects::new(operations_left_open(leader).await);
    let controller = LifecycleController { runtime: Arc::clone(&runtime), context, settled };
    Controller::new_with(api, watcher::Config::default(), api_resource)
        .owns(operations, watcher::Config::default())
        .trigger_backoff(WatchBackoff::default())
        .reconcile_all_on(endings)
        .with_config(Config::default().concurrency(MAX_CONCURRENT_RECONCILIATIONS))
        .run(reconcile::<K>, retry::<K>, Arc::new(controller))
        .for_each(|_| async {})
        .await;
}

/// The names of the Operations that have not ended, all in a few requests; `None` if they cannot be listed.
async fn operations_left_open(leader: &LeaderClient) -> Option<HashSet<String>> {
    let list = || async {
        let mut open = HashSet::new();
        let add_open = |operation: Operation| {
            let state = operation.status.as_ref().and_then(|status| status.state.as_ref());
            if !state.is_some_and(OperationState::is_ended) {
                open.insert(operation.name_any());
            }
        };
        let page_size = leader.cluster.page_size();
        let listed = list_in_pages(&leader.api::<Operation>(), &ListParams::default(), page_size, add_open).await;
        listed.map(|()| open).map_err(|e| Error::api("list operations", e))
    };
    let listed = plimsoll_store::RetryPolicy::default().run(Error::is_retryable, |_| (), list).await;
    listed.inspect_err(|error| warn!("{error}; the operation of every object is read")).ok()
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that kube's Controller calls")]
fn retry<K: Lifecycle>(object: Arc<DynamicObject>, error: &Error, _: Arc<LifecycleController<K>>) -> Action {
    warn!("failed to reconcile {} {}: {error}", K::Resource::kind(&()), object.name_any());
    Action::requeue(Duration::from_secs(2))
}

async fn reconcile<K: Lifecycle>(
    object: Arc<DynamicObject>,
    controller: Arc<LifecycleController<K>>,
) -> Result<Action, Error> {
    if controller.settled.contains(&object) {
        return Ok(Action::await_change());
    }
    let what = format!("{} {}", K::VERB, object.name_any());
    catch_panic(&what, observe_and_act::<K>(&object, &controller)).await
}

async fn observe_and_act<K: Lifecycle>(
    object: &DynamicObject,
    controller: &Arc<LifecycleController<K>>,
) -> Result<Action, Error> {
    let observed = observe::<K>(object, controller).await?;
    let decision = decide(&observed);
    if observed.state == SubjectState::Ended && !observed.running_here && decision == Decision::Ignore {
        controller.settled.insert(object);
    }
    act::<K>(decision, object, controller).await
}

async fn observe<K: Lifecycle>(object: &DynamicObject, controller: &LifecycleController<K>) -> Result<Observed, Error> {
    let raw = serde_json::to_value(object).unwrap_or_default();
    let state = K::state(raw.pointer(K::PHASE_POINTER).and_then(Value::as_str).unwrap_or_default());
    let uid = object.uid().unwrap_or_default();
    let has_finalizer = K::FINALIZER.is_some_and(|name| object.finalizers().iter().any(|f| f == name));
    let mut observed = Observed {
        state,
        deleted: object.metadata.deletion_timestamp.is_some(),
        finalizer: K::FINALIZER_WHILE_RUNNING && has_finalizer,
        outdated: is_outdated(&raw),
        running_here: controller.runtime.active.contains(&uid),
        cancelled: false,
        operation_open: false,
        faults: Vec::new(),
        blocked: None,
        missing: None,
    };
    if state == SubjectState::Unmanaged {
        return Ok(observed);
    }
    let known = if state == SubjectState::Ended {
        controller.settled.is_operation_open(&uid, &operation_name(K::VERB, &object.name_any()))
    } else {
        controller.settled.mark_unfinished(&uid);
        None
    };
    match known {
        Some(open) => observed.operation_open = open,
        None => observe_operation::<K>(object, controller.leader(), &mut observed).await?,
    }
    if state == SubjectState::New && !observed.running_here {
        let what = format!("{} {}", K::VERB, object.name_any());
        let checked = catch_panic(&what, observe_requirements::<K>(object, &raw, controller, &mut observed)).await;
        match checked {
            // It would be checked again and again.
            Err(error @ Error::Panicked { .. }) => observed.faults.push(error.to_string()),
            answer => answer?,
        }
    }
    Ok(observed)
}

async fn observe_operation<K: Lifecycle>(
    object: &DynamicObject,
    leader: &LeaderClient,
    observed: &mut Observed,
) -> Result<(), Error> {
    let name = operation_name(K::VERB, &object.name_any());
    let found = leader.api::<Operation>().get_opt(&name).await;
    let found = found.map_err(|e| Error::api(format!("read operation {name}"), e))?;
    let ours = found.filter(|op| op.spec.subject.as_ref().and_then(|s| s.uid.as_deref()) == object.uid().as_deref());
    observed.cancelled = ours.as_ref().is_some_and(Operation::is_cancelled);
    let state = ours.map(|op| op.status.and_then(|status| status.state));
    observed.operation_open = state.is_some_and(|state| !state.is_some_and(|state| state.is_ended()));
    Ok(())
}

async fn observe_requirements<K: Lifecycle>(
    object: &DynamicObject,
    raw: &Value,
    controller: &LifecycleController<K>,
    observed: &mut Observed,
) -> Result<(), Error> {
    observed.faults = K::validate(raw);
    match serde_json::from_value::<K::Resource>(raw.clone()) {
        Err(error) => observed.faults.push(error.to_string()),
        Ok(mut typed) if observed.faults.is_empty() => {
            K::set_defaults(&mut typed, &controller.context);
            let requirements = K::check_requirements(&typed, &controller.context).await?;
            observed.faults = requirements.faults;
            observed.missing = requirements.missing;
        }
        Ok(_) => {}
    }
    observed.blocked = queueing::find_blocking::<K>(object, controller).await?;
    Ok(())
}

async fn act<K: Lifecycle>(
    decision: Decision,
    object: &DynamicObject,
    controller: &Arc<LifecycleController<K>>,
) -> Result<Action, Error> {
    let leader = controller.leader();
    let id = identify::<K>(object, leader);
    match decision {
        Decision::Ignore => {}
        Decision::Reject(faults) => {
            info!("{} {}: rejected: {}", K::VERB, id.name, faults.join("; "));
            let status = final_status_before_start(K::rejected_status(&faults), "FailedValidation", &faults.join("; "));
            end_unless_changed(leader, &id, object, status).await?;
            leader.events.record(&id.reference(), EventType::Warning, "FailedValidation", &faults.join("; ")).await;
        }
        Decision::Queue(blocked) => return queueing::wait_in_queue::<K>(&id, object, &blocked, leader).await,
        Decision::Wait(reason) => {
            let reason = format!("waiting for {reason}");
            show_waiting(leader, &id, object, json!({}), &reason).await?;
            operation_record::write_wait_reason(leader.client.clone(), &id, &leader.holder(), &reason).await?;
            return Ok(Action::requeue(Duration::from_secs(1)));
        }
        Decision::Run => {
            queueing::leave_queue::<K>(&id, object, leader).await?;
            start::<K>(id, controller);
        }
        Decision::Stop => controller.runtime.active.cancel(&id.uid),
        Decision::CancelBeforeStart => {
            let message = "cancelled before it began";
            let status = final_status_before_start(K::failed_status("Cancelled"), "Cancelled", message);
            end_unless_changed(leader, &id, object, status).await?;
            leader.events.record(&id.reference(), EventType::Normal, "Cancelled", message).await;
        }
        Decision::CleanUp => clean_up::<K>(&id, leader, object).await?,
        Decision::Acknowledge => end_unless_changed(leader, &id, object, json!({})).await?,
        Decision::RemoveFinalizer => remove_finalizer::<K>(leader, &id).await?,
    }
    Ok(Action::await_change())
}

fn identify<K: Lifecycle>(object: &DynamicObject, leader: &LeaderClient) -> Subject {
    Subject {
        api_version: K::Resource::api_version(&()).into_owned(),
        kind: K::Resource::kind(&()).into_owned(),
        namespace: leader.namespace.clone(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        verb: K::VERB,
    }
}

/// A last status with the conditions that `kubectl wait` reads.
pub(super) fn final_status_before_start(mut status: Value, reason: &str, message: &str) -> Value {
    status["conditions"] = json!(projection::conditions_before_start(reason, message, Timestamp::now()));
    status
}

/// Shows in a subject that it waits for its start: the status, with conditions. Nothing is written if it shows that already.
pub(super) async fn show_waiting(
    leader: &LeaderClient,
    id: &Subject,
    object: &DynamicObject,
    mut status: Value,
    message: &str,
) -> Result<(), Error> {
    let known = |field: &str| object.data.pointer(&format!("/status/{field}"));
    let shown = status.as_object().is_some_and(|fields| fields.iter().all(|(name, value)| known(name) == Some(value)));
    if shown && known("conditions").is_some() {
        return Ok(());
    }
    status["conditions"] = json!(projection::conditions_while_waiting(message, Timestamp::now()));
    write_unless_changed(leader, id, object, &status).await
}

/// Writes the last status of a subject, or that a change after it was seen.
async fn end_unless_changed(
    leader: &LeaderClient,
    id: &Subject,
    object: &DynamicObject,
    status: Value,
) -> Result<(), Error> {
    let raw = json!({ "metadata": object.metadata });
    write_unless_changed(leader, id, object, &with_observed_generation(status, &raw)).await
}

/// A watch may lag behind our own writes: a decision on an old version of the object is not written over a new one.
pub(super) async fn write_unless_changed(
    leader: &LeaderClient,
    id: &Subject,
    object: &DynamicObject,
    status: &Value,
) -> Result<(), Error> {
    leader.fence.check()?;
    let patch = json!({ "metadata": { "resourceVersion": object.resource_version() }, "status": status });
    match leader.cluster.merge(&id.path(), patch.to_string().into_bytes()).await {
        Err(error) if [Some(404), Some(409)].contains(&error.code()) => Ok(()),
        answer => answer.map(|_| ()),
    }
}
