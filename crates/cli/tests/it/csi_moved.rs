//! Data movement of CSI snapshots into a repository and back, with visible progress.

use http::Method;
use kube::api::{Patch, PatchParams};
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, is_ended, phase, terminate_server};
use crate::csi::{class, create_claim_of_unknown_driver};
use crate::csi_volumes::{CsiClaim, api, contents, copies, create, snapshots};
use crate::pod_volumes::{agent, agent_log, server, unpacked};

pub async fn list(home: &Home<'_>, kind: &str) -> Vec<Value> {
    home.list(kind).await.into_iter().map(|one| json!(one)).collect()
}

/// Waits until a transfer of this kind has counted something and is not at its end; returns it.
pub async fn wait_until_moving(home: &Home<'_>, kind: &str) -> Value {
    let mut moving = Value::Null;
    eventually(&format!("a {kind} moves"), async || {
        let all = list(home, kind).await;
        let moves =
            |one: &&Value| phase(one) == "InProgress" && one["status"]["progress"]["bytesDone"].as_u64() > Some(0);
        assert!(all.iter().all(|one| phase(one) != "Failed"), "{all:#?}\n{}\n{}", home.log(), agent_log(home));
        moving = all.iter().find(moves).cloned().unwrap_or_default();
        !moving.is_null()
    })
    .await;
    moving
}

/// Waits until all temporary objects and snapshots of a transfer are deleted.
async fn wait_until_cleaned_up(home: &Home<'_>) {
    let bed = home.bed;
    eventually("temporary objects are deleted", async || {
        let held =
            api(bed, "", "Pod", Some(&home.namespace)).list(&kube::api::ListParams::default()).await.unwrap().items;
        let claims = home.list("PersistentVolumeClaim").await;
        held.is_empty()
            && claims.is_empty()
            && copies(bed).is_empty()
            && snapshots(bed).await.is_empty()
            && contents(bed).await.is_empty()
    })
    .await;
}

async fn assert_progress_is_shown(home: &Home<'_>) {
    let moving = wait_until_moving(home, "DataUpload").await;
    let progress = &moving["status"]["progress"];
    assert!(progress["bytesDone"].as_u64() < progress["totalBytes"].as_u64(), "{moving:#}");
    assert_eq!(moving["status"]["node"], "local");
    let shown = home.command(&["describe", "backup", "b"]).output().await.unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("Snapshot Data Movement - "), "{shown}");
}

async fn round_trip(home: &Home<'_>, claim: &CsiClaim<'_>, mover: &str, bytes: u64) {
    let (server, agent) = (server(home, mover, &[]), agent(home, &[], &[]));
    let before = claim.files().await;
    home.backup("b", json!({ "includedNamespaces": [claim.namespace], "snapshotMoveData": true })).await;
    if mover == "built-in" {
        assert_progress_is_shown(home).await;
    }
    let mut waited = Value::Null;
    eventually("the backup waits for it", async || {
        waited = home.get("Backup", "b").await;
        phase(&waited) == "WaitingForPluginOperations" || is_ended(&waited)
    })
    .await;
    let backup = home.ended("Backup", "b").await;
    let said = || format!("{mover}: {}\n{}", home.log(), agent_log(home));
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}", said());
    check_backup(home, claim, &backup, mover, bytes).await;
    wait_until_cleaned_up(home).await;

    claim.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", said());
    assert_eq!(claim.files().await, before, "{}", said());
    let download = list(home, "DataDownload").await.remove(0);
    let status = &download["status"];
    assert_eq!(
        (phase(&download), &status["progress"]["bytesDone"]),
        ("Completed", &status["progress"]["totalBytes"]),
        "{download:#}"
    );
    let infos = unpacked(home, "restores/r/r-volumeinfo.json.gz");
    assert_eq!(
        (&infos[0]["snapshotDataMoved"], &infos[0]["snapshotDataMovementInfo"]["Phase"]),
        (&json!(true), &json!("Completed")),
        "{infos:#}"
    );
    assert_volume_belongs_to_claim(home, claim).await;

    let target = format!("copy-{mover}");
    home.restore(
        "copy",
        json!({ "backupName": "b", "namespaceMapping": { claim.namespace.clone(): home.bed.ns(&target) } }),
    )
    .await;
    let restore = home.ended("Restore", "copy").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", said());
    assert_eq!(CsiClaim::called(home.bed, &target).files().await, before);

    let kept = repository_files(home);
    home.create(json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "metadata": { "name": "d" },
        "spec": { "backupName": "b" } }))
        .await
        .unwrap();
    eventually("the backup is gone", async || home.find("Backup", "b").await.is_none()).await;
    assert_ne!(repository_files(home), kept, "its snapshot in the repository is forgotten\n{}", said());
    terminate_server(agent).await;
    terminate_server(server).await;
}

