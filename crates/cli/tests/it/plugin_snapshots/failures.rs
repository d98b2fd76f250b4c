//! Plugins that fail, and servers that are killed around a call.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use plimsoll_testkit::{cache, require};
use serde_json::json;

use super::{Claim, GO, RUST, attempts, describe, example, list, location, own_record, plugin_directory, server};
use crate::bed::{Bed, Home, eventually, is_ended, phase};
use crate::killed::{has_no_open_operations, terminate_if_running};
use crate::pod_volumes::unpacked;

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
