//! Backups that come and go in the location: synced, collected, and never lost by mistake.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use plimsoll_testkit::wait::WAIT_TIMEOUT;
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, on_both_clusters, phase, terminate_server};

on_both_clusters! {
    a_backup_of_another_cluster_is_synced_and_can_be_restored,
    unfinished_or_invalid_backups_in_the_location_are_ignored_and_reported,
    records_follow_their_files_but_never_an_empty_listing,
    an_expired_backup_is_deleted_if_its_location_is_writable,
    a_sync_killed_at_any_point_resumes,
    a_garbage_collection_killed_at_any_point_resumes,
}

async fn sync_often(home: &Home<'_>) {
    home.patch("BackupStorageLocation", "default", json!({ "spec": { "backupSyncPeriod": "1s" } })).await;
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Copies a backup of one bucket into another, under another name and with its metadata changed.
fn plant(from: &Home<'_>, to: &Home<'_>, name: &str, change: impl FnOnce(&mut Value)) {
    let directory = to.bucket.join("backups").join(name);
    copy(&from.bucket.join("backups/b"), &directory);
    let mut metadata: Value =
        serde_json::from_slice(&std::fs::read(directory.join("velero-backup.json")).unwrap()).unwrap();
    metadata["metadata"]["name"] = json!(name);
    change(&mut metadata);
    let file = directory.join("velero-backup.json");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(file, metadata.to_string()).unwrap();
}

/// A home with one backup, and no server.
async fn origin<'a>(bed: &'a Bed, name: &str) -> Home<'a> {
    let home = bed.home(name).await;
    let server = home.server();
    home.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}", home.log());
    eventually("its record is closed", async || crate::killed::has_no_open_operations(&home).await).await;
    terminate_server(server).await;
    home
}

