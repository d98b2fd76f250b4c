//! The progress of snapshots and restored volumes, in every place where it is shown.

use std::path::Path;

use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};

use super::{
    Claim, RUST, describe, example, list, location, own_record, plugin_directory, records, server, wait_until_moving,
};
use crate::bed::{Bed, Home, eventually, is_ended, phase, terminate_server};
use crate::pod_volumes::unpacked;

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_shows_its_progress_and_its_volume_is_restored() {
    let program = require!(example());
    let bed = Bed::local_with_pods().await;
    let (home, other) = (bed.home("home").await, bed.home("other").await);
    let root = bed.directory.path().join("snapshots-here");
    let config = json!({ "root": root, "pace": "80" });
    location(&home, "here", "plimsoll.dev/directory-snapshotter", config).await;
    let directory = plugin_directory(&bed, &[(RUST, &program)]);
    let _server = server(&home, &directory, &[]);
    let claim = Claim::make(&bed, "shop", 60).await;
    let before = claim.files(&claim.volume).await;

    home.backup("b", json!({ "includedNamespaces": [claim.namespace], "snapshotVolumes": true })).await;
    let moving = wait_until_moving(&home, "VolumePluginBackup").await;
    assert_eq!(
        moving["spec"],
        json!({ "volume": claim.volume, "backup": "b", "plugin": "plimsoll.dev/directory-snapshotter" })
    );
    // It may have ended before a slow machine shows it.
    let shown = describe(&home, &["backup", "b"]).await;
    assert!(shown.contains(&format!("Plugin Snapshots:\n  {}: ", claim.volume)), "{shown}");
    assert!(shown.contains(" %, ") && shown.contains(" KiB of "), "{shown}");
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}\n{}", home.messages("b", "errors"), home.log());
    check_backup(&home, &claim, &backup).await;

    claim.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let moving = wait_until_moving(&home, "VolumePluginRestore").await;
    assert_eq!(moving["spec"]["snapshotID"], format!("b-{}", claim.volume));
    assert_eq!((&moving["spec"]["backup"], &moving["status"]["volumeID"]), (&json!("b"), &json!(claim.volume)));
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", home.log());
    let volume = claim.bound().await;
    assert_eq!((volume.as_str(), claim.files(&volume).await), (claim.volume.as_str(), before));
    assert!(bed.volume(&volume).await.starts_with(&root), "it is the volume that the plugin made");
    let shown = describe(&home, &["restore", "r", "--details"]).await;
    assert!(shown.contains(&format!("{volume}: Completed, 100.00 %")), "{shown}");
    assert!(shown.contains(&format!("Snapshot ID: b-{volume}")), "{shown}");
    let infos = unpacked(&home, "restores/r/r-volumeinfo.json.gz");
    assert_eq!(infos[0]["restoreMethod"], "NativeSnapshot", "{infos:#}");

    assert_record_is_synced(&home, &other, &directory, &volume).await;
    home.create(json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "metadata": { "name": "d" },
        "spec": { "backupName": "b" } }))
        .await
        .unwrap();
    eventually("the backup is gone", async || home.find("Backup", "b").await.is_none()).await;
    assert!(!root.join("snapshots").join(format!("b-{volume}")).exists(), "its snapshot goes with it");
    eventually("its records are gone", async || {
        list(&home, "VolumePluginBackup").await.is_empty() && list(&home, "VolumePluginRestore").await.is_empty()
    })
    .await;
}

