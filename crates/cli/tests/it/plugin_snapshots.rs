//! Snapshots of plugins, backup and restore: plugin processes copy directories with visible progress.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use plimsoll_testkit::{Unavailable, cache, require};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::bed::{Bed, Home, create_namespace, eventually, is_ended, phase, terminate_server};
use crate::killed::{has_no_open_operations, terminate_if_running};
use crate::pod_volumes::unpacked;

const RUST: &str = "plimsoll-directory-snapshotter";
const GO: &str = "velero-test-plugin";

/// The example plugin, which is built with its crate's tests.
fn example() -> Result<PathBuf, Unavailable> {
    let beside = Path::new(env!("CARGO_BIN_EXE_plimsoll")).with_file_name(RUST);
    if beside.exists() { Ok(beside) } else { cache::program(RUST) }
}

fn plugin_directory(bed: &Bed, programs: &[(&str, &Path)]) -> PathBuf {
    let directory = bed.directory.path().join("plugins");
    std::fs::create_dir_all(&directory).unwrap();
    for (name, program) in programs {
        let _ = std::os::unix::fs::symlink(program, directory.join(name));
    }
    directory
}

fn server(home: &Home<'_>, directory: &Path, environment: &[(&str, &str)]) -> Child {
    let all = [&[("PLIMSOLL_PLUGIN_DIR", directory.to_str().unwrap())], environment].concat();
    home.server_with("3s", &all)
}

/// A claim in a namespace of its own, and files behind it.
struct Claim<'a> {
    bed: &'a Bed,
    namespace: String,
    volume: String,
}

impl<'a> Claim<'a> {
    async fn make(bed: &'a Bed, name: &str, files: usize) -> Self {
        let namespace = bed.ns(name);
        create_namespace(&bed.client, &namespace).await;
        let mut claim = Self { bed, namespace, volume: String::new() };
        let object = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
        claim.api().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        claim.volume = claim.bound().await;
        let directory = bed.volume(&claim.volume).await;
        std::fs::create_dir_all(directory.join("deep")).unwrap();
        for number in 0..files {
            std::fs::write(directory.join(format!("deep/file-{number}")), format!("{number} ").repeat(500)).unwrap();
        }
        claim
    }

    fn api(&self) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "PersistentVolumeClaim"));
        Api::namespaced_with(self.bed.client.clone(), &self.namespace, &kind)
    }

    /// The name of its volume, once it has one.
    async fn bound(&self) -> String {
        let api = self.api();
        let mut volume = String::new();
        eventually("the claim is bound", async || {
            let Some(claim) = api.get_opt("data").await.unwrap() else { return false };
            claim.data["spec"]["volumeName"].as_str().unwrap_or_default().clone_into(&mut volume);
            claim.data["status"]["phase"] == "Bound"
        })
        .await;
        volume
    }

    async fn files(&self, volume: &str) -> BTreeMap<String, String> {
        let directory = self.bed.volume(volume).await.join("deep");
        let entries = std::fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
        let read = |entry: std::fs::DirEntry| {
            (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
        };
        entries.map(|entry| read(entry.unwrap())).collect()
    }

    async fn lose(&self) {
        let name = self.namespace.strip_prefix(&self.bed.ns("")).unwrap().to_owned();
        self.bed.delete_namespace(&name).await;
        let volumes: Api<PersistentVolume> = Api::all(self.bed.client.clone());
        eventually("the volume is gone", async || volumes.get_opt(&self.volume).await.unwrap().is_none()).await;
    }
}

async fn location(home: &Home<'_>, name: &str, provider: &str, config: Value) {
    home.create(json!({ "apiVersion": "velero.io/v1", "kind": "VolumeSnapshotLocation", "metadata": { "name": name },
        "spec": { "provider": provider, "config": config } }))
        .await
        .unwrap();
}

