//! Subjects that wait for others of their kind.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};
use plimsoll_engine::{Error, kill};
use serde_json::{Value, json};

use super::{Kind, write_unless_changed};
use crate::context::Context;
use crate::decide::Stage;
use crate::operation::{self, Subject};
use crate::queue::{self, Blocked, Entry};

/// Who has to be waited for, if anybody.
pub(super) async fn blocked<K: Kind>(object: &DynamicObject, context: &Context) -> Result<Option<Blocked>, Error> {
    let api_resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &context.settings.namespace, &api_resource);
    let all = api.list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api(format!("list {}", api_resource.plural), e))?.items;
    let ahead = ahead_of::<K>(object, &all, &context.runs.names(K::VERB));
    if ahead.is_empty() {
        return Ok(None);
    }
    let limit = K::at_once(&context.settings);
    // Where only one runs at a time it does not matter what the others work on.
    let namespaces = if limit > 1 { namespaces(context).await? } else { Vec::new() };
    let entry = |(object, running): (&DynamicObject, bool)| Entry {
        name: object.name_any(),
        running,
        namespaces: K::claims(&object.data, &namespaces),
    };
    let ahead: Vec<_> = ahead.into_iter().map(entry).collect();
    Ok(queue::turn(&entry((object, false)), &ahead, limit).err())
}

async fn namespaces(context: &Context) -> Result<Vec<String>, Error> {
    let api: Api<Namespace> = Api::all(context.client.clone());
    let all = api.list_metadata(&ListParams::default()).await.map_err(|e| Error::api("list namespaces", e))?;
    Ok(all.items.iter().map(ResourceExt::name_any).collect())
}

/// Who runs, and then who was there earlier, in order.
fn ahead_of<'a, K: Kind>(
    object: &DynamicObject,
    all: &'a [DynamicObject],
    here: &[String],
) -> Vec<(&'a DynamicObject, bool)> {
    let age = |o: &DynamicObject| (o.creation_timestamp().map(|time| time.0), o.name_any());
    let (mine, name) = (age(object), object.name_any());
    let place = |other: &'a DynamicObject| {
        let phase = other.data.pointer(K::PHASE).and_then(Value::as_str).unwrap_or_default();
        let told_to = phase == "ReadyToStart" || here.contains(&other.name_any());
        match K::stage(phase) {
            Stage::Begun => Some((other, true)),
            Stage::New if told_to => Some((other, true)),
            Stage::New if age(other) < mine => Some((other, false)),
            _ => None,
        }
    };
    let others = all.iter().filter(|other| other.metadata.deletion_timestamp.is_none() && other.name_any() != name);
    let mut ahead: Vec<_> = others.filter_map(place).collect();
    ahead.sort_by_key(|(other, running)| (!running, age(other)));
    ahead
}

/// Says whom it waits for.
pub(super) async fn wait_in_queue<K: Kind>(
    id: &Subject,
    object: &DynamicObject,
    blocked: &Blocked,
    context: &Context,
) -> Result<Action, Error> {
    let position = blocked.position;
    let known = object.data.pointer("/status/queuePosition").and_then(Value::as_u64);
    if let Some(status) = K::queued(position).filter(|_| known != Some(position as u64)) {
        write_unless_changed(context, id, object, &status).await?;
    }
    let why = if blocked.same_namespaces { ", which works on the same namespaces" } else { "" };
    let reason = format!("queued behind {} {}{why}", K::VERB, blocked.behind.join(", "));
    operation::announce(context.client.clone(), id, &context.holder(), &reason).await?;
    Ok(Action::requeue(Duration::from_secs(5)))
}

/// Its turn has come: whoever looks at the queue sees that before the work begins.
pub(super) async fn leave_queue<K: Kind>(id: &Subject, object: &DynamicObject, context: &Context) -> Result<(), Error> {
    let queued = object.data.pointer("/status/phase").and_then(Value::as_str) == Some("Queued");
    if !queued || K::queued(0).is_none() {
        return Ok(());
    }
    kill::point("queue.leave.before");
    write_unless_changed(context, id, object, &json!({ "phase": "ReadyToStart", "queuePosition": null })).await?;
    kill::point("queue.leave.after");
    Ok(())
}