async fn check_backup(home: &Home<'_>, claim: &Claim<'_>, backup: &Value) {
    let (volume, id) = (&claim.volume, format!("b-{}", claim.volume));
    let counts = ["Attempted", "Completed"].map(|word| backup["status"][format!("volumeSnapshots{word}")].clone());
    assert_eq!(counts, [json!(1), json!(1)], "{backup:#}");
    assert_eq!(backup["spec"]["volumeSnapshotLocations"], json!(["here"]));
    let all = list(home, "VolumePluginBackup").await;
    assert_eq!((all.len(), &all[0]["metadata"]["name"]), (1, &json!(id)), "{all:#?}");
    let status = &all[0]["status"];
    assert_eq!((&status["phase"], &status["snapshotID"]), (&json!("Completed"), &json!(id)), "{status:#}");
    assert_eq!(status["progress"]["bytesDone"], status["progress"]["totalBytes"]);
    assert!(status["startTimestamp"].is_string() && status["completionTimestamp"].is_string(), "{status:#}");
    assert_eq!(all[0]["metadata"]["labels"]["velero.io/backup-uid"], backup["metadata"]["uid"]);
    let kept = unpacked(home, "backups/b/b-volumepluginbackups.json.gz");
    assert_eq!(
        (&kept[0]["metadata"]["name"], &kept[0]["status"]["phase"]),
        (&json!(id), &json!("Completed")),
        "{kept:#}"
    );
    let snapshots = unpacked(home, "backups/b/b-volumesnapshots.json.gz");
    let directory = claim.bed.volume(volume).await;
    assert_eq!(
        snapshots,
        json!([{ "spec": { "backupName": "b", "backupUID": backup["metadata"]["uid"], "location": "here",
            "persistentVolumeName": volume, "providerVolumeID": directory, "volumeType": "directory" },
            "status": { "phase": "Completed", "providerSnapshotID": id } }])
    );
    let infos = unpacked(home, "backups/b/b-volumeinfo.json.gz");
    let info = &infos[0];
    assert_eq!((&info["backupMethod"], &info["result"]), (&json!("NativeSnapshot"), &json!("succeeded")), "{info:#}");
    assert_eq!((&info["pvcName"], &info["nativeSnapshotInfo"]["snapshotHandle"]), (&json!("data"), &json!(id)));
    if cache::program("velero").is_ok() {
        let shown = home.velero(&["backup", "describe", "b", "--details"]).await;
        assert!(shown.contains("Velero-Native Snapshots:") && shown.contains(&id), "{shown}");
    }
}

