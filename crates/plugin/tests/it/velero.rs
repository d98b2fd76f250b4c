//! A plugin on Velero's own framework.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_plugin::{BackupAction, Gravity, Kind, PluginActions, Snapshotter, Subject, Watch};
use plimsoll_testkit::require;
use serde_json::{Value, json};

use crate::bed::{Bed, go_plugin};

fn config_map(labels: Value, annotations: Value) -> Value {
    let metadata = json!({ "name": "c", "namespace": "n", "labels": labels, "annotations": annotations });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })
}

fn asking(ask: &str) -> Value {
    config_map(json!({ "mark": "yes" }), json!({ "test.plimsoll.dev/ask": ask }))
}

fn backup() -> Value {
    json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": "b", "namespace": "velero" },
            "spec": { "ttl": "720h0m0s", "includedNamespaces": ["*"] }, "status": {} })
}

fn restore() -> Value {
    json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": { "name": "r", "namespace": "velero" },
            "spec": { "backupName": "b" }, "status": {} })
}

async fn backup_actions(bed: &Bed) -> (PluginActions, BackupAction, BackupAction) {
    let catalog = bed.catalog().await;
    assert_eq!(catalog.problems(), []);
    let actions = PluginActions::for_backup(&catalog, &bed.sink());
    let mut both = actions.backup();
    let (mark, slow) = (both.next().unwrap(), both.next().unwrap());
    drop(both);
    (actions, mark, slow)
}

#[tokio::test]
async fn everything_a_binary_offers_is_found() {
    let bed = require!(go_plugin());
    let catalog = bed.catalog().await;
    let offers: Vec<_> = catalog.offers().iter().map(|offer| (offer.kind, offer.name.as_str())).collect();
    let expected = [
        (Kind::VolumeSnapshotter, "test.plimsoll.dev/noop"),
        (Kind::BackupItemAction, "test.plimsoll.dev/mark"),
        (Kind::BackupItemActionV2, "test.plimsoll.dev/slow"),
        (Kind::RestoreItemAction, "test.plimsoll.dev/restore-mark"),
        (Kind::RestoreItemActionV2, "test.plimsoll.dev/restore-slow"),
        (Kind::DeleteItemAction, "test.plimsoll.dev/delete"),
        (Kind::ItemBlockAction, "test.plimsoll.dev/block"),
    ];
    assert_eq!((offers.as_slice(), catalog.problems()), (&expected[..], &[][..]));
}

#[tokio::test]
async fn an_action_of_backups_changes_an_item_and_asks_for_more() {
    let bed = require!(go_plugin());
    let (actions, mark, _) = backup_actions(&bed).await;
    let applies = mark.applies_to().await.unwrap();
    assert_eq!((applies.included_resources, applies.selector.as_str()), (vec!["configmaps".to_owned()], "mark=yes"));
    let item = config_map(json!({}), json!({ "test.plimsoll.dev/additional": "s" }));
    let answer = mark.execute(&item, &backup()).await.unwrap();
    assert_eq!(answer.item.unwrap()["metadata"]["annotations"]["test.plimsoll.dev/backup"], "b");
    let more = &answer.additional[0];
    assert_eq!((more.resource.as_str(), more.namespace.as_str(), more.name.as_str()), ("secrets", "n", "s"));
    let related = actions.block().next().unwrap().related(&item, &backup()).await.unwrap();
    assert_eq!(related[0].name, "c-related");
    actions.close().await;
}

#[tokio::test]
async fn work_in_the_background_is_followed_to_its_end_and_cancelled() {
    let bed = require!(go_plugin());
    let (actions, _, slow) = backup_actions(&bed).await;
    let answer = slow.execute(&config_map(json!({ "slow": "well" }), json!({})), &backup()).await.unwrap();
    assert_eq!((answer.operation.as_deref(), answer.post_operation[0].name.as_str()), (Some("c-well"), "c"));
    let mut watch = Watch::default();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (reading, fault) = watch.read(&slow.progress("c-well", &backup()).await.unwrap());
        seen.push((reading.done, reading.total, reading.completed, fault));
        assert!(reading.counts_bytes() && reading.updated.is_some());
    }
    assert_eq!(seen, [(10, 30, false, None), (20, 30, false, None), (30, 30, true, None)]);
    slow.cancel("c-never", &backup()).await.unwrap();
    let (reading, _) = Watch::default().read(&slow.progress("c-never", &backup()).await.unwrap());
    assert_eq!((reading.completed, reading.error.as_str()), (true, "cancelled"));
    actions.close().await;
}

#[tokio::test]
async fn progress_that_goes_back_or_past_its_total_is_named() {
    let bed = require!(go_plugin());
    let (actions, _, slow) = backup_actions(&bed).await;
    for (operation, expected) in [("x-backwards", "PluginProgressBackwards"), ("x-beyond", "PluginProgressPastTotal")] {
        let (mut watch, mut faults) = (Watch::default(), Vec::new());
        for _ in 0..2 {
            let (reading, fault) = watch.read(&slow.progress(operation, &backup()).await.unwrap());
            assert!(reading.done <= reading.total);
            faults.extend(fault.map(|fault| fault.reason()));
        }
        assert_eq!(faults, [expected]);
    }
    actions.close().await;
}