/// Where snapshots are written down, in either format.
fn repository_files(home: &Home<'_>) -> Vec<String> {
    let find = "find restic/*/snapshots kopia -type f 2>/dev/null | sort";
    let listed = std::process::Command::new("sh").args(["-c", find]).current_dir(&home.bucket).output().unwrap();
    String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
}

async fn assert_volume_belongs_to_claim(home: &Home<'_>, claim: &CsiClaim<'_>) {
    let object = claim.object().await;
    let volumes = api(home.bed, "", "PersistentVolume", None);
    let volume = json!(volumes.get(object["spec"]["volumeName"].as_str().unwrap()).await.unwrap());
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete", "{volume:#}");
    assert_eq!(volume["spec"]["claimRef"]["uid"], object["metadata"]["uid"], "{volume:#}");
    assert_eq!(object["metadata"]["labels"]["velero.io/restore-name"], "r");
}

async fn check_backup(home: &Home<'_>, claim: &CsiClaim<'_>, backup: &Value, mover: &str, bytes: u64) {
    assert_eq!(backup["status"]["backupItemOperationsCompleted"], 1, "{backup:#}");
    assert!(backup["status"]["csiVolumeSnapshotsAttempted"].is_null(), "{backup:#}");
    let upload = list(home, "DataUpload").await.remove(0);
    let (labels, spec, status) = (&upload["metadata"]["labels"], &upload["spec"], &upload["status"]);
    assert_eq!(labels["velero.io/backup-uid"], backup["metadata"]["uid"]);
    assert!(labels["velero.io/async-operation-id"].as_str().unwrap().starts_with("du-"), "{upload:#}");
    assert_eq!((&spec["snapshotType"], &spec["sourcePVC"]), (&json!("CSI"), &json!("data")), "{upload:#}");
    assert_eq!(
        (&spec["sourceNamespace"], &spec["csiSnapshot"]["storageClass"]),
        (&json!(claim.namespace), &json!("local-csi"))
    );
    assert_eq!(
        (phase(&upload), &status["progress"]["bytesDone"]),
        ("Completed", &status["progress"]["totalBytes"]),
        "{upload:#}"
    );
    assert!(status["progress"]["totalBytes"].as_u64().unwrap() >= bytes, "{upload:#}");
    let name = upload["metadata"]["name"].as_str().unwrap();
    let item = format!("resources/persistentvolumeclaims/namespaces/{}/data.json", claim.namespace);
    let item = home.archived_object("b", &item);
    assert_eq!(item["metadata"]["annotations"]["velero.io/data-upload-name"], format!("{}/{name}", home.namespace));
    let kept = format!("resources/datauploads.velero.io/namespaces/{}/{name}.json", home.namespace);
    assert_eq!(home.archived_object("b", &kept)["status"]["snapshotID"], status["snapshotID"]);
    let operations = unpacked(home, "backups/b/b-itemoperations.json.gz");
    let operation = &operations[0];
    assert_eq!(operation["spec"]["backupItemAction"], "velero.io/csi-pvc-backupper", "{operation:#}");
    assert_eq!(operation["spec"]["operationID"], labels["velero.io/async-operation-id"]);
    assert_eq!(
        (&operation["status"]["phase"], &operation["status"]["operationUnits"]),
        (&json!("Completed"), &json!("Bytes"))
    );
    let infos = unpacked(home, "backups/b/b-volumeinfo.json.gz");
    let info = &infos[0];
    assert_eq!((&info["snapshotDataMoved"], &info["result"]), (&json!(true), &json!("succeeded")), "{info:#}");
    let uploader = if mover == "kopia" { "kopia" } else { "restic" };
    assert_eq!(info["snapshotDataMovementInfo"]["uploaderType"], uploader, "{info:#}");
    assert_eq!(info["snapshotDataMovementInfo"]["snapshotHandle"], status["snapshotID"], "{info:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_of_a_snapshot_is_moved_into_a_repository_and_back_with_live_bytes() {
    require!(cache::program("versitygw").and(cache::program("kopia")));
    let bed = Bed::local_with_pods().await;
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    let claim = CsiClaim::make(&bed, "shop", 160 << 20).await;
    // Every pack takes its time, so that the transfer is seen while it moves.
    let slow = Fault::Latency(std::time::Duration::from_secs(1));
    let _slow = proxy.inject(Requests::with_method(Method::PUT).containing("/data/"), slow);
    round_trip(&home, &claim, "built-in", 160 << 20).await;
    for name in ["shop", "copy-built-in"] {
        CsiClaim::called(&bed, name).lose().await;
    }
    let home = bed.home("home-kopia").await;
    let claim = CsiClaim::make(&bed, "shop-kopia", 20 << 20).await;
    round_trip(&home, &claim, "kopia", 20 << 20).await;
}

/// Cancels an operation while it moves data: it fails as cancelled, its transfer too, and nothing of that is left.
async fn cancel_during(home: &Home<'_>, (kind, name): (&str, &str), transfer: &str) {
    let reference = format!("{}/{name}", kind.to_lowercase());
    let cancel = home.command(&["cancel", &reference, "--wait"]).output().await.unwrap();
    assert_eq!(cancel.status.code(), Some(0), "{}", String::from_utf8_lossy(&cancel.stderr));
    let object = home.get(kind, name).await;
    let reason = object["status"]["failureReason"].as_str();
    assert_eq!((phase(&object), reason), ("Failed", Some("Cancelled")), "{object:#}");
    eventually("the transfer is cancelled", async || {
        list(home, transfer).await.iter().all(|one| phase(one) == "Canceled")
    })
    .await;
    wait_until_cleaned_up(home).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_backup_stops_data_movement_and_leaves_no_objects() {
    let bed = Bed::local_with_pods().await;
    require!(cache::program("versitygw"));
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    let claim = CsiClaim::make(&bed, "shop", 160 << 20).await;
    // Every pack takes its time, so that the transfer moves and cannot end before it is cancelled.
    let slow = Fault::Latency(std::time::Duration::from_secs(4));
    let _slow = proxy.inject(Requests::with_method(Method::PUT).containing("/data/"), slow);
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &["--concurrency", "1"], &[]));
    home.backup("b", json!({ "includedNamespaces": [claim.namespace], "snapshotMoveData": true })).await;
    wait_until_moving(&home, "DataUpload").await;
    cancel_during(&home, ("Backup", "b"), "DataUpload").await;
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_restore_stops_data_movement_and_leaves_no_objects() {
    let bed = Bed::local_with_pods().await;
    require!(cache::program("versitygw"));
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    let claim = CsiClaim::make(&bed, "shop", 160 << 20).await;
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &["--concurrency", "1"], &[]));
    home.backup("b", json!({ "includedNamespaces": [claim.namespace], "snapshotMoveData": true })).await;
    assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}\n{}", home.log(), agent_log(&home));
    claim.lose().await;
    // Every pack takes its time, so that the transfer moves and cannot end before it is cancelled.
    let slow = Fault::Latency(std::time::Duration::from_secs(2));
    let _slow = proxy.inject(Requests::with_method(Method::GET).containing("/data/"), slow);
    home.restore("r", json!({ "backupName": "b" })).await;
    let moving = wait_until_moving(&home, "DataDownload").await;
    let progress = &moving["status"]["progress"];
    assert!(progress["bytesDone"].as_u64() < progress["totalBytes"].as_u64(), "{moving:#}");
    cancel_during(&home, ("Restore", "r"), "DataDownload").await;
    terminate_server(agent).await;
}

