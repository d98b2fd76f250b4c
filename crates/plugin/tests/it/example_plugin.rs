//! The example plugin.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use plimsoll_plugin::{ProgressTracker, SnapshotProgressQuery, VolumeInfo, VolumeSnapshotterClient};
use serde_json::json;

use crate::plugin_directory::PluginDirectory;

const TIMEOUT: Duration = Duration::from_mins(2);

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn a_snapshot_reports_progress_and_a_volume_is_restored_from_it() {
    let plugins = PluginDirectory::new().link(Path::new(env!("CARGO_BIN_EXE_plimsoll-directory-snapshotter")));
    let (root, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for file in 0..20 {
        std::fs::write(data.path().join(format!("file-{file}")), vec![b'x'; 1000]).unwrap();
    }
    let registry = plugins.registry().await;
    let config = map(&[("root", root.path().to_str().unwrap()), ("pace", "20")]);
    let name = "plimsoll.dev/directory-snapshotter";
    let snapshotter = VolumeSnapshotterClient::open(&registry, name, &config, plugins.sink()).unwrap();
    let volume = json!({ "kind": "PersistentVolume", "spec": { "hostPath": { "path": data.path() } } });
    let id = snapshotter.volume_id(&volume).await.unwrap().unwrap();
    let tags = map(&[("velero.io/backup", "b"), ("velero.io/pv", "v")]);
    let query = SnapshotProgressQuery { volume: id.clone(), tags: tags.clone(), ..SnapshotProgressQuery::default() };
    let mut tracker = ProgressTracker::default();
    let mut read_progress = async || {
        let (reading, error) = tracker.read(&snapshotter.progress(&query).await.unwrap().unwrap());
        assert_eq!(error, None);
        reading
    };
    let (created, seen) = tokio::join!(snapshotter.create_snapshot(&id, "", &tags, TIMEOUT), async {
        loop {
            let reading = read_progress().await;
            if reading.done > 0 || reading.completed {
                return reading;
            }
        }
    });
    assert_eq!((created.unwrap().as_str(), seen.total), ("b-v", 20_000));
    let end = read_progress().await;
    assert_eq!((end.done, end.total, end.completed, end.error.as_str()), (20_000, 20_000, true, ""));
    let restored = snapshotter.create_volume_from_snapshot("b-v", &VolumeInfo::default(), "", TIMEOUT).await.unwrap();
    assert_eq!(std::fs::read_dir(&restored).unwrap().count(), 20);
    let volume = snapshotter.set_volume_id(&volume, &restored).await.unwrap();
    assert_eq!(volume["spec"]["hostPath"]["path"], restored.as_str());
    snapshotter.delete_snapshot("b-v").await.unwrap();
    assert!(!root.path().join("snapshots/b-v").exists());
    snapshotter.session().close().await;
}

#[tokio::test]
async fn a_missing_config_key_is_an_error() {
    let plugins = PluginDirectory::new().link(Path::new(env!("CARGO_BIN_EXE_plimsoll-directory-snapshotter")));
    let registry = plugins.registry().await;
    let name = "plimsoll.dev/directory-snapshotter";
    let snapshotter = VolumeSnapshotterClient::open(&registry, name, &BTreeMap::new(), plugins.sink()).unwrap();
    let error = snapshotter.volume_id(&json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), format!("plugin {name}: VolumeSnapshotter.Init: config root is missing"));
}

#[test]
fn a_plugin_not_started_by_a_server_exits_with_an_error() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll-directory-snapshotter")).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("NotStartedByServer"));
}
