//! Restores of pod volumes: from the pods to the PodVolumeRestores and their results.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeRestore, UploaderSettings};
use plimsoll_engine::ports::VolumeRestorer;
use plimsoll_engine::restore::action::RestoreActionInput;
use plimsoll_engine::restore::actions::Actions;
use plimsoll_local::fixtures::eventually;
use plimsoll_volumes::fs_backup::{FsRestore, FsRestoreParameters, RestoreHelper};
use serde_json::{Value, json};

use crate::test_bed::{NODE, SHOP, TestBed, completed, create};

const RESTORE_WAIT: &str = "restore-wait";

/// The backup of volume `files` of the pod `old/db`, as it ended.
#[expect(clippy::needless_pass_by_value, reason = "it takes what json! makes")]
fn backup_of_files(status: Value) -> PodVolumeBackup {
    let backup = json!({ "metadata": { "name": "nightly-files", "annotations": { labels::PVC_NAME: "data" } },
        "spec": { "pod": { "namespace": "old", "name": "db" }, "volume": "files", "uploaderType": "restic",
            "backupStorageLocation": "theirs" }, "status": status });
    serde_json::from_value(backup).unwrap()
}

/// A restore of the namespace `old` as [`SHOP`], and its actions.
async fn start(bed: &TestBed, backup: PodVolumeBackup) -> (FsRestore, Actions) {
    let parameters = FsRestoreParameters {
        services: bed.services.clone(),
        job: bed.job(),
        helper: RestoreHelper { image: "plimsoll:1".into(), command: vec!["/plimsoll".into(), RESTORE_WAIT.into()] },
        backups: vec![backup],
        location: "default".to_owned(),
        namespaces: [("old".to_owned(), SHOP.to_owned())].into(),
        limit: Duration::from_mins(1),
        settings: UploaderSettings::default(),
    };
    let mut actions = Actions::default();
    let restore = FsRestore::register(parameters, &mut actions, bed.item_filter().await.catalog()).unwrap();
    (restore.expect("there are volumes to restore"), actions)
}

/// The pod of the backup after the actions of the restore.
async fn transformed_pod(actions: &Actions) -> Value {
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "old", "name": "db" }, "spec": {
        "nodeName": NODE, "containers": [{ "name": "main", "image": "any" }],
        "volumes": [{ "name": "files", "persistentVolumeClaim": { "claimName": "data" } }] } });
    let action = actions.for_resource("pods").next().unwrap();
    let input = RestoreActionInput { item: pod.clone(), from_backup: &pod, restore: &json!({}) };
    action.execute(input).await.unwrap().item
}

/// Creates the restored pod in [`SHOP`].
async fn create_pod(bed: &TestBed, mut pod: Value) -> Value {
    pod["metadata"]["namespace"] = json!(SHOP);
    serde_json::to_value(create(&bed.pods(), pod).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_pod_waits_for_its_files_and_is_released_with_them() {
    let bed = TestBed::new().await;
    let (restore, actions) = start(&bed, backup_of_files(completed("5eed"))).await;
    let pod = transformed_pod(&actions).await;
    let first = &pod["spec"]["initContainers"][0];
    assert_eq!((&first["name"], &first["image"]), (&json!(RESTORE_WAIT), &json!("plimsoll:1")));
    let pod = create_pod(&bed, pod).await;
    restore.start_pod(&pod);

    let transfer = eventually("a PodVolumeRestore", async || bed.list::<PodVolumeRestore>().await.pop()).await;
    let spec = serde_json::to_value(&transfer.spec).unwrap();
    assert_eq!((&spec["snapshotID"], &spec["sourceNamespace"]), (&json!("5eed"), &json!("old")), "{spec:#}");
    assert_eq!((&spec["volume"], &spec["backupStorageLocation"]), (&json!("files"), &json!("default")));
    assert_eq!(spec["pod"]["uid"], pod["metadata"]["uid"]);
    bed.set_status::<PodVolumeRestore>(&transfer.name_any(), json!({ "phase": "Completed" })).await;
    let waited = json!({ "status": { "initContainerStatuses": [{ "name": RESTORE_WAIT, "ready": true, "image": "",
        "imageID": "", "restartCount": 0, "state": { "terminated": { "exitCode": 0 } } }] } });
    bed.pods().patch_status("db", &PatchParams::default(), &Patch::Merge(waited)).await.unwrap();

    let results = restore.finish().await.unwrap();
    assert_eq!((results.errors, results.warnings), (Vec::new(), Vec::new()));
    let info = &results.infos[0];
    assert_eq!((info.volume.pvc_name.as_str(), info.restore_method.as_str()), ("data", "PodVolumeRestore"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_whose_backup_failed_is_an_error_and_its_pod_does_not_wait() {
    let bed = TestBed::new().await;
    let (restore, actions) = start(&bed, backup_of_files(json!({ "phase": "Failed", "message": "no space" }))).await;
    let pod = transformed_pod(&actions).await;
    assert!(pod["spec"]["initContainers"].is_null(), "{pod:#}");
    restore.start_pod(&create_pod(&bed, pod).await);
    let results = restore.finish().await.unwrap();
    let error = "volume shop/db/files is not restored: its backup failed: no space";
    assert_eq!(results.errors, [(SHOP.to_owned(), error.to_owned())]);
    assert!(bed.list::<PodVolumeRestore>().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_wait_container_was_taken_off_gets_no_files() {
    let bed = TestBed::new().await;
    let (restore, actions) = start(&bed, backup_of_files(completed("5eed"))).await;
    let mut pod = transformed_pod(&actions).await;
    pod["spec"].as_object_mut().unwrap().remove("initContainers");
    restore.start_pod(&create_pod(&bed, pod).await);
    let errors = restore.finish().await.unwrap().errors;
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].1.starts_with("volume shop/db/files is not restored: "), "{errors:?}");
    assert!(errors[0].1.ends_with("a modifier took container restore-wait off its pod"), "{errors:?}");
    assert!(bed.list::<PodVolumeRestore>().await.is_empty(), "the application would start on half of its files");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_the_restore_whose_pod_was_not_created_is_reported_as_empty() {
    let bed = TestBed::new().await;
    bed.create_claim("data").await;
    let (restore, _) = start(&bed, backup_of_files(completed("5eed"))).await;
    assert!(restore.finish().await.unwrap().errors.is_empty(), "the claim is not of this restore");
    let (restore, _) = start(&bed, backup_of_files(completed("5eed"))).await;
    let label = json!({ "metadata": { "labels": { labels::RESTORE_NAME: "nightly" } } });
    let claims: kube::Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> =
        kube::Api::namespaced(bed.client.clone(), SHOP);
    claims.patch("data", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let errors = restore.finish().await.unwrap().errors;
    let error = "claim shop/data is left empty: its files come back through pod old/db, which was not created";
    assert_eq!(errors, [(SHOP.to_owned(), error.to_owned())]);
}
