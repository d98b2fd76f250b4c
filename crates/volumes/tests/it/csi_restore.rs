//! Restores of claims from their CSI snapshots and from moved data.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use plimsoll_api::velero::v1::UploaderSettings;
use plimsoll_api::velero::v2alpha1::DataDownload;
use plimsoll_engine::restore::action::{RestoreActionInput, RestoreActionOutput};
use plimsoll_engine::restore::actions::Actions;
use plimsoll_volumes::csi::{CsiRestore, CsiRestoreParameters, register_restore};
use serde_json::{Value, json};

use crate::test_bed::{NAMESPACE, SHOP, TestBed, completed};

const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";

/// A restore of the namespace `old` as [`SHOP`], and its actions.
struct Started {
    csi: Arc<CsiRestore>,
    actions: Actions,
}

impl Started {
    async fn execute(&self, resource: &str, item: &Value) -> Result<RestoreActionOutput, String> {
        let action = self.actions.for_resource(resource).next().unwrap();
        action.execute(RestoreActionInput { item: item.clone(), from_backup: item, restore: &json!({}) }).await
    }
}

async fn start(bed: &TestBed) -> Started {
    let parameters = CsiRestoreParameters {
        services: bed.services.clone(),
        job: bed.job(),
        namespaces: [("old".to_owned(), SHOP.to_owned())].into(),
        location: "default".to_owned(),
        with_data: true,
        limit: Duration::from_mins(1),
        settings: UploaderSettings::default(),
    };
    let mut actions = Actions::default();
    let csi = register_restore(parameters, &mut actions, bed.item_filter().await.catalog()).unwrap();
    Started { csi, actions }
}

/// The claim `old/data` in a backup.
#[expect(clippy::needless_pass_by_value, reason = "it takes what json! makes")]
fn claim(annotations: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "namespace": "old", "name": "data", "uid": "uid-data", "annotations": annotations },
        "spec": { "volumeName": "pv", "resources": { "requests": { "storage": "1Gi" } } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_its_snapshot_and_its_content_find_each_other_in_the_new_namespace() {
    let bed = TestBed::new().await;
    let started = start(&bed).await;
    assert!(started.csi.supports_snapshots());
    let claim = claim(json!({ "velero.io/volume-snapshot-name": "s" }));
    let restored = started.execute("persistentvolumeclaims", &claim).await.unwrap();
    let name = restored.item["spec"]["dataSource"]["name"].clone();
    assert!(restored.item["spec"]["volumeName"].is_null(), "{:#}", restored.item);

    let snapshot = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": { "namespace": "old", "name": "s" }, "spec": { "volumeSnapshotClassName": "example" },
        "status": { "boundVolumeSnapshotContentName": "c" } });
    let snapshot = started.execute(SNAPSHOTS, &snapshot).await.unwrap();
    assert_eq!(snapshot.item["metadata"]["name"], name);
    let content = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": "c" }, "spec": { "driver": "d", "volumeSnapshotRef": { "namespace": "old", "name": "s" } },
        "status": { "snapshotHandle": "handle" } });
    let content = started.execute(CONTENTS, &content).await.unwrap();
    assert_eq!(content.item["metadata"]["name"], snapshot.item["spec"]["source"]["volumeSnapshotContentName"]);
    assert_eq!(content.item["spec"]["volumeSnapshotRef"]["namespace"], SHOP);
    assert_eq!(content.item["spec"]["deletionPolicy"], "Retain", "the backup still needs the snapshot");
    let infos = started.csi.infos();
    let info = infos[0].snapshot.csi_snapshot_info.as_ref().unwrap();
    assert_eq!((infos[0].volume.pvc_namespace.as_str(), info.snapshot_handle.as_str()), (SHOP, "handle"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_in_the_cluster_keeps_its_volume() {
    let bed = TestBed::new().await;
    bed.create_claim("data").await;
    let claim = claim(json!({ "velero.io/volume-snapshot-name": "s" }));
    let output = start(&bed).await.execute("persistentvolumeclaims", &claim).await.unwrap();
    assert_eq!(output, RestoreActionOutput::of(claim), "its snapshot is not restored");
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_data_is_downloaded_from_the_snapshot_of_its_upload() {
    let bed = TestBed::new().await;
    let started = start(&bed).await;
    let claim = claim(json!({ "velero.io/data-upload-name": format!("{NAMESPACE}/up") }));
    let missing = started.execute("persistentvolumeclaims", &claim).await.unwrap_err();
    assert!(missing.contains("the backup has no DataUpload velero/up"), "{missing}");

    let upload = json!({ "apiVersion": "velero.io/v2alpha1", "kind": "DataUpload",
        "metadata": { "namespace": NAMESPACE, "name": "up", "annotations": { "plimsoll.dev/mover": "built-in" } },
        "spec": { "snapshotType": "CSI", "csiSnapshot": { "volumeSnapshot": "s", "storageClass": "fast", "snapshotClass": "example" },
            "sourcePVC": "data", "sourceNamespace": "old", "backupStorageLocation": "theirs", "operationTimeout": "10m" },
        "status": completed("5eed") });
    assert!(started.execute("datauploads.velero.io", &upload).await.unwrap().skip, "it is a record");
    let output = started.execute("persistentvolumeclaims", &claim).await.unwrap();
    let downloads = bed.list::<DataDownload>().await;
    let [download] = &downloads[..] else { panic!("one download: {downloads:?}") };
    let spec = serde_json::to_value(&download.spec).unwrap();
    assert_eq!((&spec["snapshotID"], &spec["sourceNamespace"]), (&json!("5eed"), &json!("old")), "{spec:#}");
    assert_eq!((&spec["targetVolume"]["namespace"], &spec["backupStorageLocation"]), (&json!(SHOP), &json!("default")));
    assert!(output.item["spec"]["selector"]["matchLabels"].is_object(), "it waits for its volume: {:#}", output.item);

    let action = Arc::clone(started.actions.for_resource("persistentvolumeclaims").next().unwrap());
    let client = action.operation_client().unwrap();
    bed.set_status::<DataDownload>(&download.name_any(), json!({ "phase": "Failed", "message": "no space" })).await;
    let progress = client.progress(&output.operation.unwrap(), &json!({})).await.unwrap();
    assert_eq!((progress.completed, progress.error.as_str()), (true, "no space"));
}
