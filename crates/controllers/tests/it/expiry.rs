//! When backups expire, and what keeps them.

use std::sync::atomic::Ordering;

use http::{Method, Request, Uri};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plimsoll_local::fixtures::eventually;
use serde_json::{Value, json};

use crate::bed::{Bed, Interception, NAMESPACE};

/// A namespace that stays terminating: a restore into it waits.
async fn terminating_namespace(bed: &Bed) {
    let (namespaces, config_maps) =
        (Api::<Namespace>::all(bed.client.clone()), Api::<ConfigMap>::namespaced(bed.client.clone(), "shop"));
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "shop" } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let held: ConfigMap =
        serde_json::from_value(json!({ "metadata": { "name": "held", "finalizers": ["example.com/hold"] } })).unwrap();
    config_maps.create(&PostParams::default(), &held).await.unwrap();
    bed.back_up("b", json!({ "includedNamespaces": ["shop"] })).await;
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_waits_for_a_restore_of_the_backup_and_says_so() {
    let bed = Bed::start().await;
    let _server = bed.server();
    terminating_namespace(&bed).await;
    bed.create(json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": { "name": "r" }, "spec": { "backupName": "b" } })).await;
    bed.wait_for_phase("Restore", "r", "InProgress").await;
    bed.create(json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "metadata": { "name": "d" }, "spec": { "backupName": "b" } })).await;
    bed.expire("b").await;
    let shows_wait = async || {
        assert!(bed.backup_directory("b").join("velero-backup.json").exists(), "its files are needed");
        let operation = bed.get("Operation", "delete-d").await?;
        operation.to_string().contains("restore r").then_some(())
    };
    eventually("the request names the restore", shows_wait).await;
    bed.wait_for_message("Backup", "b", "restore r").await;
    assert!(bed.get("Restore", "r").await.unwrap()["metadata"]["deletionTimestamp"].is_null());

    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    Api::<ConfigMap>::namespaced(bed.client.clone(), "shop")
        .patch("held", &PatchParams::default(), &release)
        .await
        .unwrap();
    bed.wait_until_gone("Backup", "b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_begins_while_its_backup_is_deleted_restores_nothing() {
    let bed = Bed::start().await;
    let _server = bed.server();
    bed.back_up("b", json!({ "includedNamespaces": [NAMESPACE] })).await;
    // A deletion has looked for Restores before this one has begun.
    let begins = |method: &Method, uri: &Uri, body: &str| {
        method == Method::PATCH && uri.path().ends_with("/restores/r") && body.contains("InProgress")
    };
    let mark = || {
        let body = json!({ "status": { "phase": "Deleting" } }).to_string();
        let patch = Request::patch("/apis/velero.io/v1/namespaces/velero/backups/b");
        patch.header("content-type", "application/merge-patch+json").body(body).unwrap()
    };
    *bed.interception.lock().unwrap() = Some(Interception { before: begins, send: Box::new(mark) });
    bed.create(json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": { "name": "r" }, "spec": { "backupName": "b" } })).await;
    let restore = bed.wait_for_phase("Restore", "r", "Failed").await;
    assert!(restore["status"]["failureReason"].as_str().unwrap().contains("backup b is Deleting"), "{restore:#}");
}

async fn schedule(bed: &Bed, name: &str) {
    bed.create(json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": name },
        "spec": { "schedule": "0 0 1 1 *", "paused": true, "template": {} } }))
        .await;
}

/// Completed Backups of a schedule; the first `expired` of them have expired.
async fn backups(bed: &Bed, schedule: &str, count: usize, expired: usize) {
    let expirations = ["2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"];
    for index in 0..count {
        let name = format!("{schedule}-{index}");
        bed.create(json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": { "name": name, "labels": { "velero.io/schedule-name": schedule } },
            "spec": { "storageLocation": "default" },
            "status": { "phase": "Completed", "startTimestamp": "2019-01-01T00:00:00Z", "expiration": expirations[usize::from(index >= expired)] } }))
        .await;
        let directory = bed.backup_directory(&name);
        std::fs::create_dir_all(&directory).unwrap();
        let metadata: Value = json!({ "kind": "Backup", "apiVersion": "velero.io/v1", "metadata": { "name": name } });
        std::fs::write(directory.join("velero-backup.json"), metadata.to_string()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_half_of_a_schedule_or_its_last_good_backup_never_expires_at_once() {
    let bed = Bed::start().await;
    for (name, count, expired) in [("most", 4, 3), ("last", 1, 1), ("some", 4, 2)] {
        schedule(&bed, name).await;
        backups(&bed, name, count, expired).await;
    }
    // Without its schedule, a backup is only itself.
    backups(&bed, "orphans", 1, 1).await;
    let _server = bed.server();
    for gone in ["some-0", "some-1", "orphans-0"] {
        bed.wait_until_gone("Backup", gone).await;
    }
    bed.wait_for_message("Backup", "most-0", "3 of 4 backups of schedule most").await;
    bed.wait_for_message("Backup", "last-0", "last good backup of schedule last").await;
    for kept in ["most-0", "most-1", "most-2", "last-0"] {
        assert!(bed.get("Backup", kept).await.is_some(), "{kept}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_expires_while_the_clock_differs_from_that_of_the_api_server() {
    let bed = Bed::start().await;
    bed.clock_offset.store(-86_400, Ordering::Relaxed);
    backups(&bed, "b", 1, 1).await;
    let _server = bed.server();
    bed.wait_for_message("Backup", "b-0", "clock").await;
    assert!(bed.get("Backup", "b-0").await.is_some());
    bed.clock_offset.store(0, Ordering::Relaxed);
    bed.wait_until_gone("Backup", "b-0").await;
}
