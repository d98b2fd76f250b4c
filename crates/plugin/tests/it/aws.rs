//! The unmodified plugin for AWS: as the store of a bucket, and as a snapshotter as far as it goes without a cloud.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::TryStreamExt;
use plimsoll_plugin::{ASKS_FOR_PLUGIN, Kind, Snapshotter, open_store};
use plimsoll_store::{Location, Store};
use plimsoll_testkit::peers::s3::{ACCESS_KEY, S3Program, S3Server, SECRET_KEY};
use plimsoll_testkit::process::Process;
use plimsoll_testkit::{cache, require};
use rustix::process::Signal;
use serde_json::json;

use crate::bed::Bed;

fn location(server: &S3Server) -> Location {
    let config = [
        (ASKS_FOR_PLUGIN, "true"),
        ("region", "us-east-1"),
        ("s3ForcePathStyle", "true"),
        ("s3Url", server.endpoint()),
        ("checksumAlgorithm", ""),
    ];
    let keys = format!("[default]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key={SECRET_KEY}\n");
    Location {
        provider: "aws".into(),
        bucket: "bucket".into(),
        prefix: "some/prefix".into(),
        config: config.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        credentials: Some(keys.into_bytes().into()),
        ..Location::default()
    }
}

async fn keys(store: &Store, folder: &str) -> Vec<String> {
    let mut keys: Vec<_> = store.list(folder).map_ok(|info| info.key).try_collect().await.unwrap();
    keys.sort();
    keys
}

#[tokio::test]
async fn a_bucket_behind_the_unmodified_plugin_is_a_store_like_any_other() {
    let plugin = require!(cache::program("velero-plugin-for-aws"));
    require!(cache::program("versitygw"));
    let server = S3Server::start(S3Program::Versity, "127.0.0.1").unwrap();
    server.create_bucket("bucket").unwrap();
    let bed = Bed::new().link(&plugin);
    let catalog = bed.catalog().await;
    assert!(catalog.find(Kind::ObjectStore, "velero.io/aws").is_ok(), "{:?}", catalog.problems());
    let store = open_store(&catalog, &location(&server), bed.sink()).unwrap();
    store.put("backups/b/velero-backup.json", "{}").await.unwrap();
    let mut upload = store.upload("backups/b/b.tar.gz").await.unwrap();
    let large = Bytes::from((0..20 << 20).map(|n: u32| n.to_le_bytes()[1]).collect::<Vec<_>>());
    upload.write(large.clone()).await.unwrap();
    upload.finish().await.unwrap();
    assert_eq!(store.get("backups/b/velero-backup.json").await.unwrap(), "{}");
    assert_eq!(store.get("backups/b/b.tar.gz").await.unwrap(), large);
    assert_eq!(store.get_range("backups/b/b.tar.gz", 3_000_000..3_000_010).await.unwrap(), large[3_000_000..3_000_010]);
    assert_eq!(keys(&store, "backups/b").await, ["backups/b/b.tar.gz", "backups/b/velero-backup.json"]);
    assert_eq!(store.list_directories("backups").await.unwrap(), ["b"]);
    assert!(store.exists("backups/b/b.tar.gz").await.unwrap() && !store.exists("backups/b/other").await.unwrap());
    assert!(store.get("backups/b/other").await.unwrap_err().is_not_found());
    let link = store.presign("backups/b/velero-backup.json", std::time::Duration::from_mins(1)).await.unwrap().unwrap();
    assert!(link.as_str().starts_with(server.endpoint()), "{link}");
    an_upload_that_is_given_up_leaves_nothing(&store).await;
    store.delete("backups/b/b.tar.gz").await.unwrap();
    store.delete("backups/b/b.tar.gz").await.unwrap();
    assert_eq!(keys(&store, "").await, ["backups/b/velero-backup.json"]);
    a_killed_plugin_is_not_noticed(&store, &plugin).await;
}

async fn an_upload_that_is_given_up_leaves_nothing(store: &Store) {
    let mut upload = store.upload("backups/b/given-up").await.unwrap();
    upload.write(Bytes::from(vec![1; 9 << 20])).await.unwrap();
    upload.abort().await.unwrap();
    assert!(!store.exists("backups/b/given-up").await.unwrap());
}

async fn a_killed_plugin_is_not_noticed(store: &Store, plugin: &std::path::Path) {
    let this = Process::find(std::process::id()).unwrap();
    let name = plugin.file_name().unwrap().to_str().unwrap();
    let plugins = plimsoll_testkit::process::mentioning(name);
    for process in this.children().into_iter().filter(|child| plugins.contains(child)) {
        process.signal(Signal::KILL).unwrap();
    }
    assert_eq!(store.get("backups/b/velero-backup.json").await.unwrap(), "{}");
}

#[tokio::test]
async fn wrong_settings_are_refused_in_the_plugins_own_words() {
    let plugin = require!(cache::program("velero-plugin-for-aws"));
    let bed = Bed::new().link(&plugin);
    let catalog = bed.catalog().await;
    let config = [("nonsense".to_owned(), "x".to_owned())].into();
    let location = Location { provider: "aws".into(), bucket: "b".into(), config, ..Location::default() };
    let error = open_store(&catalog, &location, bed.sink()).unwrap().get("x").await.unwrap_err();
    assert!(error.to_string().contains("nonsense"), "{error}");
    let location = Location { provider: "example.io/none".into(), ..location };
    let error = open_store(&catalog, &location, bed.sink()).unwrap_err();
    assert!(error.to_string().contains("no plugin offers ObjectStore \"example.io/none\""), "{error}");
}

#[tokio::test]
async fn the_plugin_for_aws_knows_its_volumes_without_a_cloud() {
    let plugin = require!(cache::program("velero-plugin-for-aws"));
    let bed = Bed::new().link(&plugin);
    let catalog = bed.catalog().await;
    let config = BTreeMap::from([("region".to_owned(), "us-east-1".to_owned())]);
    let snapshotter = Snapshotter::open(&catalog, "aws", &config, bed.sink()).unwrap();
    let volume =
        |spec| json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" }, "spec": spec });
    let ebs = volume(json!({ "csi": { "driver": "ebs.csi.aws.com", "volumeHandle": "vol-0123" } }));
    assert_eq!(snapshotter.volume_id(&ebs).await.unwrap().as_deref(), Some("vol-0123"));
    assert_eq!(snapshotter.volume_id(&volume(json!({ "hostPath": { "path": "/x" } }))).await.unwrap(), None);
    let other = snapshotter.with_volume_id(&ebs, "vol-9999").await.unwrap();
    assert_eq!(other["spec"]["csi"]["volumeHandle"], "vol-9999");
    snapshotter.session().close().await;
}
