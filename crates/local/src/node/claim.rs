//! Claims and the directories behind them.

use super::snapshot::Beginning;
use super::{NAME, PROVISIONER, key_of, pod::items, snapshot};
use crate::{
    Core,
    failure::Failure,
    key::Key,
    object::{field, finalizers, is_terminating, set_finalizers, text},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::PathBuf};

/// As the real cluster has it: a claim stays while a pod uses it.
const PROTECTION: &str = "kubernetes.io/pvc-protection";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// The class that claims without one get.
pub(super) fn default_class() -> Value {
    json!({
        "metadata": {"name": NAME, "annotations": {DEFAULT_CLASS: "true"}}, "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
    })
}

/// Binds what can be bound and lets go of what nobody claims any more.
pub(super) async fn reconcile(core: &Core) -> Result<(), Failure> {
    let (pods, claims) = (core.all("pods")?, core.all("persistentvolumeclaims")?);
    for claim in &claims {
        let key = key_of("persistentvolumeclaims", claim);
        if is_terminating(claim) && !pods.iter().any(|pod| uses(pod, claim)) {
            core.release(&key, PROTECTION).await?;
        } else if !is_terminating(claim) && text(claim, "/status/phase") != "Bound" {
            bind(core, &key, claim).await?;
        }
    }
    for volume in core.all("persistentvolumes")? {
        let owner = text(&volume, "/spec/claimRef/uid");
        if !owner.is_empty() && !claims.iter().any(|claim| text(claim, "/metadata/uid") == owner) {
            reclaim(core, &volume).await?;
        }
    }
    Ok(())
}

fn uses(pod: &Value, claim: &Value) -> bool {
    let (there, name) = (pod["metadata"]["namespace"] == claim["metadata"]["namespace"], &claim["metadata"]["name"]);
    let claimed = |volume: &Value| volume.pointer("/persistentVolumeClaim/claimName") == Some(name);
    there && !super::is_finished(pod) && items(pod, "/spec/volumes").any(claimed)
}

async fn bind(core: &Core, key: &Key, claim: &Value) -> Result<(), Failure> {
    let classes = core.all("storageclasses.storage.k8s.io")?;
    let wanted = claim.pointer("/spec/storageClassName").and_then(Value::as_str);
    let class = classes.iter().find(|class| match wanted {
        Some(name) => text(class, "/metadata/name") == name,
        None => class["metadata"]["annotations"][DEFAULT_CLASS] == "true",
    });
    let mut name = text(claim, "/spec/volumeName").to_owned();
    if name.is_empty() {
        name = promised(core, claim)?;
    }
    // As the real provisioners have it: one that is particular about its volume waits for it.
    let particular = claim.pointer("/spec/selector").is_some_and(|selector| !selector.is_null());
    let ours = |class: &&Value| [PROVISIONER, snapshot::DRIVER].contains(&text(class, "/provisioner"));
    if let Some(class) = class.filter(|class| name.is_empty() && !particular && ours(class)) {
        name = format!("pvc-{}", text(claim, "/metadata/uid"));
        let beginning = snapshot::source(core, claim)?;
        let directory_of_it = place(core, &name);
        match beginning {
            Beginning::Later => return Ok(()),
            _ if directory_of_it.exists() => {}
            Beginning::Copy(from) => snapshot::copy(&from, &directory_of_it).await?,
            Beginning::Empty => snapshot::make(&directory_of_it).await?,
        }
        core.make("persistentvolumes", directory(core, &name, claim, class)).await?;
    }
    let Some(volume) = core.read("persistentvolumes", "", &name)? else { return Ok(()) };
    let reference = &volume["spec"]["claimRef"];
    let ours = ["name", "namespace"].iter().all(|part| reference[*part] == claim["metadata"][*part]);
    if !reference.is_null() && !ours {
        return Ok(());
    }
    let (reference, spec) = (refer_to(claim), volume["spec"].clone());
    let bound = move |volume: &mut Value| {
        volume["spec"]["claimRef"] = reference;
        volume["status"] = json!({"phase": "Bound"});
    };
    core.alter(&key_of("persistentvolumes", &volume), bound).await?;
    let class = class.map(|class| class["metadata"]["name"].clone());
    core.alter(key, move |claim| {
        field(claim, "spec").insert("volumeName".to_owned(), json!(name));
        class.map(|class| field(claim, "spec").entry("storageClassName").or_insert(class));
        let held: BTreeSet<String> = finalizers(claim).into_iter().chain([PROTECTION]).map(str::to_owned).collect();
        set_finalizers(claim, &Vec::from_iter(held));
        claim["status"] = json!({"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]});
    })
    .await
}

/// The name of a volume that says whose it is to be, if that is this claim; otherwise nothing.
fn promised(core: &Core, claim: &Value) -> Result<String, Failure> {
    let metadata = &claim["metadata"];
    let meant = |volume: &Value| {
        let reference = &volume["spec"]["claimRef"];
        let same = ["name", "namespace"].iter().all(|part| reference[*part] == metadata[*part]);
        same && (reference["uid"].is_null() || reference["uid"] == metadata["uid"]) && !is_terminating(volume)
    };
    let found = core.all("persistentvolumes")?.into_iter().find(meant);
    Ok(found.map(|volume| text(&volume, "/metadata/name").to_owned()).unwrap_or_default())
}

fn refer_to(claim: &Value) -> Value {
    let metadata = &claim["metadata"];
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": metadata["name"],
        "namespace": metadata["namespace"], "uid": metadata["uid"]})
}

fn place(core: &Core, volume: &str) -> PathBuf {
    core.node.get().map(|node| node.directory.join("volumes").join(volume)).unwrap_or_default()
}

/// A volume that is a directory of ours.
fn directory(core: &Core, name: &str, claim: &Value, class: &Value) -> Value {
    let path = place(core, name);
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]});
    let (kind, source) = match text(class, "/provisioner") {
        snapshot::DRIVER => ("csi", json!({"driver": snapshot::DRIVER, "volumeHandle": path})),
        _ => ("local", json!({"path": path})),
    };
    json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": class["provisioner"]}},
        "spec": {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "accessModes": claim["spec"]["accessModes"], "claimRef": refer_to(claim), kind: source,
            "persistentVolumeReclaimPolicy": class["reclaimPolicy"].as_str().unwrap_or("Delete"),
            "storageClassName": class["metadata"]["name"], "volumeMode": "Filesystem",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    })
}

async fn reclaim(core: &Core, volume: &Value) -> Result<(), Failure> {
    let key = key_of("persistentvolumes", volume);
    let by = text(volume, "/metadata/annotations/pv.kubernetes.io~1provisioned-by");
    let ours = [PROVISIONER, snapshot::DRIVER].contains(&by);
    if !ours || volume["spec"]["persistentVolumeReclaimPolicy"] != "Delete" {
        return core.alter(&key, |volume| volume["status"] = json!({"phase": "Released"})).await;
    }
    // Not what the object says: anybody can write that.
    super::remove(&place(core, &key.name)).await;
    core.remove(&key, volume).await
}
