//! The claim and the pod that hold a volume for a transfer.

use std::collections::BTreeMap;
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
use crate::fs_backup::{RestoreHelper, last_warning};
use crate::node_agent_config::{NodeAgentConfig, add_texts};
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
pub(super) async fn claim<T: ExposedTransfer>(
    exposer: &Exposer,
    owner: &T,
    spec: Value,
    annotations: &BTreeMap<String, String>,
) -> Result<(), Error> {
    let mut claim =
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(owner), "spec": spec });
    add_texts(&mut claim["metadata"]["annotations"], annotations);
    create(&exposer.leader.api::<PersistentVolumeClaim>(), claim).await
}

/// The volume that a pod holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HeldVolume {
    /// The StorageClass of the volume of the transfer.
    pub storage_class: String,
    /// Whether it is only read.
    pub read_only: bool,
    /// Whether its files keep their SELinux labels.
    pub keeps_labels: bool,
}

/// The pod that holds the volume, and where it is.
pub(super) async fn pod<T: ExposedTransfer>(
    exposer: &Exposer,
    owner: &T,
    held: &HeldVolume,
) -> Result<ExposeStep, Error> {
    let (pods, name) = (exposer.leader.api::<Pod>(), owner.name_any());
    let found = pods.get_opt(&name).await.map_err(|e| Error::api(format!("read pod {name}"), e))?;
    let Some(pod) = found else {
        let uid = owner.uid().unwrap_or_default();
        let object = pod_object(&exposer.restore_helper, &exposer.config, &metadata(owner), &uid, held);
        create(&pods, object).await?;
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
fn pod_object(
    helper: &RestoreHelper,
    config: &NodeAgentConfig,
    metadata: &Value,
    uid: &str,
    held: &HeldVolume,
) -> Value {
    let name = metadata["name"].clone();
    let container = json!({
        "name": "holds-the-volume", "image": helper.image, "command": helper.command,
        "args": ["--hold", uid],
        "volumeMounts": [{ "name": VOLUME, "mountPath": format!("/restores/{VOLUME}"), "readOnly": held.read_only }],
        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" } },
        "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" } },
    });
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "enableServiceLinks": false, "containers": [container], "tolerations": TOLERATED.map(tolerate),
        "volumes": [{ "name": VOLUME, "persistentVolumeClaim": { "claimName": name, "readOnly": held.read_only } }] } });
    if held.keeps_labels {
        pod["spec"]["securityContext"] = json!({ "seLinuxOptions": { "type": "spc_t" } });
    }
    config.configure_pod(&mut pod, &held.storage_class);
    pod
}

/// Taints of nodes on which volumes may be, as in Velero.
const TOLERATED: [&str; 2] = ["kubernetes.azure.com/scalesetpriority", "CriticalAddonsOnly"];

fn tolerate(taint: &str) -> Value {
    json!({ "key": taint, "operator": "Exists" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_holds_the_volume_as_its_settings_say() {
        let helper = RestoreHelper { image: "x:1".into(), command: vec!["/plimsoll".into()] };
        let pod =
            |held: &HeldVolume| pod_object(&helper, &NodeAgentConfig::default(), &json!({ "name": "t" }), "uid", held);
        let plain = pod(&HeldVolume::default());
        let mount = |pod: &Value| pod["spec"]["containers"][0]["volumeMounts"][0]["readOnly"].clone();
        assert_eq!((mount(&plain), plain["spec"]["securityContext"].clone()), (json!(false), Value::Null));
        assert_eq!(plain["spec"]["tolerations"][1], json!({ "key": "CriticalAddonsOnly", "operator": "Exists" }));
        let held = HeldVolume { read_only: true, keeps_labels: true, ..HeldVolume::default() };
        let pod = pod(&held);
        assert_eq!(mount(&pod), true);
        assert_eq!(pod["spec"]["securityContext"]["seLinuxOptions"]["type"], "spc_t");
    }
}
