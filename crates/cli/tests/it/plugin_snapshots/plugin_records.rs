//! Records that plugins write themselves.

use plimsoll_testkit::require;
use serde_json::{Value, json};

use super::{
    Claim, RUST, attempts, describe, example, list, location, own_record, plugin_directory, server, wait_until_moving,
    why,
};
use crate::bed::{Bed, Home, eventually, phase, terminate_server};
use crate::killed::{has_no_open_operations, terminate_if_running};
use crate::pod_volumes::unpacked;

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_record_replaces_the_built_in_one_and_is_awaited() {
    let program = require!(example());
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let config = json!({ "root": bed.directory.path().join("here"), "pace": "40" });
    location(&home, "here", "plimsoll.dev/directory-snapshotter", config).await;
    let directory = plugin_directory(&bed, &[(RUST, &program)]);
    let _server = server(&home, &directory, &[]);
    let claim = Claim::make(&bed, "shop", 60).await;
    home.backup("b", json!({ "includedNamespaces": [claim.namespace] })).await;
    let count = |done: u64| json!({ "phase": "Uploading", "progress": { "totalBytes": 1000, "bytesDone": done } });
    home.create(own_record(&claim.volume, &count(600))).await.unwrap();
    eventually("ours gives way", async || {
        let all = list(&home, "VolumePluginBackup").await;
        all.len() == 1 && all[0]["metadata"]["labels"]["velero.io/backup-name"] == "b"
    })
    .await;
    eventually("the backup waits for it", async || {
        phase(&home.get("Backup", "b").await) == "WaitingForPluginOperations"
    })
    .await;
    says(&home, "of-the-plugin", "~60.00").await;
    let shown = describe(&home, &["backup", "b", "--details"]).await;
    assert!(shown.contains(&format!("{}: Uploading, 60.00 %, 600 B of 1000 B", claim.volume)), "{shown}");
    assert!(shown.contains("pool: p [31m1"), "{shown}");
    for what in ["backup/b", "volumepluginbackup/of-the-plugin"] {
        let explanation = why(&home, what).await;
        let words =
            format!("plugin x.io/own takes a snapshot of volume {}; ~60.00 %, 600 B of ~1000 B, ", claim.volume);
        assert!(explanation.contains(&words), "{explanation}");
    }
    // Shown progress never decreases and never exceeds its total.
    for (done, percent, expected) in
        [(200, "~60.00", "60.00 %, 200 B of 1000 B"), (5000, "~99.99", "99.99 %, 1000 B of 1000 B")]
    {
        home.patch("VolumePluginBackup", "of-the-plugin", json!({ "status": count(done) })).await;
        says(&home, "of-the-plugin", percent).await;
        let shown = describe(&home, &["backup", "b"]).await;
        assert!(shown.contains(&format!("{}: Uploading, {expected}", claim.volume)), "{shown}");
    }
    let end = json!({ "status": { "phase": "Completed", "snapshotID": "elsewhere" } });
    home.patch("VolumePluginBackup", "of-the-plugin", end).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}", home.log());
    let kept = unpacked(&home, "backups/b/b-volumepluginbackups.json.gz");
    assert_eq!(
        (kept.as_array().unwrap().len(), &kept[0]["metadata"]["name"]),
        (1, &json!("of-the-plugin")),
        "{kept:#}"
    );
    assert_eq!(kept[0]["status"]["phase"], "Completed");
    assert!(kept[0]["status"]["completionTimestamp"].is_string(), "the server's clock fills it in: {kept:#}");
    assert_eq!(kept[0]["status"]["plimsoll"]["percent"], "100.00", "{kept:#}");
}

