//! Binds claims to volumes, which are directories.

use super::snapshot::VolumeSource;
use super::{NODE_NAME, PROVISIONER, key_of, pod::items, snapshot};
use crate::{
    Core,
    key::Key,
    object::{field, finalizers, is_terminating, set_finalizers, text},
    status_error::StatusError,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::PathBuf};

/// As in Kubernetes, a claim stays while a pod uses it.
const PROTECTION_FINALIZER: &str = "kubernetes.io/pvc-protection";
const DEFAULT_CLASS_ANNOTATION: &str = "storageclass.kubernetes.io/is-default-class";

/// The storage class of claims that name none.
pub(super) fn default_storage_class() -> Value {
    json!({
        "metadata": {"name": NODE_NAME, "annotations": {DEFAULT_CLASS_ANNOTATION: "true"}}, "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
    })
}

/// Binds pending claims and reclaims the volumes of deleted claims.
pub(super) async fn reconcile(core: &Core) -> Result<(), StatusError> {
    let (pods, claims) = (core.list_all("pods")?, core.list_all("persistentvolumeclaims")?);
    for claim in &claims {
        let key = key_of("persistentvolumeclaims", claim);
        if is_terminating(claim) && !pods.iter().any(|pod| uses(pod, claim)) {
            core.remove_finalizer(&key, PROTECTION_FINALIZER).await?;
        } else if !is_terminating(claim) && text(claim, "/status/phase") != "Bound" {
            bind(core, &key, claim).await?;
        }
    }
    for volume in core.list_all("persistentvolumes")? {
        let owner = text(&volume, "/spec/claimRef/uid");
        if !owner.is_empty() && !claims.iter().any(|claim| text(claim, "/metadata/uid") == owner) {
            reclaim(core, &volume).await?;
        }
    }
    Ok(())
}

fn uses(pod: &Value, claim: &Value) -> bool {
    let (same_namespace, name) =
        (pod["metadata"]["namespace"] == claim["metadata"]["namespace"], &claim["metadata"]["name"]);
    let claimed = |volume: &Value| volume.pointer("/persistentVolumeClaim/claimName") == Some(name);
    same_namespace && !super::is_finished(pod) && items(pod, "/spec/volumes").any(claimed)
}

async fn bind(core: &Core, key: &Key, claim: &Value) -> Result<(), StatusError> {
    let classes = core.list_all("storageclasses.storage.k8s.io")?;
    let wanted = claim.pointer("/spec/storageClassName").and_then(Value::as_str);
    let class = classes.iter().find(|class| match wanted {
        Some(name) => text(class, "/metadata/name") == name,
        None => class["metadata"]["annotations"][DEFAULT_CLASS_ANNOTATION] == "true",
    });
    let mut name = text(claim, "/spec/volumeName").to_owned();
    if name.is_empty() {
        name = prebound_volume(core, claim)?;
    }
    // As with other provisioners, a claim with a selector waits for a matching volume.
    let has_selector = claim.pointer("/spec/selector").is_some_and(|selector| !selector.is_null());
    let is_ours = |class: &&Value| [PROVISIONER, snapshot::DRIVER].contains(&text(class, "/provisioner"));
    if let Some(class) = class.filter(|class| name.is_empty() && !has_selector && is_ours(class)) {
        name = format!("pvc-{}", text(claim, "/metadata/uid"));
        let volume_source = snapshot::volume_source(core, claim)?;
        let directory = volume_directory(core, &name);
        match volume_source {
            VolumeSource::NotReady => return Ok(()),
            _ if directory.exists() => {}
            VolumeSource::Snapshot(from) => snapshot::copy_directory(&from, &directory).await?,
            VolumeSource::Empty => snapshot::create_directory(&directory).await?,
        }
        core.create_if_absent("persistentvolumes", new_volume(core, &name, claim, class)).await?;
    }
    let Some(volume) = core.read_object("persistentvolumes", "", &name)? else { return Ok(()) };
    let reference = &volume["spec"]["claimRef"];
    let is_ours = ["name", "namespace"].iter().all(|part| reference[*part] == claim["metadata"][*part]);
    if !reference.is_null() && !is_ours {
        return Ok(());
    }
    let (reference, spec) = (claim_reference(claim), volume["spec"].clone());
    let bound = move |volume: &mut Value| {
        volume["spec"]["claimRef"] = reference;
        volume["status"] = json!({"phase": "Bound"});
    };
    core.modify(&key_of("persistentvolumes", &volume), bound).await?;
    let class = class.map(|class| class["metadata"]["name"].clone());
    core.modify(key, move |claim| {
        field(claim, "spec").insert("volumeName".to_owned(), json!(name));
        class.map(|class| field(claim, "spec").entry("storageClassName").or_insert(class));
        let kept_finalizers: BTreeSet<String> =
            finalizers(claim).into_iter().chain([PROTECTION_FINALIZER]).map(str::to_owned).collect();
        set_finalizers(claim, &Vec::from_iter(kept_finalizers));
        claim["status"] = json!({"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]});
    })
    .await
}

/// The name of a volume whose `claimRef` names this claim; empty if there is none.
fn prebound_volume(core: &Core, claim: &Value) -> Result<String, StatusError> {
    let metadata = &claim["metadata"];
    let is_for_claim = |volume: &Value| {
        let reference = &volume["spec"]["claimRef"];
        let same = ["name", "namespace"].iter().all(|part| reference[*part] == metadata[*part]);
        same && (reference["uid"].is_null() || reference["uid"] == metadata["uid"]) && !is_terminating(volume)
    };
    let found = core.list_all("persistentvolumes")?.into_iter().find(is_for_claim);
    Ok(found.map(|volume| text(&volume, "/metadata/name").to_owned()).unwrap_or_default())
}

fn claim_reference(claim: &Value) -> Value {
    let metadata = &claim["metadata"];
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": metadata["name"],
        "namespace": metadata["namespace"], "uid": metadata["uid"]})
}

fn volume_directory(core: &Core, volume: &str) -> PathBuf {
    core.node.get().map(|node| node.directory.join("volumes").join(volume)).unwrap_or_default()
}

/// A volume in a directory of this node.
fn new_volume(core: &Core, name: &str, claim: &Value, class: &Value) -> Value {
    let path = volume_directory(core, name);
    let this_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE_NAME]});
    let (kind, source) = match text(class, "/provisioner") {
        snapshot::DRIVER => ("csi", json!({"driver": snapshot::DRIVER, "volumeHandle": path})),
        _ => ("local", json!({"path": path})),
    };
    json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": class["provisioner"]}},
        "spec": {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "accessModes": claim["spec"]["accessModes"], "claimRef": claim_reference(claim), kind: source,
            "persistentVolumeReclaimPolicy": class["reclaimPolicy"].as_str().unwrap_or("Delete"),
            "storageClassName": class["metadata"]["name"], "volumeMode": "Filesystem",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [this_node]}]}},
        },
    })
}

async fn reclaim(core: &Core, volume: &Value) -> Result<(), StatusError> {
    let key = key_of("persistentvolumes", volume);
    let provisioner = text(volume, "/metadata/annotations/pv.kubernetes.io~1provisioned-by");
    let is_ours = [PROVISIONER, snapshot::DRIVER].contains(&provisioner);
    if !is_ours || volume["spec"]["persistentVolumeReclaimPolicy"] != "Delete" {
        return core.modify(&key, |volume| volume["status"] = json!({"phase": "Released"})).await;
    }
    // Not the path in the object: any client can write that.
    super::remove_directory(&volume_directory(core, &key.name)).await;
    core.delete_exact(&key, volume).await
}
