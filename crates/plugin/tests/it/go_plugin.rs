//! A plugin that uses Velero's framework.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_plugin::{
    BackupItemActionClient, LogLevel, PluginActions, PluginKind, ProgressTracker, SnapshotProgressQuery,
    VolumeSnapshotterClient,
};
use plimsoll_testkit::require;
use serde_json::{Value, json};

use crate::plugin_directory::{PluginDirectory, go_plugin};

fn config_map(labels: Value, annotations: Value) -> Value {
    let metadata = json!({ "name": "c", "namespace": "n", "labels": labels, "annotations": annotations });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })
}

fn config_map_with_request(request: &str) -> Value {
    config_map(json!({ "mark": "yes" }), json!({ "test.plimsoll.dev/ask": request }))
}

fn backup() -> Value {
    json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": "b", "namespace": "velero" },
            "spec": { "ttl": "720h0m0s", "includedNamespaces": ["*"] }, "status": {} })
}

fn restore() -> Value {
    json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": { "name": "r", "namespace": "velero" },
            "spec": { "backupName": "b" }, "status": {} })
}

async fn backup_actions(plugins: &PluginDirectory) -> (PluginActions, BackupItemActionClient, BackupItemActionClient) {
    let registry = plugins.registry().await;
    assert_eq!(registry.errors(), []);
    let actions = PluginActions::for_backup(&registry, &plugins.sink());
    let mut both = actions.backup();
    let (mark, slow) = (both.next().unwrap(), both.next().unwrap());
    drop(both);
    (actions, mark, slow)
}

#[tokio::test]
async fn all_plugins_of_a_binary_are_registered() {
    let plugins = require!(go_plugin());
    let registry = plugins.registry().await;
    let found: Vec<_> = registry.plugins().iter().map(|plugin| (plugin.kind, plugin.name.as_str())).collect();
    let expected = [
        (PluginKind::VolumeSnapshotter, "test.plimsoll.dev/noop"),
        (PluginKind::BackupItemAction, "test.plimsoll.dev/mark"),
        (PluginKind::BackupItemActionV2, "test.plimsoll.dev/slow"),
        (PluginKind::RestoreItemAction, "test.plimsoll.dev/restore-mark"),
        (PluginKind::RestoreItemActionV2, "test.plimsoll.dev/restore-slow"),
        (PluginKind::DeleteItemAction, "test.plimsoll.dev/delete"),
        (PluginKind::ItemBlockAction, "test.plimsoll.dev/block"),
    ];
    assert_eq!((found.as_slice(), registry.errors()), (&expected[..], &[][..]));
}

#[tokio::test]
async fn a_backup_item_action_modifies_an_item_and_returns_additional_items() {
    let plugins = require!(go_plugin());
    let (actions, mark, _) = backup_actions(&plugins).await;
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
async fn asynchronous_operations_report_progress_and_are_cancelled() {
    let plugins = require!(go_plugin());
    let (actions, _, slow) = backup_actions(&plugins).await;
    let answer = slow.execute(&config_map(json!({ "slow": "well" }), json!({})), &backup()).await.unwrap();
    assert_eq!((answer.operation.as_deref(), answer.post_operation[0].name.as_str()), (Some("c-well"), "c"));
    let mut tracker = ProgressTracker::default();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (reading, error) = tracker.read(&slow.progress("c-well", &backup()).await.unwrap());
        seen.push((reading.done, reading.total, reading.completed, error));
        assert!(reading.counts_bytes() && reading.updated.is_some());
    }
    assert_eq!(seen, [(10, 30, false, None), (20, 30, false, None), (30, 30, true, None)]);
    slow.cancel("c-never", &backup()).await.unwrap();
    let (reading, _) = ProgressTracker::default().read(&slow.progress("c-never", &backup()).await.unwrap());
    assert_eq!((reading.completed, reading.error.as_str()), (true, "cancelled"));
    actions.close().await;
}

#[tokio::test]
async fn inconsistent_progress_is_reported() {
    let plugins = require!(go_plugin());
    let (actions, _, slow) = backup_actions(&plugins).await;
    for (operation, expected) in
        [("x-backwards", "PluginProgressBackwards"), ("x-beyond", "PluginProgressExceedsTotal")]
    {
        let (mut tracker, mut errors) = (ProgressTracker::default(), Vec::new());
        for _ in 0..2 {
            let (reading, error) = tracker.read(&slow.progress(operation, &backup()).await.unwrap());
            assert!(reading.done <= reading.total);
            errors.extend(error.map(|error| error.reason()));
        }
        assert_eq!(errors, [expected]);
    }
    actions.close().await;
}

