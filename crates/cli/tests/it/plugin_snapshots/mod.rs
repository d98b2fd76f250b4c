//! Snapshots of plugins, backup and restore: plugin processes copy directories with visible progress.

mod failures;
mod locations;
mod plugin_records;
mod progress;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use plimsoll_testkit::{Unavailable, cache};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::bed::{Bed, Home, create_namespace, eventually};

const RUST: &str = "plimsoll-directory-snapshotter";
const GO: &str = "velero-test-plugin";

/// The example plugin, which is built with its crate's tests.
fn example() -> Result<PathBuf, Unavailable> {
    let beside = Path::new(env!("CARGO_BIN_EXE_plimsoll")).with_file_name(RUST);
    if beside.exists() { Ok(beside) } else { cache::program(RUST) }
}

fn plugin_directory(bed: &Bed, programs: &[(&str, &Path)]) -> PathBuf {
    let directory = bed.directory.path().join("plugins");
    std::fs::create_dir_all(&directory).unwrap();
    for (name, program) in programs {
        let _ = std::os::unix::fs::symlink(program, directory.join(name));
    }
    directory
}

fn server(home: &Home<'_>, directory: &Path, environment: &[(&str, &str)]) -> Child {
    let all = [&[("PLIMSOLL_PLUGIN_DIR", directory.to_str().unwrap())], environment].concat();
    home.server_with("3s", &all)
}

/// A claim in a namespace of its own, and files behind it.
struct Claim<'a> {
    bed: &'a Bed,
    namespace: String,
    volume: String,
}

impl<'a> Claim<'a> {
    async fn make(bed: &'a Bed, name: &str, files: usize) -> Self {
        let namespace = bed.ns(name);
        create_namespace(&bed.client, &namespace).await;
        let mut claim = Self { bed, namespace, volume: String::new() };
        let object = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
        claim.api().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        claim.volume = claim.bound().await;
        let directory = bed.volume(&claim.volume).await;
        std::fs::create_dir_all(directory.join("deep")).unwrap();
        for number in 0..files {
            std::fs::write(directory.join(format!("deep/file-{number}")), format!("{number} ").repeat(500)).unwrap();
        }
        claim
    }

    fn api(&self) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "PersistentVolumeClaim"));
        Api::namespaced_with(self.bed.client.clone(), &self.namespace, &kind)
    }

    /// The name of its volume, once it has one.
    async fn bound(&self) -> String {
        let api = self.api();
        let mut volume = String::new();
        eventually("the claim is bound", async || {
            let Some(claim) = api.get_opt("data").await.unwrap() else { return false };
            claim.data["spec"]["volumeName"].as_str().unwrap_or_default().clone_into(&mut volume);
            claim.data["status"]["phase"] == "Bound"
        })
        .await;
        volume
    }

    async fn files(&self, volume: &str) -> BTreeMap<String, String> {
        let directory = self.bed.volume(volume).await.join("deep");
        let entries = std::fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
        let read = |entry: std::fs::DirEntry| {
            (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
        };
        entries.map(|entry| read(entry.unwrap())).collect()
    }

    async fn lose(&self) {
        let name = self.namespace.strip_prefix(&self.bed.ns("")).unwrap().to_owned();
        self.bed.delete_namespace(&name).await;
        let volumes: Api<PersistentVolume> = Api::all(self.bed.client.clone());
        eventually("the volume is gone", async || volumes.get_opt(&self.volume).await.unwrap().is_none()).await;
    }
}

async fn location(home: &Home<'_>, name: &str, provider: &str, config: Value) {
    home.create(json!({ "apiVersion": "velero.io/v1", "kind": "VolumeSnapshotLocation", "metadata": { "name": name },
        "spec": { "provider": provider, "config": config } }))
        .await
        .unwrap();
}

fn records<'a>(all: &'a [Value], volume: &str) -> Vec<&'a Value> {
    all.iter().filter(|record| record["spec"]["volume"] == volume).collect()
}

async fn list(home: &Home<'_>, kind: &str) -> Vec<Value> {
    home.list(kind).await.into_iter().map(|record| serde_json::to_value(record).unwrap()).collect()
}

async fn describe(home: &Home<'_>, arguments: &[&str]) -> String {
    let output = home.command(&[&["describe"], arguments].concat()).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The output of `why` for a running operation.
async fn why(home: &Home<'_>, what: &str) -> String {
    let output = home.command(&["why", what]).output().await.unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    text
}

/// Waits until a record of this kind has counted something and is not at its end; returns it.
async fn wait_until_moving(home: &Home<'_>, kind: &str) -> Value {
    let mut moving = Value::Null;
    eventually(&format!("a {kind} moves"), async || {
        let all = list(home, kind).await;
        let moves = |record: &&Value| {
            let progress = &record["status"]["progress"];
            record["status"]["phase"] == "InProgress" && progress["bytesDone"].as_u64().unwrap_or(0) > 0
        };
        moving = all.iter().find(moves).cloned().unwrap_or_default();
        !moving.is_null()
    })
    .await;
    moving
}

/// A VolumePluginBackup as a plugin that knows Kubernetes writes it.
fn own_record(volume: &str, status: &Value) -> Value {
    json!({ "apiVersion": "velero.io/v1", "kind": "VolumePluginBackup", "metadata": { "name": "of-the-plugin" },
        "spec": { "volume": volume, "backup": "b", "plugin": "x.io/own", "pluginSpecific": { "pool": "p\u{1b}[31m1" } },
        "status": status })
}

/// The number of attempts of an operation.
async fn attempts(home: &Home<'_>, operation: &str) -> i64 {
    home.get("Operation", operation).await["status"]["attempt"].as_i64().unwrap_or(0)
}
