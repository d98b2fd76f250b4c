//! Subjects that wait for others of their kind.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::runtime::controller::Action;
use kube::{Api, Client, ResourceExt};
use plimsoll_engine::{Error, kill};
use serde_json::{Value, json};

use super::Lifecycle;
use super::decide::SubjectState;
use super::reconcile::{LifecycleController, show_waiting, write_unless_changed};
use crate::leader_client::LeaderClient;
use crate::operation_record;
use crate::queue::{self, QueueEntry, QueueObstacle};
use crate::subject::Subject;

/// The subjects that have to end or start first, if any.
pub(super) async fn find_blocking<K: Lifecycle>(
    object: &DynamicObject,
    controller: &LifecycleController<K>,
) -> Result<Option<QueueObstacle>, Error> {
    let api_resource = ApiResource::erase::<K::Resource>(&());
    let leader = controller.leader();
    let api: Api<DynamicObject> = Api::namespaced_with(leader.client.clone(), &leader.namespace, &api_resource);
    let all = api.list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api(format!("list {}", api_resource.plural), e))?.items;
    let ahead = ahead_of::<K>(object, &all, &controller.runtime.active.names(K::VERB));
    if ahead.is_empty() {
        return Ok(None);
    }
    let limit = K::concurrency(&controller.context);
    // Where only one runs at a time it does not matter what the others work on.
    let namespaces = if limit > 1 { namespaces(&leader.client).await? } else { Vec::new() };
    let entry = |(object, running): (&DynamicObject, bool)| QueueEntry {
        name: object.name_any(),
        running,
        namespaces: K::exclusive_namespaces(&object.data, &namespaces),
    };
    let ahead: Vec<_> = ahead.into_iter().map(entry).collect();
    Ok(queue::admit(&entry((object, false)), &ahead, limit).err())
}

async fn namespaces(client: &Client) -> Result<Vec<String>, Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    let all = api.list_metadata(&ListParams::default()).await.map_err(|e| Error::api("list namespaces", e))?;
    Ok(all.items.iter().map(ResourceExt::name_any).collect())
}

/// The running subjects, then those that were created earlier, in order.
fn ahead_of<'a, K: Lifecycle>(
    object: &DynamicObject,
    all: &'a [DynamicObject],
    here: &[String],
) -> Vec<(&'a DynamicObject, bool)> {
    let age = |o: &DynamicObject| (o.creation_timestamp().map(|time| time.0), o.name_any());
    let (mine, name) = (age(object), object.name_any());
    let position = |other: &'a DynamicObject| {
        let phase = other.data.pointer(K::PHASE_POINTER).and_then(Value::as_str).unwrap_or_default();
        let about_to_start = phase == "ReadyToStart" || here.contains(&other.name_any());
        match K::state(phase) {
            SubjectState::InProgress => Some((other, true)),
            SubjectState::New if about_to_start => Some((other, true)),
            SubjectState::New if age(other) < mine => Some((other, false)),
            _ => None,
        }
    };
    let others = all.iter().filter(|other| other.metadata.deletion_timestamp.is_none() && other.name_any() != name);
    let mut ahead: Vec<_> = others.filter_map(position).collect();
    ahead.sort_by_key(|(other, running)| (!running, age(other)));
    ahead
}

/// Shows what it waits for.
pub(super) async fn wait_in_queue<K: Lifecycle>(
    id: &Subject,
    object: &DynamicObject,
    blocked: &QueueObstacle,
    leader: &LeaderClient,
) -> Result<Action, Error> {
    let why = if blocked.same_namespaces { ", which works on the same namespaces" } else { "" };
    let reason = format!("queued behind {} {}{why}", K::VERB, blocked.behind.join(", "));
    let status = K::queued_status(blocked.position).unwrap_or_else(|| json!({}));
    show_waiting(leader, id, object, status, &reason).await?;
    operation_record::write_wait_reason(leader.client.clone(), id, &leader.holder(), &reason).await?;
    Ok(Action::requeue(Duration::from_secs(5)))
}

/// Shows that it is about to start before the work starts.
pub(super) async fn leave_queue<K: Lifecycle>(
    id: &Subject,
    object: &DynamicObject,
    leader: &LeaderClient,
) -> Result<(), Error> {
    let queued = object.data.pointer("/status/phase").and_then(Value::as_str) == Some("Queued");
    if !queued || K::queued_status(0).is_none() {
        return Ok(());
    }
    kill::point("queue.leave.before");
    write_unless_changed(leader, id, object, &json!({ "phase": "ReadyToStart", "queuePosition": null })).await?;
    kill::point("queue.leave.after");
    Ok(())
}
