//! The unmodified AWS plugin: as an object store, and as a VolumeSnapshotter without a cloud.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::TryStreamExt;
use plimsoll_plugin::{PluginKind, USE_PLUGIN_CONFIG_KEY, VolumeSnapshotterClient, open_store};
use plimsoll_store::{Location, Store};
use plimsoll_testkit::peers::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use plimsoll_testkit::process::Process;
use plimsoll_testkit::{cache, require};
use rustix::process::Signal;
use serde_json::json;

use crate::plugin_directory::PluginDirectory;

fn location(server: &S3Server) -> Location {
    let config = [
        (USE_PLUGIN_CONFIG_KEY, "true"),
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
async fn the_unmodified_plugin_works_as_an_object_store() {
    let plugin = require!(cache::program("velero-plugin-for-aws"));
    require!(cache::program("versitygw"));
    let server = S3Server::start("127.0.0.1").unwrap();
    server.create_bucket("bucket").unwrap();
    let plugins = PluginDirectory::new().link(&plugin);
    let registry = plugins.registry().await;
    assert!(registry.find(PluginKind::ObjectStore, "velero.io/aws").is_ok(), "{:?}", registry.errors());
    let store = open_store(&registry, &location(&server), plugins.sink()).unwrap();
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
    an_aborted_upload_leaves_no_object(&store).await;
    store.delete("backups/b/b.tar.gz").await.unwrap();
    store.delete("backups/b/b.tar.gz").await.unwrap();
    assert_eq!(keys(&store, "").await, ["backups/b/velero-backup.json"]);
    a_killed_plugin_is_restarted(&store, &plugin).await;
}

async fn an_aborted_upload_leaves_no_object(store: &Store) {
    let mut upload = store.upload("backups/b/aborted").await.unwrap();
    upload.write(Bytes::from(vec![1; 9 << 20])).await.unwrap();
    upload.abort().await.unwrap();
    assert!(!store.exists("backups/b/aborted").await.unwrap());
}

async fn a_killed_plugin_is_restarted(store: &Store, plugin: &std::path::Path) {
    let this = Process::find(std::process::id()).unwrap();
    let name = plugin.file_name().unwrap().to_str().unwrap();
    let plugins = plimsoll_testkit::process::find_by_command_line(name);
    for process in this.children().into_iter().filter(|child| plugins.contains(child)) {
        process.signal(Signal::KILL).unwrap();
    }
    assert_eq!(store.get("backups/b/velero-backup.json").await.unwrap(), "{}");
}

#[tokio::test]
async fn an_invalid_config_returns_the_error_of_the_plugin() {
    let plugin = require!(cache::program("velero-plugin-for-aws"));
    let plugins = PluginDirectory::new().link(&plugin);
    let registry = plugins.registry().await;
    let config = [("nonsense".to_owned(), "x".to_owned())].into();
    let location = Location { provider: "aws".into(), bucket: "b".into(), config, ..Location::default() };
    let error = open_store(&registry, &location, plugins.sink()).unwrap().get("x").await.unwrap_err();
    assert!(error.to_string().contains("nonsense"), "{error}");
    let location = Location { provider: "example.io/none".into(), ..location };
    let error = open_store(&registry, &location, plugins.sink()).unwrap_err();
    assert!(error.to_string().contains("ObjectStore plugin \"example.io/none\" not found"), "{error}");
}

#[tokio::test]
async fn the_aws_plugin_knows_its_volumes_without_a_cloud() {
    let plugin = require!(cache::program("velero-plugin-for-aws"));
    let plugins = PluginDirectory::new().link(&plugin);
    let registry = plugins.registry().await;
    let config = BTreeMap::from([("region".to_owned(), "us-east-1".to_owned())]);
    let snapshotter = VolumeSnapshotterClient::open(&registry, "aws", &config, plugins.sink()).unwrap();
    let volume =
        |spec| json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" }, "spec": spec });
    let ebs = volume(json!({ "csi": { "driver": "ebs.csi.aws.com", "volumeHandle": "vol-0123" } }));
    assert_eq!(snapshotter.volume_id(&ebs).await.unwrap().as_deref(), Some("vol-0123"));
    assert_eq!(snapshotter.volume_id(&volume(json!({ "hostPath": { "path": "/x" } }))).await.unwrap(), None);
    let other = snapshotter.set_volume_id(&ebs, "vol-9999").await.unwrap();
    assert_eq!(other["spec"]["csi"]["volumeHandle"], "vol-9999");
    snapshotter.session().close().await;
}
