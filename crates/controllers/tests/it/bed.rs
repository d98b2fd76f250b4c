//! A server in this process: on the in-process API, with a directory as its location.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderValue, Request};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use plimsoll_archive::tarball::Writer;
use plimsoll_archive::{codec, layout};
use plimsoll_controllers::{Server, Settings};
use plimsoll_local::fixtures::{eventually, open_api, snapshot_definitions};
use plimsoll_volumes::fs_backup::RestoreHelper;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub const NAMESPACE: &str = "velero";

/// The API, and the location `default`.
pub struct Bed {
    pub client: Client,
    /// Seconds that the clock of the API server is ahead of this machine's.
    pub clock_offset: Arc<AtomicI64>,
    /// Sends another request just before one that it waits for is answered.
    pub interception: Arc<Mutex<Option<Interception>>>,
    directory: TempDir,
}

/// A request that is sent just before another one is answered.
pub struct Interception {
    /// The request to wait for, by its method, URI and body.
    pub before: fn(&http::Method, &http::Uri, &str) -> bool,
    /// Sent before it.
    pub send: Box<dyn FnOnce() -> Request<String> + Send>,
}

impl Bed {
    pub async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let definitions = plimsoll_api::crds().into_iter().chain(snapshot_definitions());
        let api = open_api(&directory.path().join("api"), definitions, &[NAMESPACE]).await;
        let clock_offset = Arc::new(AtomicI64::new(0));
        let interception = Arc::default();
        let client = client(api, Arc::clone(&clock_offset), Arc::clone(&interception));
        let bed = Self { client, clock_offset, interception, directory };
        bed.create_location("default").await;
        bed
    }

    /// The directory of a location.
    pub fn bucket(&self, location: &str) -> PathBuf {
        self.directory.path().join(format!("bucket-{location}"))
    }

    /// The directory of a backup in the location `default`.
    pub fn backup_directory(&self, backup: &str) -> PathBuf {
        self.bucket("default").join("backups").join(backup)
    }

    /// Creates a location that is synced every second.
    pub async fn create_location(&self, name: &str) {
        fs::create_dir_all(self.bucket(name)).unwrap();
        let bucket = self.bucket(name).display().to_string();
        self.create(
            json!({ "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation", "metadata": { "name": name },
            "spec": { "provider": "directory", "objectStorage": { "bucket": bucket }, "backupSyncPeriod": "1s" } }),
        )
        .await;
    }

    /// Runs a server until the guard is dropped.
    pub fn server(&self) -> RunningServer {
        let server = Server::new(self.client.clone(), self.settings());
        let (stop, runtime) = (CancellationToken::new(), Handle::current());
        let stopped = stop.clone();
        // Its future cannot be sent to another thread.
        std::thread::spawn(move || drop(runtime.block_on(server.run(stopped))));
        RunningServer(stop.drop_guard())
    }

    fn settings(&self) -> Settings {
        let restore_helper = RestoreHelper { image: "plimsoll".into(), command: vec!["plimsoll".into()] };
        let identity = format!("server-{}", Timestamp::now().as_nanosecond());
        Settings {
            lease_term: Duration::from_secs(8),
            default_ttl: Duration::from_hours(1),
            resource_timeout: Duration::from_mins(1),
            terminating_timeout: Duration::from_mins(1),
            garbage_collection_frequency: Duration::from_secs(1),
            fs_backup_timeout: Duration::from_mins(1),
            agent_heartbeat_timeout: Duration::from_mins(1),
            ..Settings::new(NAMESPACE, self.directory.path().join("scratch"), identity, restore_helper)
        }
    }

    /// The objects of a kind in the server's namespace.
    pub fn objects(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version) = if kind == "Operation" { ("plimsoll.dev", "v1alpha1") } else { ("velero.io", "v1") };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }

    pub fn snapshot_contents(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent");
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind))
    }

    /// Creates an object of `velero.io/v1`.
    pub async fn create(&self, object: Value) -> Value {
        let api = self.objects(object["kind"].as_str().unwrap());
        let created = api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        serde_json::to_value(created).unwrap()
    }

    pub async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let found = self.objects(kind).get_opt(name).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    pub async fn patch(&self, kind: &str, name: &str, patch: Value) {
        self.objects(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until an object has a phase.
    pub async fn wait_for_phase(&self, kind: &str, name: &str, phase: &str) -> Value {
        eventually(&format!("{kind} {name} is {phase}"), async || {
            self.get(kind, name).await.filter(|object| object["status"]["phase"] == phase)
        })
        .await
    }

    /// Waits until an object is gone.
    pub async fn wait_until_gone(&self, kind: &str, name: &str) {
        eventually(&format!("{kind} {name} is gone"), async || self.get(kind, name).await.is_none().then_some(()))
            .await;
    }

    /// The messages of the Events about an object.
    pub async fn messages(&self, kind: &str, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), NAMESPACE);
        let about = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name) && event.involved_object.kind.as_deref() == Some(kind)
        };
        let events = events.list(&ListParams::default()).await.unwrap().items;
        events.into_iter().filter(about).filter_map(|event| event.message).collect()
    }

    /// Waits until an Event about an object contains a text.
    pub async fn wait_for_message(&self, kind: &str, name: &str, text: &str) -> String {
        eventually(&format!("an event about {kind} {name} says {text:?}"), async || {
            self.messages(kind, name).await.into_iter().find(|message| message.contains(text))
        })
        .await
    }

    /// Creates a Backup in the cluster and waits until it has completed.
    pub async fn back_up(&self, name: &str, spec: Value) -> Value {
        let backup =
            json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": name }, "spec": spec });
        self.create(backup).await;
        self.wait_for_phase("Backup", name, "Completed").await
    }

    /// Makes a backup of the cluster look expired.
    pub async fn expire(&self, name: &str) {
        self.patch("Backup", name, json!({ "status": { "expiration": an_hour_ago() } })).await;
    }

    /// Puts a backup of another cluster into a location.
    pub fn plant(&self, location: &str, name: &str, planted: &Planted) {
        let bucket = self.bucket(location);
        let put = |key: String, content: Vec<u8>| {
            let path = bucket.join(key);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        put(layout::backup_contents(name), tarball(&planted.contents));
        put(layout::backup_volume_snapshots(name), codec::gzip_json(&planted.snapshots).unwrap());
        for (key, content) in &planted.files {
            put(format!("backups/{name}/{name}-{key}"), content.clone());
        }
        let metadata = json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": { "name": name, "uid": "theirs", "labels": planted.labels },
            "spec": { "storageLocation": "theirs" }, "status": planted.status });
        put(layout::backup_metadata(name), metadata.to_string().into_bytes());
    }
}