#[tokio::test]
async fn restore_and_delete_item_actions_are_called_as_velero_does() {
    let plugins = require!(go_plugin());
    let registry = plugins.registry().await;
    let actions = PluginActions::for_restore(&registry, &plugins.sink());
    let (mark, slow) = (actions.restore().next().unwrap(), actions.restore().nth(1).unwrap());
    let item = config_map(json!({ "slow": "x" }), json!({}));
    let answer = mark.execute(&item, &item, &restore()).await.unwrap();
    assert_eq!(answer.item.unwrap()["metadata"]["annotations"]["test.plimsoll.dev/restore"], "r");
    assert!(mark.execute(&config_map_with_request("skip"), &item, &restore()).await.unwrap().skip);
    assert_eq!(slow.execute(&item, &item, &restore()).await.unwrap().operation.as_deref(), Some("c-x"));
    assert!(slow.items_ready(Vec::new(), &restore()).await.unwrap());
    assert!(slow.progress("c-x", &restore()).await.unwrap().n_completed > 0);
    let deletions = PluginActions::for_deletion(&registry, &plugins.sink());
    let delete = deletions.delete().next().unwrap();
    delete.execute(&item, &backup()).await.unwrap();
    let kept = delete.execute(&config_map_with_request("keep"), &backup()).await.unwrap_err();
    assert_eq!(kept.to_string(), "plugin test.plimsoll.dev/delete: DeleteItemAction.Execute: c is not to be deleted");
    assert_eq!(plugins.logs.level_of("cleaning up after n/c of backup b").await, LogLevel::Info);
    actions.close().await;
    deletions.close().await;
}

#[tokio::test]
async fn a_snapshotter_without_the_progress_extension_is_called_once() {
    let plugins = require!(go_plugin());
    let registry = plugins.registry().await;
    let config = BTreeMap::from([("some".to_owned(), "thing".to_owned())]);
    let snapshotter =
        VolumeSnapshotterClient::open(&registry, "test.plimsoll.dev/noop", &config, plugins.sink()).unwrap();
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" },
                         "spec": { "hostPath": { "path": "/data/v" } } });
    let id = snapshotter.volume_id(&volume).await.unwrap().unwrap();
    assert_eq!(id, "/data/v");
    assert_eq!(snapshotter.volume_id(&json!({ "apiVersion": "v1", "kind": "PersistentVolume" })).await.unwrap(), None);
    let info = snapshotter.volume_info(&id, "zone").await.unwrap();
    assert_eq!((info.volume_type.as_str(), info.iops), ("noop", Some(100)));
    let tags = BTreeMap::from([("velero.io/backup".to_owned(), "b".to_owned())]);
    let limit = Duration::from_mins(1);
    let snapshot = snapshotter.create_snapshot(&id, "zone", &tags, limit).await.unwrap();
    assert_eq!(snapshot, "snap--data-v-b");
    assert_eq!(snapshotter.progress(&SnapshotProgressQuery::default()).await.unwrap(), None);
    assert!(!snapshotter.reports_progress());
    let restored = snapshotter.create_volume_from_snapshot(&snapshot, &info, "zone", limit).await.unwrap();
    let volume = snapshotter.set_volume_id(&volume, &restored).await.unwrap();
    assert_eq!(volume["spec"]["hostPath"]["path"], "volume-of-snap--data-v-b");
    snapshotter.delete_snapshot(&snapshot).await.unwrap();
    assert_eq!(plugins.logs.level_of("set up with 1 settings in namespace velero").await, LogLevel::Info);
    snapshotter.session().close().await;
}

#[tokio::test]
async fn log_lines_keep_their_level_and_have_no_escapes() {
    let plugins = require!(go_plugin());
    let (actions, mark, _) = backup_actions(&plugins).await;
    for ask in ["warn", "error", "chatter"] {
        mark.execute(&config_map_with_request(ask), &backup()).await.unwrap();
    }
    assert_eq!(plugins.logs.level_of("something  [31modd").await, LogLevel::Warning);
    assert_eq!(plugins.logs.level_of("something bad happened").await, LogLevel::Error);
    assert_eq!(plugins.logs.level_of("output number 3999").await, LogLevel::Info);
    assert!(plugins.logs.texts().iter().all(|text| !text.contains(char::is_control)));
    actions.close().await;
}

#[tokio::test]
async fn an_error_and_a_panic_of_a_plugin_are_returned_and_the_process_keeps_running() {
    let plugins = require!(go_plugin());
    let (actions, mark, _) = backup_actions(&plugins).await;
    let error = mark.execute(&config_map_with_request("refuse"), &backup()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "plugin test.plimsoll.dev/mark: BackupItemAction.Execute: no  [31mwish [0m to do that"
    );
    let before = mark.session().process_id().await;
    let panicked = mark.execute(&config_map_with_request("panic"), &backup()).await.unwrap_err();
    assert_eq!(panicked.reason(), "PluginCallFailed");
    assert!(panicked.to_string().contains("on purpose"), "{panicked}");
    mark.execute(&config_map_with_request(""), &backup()).await.unwrap();
    assert_eq!(mark.session().process_id().await, before);
    actions.close().await;
}
