//! The list of everything: what needs a person comes first.

use plimsoll_observe::{Kind, Object, Overview, Verdict};
use serde_json::json;

use crate::stock::*;

#[test]
fn what_is_stuck_comes_first_then_what_moves_waits_and_has_ended() {
    let mut cluster = healthy()
        .with(Kind::Backup, backup("old", "Completed", 9000, 8000))
        .with(Kind::Backup, backup("older", "Failed", 19_000, 18_000))
        .with(Kind::Backup, backup("waits", "Queued", 30, 30))
        .with(Kind::Backup, backup("moves", "InProgress", 60, 1))
        .with(Kind::Restore, restore("hangs", "InProgress", 620, 590))
        .with(Kind::PodVolumeRestore, volume_restore("lost-x1", "absent", "InProgress", 400));
    cluster.add(Object::new(
        Kind::DeleteBackupRequest,
        with(object("velero", "old-d", 5, 5), json!({ "spec": { "backupName": "old" }, "status": { "phase": "New" } })),
    ));
    let lines = Overview::default().list_operations(&cluster);
    let list: Vec<String> =
        lines.iter().map(|line| format!("{} {:?}: {}", line.reference, line.explanation.verdict, line.doing)).collect();
    insta::assert_snapshot!(list.join("\n"));
}

#[test]
fn our_own_operation_is_shown_by_the_tree_that_its_server_wrote_and_a_dead_server_is_named() {
    let cluster = |written: i64| {
        healthy()
            .with(Kind::Backup, backup("nightly", "InProgress", 60, 50))
            .with(Kind::Operation, operation("backup", "nightly", written))
    };
    let lively = &Overview::default().list_operations(&cluster(2))[0];
    assert_eq!(
        (lively.explanation.tree.percent().unwrap().to_string().as_str(), lively.doing.as_str(), lively.has_operation),
        ("~43.33", "reading: secrets in shop", true)
    );
    let dead = &Overview::default().list_operations(&cluster(45))[0];
    assert_eq!(
        format!("{:?} {}", dead.explanation.verdict, dead.explanation.tree.stall.as_ref().unwrap().message),
        "Stuck no update from the server that runs it"
    );
}

#[test]
fn work_that_spins_or_crawls_is_named_with_what_its_server_knows() {
    let headlines = [
        ("NoGain", "backup/nightly is spinning, and has gained nothing for 5m00s"),
        ("BelowUsualRate", "backup/nightly is crawling, below 1 % of its usual rate, for 5m00s"),
    ];
    for (reason, headline) in headlines {
        let mut own = operation("backup", "nightly", 2);
        let stall =
            json!({ "task": "reading", "ageMs": 300_000, "reason": reason, "message": "no gain: trying again" });
        own["status"]["tree"]["stall"] = stall.clone();
        own["status"]["tree"]["nodes"][1]["stall"] = stall;
        let cluster = healthy().with(Kind::Backup, backup("nightly", "InProgress", 60, 50)).with(Kind::Operation, own);
        let line = &Overview::default().list_operations(&cluster)[0];
        let explanation = &line.explanation;
        assert_eq!((explanation.verdict, explanation.headline.as_str()), (Verdict::Stuck, headline));
        assert_eq!((explanation.causes[0].reason, line.doing.as_str()), (reason, "reading: no gain: trying again"));
    }
}

#[test]
fn a_thousand_operations_are_looked_at_in_a_moment() {
    let mut cluster = healthy();
    let many = (0..1000).map(|n| {
        Object::new(Kind::Backup, backup(&format!("b{n}"), if n % 3 == 0 { "InProgress" } else { "Completed" }, 600, 2))
    });
    cluster.put(Kind::Backup, many.collect());
    let mut overview = Overview::default();
    assert_eq!(overview.list_operations(&cluster).len(), 1000);
    assert_eq!(overview.list_operations(&cluster).len(), 1000);
}

#[test]
fn volumes_of_plugins_are_volumes_and_those_on_their_way_come_first() {
    let snapshot = |name: &str, status: serde_json::Value| {
        with(
            object("velero", name, 60, 5),
            json!({ "labels": { "velero.io/backup-name": "nightly" },
                "spec": { "volume": format!("pv-{name}") }, "status": status }),
        )
    };
    // A plugin may end in any words: then its time tells.
    let ended = json!({ "phase": "SnapshotTaken", "completionTimestamp": ago(5) });
    let open = json!({ "phase": "Uploading", "progress": { "bytesDone": 30, "totalBytes": 60 },
        "plimsoll": { "percent": "~50.00", "rate": 3, "unit": "bytes", "secondsLeft": [9, 12] } });
    let cluster = healthy()
        .with(Kind::PodVolumeBackup, volume_backup("nightly-x1", "nightly", "Completed", 300, 50, 50))
        .with(Kind::VolumePluginBackup, snapshot("ended", ended))
        .with(Kind::VolumePluginBackup, snapshot("open", open));
    let mut overview = Overview::default();
    let list: Vec<String> = overview
        .volumes(&cluster, 10)
        .iter()
        .map(|carried| {
            let (transfer, speed) = (carried.transfer, carried.speed);
            let of = transfer.parent().map(|(kind, name)| format!("{}/{name}", kind.word())).unwrap_or_default();
            let speed = speed.map(|speed| format!("{} {}", speed.rate_text(), speed.left_text())).unwrap_or_default();
            format!("{} of {of}: {} {speed}", transfer.label(), transfer.is_ended())
        })
        .collect();
    assert_eq!(list[0], "pv-open of backup/nightly: false 3 B/s 9s to 12s");
    assert!(list[1..].contains(&"pv-ended of backup/nightly: true ".to_owned()), "{list:?}");
    assert_eq!(overview.volumes(&cluster, 1).len(), 1);
}

#[test]
fn what_a_plugin_does_is_a_line_of_its_own_only_where_nothing_in_sight_has_asked_for_it() {
    let record = |name: &str, backup: &str| plugin_backup(name, backup, json!({ "phase": "InProgress" }), 5);
    let cluster = healthy()
        .with(Kind::Backup, backup("nightly", "InProgress", 620, 5))
        .with(Kind::VolumePluginBackup, record("asked-for", "nightly"))
        .with(Kind::VolumePluginBackup, record("on-its-own", "gone"))
        .with(Kind::VolumePluginBackup, plugin_backup("ended", "gone", json!({ "phase": "completed" }), 5));
    let lines = Overview::default().list_operations(&cluster);
    let mut names: Vec<String> = lines.iter().map(|line| line.reference.to_string()).collect();
    names.sort();
    assert_eq!(names, ["backup/nightly", "volumepluginbackup/on-its-own"]);
}