fn records<'a>(all: &'a [Value], volume: &str) -> Vec<&'a Value> {
    all.iter().filter(|record| record["spec"]["volume"] == volume).collect()
}

async fn list(home: &Home<'_>, kind: &str) -> Vec<Value> {
    home.list(kind).await.into_iter().map(|record| serde_json::to_value(record).unwrap()).collect()
}

async fn describe(home: &Home<'_>, arguments: &[&str]) -> String {
    let output = home.command(&[&["describe"], arguments].concat()).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The output of `why` for a running operation.
async fn why(home: &Home<'_>, what: &str) -> String {
    let output = home.command(&["why", what]).output().await.unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    text
}

/// Waits until a record of this kind has counted something and is not at its end; returns it.
async fn wait_until_moving(home: &Home<'_>, kind: &str) -> Value {
    let mut moving = Value::Null;
    eventually(&format!("a {kind} moves"), async || {
        let all = list(home, kind).await;
        let moves = |record: &&Value| {
            let progress = &record["status"]["progress"];
            record["status"]["phase"] == "InProgress" && progress["bytesDone"].as_u64().unwrap_or(0) > 0
        };
        moving = all.iter().find(moves).cloned().unwrap_or_default();
        !moving.is_null()
    })
    .await;
    moving
}

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

    // What is there is never overwritten, and a damaged list costs the records, not the backup.
    let mut mine = own_record(volume, &json!({ "phase": "Failed", "message": "mine" }));
    mine["metadata"]["name"] = json!(format!("b-{volume}"));
    let file = home.bucket.join("backups/b/b-volumepluginbackups.json.gz");
    let whole = std::fs::read(&file).unwrap();
    for (name, content, expected) in [("occupied", &whole[..], 1), ("damaged", &whole[..9], 0)] {
        let third = home.bed.home(name).await;
        third.patch("BackupStorageLocation", "default", place.clone()).await;
        if expected == 1 {
            third.create(mine.clone()).await.unwrap();
        }
        std::fs::write(&file, content).unwrap();
        let server = self::server(&third, directory, &[]);
        eventually("the backup is synced to its end", async || {
            let backup = third.find("Backup", "b").await;
            backup.is_some_and(|backup| backup["metadata"]["annotations"]["plimsoll.dev/syncing"].is_null())
        })
        .await;
        let all = list(&third, "VolumePluginBackup").await;
        assert_eq!(all.len(), expected, "{all:#?}");
        assert!(all.iter().all(|record| record["status"]["message"] == "mine"), "{all:#?}");
        assert_eq!(third.log().contains("the volume backups of backup b are not synced"), expected == 0);
        terminate_server(server).await;
    }
    std::fs::write(&file, whole).unwrap();
}

