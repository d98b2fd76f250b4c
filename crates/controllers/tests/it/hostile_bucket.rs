//! What a person who can write to a bucket gains in the cluster: nothing.

use std::fs;

use kube::api::ListParams;
use plimsoll_archive::codec;
use plimsoll_local::fixtures::eventually;
use serde_json::{Value, json};

use crate::bed::{Bed, Planted, snapshot_content};

/// Plays the sidecar of the driver: the snapshot of each content that was created to delete one.
async fn deleted_snapshots(bed: &Bed) -> Vec<String> {
    let contents = bed.snapshot_contents().list(&ListParams::default()).await.unwrap();
    let all = contents.items.iter().map(|content| json!(content));
    let handle = |content: Value| content.pointer("/spec/source/snapshotHandle")?.as_str().map(str::to_owned);
    all.filter_map(handle).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planted_backup_that_has_expired_deletes_no_snapshot() {
    let bed = Bed::start().await;
    let mut planted = Planted::expired();
    planted.contents = vec![snapshot_content("c", "planted", "victim")];
    planted.snapshots = json!([{ "spec": { "location": "victims", "backupName": "planted" },
        "status": { "providerSnapshotID": "snap-victim", "phase": "Completed" } }]);
    bed.plant("default", "planted", &planted);
    let _server = bed.server();

    let directory = bed.backup_directory("planted");
    let gone = async || {
        let deleted = deleted_snapshots(&bed).await;
        assert!(deleted.is_empty(), "{deleted:?}");
        (!directory.join("velero-backup.json").exists()).then_some(())
    };
    eventually("its files are deleted", gone).await;
    bed.wait_until_gone("Backup", "planted").await;
    bed.wait_for_message("Backup", "planted", "no proof").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_a_person_deletes_the_snapshots_of_a_foreign_backup() {
    let bed = Bed::start().await;
    let mut planted = Planted::completed();
    planted.status["csiVolumeSnapshotsAttempted"] = json!(1);
    planted.contents = vec![snapshot_content("c", "foreign", "theirs")];
    bed.plant("default", "foreign", &planted);
    let _server = bed.server();
    bed.wait_for_phase("Backup", "foreign", "Completed").await;
    bed.create(json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "metadata": { "name": "d" },
        "spec": { "backupName": "foreign" } }))
        .await;
    let asked = async || (deleted_snapshots(&bed).await == ["theirs"]).then_some(());
    eventually("the driver is asked to delete it", asked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metadata_bomb_is_reported_and_does_not_keep_others_from_being_synced() {
    let bed = Bed::start().await;
    let mut bomb = Planted::completed();
    bomb.files = vec![("podvolumebackups.json.gz", codec::gzip(&vec![b' '; 16 << 20]).unwrap().repeat(17))];
    bed.plant("default", "bomb", &bomb);
    let mut numbers = Planted::completed();
    numbers.files =
        vec![("podvolumebackups.json.gz", codec::gzip(format!("[{}0]", "0,".repeat(1_000_000)).as_bytes()).unwrap())];
    bed.plant("default", "numbers", &numbers);
    bed.plant("default", "good", &Planted::completed());
    let write = |name: &str, content: Vec<u8>| {
        fs::create_dir_all(bed.backup_directory(name)).unwrap();
        fs::write(bed.backup_directory(name).join("velero-backup.json"), content).unwrap();
    };
    write("large", vec![b' '; 17 << 20]);
    write("values", format!("[{}0]", "0,".repeat(2_000_000)).into_bytes());
    let long = "x".repeat(1 << 20);
    let metadata = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": long } });
    write("another", metadata.to_string().into_bytes());
    // The API server accepts 3 MiB.
    let mut object = Planted::completed();
    object.status["failureReason"] = json!("x".repeat(4 << 20));
    bed.plant("default", "a-large-object", &object);
    let _server = bed.server();

    bed.wait_for_phase("Backup", "good", "Completed").await;
    let message = eventually("the location names what is not synced", async || {
        let location = bed.get("BackupStorageLocation", "default").await?;
        location["status"]["message"].as_str().filter(|text| text.contains("not synced")).map(str::to_owned)
    })
    .await;
    assert!(message.len() < 3000, "{} bytes", message.len());
    for (name, reason) in [
        ("bomb", "limit"),
        ("numbers", "invalid JSON"),
        ("large", "limit"),
        ("values", "bytes of memory"),
        ("another", "in the directory of another backup"),
        ("a-large-object", "too large"),
    ] {
        let part = message.split("; ").find(|part| part.contains(&format!("backups/{name}/")));
        assert!(part.is_some_and(|part| part.contains(reason)), "{name}: {message}");
    }
}