const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";

async fn write_status(bed: &Bed, kind: &str, namespace: Option<&str>, name: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    api(bed, SNAPSHOT_GROUP, kind, namespace).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Does what a driver does when it has a snapshot that cannot be used yet; returns the snapshot's name.
async fn set_snapshot_handle(bed: &Bed, namespace: &str) -> String {
    let mut snapshot = Value::Null;
    eventually("a snapshot is asked for", async || {
        let all = snapshots(bed).await;
        snapshot = all.into_iter().find(|one| one["metadata"]["namespace"] == namespace).unwrap_or_default();
        !snapshot.is_null()
    })
    .await;
    let name = snapshot["metadata"]["name"].as_str().unwrap().to_owned();
    let content = format!("content-{namespace}");
    let reference = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "name": name,
        "namespace": namespace, "uid": snapshot["metadata"]["uid"] });
    let object = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": content },
        "spec": { "deletionPolicy": "Delete", "driver": "absent.example.com", "source": { "volumeHandle": "1" },
            "volumeSnapshotRef": reference } });
    create(bed, SNAPSHOT_GROUP, None, object).await;
    write_status(bed, "VolumeSnapshotContent", None, &content, json!({ "snapshotHandle": "h", "restoreSize": 7 }))
        .await;
    let bound = json!({ "boundVolumeSnapshotContentName": content, "readyToUse": false });
    write_status(bed, "VolumeSnapshot", Some(namespace), &name, bound).await;
    name
}