/// Waits until the server has written this percentage into a plugin's own record.
async fn says(home: &Home<'_>, name: &str, percent: &str) {
    let mut record = Value::Null;
    eventually(&format!("the server says {percent} of {name}"), async || {
        record = home.get("VolumePluginBackup", name).await;
        record["status"]["plimsoll"]["percent"] == percent
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_record_is_found_by_snapshot_name_and_a_deleted_one_is_not_awaited() {
    let program = require!(example());
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let config = json!({ "root": bed.directory.path().join("here"), "pace": "20" });
    location(&home, "here", "plimsoll.dev/directory-snapshotter", config).await;
    let directory = plugin_directory(&bed, &[(RUST, &program)]);
    let _server = server(&home, &directory, &[]);
    let claim = Claim::make(&bed, "shop", 5).await;
    let id = format!("b-{}", claim.volume);
    // Its spec is that of another snapshot: only the name matches.
    let status = json!({ "phase": "Uploading", "progress": { "totalBytes": 1000, "bytesDone": 600 } });
    let mut record = own_record("elsewhere", &status);
    record["metadata"]["name"] = json!(id);
    home.create(record).await.unwrap();
    home.backup("b", json!({ "includedNamespaces": [claim.namespace] })).await;
    eventually("the backup waits for it", async || {
        phase(&home.get("Backup", "b").await) == "WaitingForPluginOperations"
    })
    .await;
    let all = list(&home, "VolumePluginBackup").await;
    assert_eq!((all.len(), &all[0]["spec"]["volume"]), (1, &json!("elsewhere")), "{all:#?}");
    assert_eq!(all[0]["metadata"]["labels"]["velero.io/backup-name"], "b", "{all:#?}");
    // The plugin reports that it is done: a deleted record is not waited for.
    home.delete("VolumePluginBackup", &id).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}", home.log());
    let kept = unpacked(&home, "backups/b/b-volumepluginbackups.json.gz");
    assert_eq!(
        (&kept[0]["spec"]["volume"], &kept[0]["status"]["phase"], &kept[0]["status"]["snapshotID"]),
        (&json!(claim.volume), &json!("Completed"), &json!(id)),
        "ours takes its place: {kept:#}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_during_data_movement_is_replaced_by_one_that_keeps_waiting() {
    let program = require!(example());
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let root = bed.directory.path().join("here");
    location(&home, "here", "plimsoll.dev/directory-snapshotter", json!({ "root": root, "pace": "100" })).await;
    let directory = plugin_directory(&bed, &[(RUST, &program)]);
    let mut killed = server(&home, &directory, &[]);
    let claim = Claim::make(&bed, "shop", 20).await;
    home.backup("b", json!({ "includedNamespaces": [claim.namespace] })).await;
    home.create(own_record(&claim.volume, &json!({ "phase": "Uploading" }))).await.unwrap();
    let waits = async || phase(&home.get("Backup", "b").await) == "WaitingForPluginOperations";
    eventually("the backup waits for it", waits).await;
    killed.kill().await.unwrap();
    let next = server(&home, &directory, &[]);
    eventually("another server took it up", async || attempts(&home, "backup-b").await == 2 && waits().await).await;
    home.patch("VolumePluginBackup", "of-the-plugin", json!({ "status": { "phase": "Completed" } })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}", home.log());
    assert_eq!(std::fs::read_dir(root.join("snapshots")).unwrap().count(), 1, "no second snapshot");
    let all = list(&home, "VolumePluginBackup").await;
    assert_eq!((all.len(), &all[0]["metadata"]["name"]), (1, &json!("of-the-plugin")), "{all:#?}");
    eventually("everything is tidy", async || has_no_open_operations(&home).await).await;
    terminate_if_running(next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_record_of_a_volume_replaces_the_built_in_one_unless_it_is_older() {
    let program = require!(example());
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let config = |pace: &str| json!({ "root": bed.directory.path().join("here"), "pace": pace });
    location(&home, "here", "plimsoll.dev/directory-snapshotter", config("0")).await;
    let directory = plugin_directory(&bed, &[(RUST, &program)]);
    let server = server(&home, &directory, &[]);
    let claim = Claim::make(&bed, "shop", 60).await;
    home.backup("b", json!({ "includedNamespaces": [claim.namespace] })).await;
    assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}", home.log());
    claim.lose().await;
    home.patch("VolumeSnapshotLocation", "here", json!({ "spec": { "config": config("100") } })).await;
    eventually("everything is tidy", async || has_no_open_operations(&home).await).await;
    terminate_server(server).await;

    let own = |name: &str, status: Value| {
        json!({ "apiVersion": "velero.io/v1", "kind": "VolumePluginRestore", "metadata": { "name": name },
            "spec": { "snapshotID": format!("b-{}", claim.volume), "plugin": "x.io/own" }, "status": status })
    };
    // Made after the Restore and before the call: it is about something else.
    home.restore("r", json!({ "backupName": "b" })).await;
    home.create(own("older", json!({ "phase": "Uploading" }))).await.unwrap();
    let made = jiff::Timestamp::now();
    eventually("the clock of the API shows another second", async || {
        made.duration_until(jiff::Timestamp::now()).as_secs() >= 1
    })
    .await;
    let _server = self::server(&home, &directory, &[]);
    wait_until_moving(&home, "VolumePluginRestore").await;
    home.create(own("of-the-plugin", json!({ "phase": "Copying" }))).await.unwrap();
    eventually("ours gives way", async || {
        let all = list(&home, "VolumePluginRestore").await;
        !all.iter().any(|record| record["metadata"]["annotations"]["plimsoll.dev/managed-by-server"].is_string())
    })
    .await;
    let record = home.get("VolumePluginRestore", "of-the-plugin").await;
    assert_eq!(record["metadata"]["labels"]["velero.io/restore-name"], "r", "{record:#}");
    assert_eq!(
        (&record["spec"]["backup"], &record["status"]["volumeID"]),
        (&json!("b"), &json!(claim.volume)),
        "{record:#}"
    );
    let older = home.get("VolumePluginRestore", "older").await;
    assert!(older["metadata"]["labels"].is_null(), "{older:#}");
    home.patch("VolumePluginRestore", "of-the-plugin", json!({ "status": { "phase": "Completed" } })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", home.log());
}
