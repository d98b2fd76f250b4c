//! Something to lose: objects of several kinds, and a database that is a pod with files in a volume.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use plimsoll_progress::{Clock, Meter, Operation, Task, Total, Unit};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::progress_display::ProgressDisplay;

/// Its namespace.
pub const APPLICATION: &str = "shop";
/// The pod of its database, the container in it, and its claim.
pub const DATABASE: &str = "database";

/// Objects that Kubernetes creates in every namespace.
const CREATED_BY_THE_CLUSTER: [(&str, &str); 2] = [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];
const KINDS: [(&str, &str); 4] = [("", "ConfigMap"), ("", "Secret"), ("", "ServiceAccount"), ("apps", "Deployment")];

/// Fills the volume with tables and small files, unless that was done before; `$BYTES` in all.
const SCRIPT: &str = "[ -e /data/ready ] || { mkdir -p /data/tables /data/log; \
    for n in 1 2 3 4 5 6 7 8; do head -c $((BYTES / 8)) /dev/urandom > /data/tables/part-$n; done; \
    for n in $(seq 1 200); do head -c 4000 /dev/urandom > /data/log/segment-$n; done; touch /data/ready; }; \
    trap exit TERM; sleep 2147483647 & wait";

/// The application, as it is in the cluster now.
pub struct Application {
    client: Client,
    directory: PathBuf,
}

/// The state of the application at one moment.
#[derive(Debug, PartialEq)]
pub struct ApplicationState {
    /// Every object, without what any new object gets of its own.
    pub objects: BTreeMap<String, Value>,
    /// The checksum of every file in the database's volume.
    pub files: Vec<String>,
    /// How long those files are.
    pub bytes: u64,
}

impl Application {
    pub fn new(client: Client, directory: PathBuf) -> Self {
        Self { client, directory }
    }