/// The upload of a claim, once its phase and message are these.
async fn wait_for_upload(home: &Home<'_>, namespace: &str, expected: &str, message: &str) -> Value {
    let mut upload = Value::Null;
    eventually(&format!("the upload of {namespace} is {expected}: {message}"), async || {
        let all = list(home, "DataUpload").await;
        upload = all.into_iter().find(|one| one["spec"]["sourceNamespace"] == namespace).unwrap_or_default();
        phase(&upload) == expected && upload["status"]["message"].as_str().unwrap_or_default().contains(message)
    })
    .await;
    upload
}

async fn record_warning_event(home: &Home<'_>, claim: &str, second: u32, message: &str) {
    let found = json!(api(home.bed, "", "PersistentVolumeClaim", Some(&home.namespace)).get(claim).await.unwrap());
    let time = format!("2026-01-01T00:00:{second:02}Z");
    let event = json!({ "apiVersion": "v1", "kind": "Event", "metadata": { "name": format!("{claim}.{second}") },
        "type": "Warning", "reason": "ProvisioningFailed", "message": message, "lastTimestamp": time,
        "involvedObject": { "kind": "PersistentVolumeClaim", "namespace": home.namespace, "name": claim,
            "uid": found["metadata"]["uid"] } });
    create(home.bed, "", Some(&home.namespace), event).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_wait_for_their_snapshots_in_parallel_and_driver_errors_fail_them_immediately() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = server(&home, "built-in", &[]);
    let (one, two) = (bed.ns("one"), bed.ns("two"));
    for namespace in [&one, &two] {
        create_claim_of_unknown_driver(&bed, namespace).await;
    }
    class(&bed, "driverless").await;
    home.backup("b", json!({ "includedNamespaces": [one, two], "snapshotMoveData": true })).await;
    // Neither is ready, and the second one is created nevertheless.
    let (first, second) = tokio::join!(set_snapshot_handle(&bed, &one), set_snapshot_handle(&bed, &two));
    for (namespace, name) in [(&one, &first), (&two, &second)] {
        wait_for_upload(&home, namespace, "Accepted", &format!("waiting for snapshot {name} to be ready")).await;
    }
    let broken = json!({ "error": { "message": "rpc error: code = InvalidArgument desc = broken" } });
    write_status(&bed, "VolumeSnapshot", Some(&one), &first, broken).await;
    wait_for_upload(&home, &one, "Failed", "VolumeProvisioningFailed: snapshot").await;

    write_status(&bed, "VolumeSnapshot", Some(&two), &second, json!({ "readyToUse": true })).await;
    let upload = wait_for_upload(&home, &two, "Accepted", "to get a volume").await;
    let claim = upload["metadata"]["name"].as_str().unwrap();
    record_warning_event(&home, claim, 1, "rpc error: code = ResourceExhausted desc = later").await;
    wait_for_upload(&home, &two, "Accepted", "to get a volume: rpc error: code = ResourceExhausted desc = later").await;
    record_warning_event(&home, claim, 2, "rpc error: code = InvalidArgument desc = too small").await;
    wait_for_upload(&home, &two, "Failed", "gets no volume: rpc error: code = InvalidArgument desc = too small").await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "PartiallyFailed", "{backup:#}\n{}", home.log());
    let errors = home.messages("b", "errors");
    for cause in ["InvalidArgument desc = broken", "InvalidArgument desc = too small"] {
        assert!(errors.contains(cause), "{cause}: {errors}\n{}", home.log());
    }
}

