//! Reclaim policy and labels of volumes that are provisioned anew.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use plimsoll_archive::{codec, layout};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::backup::{commit_backup, extensions};
use crate::restore::restore;
use crate::test_bed::{SHOP, TestBed};

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn claims(bed: &TestBed, namespace: &str) -> Api<PersistentVolumeClaim> {
    Api::namespaced(bed.client.clone(), namespace)
}

fn volumes(bed: &TestBed) -> Api<PersistentVolume> {
    Api::all(bed.client.clone())
}

fn volume(name: &str, policy: &str, claim_namespace: &str, labels: &Value) -> PersistentVolume {
    object(json!({
        "metadata": { "name": name, "labels": labels },
        "spec": { "persistentVolumeReclaimPolicy": policy, "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/nowhere" },
            "claimRef": { "namespace": claim_namespace, "name": "data" } },
    }))
}

/// A backup of a claim whose volume has the policy `Retain` and a label, and whose data the backup has.
async fn back_up_claim(bed: &TestBed, binding_mode: &str) {
    let classes: Api<StorageClass> = Api::all(bed.client.clone());
    let class = json!({ "metadata": { "name": "fast" }, "provisioner": "example.com/fast",
        "volumeBindingMode": binding_mode, "reclaimPolicy": "Delete" });
    classes.create(&PostParams::default(), &object(class)).await.unwrap();
    let labels = json!({ "tier": "gold" });
    volumes(bed).create(&PostParams::default(), &volume("pv-old", "Retain", SHOP, &labels)).await.unwrap();
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "volumeName": "pv-old", "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    claims(bed, SHOP).create(&PostParams::default(), &object(claim)).await.unwrap();
    commit_backup(bed, &extensions(bed)).await;
    let info = json!([{ "pvcName": "data", "pvcNamespace": SHOP, "pvName": "pv-old", "backupMethod": "CSISnapshot",
        "snapshotDataMoved": true, "result": "succeeded", "pvInfo": { "reclaimPolicy": "Retain", "labels": labels } }]);
    bed.store.put(&layout::backup_volume_info("b"), codec::gzip_json(&info).unwrap()).await.unwrap();
}

/// Does what a provisioner and the volume controller do with the restored claim.
async fn provision(bed: &TestBed) {
    let claims = claims(bed, "copy");
    while claims.get_opt("data").await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let labels = json!({ "zone": "a" });
    volumes(bed).create(&PostParams::default(), &volume("pv-new", "Delete", "copy", &labels)).await.unwrap();
    let parameters = PatchParams::default();
    let name = json!({ "spec": { "volumeName": "pv-new" } });
    claims.patch("data", &parameters, &Patch::Merge(&name)).await.unwrap();
    let bound = json!({ "status": { "phase": "Bound" } });
    claims.patch_status("data", &parameters, &Patch::Merge(&bound)).await.unwrap();
}

#[tokio::test]
async fn a_provisioned_volume_gets_the_reclaim_policy_and_the_labels_of_the_backup() {
    let bed = TestBed::new().await;
    back_up_claim(&bed, "Immediate").await;
    let (results, ()) = tokio::join!(Box::pin(restore(&bed)), provision(&bed));
    let results = results.unwrap().results;
    assert_eq!((results.errors.count, results.warnings.count), (0, 1), "only that of the spec: {results:?}");
    let volume = volumes(&bed).get("pv-new").await.unwrap();
    assert_eq!(volume.spec.unwrap().persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
    let labels = volume.metadata.labels.unwrap();
    assert_eq!((labels["tier"].as_str(), labels["zone"].as_str()), ("gold", "a"));
}

#[tokio::test]
async fn a_claim_that_waits_for_a_pod_is_named_and_does_not_delay_the_restore() {
    let bed = TestBed::new().await;
    back_up_claim(&bed, "WaitForFirstConsumer").await;
    let results = Box::pin(restore(&bed)).await.unwrap().results;
    let warnings = format!("{:?}", results.warnings);
    assert_eq!(results.errors.count, 0, "{results:?}");
    for expected in ["copy/data", "Retain", "until a pod uses it"] {
        assert!(warnings.contains(expected), "{warnings}");
    }
}

#[tokio::test]
async fn a_claim_that_exists_already_keeps_its_volume() {
    let bed = TestBed::new().await;
    back_up_claim(&bed, "Immediate").await;
    let mine = json!({ "metadata": { "name": "data" }, "spec": { "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    bed.create_namespace("copy").await;
    claims(&bed, "copy").create(&PostParams::default(), &object(mine)).await.unwrap();
    provision(&bed).await;
    let results = Box::pin(restore(&bed)).await.unwrap().results;
    assert_eq!(results.errors.count, 0, "{results:?}");
    let volume = volumes(&bed).get("pv-new").await.unwrap();
    assert_eq!(volume.spec.unwrap().persistent_volume_reclaim_policy.as_deref(), Some("Delete"));
}