/// A VolumePluginBackup as a plugin that knows Kubernetes writes it.
fn own_record(volume: &str, status: &Value) -> Value {
    json!({ "apiVersion": "velero.io/v1", "kind": "VolumePluginBackup", "metadata": { "name": "of-the-plugin" },
        "spec": { "volume": volume, "backup": "b", "plugin": "x.io/own", "pluginSpecific": { "pool": "p\u{1b}[31m1" } },
        "status": status })
}

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
async fn a_snapshot_of_a_failed_plugin_call_is_searched_for_or_reported() {
    let program = require!(example());
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let config = json!({ "root": bed.directory.path().join("here"), "pace": "60000" });
    location(&home, "here", "plimsoll.dev/directory-snapshotter", config).await;
    let directory = plugin_directory(&bed, &[(RUST, &program)]);
    let _server = server(&home, &directory, &[]);
    let claim = Claim::make(&bed, "shop", 2).await;
    let spec = json!({ "includedNamespaces": [claim.namespace], "itemOperationTimeout": "3s" });
    home.backup("lost", spec.clone()).await;
    assert_eq!(phase(&home.ended("Backup", "lost").await), "PartiallyFailed");
    let warned = home.messages("lost", "warnings");
    let tags = format!("it may exist, with the tags velero.io/backup=lost and velero.io/pv={}", claim.volume);
    assert!(warned.contains(&tags), "{warned}");

    home.backup("b", spec).await;
    home.create(own_record(&claim.volume, &json!({ "phase": "Completed", "snapshotID": "elsewhere" }))).await.unwrap();
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}", home.messages("b", "errors"));
    let warned = home.messages("b", "warnings");
    assert!(warned.contains("snapshot elsewhere of volume") && !warned.contains("it may exist"), "{warned}");
    let snapshots = unpacked(&home, "backups/b/b-volumesnapshots.json.gz");
    assert_eq!(snapshots[0]["status"], json!({ "phase": "Completed", "providerSnapshotID": "elsewhere" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_velero_plugin_without_progress_takes_snapshots_and_its_failures_are_reported() {
    let program = require!(cache::program(GO));
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let root = bed.directory.path().join("here");
    location(&home, "here", "test.plimsoll.dev/noop", json!({ "root": root })).await;
    let directory = plugin_directory(&bed, &[(GO, &program)]);
    let _server = server(&home, &directory, &[]);
    let claim = Claim::make(&bed, "shop", 3).await;
    let before = claim.files(&claim.volume).await;
    let spec = |limit: &str| json!({ "includedNamespaces": [claim.namespace], "itemOperationTimeout": limit });
    let cases = [
        ("refuse", "1m", "no  [31mwish", false),
        ("die", "1m", "these are my last words", true),
        ("hang", "2s", "VolumeSnapshotter.CreateSnapshot timed out after 2s", true),
    ];
    for (ask, limit, expected, in_doubt) in cases {
        home.patch("VolumeSnapshotLocation", "here", json!({ "spec": { "config": { "ask": ask } } })).await;
        home.backup(ask, spec(limit)).await;
        let backup = home.ended("Backup", ask).await;
        assert_eq!(phase(&backup), "PartiallyFailed", "{backup:#}\n{}", home.log());
        let errors = home.messages(ask, "errors");
        assert!(errors.contains(expected), "{ask}: {errors}");
        let warned = home.messages(ask, "warnings");
        let tags = format!("it may exist, with the tags velero.io/backup={ask} and velero.io/pv={}", claim.volume);
        assert_eq!(warned.contains(&tags), in_doubt, "{ask}: {warned}");
        let all = list(&home, "VolumePluginBackup").await;
        let record = all.iter().find(|record| record["spec"]["backup"] == ask).unwrap();
        assert_eq!(record["status"]["phase"], "Failed", "{record:#}");
        assert!(record["status"]["completionTimestamp"].is_string(), "{record:#}");
        assert!(!record["status"]["message"].as_str().unwrap().contains(char::is_control), "{record:#}");
        assert_eq!(backup["status"]["volumeSnapshotsCompleted"], 0, "{backup:#}");
    }
    home.patch("VolumeSnapshotLocation", "here", json!({ "spec": { "config": { "ask": "" } } })).await;
    home.backup("b", spec("1m")).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}", home.messages("b", "errors"));
    let shown = describe(&home, &["backup", "b", "--details"]).await;
    assert!(shown.contains(&format!("{}: Completed\n", claim.volume)), "no unknown percentage is shown: {shown}");
    claim.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", home.log());
    let volume = claim.bound().await;
    assert_eq!(claim.files(&volume).await, before);
    assert!(bed.volume(&volume).await.starts_with(&root));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_around_a_snapshot_takes_no_second_one_or_names_the_first() {
    let program = require!(cache::program(GO));
    let bed = Bed::local_with_pods().await;
    let directory = plugin_directory(&bed, &[(GO, &program)]);
    let claim = Claim::make(&bed, "shop", 3).await;
    let before = claim.files(&claim.volume).await;
    let mut homes = Vec::new();
    for (point, snapshots, orphan) in
        [("snapshot.create.before", 1, true), ("snapshot.create.after", 2, true), ("snapshot.recorded.after", 1, false)]
    {
        let home = bed.home(&point.replace('.', "-")).await;
        let root = bed.directory.path().join(&home.namespace);
        location(&home, "here", "test.plimsoll.dev/noop", json!({ "root": root })).await;
        home.backup("b", json!({ "includedNamespaces": [claim.namespace] })).await;
        let ended = async || is_ended(&home.get("Backup", "b").await);
        let planned = kill_server_at(&home, &directory, point, ended).await && attempts(&home, "backup-b").await == 2;
        let backup = home.get("Backup", "b").await;
        assert_eq!(phase(&backup), "Completed", "{point}: {backup:#}\n{}", home.log());
        let (taken, warned) =
            (std::fs::read_dir(root.join("snapshots")).unwrap().count(), home.messages("b", "warnings"));
        let found = (taken, warned.contains("it may exist, with the tags"));
        assert!(!planned || found == (snapshots, orphan), "{point}: {found:?}, {warned}\n{}", home.log());
        assert_eq!(list(&home, "VolumePluginBackup").await.len(), 1, "{point}");
        let kept = unpacked(&home, "backups/b/b-volumepluginbackups.json.gz");
        assert_eq!((kept.as_array().unwrap().len(), &kept[0]["status"]["phase"]), (1, &json!("Completed")), "{point}");
        homes.push(home);
    }
    claim.lose().await;
    let home = homes.remove(0);
    let root = bed.directory.path().join(&home.namespace);
    for (number, (point, volumes, orphan)) in
        [("snapshot.restore.after", 2, true), ("snapshot.restored.after", 1, false)].into_iter().enumerate()
    {
        let name = format!("r{number}");
        home.restore(&name, json!({ "backupName": "b" })).await;
        let ended = async || is_ended(&home.get("Restore", &name).await);
        let operation = format!("restore-{name}");
        let planned = kill_server_at(&home, &directory, point, ended).await && attempts(&home, &operation).await == 2;
        let restore = home.get("Restore", &name).await;
        assert_eq!(phase(&restore), "Completed", "{point}: {restore:#}\n{}", home.log());
        let volume = claim.bound().await;
        assert_eq!(claim.files(&volume).await, before, "{point}");
        let made = std::fs::read_dir(root.join("volumes")).unwrap().count();
        let found = (made, restore["status"]["warnings"].as_u64().unwrap_or(0) > 0);
        assert!(!planned || found == (volumes, orphan), "{point}: {found:?}, {restore:#}\n{}", home.log());
        claim.lose().await;
        std::fs::remove_dir_all(root.join("volumes")).unwrap();
    }
    home.create(json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "metadata": { "name": "d" },
        "spec": { "backupName": "b" } }))
        .await
        .unwrap();
    let gone = async || home.find("Backup", "b").await.is_none();
    kill_server_at(&home, &directory, "snapshot.delete.after", gone).await;
    assert_eq!(std::fs::read_dir(root.join("snapshots")).unwrap().count(), 0, "the snapshot too");
}

/// The number of attempts of an operation.
async fn attempts(home: &Home<'_>, operation: &str) -> i64 {
    home.get("Operation", operation).await["status"]["attempt"].as_i64().unwrap_or(0)
}

/// Kills a server at a point, and starts others until all is done. Says whether that was all that happened: on a busy machine a
/// server may also lose its lease, which is another case.
async fn kill_server_at(home: &Home<'_>, directory: &Path, point: &str, mut done: impl AsyncFnMut() -> bool) -> bool {
    let deadly: &[(&str, &str)] = &[("PLIMSOLL_KILL_AT", point)];
    let mut current = server(home, directory, deadly);
    let (mut killed, mut undisturbed) = (false, true);
    eventually(&format!("all is done, killed at {point}"), async || {
        if let Ok(Some(status)) = current.try_wait() {
            let as_planned = !killed && status.signal() == Some(9);
            killed |= as_planned;
            undisturbed &= as_planned;
            current = server(home, directory, if killed { &[] } else { deadly });
        }
        done().await && has_no_open_operations(home).await
    })
    .await;
    terminate_if_running(current).await;
    killed && undisturbed
}

async fn ours(home: &Home<'_>, arguments: &[&str]) -> String {
    let output = home.command(arguments).output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_locations_are_created_changed_and_listed_by_both_command_lines() {
    require!(cache::program("velero"));
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let more = ["--provider", "aws", "--config", "region=eu-1", "--credential", "keys=cloud", "--labels", "team=shop"];
    ours(&home, &[&["snapshot-location", "create", "ours"], &more[..]].concat()).await;
    home.velero(&[&["snapshot-location", "create", "theirs"], &more[..]].concat()).await;
    let made = async |name: &str| {
        let found = home.get("VolumeSnapshotLocation", name).await;
        (found["spec"].clone(), found["metadata"]["labels"].clone())
    };
    assert_eq!(made("ours").await, made("theirs").await);
    ours(&home, &["snapshot-location", "set", "theirs", "--credential", "other=cloud"]).await;
    home.velero(&["snapshot-location", "set", "ours", "--credential", "other=cloud"]).await;
    assert_eq!(made("ours").await, made("theirs").await);
    assert_eq!(made("ours").await.0["credential"], json!({ "name": "other", "key": "cloud" }));
    for listed in [ours(&home, &["snapshot-location", "get"]).await, home.velero(&["snapshot-location", "get"]).await] {
        assert!(listed.contains("ours") && listed.contains("theirs") && listed.contains("aws"), "{listed}");
    }
    the_plugin_for_aws_starts_without_a_cloud(&bed, &home).await;
}

async fn the_plugin_for_aws_starts_without_a_cloud(bed: &Bed, home: &Home<'_>) {
    let Ok(program) = cache::program("velero-plugin-for-aws") else { return };
    home.delete("VolumeSnapshotLocation", "theirs").await;
    home.create_secret("other", "cloud", &crate::bed::s3_keys("secret")).await;
    let volumes: Api<PersistentVolume> = Api::all(bed.client.clone());
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "disk",
        "labels": { "topology.kubernetes.io/zone": "eu-1a" } },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "csi": { "driver": "ebs.csi.aws.com", "volumeHandle": "vol-0123" } } });
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    let directory = plugin_directory(bed, &[("velero-plugin-for-aws", &program)]);
    // No server listens there: the connection is refused.
    let nowhere =
        [("AWS_ENDPOINT_URL", "http://127.0.0.1:9"), ("AWS_MAX_ATTEMPTS", "1"), ("AWS_EC2_METADATA_DISABLED", "true")];
    let _server = server(home, &directory, &nowhere);
    home.backup("aws", json!({ "includedNamespaces": [home.namespace], "includeClusterResources": true })).await;
    let backup = home.ended("Backup", "aws").await;
    let errors = home.messages("aws", "errors");
    assert_eq!(phase(&backup), "PartiallyFailed", "{backup:#}\n{errors}\n{}", home.log());
    let expected = "snapshot of volume disk: plugin velero.io/aws: VolumeSnapshotter.GetVolumeInfo: ";
    assert!(errors.contains(expected), "{errors}");
    // A location that its own credentials cannot be read for is named, and nothing is asked of it.
    home.patch("VolumeSnapshotLocation", "ours", json!({ "spec": { "credential": { "name": "none" } } })).await;
    home.backup("keys", json!({ "includedNamespaces": [home.namespace], "includeClusterResources": true })).await;
    home.ended("Backup", "keys").await;
    let errors = home.messages("keys", "errors");
    assert!(errors.contains("VolumeSnapshotLocation ours cannot be used: failed to read secret none"), "{errors}");
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