/// Waits until a Secret of the server's namespace is there or gone.
async fn wait_for_copy(home: &Home<'_>, is_there: bool) {
    eventually(&format!("the copy is there: {is_there}\n{}", home.log()), async || {
        let copy = home.find("Secret", "kms-token").await;
        let map = home.find("ConfigMap", "kms").await;
        let key = copy.as_ref().map(|copy| copy["data"]["token"] == "c2VjcmV0");
        assert_ne!(key, Some(false), "{copy:#?}");
        copy.is_some() == is_there && map.is_some() == is_there
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_driver_needs_is_beside_its_claim_while_data_is_moved() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let claim = CsiClaim::make(&bed, "shop", 1 << 20).await;
    let names = json!({ "secretNames": ["kms-token"], "configMapNames": ["kms"] });
    let config = json!({ "backupPVC": { "local-csi": names }, "restorePVC": names }).to_string();
    let config_map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "node-agents" },
        "data": { "config.json": config } });
    create(&bed, "", Some(&home.namespace), config_map).await;
    let _server = server(&home, "built-in", &["--node-agent-configmap", "node-agents"]);
    let agent = agent(&home, &[], &[]);
    let backup = json!({ "includedNamespaces": [claim.namespace], "snapshotMoveData": true });
    home.backup("early", backup.clone()).await;
    assert_eq!(phase(&home.ended("Backup", "early").await), "PartiallyFailed");
    let errors = home.messages("early", "errors");
    assert!(errors.contains(&format!("Secret {}/kms-token does not exist", claim.namespace)), "{errors}");

    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "kms-token" }, "stringData": { "token": "secret" } });
    create(&bed, "", Some(&claim.namespace), secret).await;
    let kms = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "kms" }, "data": { "url": "x" } });
    create(&bed, "", Some(&claim.namespace), kms).await;
    let before = claim.files().await;
    home.backup("b", backup).await;
    wait_for_copy(&home, true).await;
    assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}\n{}", home.log(), agent_log(&home));
    wait_for_copy(&home, false).await;

    claim.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    wait_for_copy(&home, true).await;
    assert_eq!(phase(&home.ended("Restore", "r").await), "Completed", "{}\n{}", home.log(), agent_log(&home));
    assert_eq!(claim.files().await, before);
    wait_for_copy(&home, false).await;
    wait_until_cleaned_up(&home).await;
    terminate_server(agent).await;
}
