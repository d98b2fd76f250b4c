//! Claims of the CSI driver of the embedded cluster, and helpers to inspect them.

use std::path::PathBuf;
use std::process::Stdio;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::bed::{Bed, create_namespace, eventually};

const GROUP: &str = "snapshot.storage.k8s.io";

/// Objects of a kind, in a namespace or in none.
pub fn api(bed: &Bed, group: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(bed.client.clone(), namespace, &resource),
        None => Api::all_with(bed.client.clone(), &resource),
    }
}

pub async fn create(bed: &Bed, group: &str, namespace: Option<&str>, object: Value) {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let object = serde_json::from_value(object).unwrap();
    api(bed, group, &kind, namespace).create(&PostParams::default(), &object).await.unwrap();
}

/// Every VolumeSnapshot of the cluster.
pub async fn snapshots(bed: &Bed) -> Vec<Value> {
    let all = api(bed, GROUP, "VolumeSnapshot", None).list(&ListParams::default()).await.unwrap();
    all.items.into_iter().map(|one| json!(one)).collect()
}

/// Every VolumeSnapshotContent of the cluster.
pub async fn contents(bed: &Bed) -> Vec<Value> {
    let all = api(bed, GROUP, "VolumeSnapshotContent", None).list(&ListParams::default()).await.unwrap();
    all.items.into_iter().map(|one| json!(one)).collect()
}

/// What the driver has: the names of the copied directories.
pub fn copies(bed: &Bed) -> Vec<String> {
    let directory = bed.directory.path().join("cluster/snapshots");
    let all = directory.read_dir().into_iter().flatten().flatten();
    all.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// A claim called `data` in a namespace of its own, with files.
pub struct CsiClaim<'a> {
    pub bed: &'a Bed,
    pub namespace: String,
}

impl<'a> CsiClaim<'a> {
    pub async fn make(bed: &'a Bed, name: &str, bytes: usize) -> Self {
        let namespace = bed.ns(name);
        create_namespace(&bed.client, &namespace).await;
        let claim = Self { bed, namespace };
        let object = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "local-csi",
                "resources": { "requests": { "storage": "1Gi" } } } });
        create(bed, "", Some(&claim.namespace), object).await;
        let directory = claim.directory().await;
        let script =
            format!("mkdir deep; head -c {bytes} /dev/urandom > deep/noise; echo hello > hello; ln -s hello link");
        run(&directory, &script);
        claim
    }

    /// The same claim in another namespace.
    pub fn called(bed: &'a Bed, name: &str) -> Self {
        Self { bed, namespace: bed.ns(name) }
    }

    fn api(&self) -> Api<DynamicObject> {
        api(self.bed, "", "PersistentVolumeClaim", Some(&self.namespace))
    }

    pub async fn object(&self) -> Value {
        json!(self.api().get("data").await.unwrap())
    }

    /// The directory of its volume, once it has one.
    pub async fn directory(&self) -> PathBuf {
        let (api, mut volume) = (self.api(), String::new());
        eventually("the claim is bound", async || {
            let Some(claim) = api.get_opt("data").await.unwrap() else { return false };
            claim.data["spec"]["volumeName"].as_str().unwrap_or_default().clone_into(&mut volume);
            claim.data["status"]["phase"] == "Bound"
        })
        .await;
        self.bed.volume(&volume).await
    }

    /// Every file: its checksum, and its kind, mode and target.
    pub async fn files(&self) -> String {
        let list = "find . -type f -print0 | sort -z | xargs -0 sha256sum; find . -printf '%P %y %m %l\\n' | sort";
        run(&self.directory().await, list)
    }

    pub async fn change(&self) {
        run(&self.directory().await, "echo changed > hello; rm link");
    }

    pub async fn lose(&self) {
        let name = self.namespace.strip_prefix(&self.bed.ns("")).unwrap();
        self.bed.delete_namespace(name).await;
    }
}

fn run(directory: &std::path::Path, script: &str) -> String {
    let mut command = std::process::Command::new("sh");
    let output = command.args(["-c", script]).current_dir(directory).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
