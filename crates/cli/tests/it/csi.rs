//! Snapshots of a CSI driver, there and back: the embedded cluster's driver copies directories.

use plimsoll_testkit::cache;
use serde_json::{Value, json};

use crate::bed::{Bed, Home, create_namespace, eventually, phase};
use crate::csi_volumes::{CsiClaim, api, contents, copies, create, snapshots};
use crate::pod_volumes::unpacked;

const CLASSES: &str = "volumesnapshotclasses.snapshot.storage.k8s.io";

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_restored_from_its_snapshot_into_its_own_and_another_namespace() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = home.server();
    let claim = CsiClaim::make(&bed, "shop", 100_000).await;
    let before = claim.files().await;
    home.backup("b", json!({ "includedNamespaces": [claim.namespace] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}\n{}", home.messages("b", "errors"), home.log());
    check_backup(&home, &claim, &backup).await;

    claim.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    restored(&home, "r").await;
    assert_eq!(claim.files().await, before);
    let (made, object) = (snapshots(&bed).await, claim.object().await);
    assert_eq!((made.len(), &made[0]["status"]["readyToUse"]), (1, &json!(true)), "{made:#?}");
    assert_eq!(object["spec"]["dataSource"]["name"], made[0]["metadata"]["name"]);
    assert_eq!(object["metadata"]["labels"]["velero.io/restore-name"], "r", "{object:#}");
    let infos = unpacked(&home, "restores/r/r-volumeinfo.json.gz");
    assert_eq!(
        (&infos[0]["restoreMethod"], &infos[0]["pvcName"]),
        (&json!("CSISnapshot"), &json!("data")),
        "{infos:#}"
    );
    let operations = unpacked(&home, "restores/r/restore-r-itemoperations.json.gz");
    assert_eq!(operations[0]["status"]["phase"], "Completed", "{operations:#}");

    claim.change().await;
    home.restore("copy", json!({ "backupName": "b", "namespaceMapping": { claim.namespace.clone(): bed.ns("copy") } }))
        .await;
    restored(&home, "copy").await;
    assert_eq!(CsiClaim::called(&bed, "copy").files().await, before);
    assert_ne!(claim.files().await, before, "what is there is not touched");
    assert_existing_claim_is_unchanged(&home, &claim).await;
    assert_a_policy_decides_before_snapshot_volumes(&home, &claim).await;

    home.create(json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "metadata": { "name": "d" },
        "spec": { "backupName": "b" } }))
        .await
        .unwrap();
    eventually("the backup is gone", async || home.find("Backup", "b").await.is_none()).await;
    assert_eq!(copies(&bed), Vec::<String>::new(), "the driver's snapshot goes with it\n{}", home.log());
}

async fn restored(home: &Home<'_>, name: &str) {
    let restore = home.ended("Restore", name).await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", home.log());
}

async fn assert_existing_claim_is_unchanged(home: &Home<'_>, claim: &CsiClaim<'_>) {
    let before = claim.files().await;
    home.restore("again", json!({ "backupName": "b" })).await;
    home.ended("Restore", "again").await;
    assert_eq!(claim.files().await, before);
}

/// `snapshotVolumes: false` leaves out what no policy wants a snapshot of. A policy may name the class.
async fn assert_a_policy_decides_before_snapshot_volumes(home: &Home<'_>, claim: &CsiClaim<'_>) {
    let second = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": { "name": "second" }, "driver": "csi.plimsoll.dev", "deletionPolicy": "Delete" });
    create(claim.bed, "snapshot.storage.k8s.io", None, second).await;
    for (name, action, class) in [
        ("by-policy", "{type: snapshot}", Some("local-csi")),
        ("by-class", "{type: snapshot, parameters: {snapshotClass: second}}", Some("second")),
        ("without", "{type: skip}", None),
        ("by-plugin", "{type: custom}", None),
    ] {
        let rules = format!("version: v1\nvolumePolicies:\n- conditions: {{csi: {{}}}}\n  action: {action}\n");
        let rules = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "rules": rules } });
        create(claim.bed, "", Some(&home.namespace), rules).await;
        let policy = json!({ "kind": "configmap", "name": name });
        let spec =
            json!({ "includedNamespaces": [claim.namespace], "snapshotVolumes": false, "resourcePolicy": policy });
        home.backup(name, spec).await;
        let backup = home.ended("Backup", name).await;
        assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}", home.log());
        let attempted = backup["status"]["csiVolumeSnapshotsAttempted"].as_u64().unwrap_or(0);
        assert_eq!(attempted, u64::from(class.is_some()), "{name}: {backup:#}");
        let classes = home.archived(name).into_iter().filter(|item| item.contains("/volumesnapshotclasses."));
        let expected = class.map(|class| format!("resources/{CLASSES}/cluster/{class}.json"));
        assert_eq!(classes.collect::<Vec<_>>(), Vec::from_iter(expected), "{name}");
        home.create(json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "metadata": { "name": name },
            "spec": { "backupName": name } }))
            .await
            .unwrap();
        eventually("the backup is gone", async || home.find("Backup", name).await.is_none()).await;
    }
}