fn pod_volume_backups(directory: &Path, phase: &str) {
    let transfer = json!([{ "metadata": { "name": format!("transfer-{}", phase.to_lowercase()), "labels": { "velero.io/backup-uid": "theirs" } },
        "spec": { "node": "n", "pod": { "name": "p" }, "volume": "v", "backupStorageLocation": "theirs",
            "repoIdentifier": "r", "uploaderType": "kopia" },
        "status": { "phase": phase } }]);
    let file = directory.join(format!("{}-podvolumebackups.json.gz", directory.file_name().unwrap().to_str().unwrap()));
    let _ = std::fs::remove_file(&file);
    let mut packed = flate2::write::GzEncoder::new(std::fs::File::create(file).unwrap(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, transfer.to_string().as_bytes()).unwrap();
    packed.finish().unwrap();
}

async fn a_backup_of_another_cluster_is_synced_and_can_be_restored(bed: &Bed) {
    bed.application("shop", 9).await;
    let before = bed.contents("shop").await;
    let (there, here) = (origin(bed, "there").await, bed.home("here").await);
    plant(&there, &here, "b", |metadata| {
        metadata["spec"]["hooks"] = json!({ "resources": [{ "name": "planted" }] });
        metadata["spec"]["storageLocation"] = json!("theirs");
    });
    pod_volume_backups(&here.bucket.join("backups/b"), "Completed");
    sync_often(&here).await;
    let _server = here.server();
    eventually("the backup is synced", async || here.find("Backup", "b").await.is_some()).await;
    let backup = here.get("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed");
    assert!(backup["spec"]["hooks"].is_null(), "{backup:#}");
    assert_eq!(backup["spec"]["storageLocation"], "default");
    assert_eq!(backup["metadata"]["labels"]["velero.io/storage-location"], "default");
    eventually("its volume backups are there too", async || {
        here.find("PodVolumeBackup", "transfer-completed")
            .await
            .is_some_and(|transfer| transfer["metadata"]["ownerReferences"][0]["uid"] == backup["metadata"]["uid"])
    })
    .await;
    here.restore("r", json!({ "backupName": "b", "namespaceMapping": { bed.ns("shop"): bed.ns("copy") } })).await;
    assert_eq!(phase(&here.ended("Restore", "r").await), "Completed", "{}", here.log());
    assert_eq!(bed.contents("copy").await, before);
}

async fn unfinished_or_invalid_backups_in_the_location_are_ignored_and_reported(bed: &Bed) {
    bed.application("shop", 3).await;
    let (there, here) = (origin(bed, "there").await, bed.home("here").await);
    plant(&there, &here, "planted", |metadata| metadata["status"] = json!({ "phase": "New" }));
    plant(&there, &here, "running", |metadata| metadata["status"]["phase"] = json!("InProgress"));
    plant(&there, &here, "stranger", |metadata| metadata["metadata"]["name"] = json!("other"));
    plant(&there, &here, "good", |_| {});
    pod_volume_backups(&here.bucket.join("backups/good"), "New");
    std::fs::create_dir_all(here.bucket.join("backups/broken")).unwrap();
    std::fs::write(here.bucket.join("backups/broken/velero-backup.json"), "{").unwrap();
    std::fs::create_dir_all(here.bucket.join("backups/empty")).unwrap();
    sync_often(&here).await;
    let _server = here.server();
    let mut message = String::new();
    eventually("what is malformed is named", async || {
        let location = here.get("BackupStorageLocation", "default").await;
        location["status"]["message"].as_str().unwrap_or_default().clone_into(&mut message);
        message.contains("backups/broken/velero-backup.json")
    })
    .await;
    assert!(message.contains("backups/stranger/velero-backup.json"), "{message}");
    assert!(here.events("BackupStorageLocation", "default").await.contains(&"SyncWarning".to_owned()));
    let names: Vec<_> = here.list("Backup").await.into_iter().map(|backup| backup.metadata.name.unwrap()).collect();
    assert_eq!(names, ["good"]);
    assert!(here.list("PodVolumeBackup").await.is_empty(), "a transfer that an agent would run is not synced");
    assert_eq!(phase(&here.get("BackupStorageLocation", "default").await), "Available");
}

async fn records_follow_their_files_but_never_an_empty_listing(bed: &Bed) {
    bed.application("shop", 3).await;
    let home = origin(bed, "home").await;
    for name in ["c", "d"] {
        plant(&home, &home, name, |_| {});
    }
    sync_often(&home).await;
    let _server = home.server();
    eventually("all three are there", async || home.list("Backup").await.len() == 3).await;
    std::fs::remove_dir_all(home.bucket.join("backups/d")).unwrap();
    eventually("one goes with its files", async || home.find("Backup", "d").await.is_none()).await;
    let aside = home.bucket.with_extension("aside");
    std::fs::rename(home.bucket.join("backups"), &aside).unwrap();
    eventually("an empty listing is a warning", async || {
        let location = home.get("BackupStorageLocation", "default").await;
        location["status"]["message"].as_str().is_some_and(|message| message.contains("2 of 2 backups"))
    })
    .await;
    assert_eq!(home.list("Backup").await.len(), 2, "nothing is removed");
    std::fs::rename(aside, home.bucket.join("backups")).unwrap();
    eventually("the warning goes when the files are back", async || {
        home.get("BackupStorageLocation", "default").await["status"]["message"].is_null()
    })
    .await;
}

async fn an_expired_backup_is_deleted_if_its_location_is_writable(bed: &Bed) {
    bed.application("shop", 3).await;
    let home = origin(bed, "home").await;
    let past = format!("{:.0}", Timestamp::now() - SignedDuration::from_mins(1));
    home.patch("BackupStorageLocation", "default", json!({ "spec": { "accessMode": "ReadOnly" } })).await;
    home.patch("Backup", "b", json!({ "status": { "expiration": past } })).await;
    let server = home.server();
    eventually("it says why it is still there", async || {
        home.get("Backup", "b").await["metadata"]["labels"]["velero.io/gc-failure"] == "BSLReadOnly"
    })
    .await;
    assert!(home.list("DeleteBackupRequest").await.is_empty());
    terminate_server(server).await;
    home.patch("BackupStorageLocation", "default", json!({ "spec": { "accessMode": "ReadWrite" } })).await;
    let _server = home.server();
    eventually("it is deleted", async || home.find("Backup", "b").await.is_none()).await;
    assert!(home.events("Backup", "b").await.contains(&"Expired".to_owned()));
    assert!(!home.bucket.join("backups/b/velero-backup.json").exists());
}

async fn a_sync_killed_at_any_point_resumes(bed: &Bed) {
    bed.application("shop", 3).await;
    let there = origin(bed, "there").await;
    for point in ["sync.create.before", "sync.create.after", "sync.create.after:2", "sync.finish.before"] {
        let here = bed.home(&point.replace(['.', ':'], "-")).await;
        plant(&there, &here, "b", |_| {});
        pod_volume_backups(&here.bucket.join("backups/b"), "Completed");
        sync_often(&here).await;
        let mut server = here.server_with_short_lease(&[("PLIMSOLL_KILL_AT", point)]);
        tokio::time::timeout(WAIT_TIMEOUT, server.wait()).await.unwrap().unwrap();
        let _next = here.server_with_short_lease(&[]);
        eventually(&format!("the sync is complete after {point}"), async || {
            let backup = here.find("Backup", "b").await;
            let complete = |backup: Value| backup["metadata"]["annotations"]["plimsoll.dev/syncing"].is_null();
            backup.is_some_and(complete) && here.find("PodVolumeBackup", "transfer-completed").await.is_some()
        })
        .await;
    }
}

async fn a_garbage_collection_killed_at_any_point_resumes(bed: &Bed) {
    bed.application("shop", 3).await;
    let past = format!("{:.0}", Timestamp::now() - SignedDuration::from_mins(1));
    for point in ["garbage.request.before", "garbage.request.after"] {
        let home = origin(bed, &point.replace('.', "-")).await;
        home.patch("Backup", "b", json!({ "status": { "expiration": past } })).await;
        let mut server = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", point)]);
        tokio::time::timeout(WAIT_TIMEOUT, server.wait()).await.unwrap().unwrap();
        let _next = home.server_with_short_lease(&[]);
        eventually(&format!("it is deleted after {point}"), async || {
            home.find("Backup", "b").await.is_none() && home.list("DeleteBackupRequest").await.is_empty()
        })
        .await;
    }
}
