//! Which Backups a sync removes and finishes.

use std::fs;

use http::{Method, Request, Uri};
use jiff::{SignedDuration, Timestamp};
use plimsoll_archive::codec;
use plimsoll_local::fixtures::eventually;
use serde_json::json;

use crate::bed::{Bed, Interception, Planted};

const SYNCING: &str = "plimsoll.dev/syncing";

#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_sync_is_finished_from_its_own_location() {
    let bed = Bed::start().await;
    bed.create_location("another").await;
    let transfer = json!([{ "metadata": { "name": "transfer" }, "spec": { "node": "n", "pod": { "name": "p" }, "volume": "v",
        "backupStorageLocation": "theirs", "repoIdentifier": "r" }, "status": { "phase": "Completed" } }]);
    let mut planted = Planted::completed();
    planted.files = vec![("podvolumebackups.json.gz", codec::gzip_json(&transfer).unwrap())];
    bed.plant("another", "b", &planted);
    bed.create(json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": { "name": "b", "annotations": { SYNCING: "true" } },
        "spec": { "storageLocation": "another" }, "status": { "phase": "Completed" } }))
        .await;
    // The first sync of `another` comes later.
    bed.patch(
        "BackupStorageLocation",
        "another",
        json!({ "spec": { "backupSyncPeriod": "5s" },
        "status": { "lastSyncedTime": format!("{:.0}", Timestamp::now()) } }),
    )
    .await;
    let _server = bed.server();
    eventually("its sync has ended", async || {
        let backup = bed.get("Backup", "b").await?;
        backup["metadata"]["annotations"][SYNCING].is_null().then_some(())
    })
    .await;
    assert!(bed.get("PodVolumeBackup", "transfer").await.is_some(), "the records of the other location are created");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_completes_during_a_sync_is_kept() {
    let bed = Bed::start().await;
    for name in ["a", "b"] {
        bed.plant("default", name, &Planted::completed());
    }
    let server = bed.server();
    for name in ["a", "b"] {
        bed.wait_for_phase("Backup", name, "Completed").await;
    }
    let directory = bed.backup_directory("new");
    let complete = move || {
        fs::create_dir_all(&directory).unwrap();
        let object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": "new" },
            "spec": { "storageLocation": "default" }, "status": { "phase": "Completed" } });
        fs::write(directory.join("velero-backup.json"), object.to_string()).unwrap();
        let create = Request::post("/apis/velero.io/v1/namespaces/velero/backups");
        create.header("content-type", "application/json").body(object.to_string()).unwrap()
    };
    let is_list_of_backups = |method: &Method, uri: &Uri, _: &str| {
        let query = uri.query().unwrap_or_default();
        method == Method::GET && uri.path().ends_with("/backups") && !query.contains("watch=")
    };
    *bed.interception.lock().unwrap() = Some(Interception { before: is_list_of_backups, send: Box::new(complete) });
    let created = bed.wait_for_phase("Backup", "new", "Completed").await;
    let synced = async || {
        let location = bed.get("BackupStorageLocation", "default").await?;
        let text = location["status"]["lastSyncedTime"].as_str()?;
        (text.parse::<Timestamp>().ok()? > Timestamp::now() - SignedDuration::from_secs(1)).then_some(())
    };
    // Whatever that sync does, it has done when the next one reports.
    bed.patch("BackupStorageLocation", "default", json!({ "status": { "lastSyncedTime": "2020-01-01T00:00:00Z" } }))
        .await;
    eventually("two syncs have ended", synced).await;
    let kept = bed.get("Backup", "new").await.map(|found| found["metadata"]["uid"].clone());
    assert_eq!(kept.as_ref(), Some(&created["metadata"]["uid"]));
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_whose_files_are_gone_is_removed() {
    let bed = Bed::start().await;
    for name in ["a", "b", "c"] {
        bed.plant("default", name, &Planted::completed());
    }
    let _server = bed.server();
    for name in ["a", "b", "c"] {
        bed.wait_for_phase("Backup", name, "Completed").await;
    }
    fs::remove_dir_all(bed.backup_directory("c")).unwrap();
    bed.wait_until_gone("Backup", "c").await;
    assert!(bed.get("Backup", "a").await.is_some());
}