#[tokio::test]
async fn actions_of_restores_and_deletions_are_asked_as_velero_asks_them() {
    let bed = require!(go_plugin());
    let catalog = bed.catalog().await;
    let actions = PluginActions::for_restore(&catalog, &bed.sink());
    let (mark, slow) = (actions.restore().next().unwrap(), actions.restore().nth(1).unwrap());
    let item = config_map(json!({ "slow": "x" }), json!({}));
    let answer = mark.execute(&item, &item, &restore()).await.unwrap();
    assert_eq!(answer.item.unwrap()["metadata"]["annotations"]["test.plimsoll.dev/restore"], "r");
    assert!(mark.execute(&asking("skip"), &item, &restore()).await.unwrap().skip);
    assert_eq!(slow.execute(&item, &item, &restore()).await.unwrap().operation.as_deref(), Some("c-x"));
    assert!(slow.items_ready(Vec::new(), &restore()).await.unwrap());
    assert!(slow.progress("c-x", &restore()).await.unwrap().n_completed > 0);
    let deletions = PluginActions::for_deletion(&catalog, &bed.sink());
    let delete = deletions.delete().next().unwrap();
    delete.execute(&item, &backup()).await.unwrap();
    let kept = delete.execute(&asking("keep"), &backup()).await.unwrap_err();
    assert_eq!(kept.to_string(), "plugin test.plimsoll.dev/delete: DeleteItemAction.Execute: c is not to be deleted");
    assert_eq!(bed.logs.gravity_of("cleaning up after n/c of backup b").await, Gravity::Info);
    actions.close().await;
    deletions.close().await;
}

#[tokio::test]
async fn a_snapshotter_that_cannot_say_how_far_it_is_is_asked_once() {
    let bed = require!(go_plugin());
    let catalog = bed.catalog().await;
    let config = BTreeMap::from([("some".to_owned(), "thing".to_owned())]);
    let snapshotter = Snapshotter::open(&catalog, "test.plimsoll.dev/noop", &config, bed.sink()).unwrap();
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" },
                         "spec": { "hostPath": { "path": "/data/v" } } });
    let id = snapshotter.volume_id(&volume).await.unwrap().unwrap();
    assert_eq!(id, "/data/v");
    assert_eq!(snapshotter.volume_id(&json!({ "apiVersion": "v1", "kind": "PersistentVolume" })).await.unwrap(), None);
    let facts = snapshotter.facts(&id, "zone").await.unwrap();
    assert_eq!((facts.volume_type.as_str(), facts.iops), ("noop", Some(100)));
    let tags = BTreeMap::from([("velero.io/backup".to_owned(), "b".to_owned())]);
    let limit = Duration::from_mins(1);
    let snapshot = snapshotter.snapshot(&id, "zone", &tags, limit).await.unwrap();
    assert_eq!(snapshot, "snap--data-v-b");
    assert_eq!(snapshotter.progress(&Subject::default()).await.unwrap(), None);
    assert!(!snapshotter.reports_progress());
    let restored = snapshotter.volume(&snapshot, &facts, "zone", limit).await.unwrap();
    let volume = snapshotter.with_volume_id(&volume, &restored).await.unwrap();
    assert_eq!(volume["spec"]["hostPath"]["path"], "volume-of-snap--data-v-b");
    snapshotter.delete(&snapshot).await.unwrap();
    assert_eq!(bed.logs.gravity_of("set up with 1 settings in namespace velero").await, Gravity::Info);
    snapshotter.session().close().await;
}

#[tokio::test]
async fn log_lines_keep_their_level_and_lose_their_escapes() {
    let bed = require!(go_plugin());
    let (actions, mark, _) = backup_actions(&bed).await;
    for ask in ["warn", "error", "chatter"] {
        mark.execute(&asking(ask), &backup()).await.unwrap();
    }
    assert_eq!(bed.logs.gravity_of("something  [31modd").await, Gravity::Warning);
    assert_eq!(bed.logs.gravity_of("something bad happened").await, Gravity::Error);
    assert_eq!(bed.logs.gravity_of("output number 3999").await, Gravity::Info);
    assert!(bed.logs.texts().iter().all(|text| !text.contains(char::is_control)));
    actions.close().await;
}

#[tokio::test]
async fn a_refusal_and_a_panic_are_the_plugins_own_words_and_cost_no_process() {
    let bed = require!(go_plugin());
    let (actions, mark, _) = backup_actions(&bed).await;
    let refused = mark.execute(&asking("refuse"), &backup()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "plugin test.plimsoll.dev/mark: BackupItemAction.Execute: no  [31mwish [0m to do that"
    );
    let before = mark.session().process_id().await;
    let panicked = mark.execute(&asking("panic"), &backup()).await.unwrap_err();
    assert_eq!(panicked.reason(), "PluginRefused");
    assert!(panicked.to_string().contains("on purpose"), "{panicked}");
    mark.execute(&asking(""), &backup()).await.unwrap();
    assert_eq!(mark.session().process_id().await, before);
    actions.close().await;
}
