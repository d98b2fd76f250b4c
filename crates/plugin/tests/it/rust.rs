//! The example plugin: what an author of one copies.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use plimsoll_plugin::{Snapshotter, Subject, VolumeFacts, Watch};
use serde_json::json;

use crate::bed::Bed;

const LIMIT: Duration = Duration::from_mins(2);

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn a_snapshot_is_a_copy_whose_progress_is_seen_and_a_volume_is_made_from_it() {
    let bed = Bed::new().link(Path::new(env!("CARGO_BIN_EXE_plimsoll-directory-snapshotter")));
    let (root, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for file in 0..20 {
        std::fs::write(data.path().join(format!("file-{file}")), vec![b'x'; 1000]).unwrap();
    }
    let catalog = bed.catalog().await;
    let config = map(&[("root", root.path().to_str().unwrap()), ("pace", "20")]);
    let name = "plimsoll.dev/directory-snapshotter";
    let snapshotter = Snapshotter::open(&catalog, name, &config, bed.sink()).unwrap();
    let volume = json!({ "kind": "PersistentVolume", "spec": { "hostPath": { "path": data.path() } } });
    let id = snapshotter.volume_id(&volume).await.unwrap().unwrap();
    let tags = map(&[("velero.io/backup", "b"), ("velero.io/pv", "v")]);
    let subject = Subject { volume: id.clone(), tags: tags.clone(), ..Subject::default() };
    let mut watch = Watch::default();
    let mut follow = async || {
        let (reading, fault) = watch.read(&snapshotter.progress(&subject).await.unwrap().unwrap());
        assert_eq!(fault, None);
        reading
    };
    let (taken, seen) = tokio::join!(snapshotter.snapshot(&id, "", &tags, LIMIT), async {
        loop {
            let reading = follow().await;
            if reading.done > 0 || reading.completed {
                return reading;
            }
        }
    });
    assert_eq!((taken.unwrap().as_str(), seen.total), ("b-v", 20_000));
    let end = follow().await;
    assert_eq!((end.done, end.total, end.completed, end.error.as_str()), (20_000, 20_000, true, ""));
    let restored = snapshotter.volume("b-v", &VolumeFacts::default(), "", LIMIT).await.unwrap();
    assert_eq!(std::fs::read_dir(&restored).unwrap().count(), 20);
    let volume = snapshotter.with_volume_id(&volume, &restored).await.unwrap();
    assert_eq!(volume["spec"]["hostPath"]["path"], restored.as_str());
    snapshotter.delete("b-v").await.unwrap();
    assert!(!root.path().join("snapshots/b-v").exists());
    snapshotter.session().close().await;
}

#[tokio::test]
async fn a_snapshotter_without_its_settings_says_so() {
    let bed = Bed::new().link(Path::new(env!("CARGO_BIN_EXE_plimsoll-directory-snapshotter")));
    let catalog = bed.catalog().await;
    let name = "plimsoll.dev/directory-snapshotter";
    let snapshotter = Snapshotter::open(&catalog, name, &BTreeMap::new(), bed.sink()).unwrap();
    let error = snapshotter.volume_id(&json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), format!("plugin {name}: VolumeSnapshotter.Init: config root is missing"));
}

#[test]
fn started_by_hand_it_says_what_it_is() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll-directory-snapshotter")).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("ByHand"));
}
