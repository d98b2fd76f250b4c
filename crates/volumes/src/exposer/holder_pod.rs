//! The claim and the pod that hold a volume for a transfer.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use plimsoll_api::labels;
use plimsoll_engine::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{ExposeStep, ExposedTransfer, Exposer};
use crate::csi::is_permanent;
use crate::fs_backup::last_warning;
use crate::transfer::data_movement::VOLUME;

/// Metadata of what belongs to a transfer.
pub(super) fn metadata<T: ExposedTransfer>(owner: &T) -> Value {
    let uid = owner.uid().unwrap_or_default();
    let reference = json!({ "apiVersion": T::api_version(&()), "kind": T::kind(&()), "name": owner.name_any(), "uid": uid,
        "controller": true });
    json!({ "name": owner.name_any(), "namespace": owner.namespace(), "ownerReferences": [reference],
        "labels": { labels::TRANSFER_UID: uid, labels::EXCLUDE_FROM_BACKUP: "true" } })
}

/// Creates an object unless it is there.
pub(super) async fn create<K>(api: &Api<K>, object: Value) -> Result<(), Error>
where
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    let what = format!("create {} {}", object["kind"], object["metadata"]["name"]);
    let object = serde_json::from_value(object)
        .map_err(|error| Error::InvalidResponse { what: what.clone(), detail: error.to_string() })?;
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        answer => answer.map(drop).map_err(|error| Error::api(what, error)),
    }
}

/// Deletes what belongs to a transfer. Whether it is gone.
pub(super) async fn remove<K>(api: &Api<K>, name: &str, owner: &str) -> Result<bool, Error>
where
    K: Clone + Debug + DeserializeOwned + Resource,
{
    let found = match api.get_opt(name).await {
        // The cluster does not know the kind: there is nothing.
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        found => found.map_err(|error| Error::api(format!("read {name}"), error))?,
    };
    let ours = |object: &K| object.labels().get(labels::TRANSFER_UID).is_some_and(|uid| uid == owner);
    let Some(found) = found.filter(ours) else { return Ok(true) };
    if found.meta().deletion_timestamp.is_some() {
        return Ok(false);
    }
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
        answer => answer.map(|_| false).map_err(|error| Error::api(format!("delete {name}"), error)),
    }
}

/// The claim that a transfer's volume comes by.
pub(super) async fn claim<T: ExposedTransfer>(exposer: &Exposer, owner: &T, spec: Value) -> Result<(), Error> {
    let claim =
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(owner), "spec": spec });
    create(&exposer.leader.api::<PersistentVolumeClaim>(), claim).await
}

/// The pod that holds the volume, and where it is.
pub(super) async fn pod<T: ExposedTransfer>(exposer: &Exposer, owner: &T) -> Result<ExposeStep, Error> {
    let (pods, name) = (exposer.leader.api::<Pod>(), owner.name_any());
    let found = pods.get_opt(&name).await.map_err(|e| Error::api(format!("read pod {name}"), e))?;
    let Some(pod) = found else {
        create(&pods, pod_object(exposer, owner)).await?;
        return Ok(ExposeStep::Waiting(format!("for pod {name} to be on a node")));
    };
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let status = pod.status.clone().unwrap_or_default();
    match status.phase.as_deref() {
        Some("Running") if !node.is_empty() => return Ok(ExposeStep::Held(node)),
        Some("Succeeded" | "Failed") => {
            return Ok(ExposeStep::Refused(format!("pod {name} ended before its volume was there")));
        }
        _ => {}
    }
    let claims = exposer.leader.api::<PersistentVolumeClaim>();
    let claim = claims.get_opt(&name).await.map_err(|e| Error::api(format!("read claim {name}"), e))?;
    let phase = claim.as_ref().and_then(|claim| claim.status.as_ref()?.phase.as_deref());
    let bound = phase == Some("Bound");
    if let Some(claim) = claim.as_ref().filter(|_| !bound)
        && let Some(warning) = last_warning(&exposer.leader.client, claim).await
    {
        let warning = plimsoll_plugin::sanitize(&warning);
        return Ok(if is_permanent(&warning) {
            ExposeStep::Refused(format!("claim {name} gets no volume: {warning}"))
        } else {
            ExposeStep::Waiting(format!("for claim {name} to get a volume: {warning}"))
        });
    }
    let stuck = |container: k8s_openapi::api::core::v1::ContainerStatus| container.state?.waiting?.message;
    let why = status.container_statuses.unwrap_or_default().into_iter().find_map(stuck);
    let why = why.map(|why| format!(" ({})", plimsoll_plugin::sanitize(&why))).unwrap_or_default();
    Ok(ExposeStep::Waiting(match (bound, node.as_str()) {
        (false, _) => format!("for claim {name} to get a volume{why}"),
        (true, "") => format!("for pod {name} to be on a node{why}"),
        (true, node) => format!("for pod {name} to start on node {node}{why}"),
    }))
}

/// It only has to run, whatever owns the files of the volume.
fn pod_object<T: ExposedTransfer>(exposer: &Exposer, owner: &T) -> Value {
    let helper = &exposer.restore_helper;
    let container = json!({
        "name": "holds-the-volume", "image": helper.image, "command": helper.command,
        "args": ["--hold", owner.uid().unwrap_or_default()],
        "volumeMounts": [{ "name": VOLUME, "mountPath": format!("/restores/{VOLUME}") }],
        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" } },
        "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" } },
    });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata(owner), "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "enableServiceLinks": false, "containers": [container],
        "volumes": [{ "name": VOLUME, "persistentVolumeClaim": { "claimName": owner.name_any() } }] } })
}
