//! Samples of stock objects become rates, time left and stalls.

use jiff::{SignedDuration, Timestamp};
use plimsoll_observe::{ClusterState, Kind, Object, Overview, ProgressTracker, observed_tree};
use plimsoll_progress::view::{self, Look};
use serde_json::json;

use crate::stock::*;

fn at(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn tree(cluster: &ClusterState, kind: Kind, name: &str) -> plimsoll_progress::Snapshot {
    let object = cluster.find(kind, "velero", name).unwrap();
    let mut tracker = ProgressTracker::new(&observed_tree(object, cluster), cluster.now);
    tracker.snapshot()
}

fn picture(tree: &plimsoll_progress::Snapshot) -> String {
    let line = |row: view::Row| {
        let parts = [row.percent, row.counts, row.bytes, row.rate, row.left, row.elapsed, row.detail];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        format!("{}{} [{:?}] {}", "  ".repeat(row.depth), row.label, row.look, parts.join(" | "))
    };
    view::rows(tree).into_iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_backup_with_volumes_is_one_tree() {
    let mut cluster = healthy().with(Kind::Backup, backup("nightly", "InProgress", 620, 40));
    for (name, phase, written, done, total) in
        [("a", "Completed", 300, 50, 50), ("b", "InProgress", 4, 1 << 30, 4 << 30), ("c", "New", 600, 0, 0)]
    {
        let mut volume = volume_backup(name, "nightly", phase, written, done, total);
        volume["spec"]["volume"] = json!(name);
        cluster.add(Object::new(Kind::PodVolumeBackup, volume));
    }
    insta::assert_snapshot!(picture(&tree(&cluster, Kind::Backup, "nightly")));
}

#[test]
fn the_first_look_knows_how_long_nothing_has_moved() {
    let cluster = healthy()
        .with(Kind::Backup, backup("nightly", "InProgress", 620, 590))
        .with(Kind::PodVolumeBackup, volume_backup("nightly-x1", "nightly", "InProgress", 420, 900, 4000));
    let tree = tree(&cluster, Kind::Backup, "nightly");
    let stall = tree.stall.clone().unwrap();
    assert_eq!((&*stall.task, stall.age.as_secs()), ("volumes/shop/db-0: data", 420));
    assert_eq!(view::rows(&tree).iter().filter(|row| row.look == Look::Stalled).count(), 1, "only the deepest");
}

#[test]
fn objects_that_are_all_done_do_not_hide_volumes_that_are_not() {
    let cluster = healthy()
        .with(Kind::Restore, restore("monday", "InProgress", 620, 610))
        .with(Kind::PodVolumeRestore, volume_restore("monday-x1", "monday", "New", 600));
    let tree = tree(&cluster, Kind::Restore, "monday");
    assert_eq!(tree.percent().unwrap().to_string(), "~50.00");
}

#[test]
fn looking_again_tells_rate_and_time_left_and_a_stall_begins_and_ends() {
    let look = |cluster: &mut ClusterState, seconds: i64, done: u64| {
        cluster.now = at(seconds);
        let mut volume = volume_backup("nightly-x1", "nightly", "InProgress", -seconds, done, 10_000 << 20);
        volume["metadata"]["managedFields"][0]["time"] = json!(at(seconds).to_string());
        cluster.add(Object::new(Kind::PodVolumeBackup, volume));
    };
    let mut cluster = healthy().with(Kind::Backup, backup("nightly", "InProgress", 20, 1));
    let mut overview = Overview::default();
    let mut lines = Vec::new();
    for step in 0..6_u32 {
        look(&mut cluster, i64::from(step) * 10, u64::from(step) * (100 << 20));
        lines = overview.list_operations(&cluster);
    }
    let volume = lines[0].explanation.tree.nodes.last().unwrap().clone();
    assert_eq!(volume.rate, Some(10 << 20));
    let left = volume.left.unwrap();
    assert!(left.low <= 950 && 950 <= left.high, "{left:?}");
    assert!(lines[0].explanation.tree.stall.is_none());
    cluster.now = at(57);
    let between = overview.list_operations(&cluster)[0].explanation.tree.nodes.last().unwrap().clone();
    assert_eq!(between.rate, Some(10 << 20), "between two writes nothing is known, least of all that nothing moves");
    assert_eq!(between.left.unwrap().high, left.high - 7);
    cluster.now = at(200);
    let stuck = overview.list_operations(&cluster);
    assert_eq!(stuck[0].look, Look::Stalled, "{}", stuck[0].doing);
    look(&mut cluster, 210, 600 << 20);
    let again = overview.list_operations(&cluster);
    assert_eq!(again[0].look, Look::Running, "{}", again[0].doing);
}

#[test]
fn a_plugin_that_says_nothing_is_quiet_and_one_that_begins_to_count_can_stall() {
    let cluster = |seconds: i64, status: serde_json::Value| {
        let mut record = plugin_backup("x1", "nightly", status, 0);
        record["metadata"]["managedFields"][0]["time"] = json!(at(seconds.min(310)).to_string());
        let mut cluster = healthy().with(Kind::Backup, backup("nightly", "WaitingForPluginOperations", 620, 590));
        cluster.add(Object::new(Kind::VolumePluginBackup, record));
        cluster.add(Object::new(Kind::Location, location("Available", "", -seconds)));
        cluster.now = at(seconds);
        cluster
    };
    let counted = |done: u64| json!({ "phase": "Uploading", "progress": { "bytesDone": done, "totalBytes": 1000 } });
    let mut overview = Overview::default();
    let mut look = |seconds: i64, status: serde_json::Value| {
        let line = overview.list_operations(&cluster(seconds, status)).remove(0);
        (line.look, line.explanation.tree.percent().map(|percent| percent.to_string()))
    };
    assert_eq!(look(0, json!({ "phase": "InProgress" })).0, Look::Quiet);
    assert_eq!(look(300, json!({ "phase": "InProgress" })).0, Look::Quiet, "five minutes of nothing are no stall");
    assert_eq!(look(305, counted(400)).0, Look::Running);
    assert_eq!(look(310, counted(600)), (Look::Running, Some("~80.00".to_owned())));
    assert_eq!(look(400, counted(600)).0, Look::Stalled);
}

#[test]
fn an_action_is_the_mean_of_its_phases_and_quiet_never_stalled() {
    let phases = json!([{ "name": "freeze", "state": "complete" }, { "name": "dump", "state": "running" }, { "name": "thaw", "state": "pending" }]);
    let set = with(
        object("velero", "dump", 9000, 8000),
        json!({ "status": { "state": "running", "actions": [
        { "name": "backup", "object": { "kind": "StatefulSet", "namespace": "shop", "name": "db" }, "phases": phases }] } }),
    );
    let cluster = healthy().with(Kind::ActionSet, set);
    insta::assert_snapshot!(picture(&tree(&cluster, Kind::ActionSet, "dump")));
}

#[test]
fn whatever_ended_is_complete_in_the_first_look() {
    let mut done = backup("nightly", "Completed", 620, 100);
    done["status"]["completionTimestamp"] = json!(ago(500));
    done["status"]["progress"]["itemsBackedUp"] = json!(400);
    let mut volume = volume_backup("nightly-x1", "nightly", "Completed", 510, 4000, 4000);
    volume["status"]["completionTimestamp"] = json!(ago(510));
    let cluster = healthy().with(Kind::Backup, done).with(Kind::PodVolumeBackup, volume);
    insta::assert_snapshot!(picture(&tree(&cluster, Kind::Backup, "nightly")));
}