/// The record comes with the backup into other clusters.
async fn assert_record_is_synced(home: &Home<'_>, other: &Home<'_>, directory: &Path, volume: &str) {
    let place = json!({ "spec": { "objectStorage": { "bucket": home.bucket } } });
    other.patch("BackupStorageLocation", "default", place.clone()).await;
    let server = server(other, directory, &[]);
    eventually("the backup and its record are synced", async || {
        other.find("Backup", "b").await.is_some() && !list(other, "VolumePluginBackup").await.is_empty()
    })
    .await;
    let (backup, all) = (other.get("Backup", "b").await, list(other, "VolumePluginBackup").await);
    assert_eq!(records(&all, volume).len(), 1, "{all:#?}");
    assert_eq!(all[0]["metadata"]["labels"]["velero.io/backup-uid"], backup["metadata"]["uid"]);
    assert_eq!(all[0]["metadata"]["ownerReferences"][0]["uid"], backup["metadata"]["uid"]);
    assert_eq!(all[0]["status"]["phase"], "Completed", "{all:#?}");
    terminate_server(server).await;

    // What is there is never overwritten.
    let mut mine = own_record(volume, &json!({ "phase": "Failed", "message": "mine" }));
    mine["metadata"]["name"] = json!(format!("b-{volume}"));
    let file = home.bucket.join("backups/b/b-volumepluginbackups.json.gz");
    let whole = std::fs::read(&file).unwrap();
    let third = home.bed.home("occupied").await;
    third.patch("BackupStorageLocation", "default", place.clone()).await;
    third.create(mine).await.unwrap();
    let server = self::server(&third, directory, &[]);
    eventually("the backup is synced to its end", async || {
        let backup = third.find("Backup", "b").await;
        backup.is_some_and(|backup| backup["metadata"]["annotations"]["plimsoll.dev/syncing"].is_null())
    })
    .await;
    let all = list(&third, "VolumePluginBackup").await;
    assert_eq!((all.len(), &all[0]["status"]["message"]), (1, &json!("mine")), "{all:#?}");
    terminate_server(server).await;

    std::fs::write(&file, &whole[..9]).unwrap();
    let fourth = home.bed.home("damaged").await;
    fourth.patch("BackupStorageLocation", "default", place).await;
    let server = self::server(&fourth, directory, &[]);
    eventually("the damaged list is named", async || {
        fourth.log().contains("not synced: backup archive backups/b/b-volumepluginbackups.json.gz")
    })
    .await;
    assert!(fourth.find("Backup", "b").await.is_none(), "a backup that cannot be read is not synced");
    terminate_server(server).await;
    std::fs::write(&file, whole).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_outlasts_its_call_is_awaited() {
    let program = require!(example());
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let config = json!({ "root": bed.directory.path().join("here"), "pace": "60", "background": "true" });
    location(&home, "here", "plimsoll.dev/directory-snapshotter", config).await;
    let directory = plugin_directory(&bed, &[(RUST, &program)]);
    let _server = server(&home, &directory, &[]);
    let claim = Claim::make(&bed, "shop", 100).await;
    home.backup("b", json!({ "includedNamespaces": [claim.namespace] })).await;
    let mut waited = false;
    let mut backup = Value::Null;
    eventually("the backup has ended", async || {
        backup = home.get("Backup", "b").await;
        waited |= phase(&backup) == "WaitingForPluginOperations";
        is_ended(&backup)
    })
    .await;
    assert!(waited && phase(&backup) == "Completed", "{backup:#}\n{}", home.log());
    assert_eq!(backup["status"]["backupItemOperationsCompleted"], 1, "{backup:#}");
    let kept = unpacked(&home, "backups/b/b-volumepluginbackups.json.gz");
    let status = &kept[0]["status"];
    assert_eq!((&status["phase"], &status["plimsoll"]["percent"]), (&json!("Completed"), &json!("100.00")), "{kept:#}");
    let operations = unpacked(&home, "backups/b/b-itemoperations.json.gz");
    assert_eq!(operations[0]["status"]["phase"], "Completed", "{operations:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn volume_get_describe_and_watch_show_plugin_snapshots_and_transfers() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let mut record = own_record(
        "pv-1",
        &json!({ "phase": "Uploading", "message": "copying",
        "progress": { "totalBytes": 1000, "bytesDone": 600 } }),
    );
    record["metadata"]["labels"] = json!({ "velero.io/backup-name": "b" });
    home.create(record).await.unwrap();
    home.create(json!({ "apiVersion": "velero.io/v1", "kind": "VolumePluginRestore",
        "metadata": { "name": "back", "labels": { "velero.io/restore-name": "r" } },
        "spec": { "snapshotID": "s-1", "backup": "b", "plugin": "x.io/own" }, "status": { "phase": "Failed" } }))
        .await
        .unwrap();
    let printed = async |arguments: &[&str]| {
        let output = home.command(&[&["volume"], arguments].concat()).output().await.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (_, table) = printed(&["get"]).await;
    let row = table.lines().find(|line| line.starts_with("of-the-plugin")).unwrap_or_else(|| panic!("{table}"));
    for words in
        ["VolumePluginBackup", "backup/b", "pv-1", "Uploading", "60.00%", "600 B of 1000 B", "x.io/own", "copying"]
    {
        assert!(row.contains(words), "{words}: {table}");
    }
    let (_, json) = printed(&["get", "--restore", "r", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json.as_array().map(Vec::len), Some(1), "{json:#}");
    assert_eq!((&json[0]["kind"], &json[0]["phase"]), (&json!("VolumePluginRestore"), &json!("Failed")));
    let (_, page) = printed(&["describe", "of-the-plugin"]).await;
    assert!(page.contains("pool:") && !page.contains('\u{1b}'), "{page}");
    let (code, _) = printed(&["watch", "back"]).await;
    assert_eq!(code, Some(4), "it has failed");
}