async fn check_backup(home: &Home<'_>, claim: &CsiClaim<'_>, backup: &Value) {
    let counts = ["Attempted", "Completed"].map(|word| backup["status"][format!("csiVolumeSnapshots{word}")].clone());
    assert_eq!(counts, [json!(1), json!(1)], "{backup:#}");
    assert_eq!(backup["status"]["backupItemOperationsCompleted"], 1, "{backup:#}");
    eventually("the objects are gone", async || {
        snapshots(claim.bed).await.is_empty() && contents(claim.bed).await.is_empty()
    })
    .await;
    assert_eq!(copies(claim.bed).len(), 1, "the driver keeps what they stand for");
    let archived = home.archived("b");
    let of = |resource: &str| {
        let path = format!("resources/{resource}.snapshot.storage.k8s.io/");
        archived.iter().find(|name| name.starts_with(&path)).unwrap_or_else(|| panic!("{path}: {archived:#?}")).clone()
    };
    let snapshot = home.archived_object("b", &of("volumesnapshots"));
    let content = home.archived_object("b", &of("volumesnapshotcontents"));
    of("volumesnapshotclasses");
    let name = snapshot["metadata"]["name"].as_str().unwrap();
    let handle = content["status"]["snapshotHandle"].as_str().unwrap();
    assert_eq!(snapshot["metadata"]["annotations"]["velero.io/csi-volumesnapshot-handle"], handle, "{snapshot:#}");
    assert_eq!(content["metadata"]["labels"]["velero.io/backup-name"], "b", "{content:#}");
    let item = format!("resources/persistentvolumeclaims/namespaces/{}/data.json", claim.namespace);
    let item = home.archived_object("b", &item);
    assert_eq!(item["metadata"]["annotations"]["velero.io/volume-snapshot-name"], name, "{item:#}");
    let infos = unpacked(home, "backups/b/b-volumeinfo.json.gz");
    let info = &infos[0];
    assert_eq!((&info["backupMethod"], &info["result"]), (&json!("CSISnapshot"), &json!("succeeded")), "{info:#}");
    assert_eq!(
        (&info["csiSnapshotInfo"]["snapshotHandle"], &info["csiSnapshotInfo"]["ReadyToUse"]),
        (&json!(handle), &json!(true)),
        "{info:#}"
    );
    assert!(info["csiSnapshotInfo"]["size"].as_u64().unwrap() >= 100_000, "{info:#}");
    let shown = home.command(&["describe", "backup", "b", "--details"]).output().await.unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let line = shown.lines().find(|line| line.contains("/data (CSISnapshot, ")).unwrap_or_else(|| panic!("{shown}"));
    assert!(line.contains(" KiB, ready to use)"), "{line}");
    if cache::program("velero").is_ok() {
        let shown = home.velero(&["backup", "describe", "b", "--details"]).await;
        assert!(shown.contains("CSI Snapshots:") && shown.contains(handle), "{shown}");
    }
}

/// A bound claim of a driver that does not run.
pub async fn create_claim_of_unknown_driver(bed: &Bed, namespace: &str) {
    create_namespace(&bed.client, namespace).await;
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("{namespace}-disk") },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "csi": { "driver": "absent.example.com", "volumeHandle": "1" } } });
    create(bed, "", None, volume).await;
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "volumeName": format!("{namespace}-disk"), "storageClassName": "",
            "resources": { "requests": { "storage": "1Gi" } } } });
    create(bed, "", Some(namespace), claim).await;
    let claims = api(bed, "", "PersistentVolumeClaim", Some(namespace));
    eventually("the claim is bound", async || claims.get("data").await.unwrap().data["status"]["phase"] == "Bound")
        .await;
}

pub async fn class(bed: &Bed, name: &str) {
    let class = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": { "name": name }, "driver": "absent.example.com", "deletionPolicy": "Delete" });
    create(bed, "snapshot.storage.k8s.io", None, class).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn driver_errors_fail_immediately_and_pending_snapshots_time_out() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = home.server();
    let claim = CsiClaim::make(&bed, "shop", 100).await;
    std::fs::remove_dir_all(claim.directory().await).unwrap();
    // The timeout is ten minutes: polling that long would time out the test.
    home.backup("refused", json!({ "includedNamespaces": [claim.namespace] })).await;
    fails(&home, "refused", "code = NotFound desc = no volume").await;

    let (other, spec) = (
        bed.ns("other"),
        |limit: &str| json!({ "includedNamespaces": [bed.ns("other")], "snapshotVolumes": true, "csiSnapshotTimeout": limit }),
    );
    create_claim_of_unknown_driver(&bed, &other).await;
    home.backup("classless", spec("10m")).await;
    fails(&home, "classless", "no VolumeSnapshotClass for driver absent.example.com").await;
    class(&bed, "first").await;
    home.backup("late", spec("2s")).await;
    fails(&home, "late", "the driver has no snapshot after 2 s").await;
    home.backup("cancelled", spec("10m")).await;
    eventually("it says what it waits for", async || {
        let all = home.list("Operation").await;
        let operation = all.into_iter().find(|one| one.metadata.name.as_deref() == Some("backup-cancelled"));
        operation.is_some_and(|one| {
            one.data["status"]["tree"]
                .to_string()
                .contains(&format!("waiting for the driver to take snapshot {other}/velero-data-"))
        })
    })
    .await;
    assert_eq!(snapshots(&bed).await.len(), 1);
    let cancel = home.command(&["cancel", "backup/cancelled", "--wait"]).output().await.unwrap();
    assert_eq!(cancel.status.code(), Some(0), "{}", String::from_utf8_lossy(&cancel.stderr));
    eventually("what was made is gone", async || snapshots(&bed).await.is_empty()).await;
    class(&bed, "second").await;
    home.backup("ambiguous", spec("10m")).await;
    fails(&home, "ambiguous", "several VolumeSnapshotClasses").await;
}

async fn fails(home: &Home<'_>, name: &str, expected: &str) {
    let backup = home.ended("Backup", name).await;
    assert_eq!(phase(&backup), "PartiallyFailed", "{backup:#}\n{}", home.log());
    let errors = home.messages(name, "errors");
    assert!(errors.contains(expected), "{errors}");
    assert!(snapshots(home.bed).await.is_empty(), "what will never be does not stay");
}