/// What is planted.
pub struct Planted {
    pub status: Value,
    pub labels: Value,
    pub contents: Vec<Value>,
    pub snapshots: Value,
    /// Other files, by the end of their key.
    pub files: Vec<(&'static str, Vec<u8>)>,
}

impl Planted {
    /// A completed backup.
    pub fn completed() -> Self {
        let status = json!({ "phase": "Completed", "version": 1, "formatVersion": "1.1.0",
            "startTimestamp": an_hour_ago(), "completionTimestamp": an_hour_ago() });
        Self { status, labels: json!({}), contents: Vec::new(), snapshots: json!(null), files: Vec::new() }
    }

    /// The same, with its time over.
    pub fn expired() -> Self {
        let mut planted = Self::completed();
        planted.status["expiration"] = json!(an_hour_ago());
        planted.status["csiVolumeSnapshotsAttempted"] = json!(1);
        planted
    }
}

/// A VolumeSnapshotContent that a backup has.
pub fn snapshot_content(name: &str, backup: &str, handle: &str) -> Value {
    json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": name, "labels": { "velero.io/backup-name": backup } },
        "spec": { "driver": "csi.example.com", "deletionPolicy": "Retain", "source": { "volumeHandle": "v" },
            "volumeSnapshotRef": { "name": "s", "namespace": "shop" } },
        "status": { "snapshotHandle": handle } })
}

pub fn tarball(contents: &[Value]) -> Vec<u8> {
    let mut archive = Writer::new(Vec::new()).unwrap();
    for content in contents {
        let name = content["metadata"]["name"].as_str().unwrap();
        let json = content.to_string();
        archive
            .append_object("volumesnapshotcontents.snapshot.storage.k8s.io", "v1", None, name, json.as_bytes())
            .unwrap();
    }
    archive.finish().unwrap()
}

pub fn an_hour_ago() -> String {
    format!("{:.0}", Timestamp::now() - SignedDuration::from_hours(1))
}

/// A client whose answers have the time of the API server, as over HTTP.
fn client(
    api: plimsoll_local::Api,
    clock_offset: Arc<AtomicI64>,
    interception: Arc<Mutex<Option<Interception>>>,
) -> Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (api, clock_offset, interception) = (api.clone(), Arc::clone(&clock_offset), Arc::clone(&interception));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let text = String::from_utf8_lossy(&body);
            let intercepted =
                interception.lock().unwrap().take_if(|wanted| (wanted.before)(&head.method, &head.uri, &text));
            if let Some(Interception { send, .. }) = intercepted {
                let request = send().map(|body| kube::client::Body::from(body.into_bytes()));
                assert!(api.handle(request).await.status().is_success());
            }
            let mut answer = api.handle(Request::from_parts(head, kube::client::Body::from(body))).await;
            let now = Timestamp::now() + SignedDuration::from_secs(clock_offset.load(Ordering::Relaxed));
            let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            answer.headers_mut().insert(http::header::DATE, HeaderValue::from_str(&date).unwrap());
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    Client::new(service, NAMESPACE)
}

/// Stops a server when it is dropped.
pub struct RunningServer(#[expect(dead_code, reason = "dropping it stops the server")] DropGuard);