    fn api(&self, group: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        if kind == "Namespace" {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), APPLICATION, &resource)
        }
    }

    async fn create(&self, group: &str, object: Value) -> anyhow::Result<()> {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let object = serde_json::from_value(object)?;
        let made = self.api(group, &kind).create(&PostParams::default(), &object).await;
        made.map(|_| ()).with_context(|| format!("cannot create a {kind} of the application"))
    }

    /// Creates the application, with its progress on the terminal.
    pub async fn create_all(&self, objects: u32, bytes: u64) -> anyhow::Result<()> {
        let operation = Operation::new(format!("creating {APPLICATION}"), Clock::system());
        let (settings, database) = (operation.root().child("objects"), operation.root().child("database"));
        let work = async {
            self.create("", json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": APPLICATION } }))
                .await?;
            self.create("", claim()).await?;
            self.create("", pod(bytes)).await?;
            tokio::try_join!(self.create_objects(objects, &settings), self.fill(bytes, &database))?;
            anyhow::Ok(())
        };
        ProgressDisplay::new().show_while(&operation, work).await
    }

    async fn create_objects(&self, objects: u32, task: &Task) -> anyhow::Result<()> {
        let meter = task.meter(Unit::Items);
        meter.set_total(Total::Final(objects.into()));
        let make = |number: u32| {
            let meter = meter.clone();
            async move {
                let (group, kind) = KINDS[number as usize % KINDS.len()];
                self.create(group, object(kind, number)).await?;
                meter.add(1);
                anyhow::Ok(())
            }
        };
        stream::iter(0..objects).map(make).buffer_unordered(32).try_collect::<()>().await?;
        task.finish();
        Ok(())
    }

    /// The pod fills its volume; this only watches.
    async fn fill(&self, bytes: u64, task: &Task) -> anyhow::Result<()> {
        let filled = tokio::time::timeout(Duration::from_mins(3), self.watch_fill(bytes, task)).await;
        filled.context("the database did not start: run `kubectl describe pod` to see why")?
    }

    async fn watch_fill(&self, bytes: u64, task: &Task) -> anyhow::Result<()> {
        let meter = task.meter(Unit::Bytes);
        meter.set_total(Total::Growing(bytes));
        loop {
            if let Some(volume) = self.volume().await? {
                update_meter(&volume, &meter);
                if volume.join("ready").exists() {
                    task.finish();
                    return Ok(());
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The directory of the database's files.
    async fn volume(&self) -> anyhow::Result<Option<PathBuf>> {
        let claim = self.api("", "PersistentVolumeClaim").get_opt(DATABASE).await?;
        let name = claim.and_then(|claim| Some(claim.data.pointer("/spec/volumeName")?.as_str()?.to_owned()));
        Ok(name.map(|name| super::volume_directory(&self.directory, &name)))
    }

    /// Waits until its database runs.
    pub async fn wait_until_running(&self) -> anyhow::Result<()> {
        let wait = async {
            loop {
                let pod = self.api("", "Pod").get_opt(DATABASE).await?;
                if pod.is_some_and(|pod| pod.data.pointer("/status/phase").is_some_and(|phase| phase == "Running")) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), wait).await.context("the database does not run")?
    }

    /// Everything of it.
    pub async fn state(&self) -> anyhow::Result<ApplicationState> {
        let mut objects = BTreeMap::new();
        for (group, kind) in KINDS {
            let own = self.api(group, kind).list(&ListParams::default()).await?.into_iter();
            for found in own.filter(|found| !CREATED_BY_THE_CLUSTER.contains(&(kind, found.name_any().as_str()))) {
                objects.insert(format!("{kind}/{}", found.name_any()), comparable_fields(&found)?);
            }
        }
        let volume = self.volume().await?.context("the database has no volume")?;
        let bytes = size(&volume.join("tables")) + size(&volume.join("log"));
        Ok(ApplicationState { objects, files: checksums(&volume).await?, bytes })
    }

    /// Deletes it, and waits until it is gone.
    pub async fn delete(&self) -> anyhow::Result<()> {
        let (namespaces, volume) = (self.api("", "Namespace"), self.volume().await?);
        namespaces.delete(APPLICATION, &DeleteParams::default()).await?;
        while namespaces.get_opt(APPLICATION).await?.is_some() || volume.as_ref().is_some_and(|volume| volume.exists())
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

impl ApplicationState {
    /// Lists missing, different and additional objects.
    pub fn compare(&self, after: &Self) -> anyhow::Result<()> {
        let missing: Vec<_> = self.objects.keys().filter(|name| !after.objects.contains_key(*name)).take(5).collect();
        ensure!(missing.is_empty(), "not restored, among others: {missing:?}");
        let changed = self.objects.iter().filter(|(name, object)| after.objects.get(*name) != Some(object));
        let changed: Vec<_> = changed.map(|(name, _)| name).take(5).collect();
        ensure!(changed.is_empty(), "restored differently, among others: {changed:?}");
        ensure!(
            self.objects.len() == after.objects.len(),
            "{} objects too many",
            after.objects.len() - self.objects.len()
        );
        let changed: Vec<_> = self.files.iter().filter(|file| !after.files.contains(file)).take(5).collect();
        ensure!(changed.is_empty(), "files not restored as they were, among others: {changed:?}");
        ensure!(self.files.len() == after.files.len(), "{} files too many", after.files.len() - self.files.len());
        Ok(())
    }

    /// One number for all files, to look at.
    pub fn checksum(&self) -> String {
        self.files.iter().find(|file| file.ends_with("tables/part-1")).cloned().unwrap_or_default()
    }
}

/// The beginning of a checksum.
pub fn short(checksum: &str) -> String {
    checksum.chars().take(12).collect()
}

fn comparable_fields(found: &DynamicObject) -> anyhow::Result<Value> {
    let mut object = serde_json::to_value(found)?;
    let own = found.labels().iter().filter(|(key, _)| !key.starts_with("velero.io/"));
    object["metadata"] = json!({ "labels": own.collect::<BTreeMap<_, _>>() });
    // What the cluster says about it, not what its user said.
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    Ok(object)
}

fn claim() -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": DATABASE },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } })
}

fn pod(bytes: u64) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": DATABASE, "annotations": { "backup.velero.io/backup-volumes": "data" } },
        "spec": { "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": DATABASE, "image": "shell", "command": ["sh", "-c", SCRIPT],
                "env": [{ "name": "BYTES", "value": bytes.to_string() }],
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": DATABASE } }] } })
}

fn object(kind: &str, number: u32) -> Value {
    let name = format!("{}-{number}", kind.to_lowercase());
    let metadata = json!({ "name": name, "labels": { "app": APPLICATION, "shard": (number % 7).to_string() } });
    let text = format!("setting {number} of the shop\n").repeat(40);
    match kind {
        "ConfigMap" => json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, "data": { "settings": text } }),
        "Secret" => json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, "data": { "token": "c2VjcmV0" } }),
        "Deployment" => json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {
            "replicas": 0, "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": { "containers": [{ "name": "web", "image": "web:1" }] } } } }),
        _ => json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata }),
    }
}

fn update_meter(volume: &Path, meter: &Meter) {
    meter.set_done(size(&volume.join("tables")));
}

/// The files of one directory together.
fn size(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|found| found.len()).sum()
}

/// The SHA-256 of every file in a volume.
async fn checksums(volume: &Path) -> anyhow::Result<Vec<String>> {
    let mut command = Command::new("sh");
    command
        .args(["-c", "find . -type f -print0 | sort -z | xargs -0 sha256sum"])
        .current_dir(volume)
        .stdin(Stdio::null());
    let listed = command.output().await.context("cannot run sha256sum")?;
    ensure!(listed.status.success(), "sha256sum: {}", String::from_utf8_lossy(&listed.stderr));
    Ok(String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect())
}
