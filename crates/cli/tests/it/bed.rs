//! The test bed: a cluster, servers that can be killed, and an application to back up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolume, Secret, ServiceAccount};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config, ResourceExt};
use plimsoll_testkit::peers::s3::{ACCESS_KEY, SECRET_KEY};
use plimsoll_testkit::peers::{S3Server, Velero};
use plimsoll_testkit::wait::WAIT_TIMEOUT;
use plimsoll_testkit::{Cluster, Proxy, Stopwatch};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

/// Runs each case on the embedded cluster and on a real one.
macro_rules! on_both_clusters {
    ($($case:ident,)*) => {
        mod local {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                super::$case(&crate::bed::Bed::local().await).await;
            })*
        }

        mod real {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let cluster = plimsoll_testkit::require!(plimsoll_testkit::cluster().await);
                let bed = crate::bed::Bed::real(cluster).await;
                super::$case(&bed).await;
                bed.clear().await;
            })*
        }
    };
}
pub(crate) use on_both_clusters;

/// A cluster for tests.
pub struct Bed {
    pub client: Client,
    pub kubeconfig: PathBuf,
    pub directory: TempDir,
    /// In front of every namespace: a real cluster is shared.
    prefix: String,
    cluster: Option<Child>,
}

pub fn plimsoll() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.kill_on_drop(true).stdin(Stdio::null()).env_remove("KUBECONFIG");
    command
}

impl Bed {
    /// The embedded cluster, as a process of its own.
    pub async fn local() -> Self {
        Self::local_with(&[]).await
    }

    /// The same, and pods run as processes of this machine.
    pub async fn local_with_pods() -> Self {
        Self::local_with(&["--run-pods"]).await
    }

    async fn local_with(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut cluster = plimsoll()
            .args(["local", "--no-server", "--data-dir"])
            .arg(directory.path().join("cluster"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(cluster.stdout.take().unwrap()).lines();
        let kubeconfig = loop {
            let line = lines.next_line().await.unwrap().expect("the cluster ended before it was ready");
            if let Some(path) = line.strip_prefix("export KUBECONFIG=") {
                break PathBuf::from(path);
            }
        };
        // It prints more, and would exit if its output were closed.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { client: client(&kubeconfig).await, kubeconfig, directory, prefix: String::new(), cluster: Some(cluster) }
    }

    /// A real cluster, shared with other tests.
    pub async fn real(cluster: &Cluster) -> Self {
        static DEFINED: OnceCell<()> = OnceCell::const_new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        DEFINED.get_or_init(|| define(cluster)).await;
        let prefix = format!("t{}-{}-", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self::on(cluster, prefix).await
    }

    /// A real cluster that is not shared.
    pub async fn dedicated(cluster: &Cluster) -> Self {
        define(cluster).await;
        Self::on(cluster, String::new()).await
    }

    async fn on(cluster: &Cluster, prefix: String) -> Self {
        let client = client(cluster.kubeconfig()).await;
        wait_for_definitions(&client).await;
        let (kubeconfig, directory) = (cluster.kubeconfig().to_owned(), tempfile::tempdir().unwrap());
        Self { client, kubeconfig, directory, prefix, cluster: None }
    }

    /// The namespace that a test calls `name`.
    pub fn ns(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Deletes the namespaces of this test from a shared cluster.
    pub async fn clear(&self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        for namespace in namespaces.list(&ListParams::default()).await.unwrap() {
            let name = namespace.name_any();
            if name.starts_with(&self.prefix) {
                let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &name);
                let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                let _ = maps.patch("held", &PatchParams::default(), &release).await;
                release_restores(&self.client, &name).await;
                let _ = namespaces.delete(&name, &DeleteParams::default()).await;
            }
        }
    }

    /// A namespace of its own for a server, with a directory as its location.
    pub async fn home(&self, name: &str) -> Home<'_> {
        let bucket = self.directory.path().join(format!("bucket-{}", self.ns(name)));
        std::fs::create_dir_all(&bucket).unwrap();
        let place = json!({ "provider": "directory", "objectStorage": { "bucket": bucket.display().to_string() } });
        self.home_at(name, bucket, place).await
    }

    /// A namespace of its own for a server, with a bucket of an S3 server as its location; `endpoint` may be a proxy's.
    pub async fn home_on_s3(&self, name: &str, server: &S3Server, endpoint: &str) -> Home<'_> {
        let bucket = format!("bucket-{}", self.ns(name));
        let directory = server.create_bucket(&bucket).unwrap();
        let place = json!({ "provider": "aws", "objectStorage": { "bucket": bucket },
            "credential": { "name": "keys", "key": "cloud" },
            "config": { "region": "us-east-1", "s3ForcePathStyle": "true", "s3Url": endpoint } });
        let home = self.home_at(name, directory, place).await;
        home.create_secret("keys", "cloud", &s3_keys(SECRET_KEY)).await;
        home
    }

    /// The same behind a proxy that can inject faults.
    pub async fn home_on_proxied_s3(&self, name: &str) -> (S3Server, Proxy, Home<'_>) {
        let store = S3Server::start("127.0.0.1").unwrap();
        let proxy = Proxy::for_server("127.0.0.1:0", store.endpoint()).await.unwrap();
        let home = self.home_on_s3(name, &store, &proxy.url()).await;
        (store, proxy, home)
    }

    /// The same without a proxy, and a real Velero with that bucket as its location.
    pub async fn home_beside_velero(&self, cluster: &Cluster) -> (S3Server, Home<'_>, Velero) {
        let store = S3Server::start("127.0.0.1").unwrap();
        let home = self.home_on_s3("home", &store, store.endpoint()).await;
        let bucket = home.bucket.file_name().unwrap().to_str().unwrap().to_owned();
        let velero = Velero::start(cluster, store.endpoint(), &bucket).await.unwrap();
        (store, home, velero)
    }

    async fn home_at(&self, name: &str, bucket: PathBuf, mut place: Value) -> Home<'_> {
        let name = &self.ns(name);
        let home = Home { bed: self, namespace: name.clone(), bucket };
        create_namespace(&self.client, name).await;
        place["default"] = json!(true);
        home.create(json!({ "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
            "metadata": { "name": "default" }, "spec": place }))
            .await
            .unwrap();
        home
    }

    /// The same with the keys in the Secret that Velero's install makes, which no location names.
    pub async fn home_on_s3_by_default(&self, name: &str, server: &S3Server) -> Home<'_> {
        let bucket = format!("bucket-{}", self.ns(name));
        let directory = server.create_bucket(&bucket).unwrap();
        let place = json!({ "provider": "aws", "objectStorage": { "bucket": bucket },
            "config": { "region": "us-east-1", "s3ForcePathStyle": "true", "s3Url": server.endpoint() } });
        let home = self.home_at(name, directory, place).await;
        home.create_secret("cloud-credentials", "cloud", &s3_keys(SECRET_KEY)).await;
        home
    }

    /// The directory of a volume of the embedded cluster.
    pub async fn volume(&self, name: &str) -> PathBuf {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let spec = api.get(name).await.unwrap().spec.unwrap();
        let driver = || Some(spec.csi?.volume_handle);
        spec.local.map(|local| local.path).or_else(|| Some(spec.host_path?.path)).or_else(driver).unwrap().into()
    }

    /// Whether this is the embedded cluster.
    pub fn is_local(&self) -> bool {
        self.cluster.is_some()
    }

    /// A namespace with objects of several kinds. Returns its name.
    pub async fn application(&self, name: &str, objects: usize) -> String {
        let name = &self.ns(name);
        create_namespace(&self.client, name).await;
        let meta = |kind: &str, number: usize| ObjectMeta {
            name: Some(format!("{kind}-{number}")),
            labels: Some([("shard".to_owned(), (number % 3).to_string())].into()),
            ..ObjectMeta::default()
        };
        let post = PostParams::default();
        for number in 0..objects {
            match number % 3 {
                0 => {
                    let data = Some([("k".to_owned(), format!("value {number} ").repeat(50))].into());
                    let object = ConfigMap { metadata: meta("map", number), data, ..ConfigMap::default() };
                    Api::namespaced(self.client.clone(), name).create(&post, &object).await.map(|_: ConfigMap| ())
                }
                1 => {
                    let string_data = Some([("s".to_owned(), format!("secret {number}"))].into());
                    let object = Secret { metadata: meta("secret", number), string_data, ..Secret::default() };
                    Api::namespaced(self.client.clone(), name).create(&post, &object).await.map(|_: Secret| ())
                }
                _ => {
                    let object = ServiceAccount { metadata: meta("account", number), ..ServiceAccount::default() };
                    Api::namespaced(self.client.clone(), name).create(&post, &object).await.map(|_: ServiceAccount| ())
                }
            }
            .unwrap();
        }
        name.clone()
    }

    /// The objects of a namespace without the metadata and objects that the cluster adds.
    pub async fn contents(&self, namespace: &str) -> BTreeMap<String, Value> {
        let namespace = &self.ns(namespace);
        let mut all = BTreeMap::new();
        for kind in ["ConfigMap", "Secret", "ServiceAccount"] {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
            for found in api.list(&ListParams::default()).await.unwrap() {
                if ["default", "kube-root-ca.crt"].contains(&found.name_any().as_str()) {
                    continue;
                }
                let labels = found.labels().iter().filter(|(key, _)| !key.starts_with("velero.io/"));
                let labels: BTreeMap<_, _> = labels.collect();
                let object = json!({ "labels": labels, "content": found.data });
                all.insert(format!("{kind}/{}", found.name_any()), object);
            }
        }
        all
    }

    /// A namespace that stays in Terminating because an object in it has a finalizer.
    pub async fn hold_namespace(&self, name: &str) {
        let name = &self.ns(name);
        create_namespace(&self.client, name).await;
        let metadata = ObjectMeta {
            name: Some("held".into()),
            finalizers: Some(vec!["test.plimsoll.dev/hold".into()]),
            ..ObjectMeta::default()
        };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        Api::<ConfigMap>::namespaced(self.client.clone(), name).create(&PostParams::default(), &map).await.unwrap();
        Api::<Namespace>::all(self.client.clone()).delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn delete_namespace(&self, name: &str) {
        let name = &self.ns(name);
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.delete(name, &DeleteParams::default()).await.unwrap();
        eventually("the namespace is deleted", async || api.get_opt(name).await.unwrap().is_none()).await;
    }
}

/// Removes the finalizers of Restores, which no server is left to remove.
async fn release_restores(client: &Client, namespace: &str) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v1", "Restore"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    for restore in api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
        let _ = api.patch(&restore.name_any(), &PatchParams::default(), &release).await;
    }
}

async fn define(cluster: &Cluster) {
    plimsoll_controllers::install_crds(client(cluster.kubeconfig()).await).await.unwrap();
}

async fn wait_for_definitions(client: &Client) {
    for (group, kind) in [("velero.io", "Backup"), ("plimsoll.dev", "Operation")] {
        let version = if group == "velero.io" { "v1" } else { "v1alpha1" };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        eventually("the definitions are established", async || api.list(&ListParams::default()).await.is_ok()).await;
    }
}

pub async fn create_namespace(client: &Client, name: &str) {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let object = Namespace { metadata, ..Namespace::default() };
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
}

async fn client(kubeconfig: &Path) -> Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Waits for a condition; fails with its name after a minute, or later on a busy machine.
pub async fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) {
    within(Duration::from_mins(1), what, condition).await;
}

/// The same with another limit.
pub async fn within(limit: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Stopwatch::start();
    let wait = async {
        while begun.elapsed() < limit {
            if condition().await {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        false
    };
    let held = tokio::time::timeout(limit * 5, wait).await.unwrap_or(false);
    assert!(held, "not within {limit:?}: {what}");
}

/// The keys of the S3 server, with this secret, as Amazon's programs read them.
pub fn s3_keys(secret: &str) -> String {
    format!("[default]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key={secret}\n")
}

/// The namespace of a server.
pub struct Home<'a> {
    pub bed: &'a Bed,
    pub namespace: String,
    /// The directory with the objects of its location.
    pub bucket: PathBuf,
}

impl Home<'_> {
    /// A server with the default lease. Ends with its handle.
    pub fn server(&self) -> Child {
        self.server_with("15s", &[])
    }

    /// A server with a short lease, so that another one takes over soon after it is killed.
    pub fn server_with_short_lease(&self, environment: &[(&str, &str)]) -> Child {
        self.server_with("2s", environment)
    }

    /// A server with a lease duration and more environment.
    pub fn server_with(&self, lease_duration: &str, environment: &[(&str, &str)]) -> Child {
        self.server_through(&self.bed.kubeconfig, &["--lease-duration", lease_duration], environment)
    }

    /// A server that reaches the cluster through another kubeconfig, and with more arguments.
    pub fn server_through(&self, kubeconfig: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Child {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.bed.directory.path().join(format!("{}.log", self.namespace)))
            .unwrap();
        plimsoll()
            .args(["server", "--namespace", &self.namespace, "--kubeconfig"])
            .arg(kubeconfig)
            .args(arguments)
            .arg("--scratch-dir")
            .arg(self.bed.directory.path().join(format!("scratch-{}", self.namespace)))
            .args(["--download-address", "127.0.0.1:0"])
            .envs(environment.iter().copied())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// The log of the servers of this home.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.bed.directory.path().join(format!("{}.log", self.namespace))).unwrap_or_default()
    }

    /// A command against this home.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = plimsoll();
        command.args(arguments).args(["--namespace", &self.namespace, "--kubeconfig"]).arg(&self.bed.kubeconfig);
        command
    }

    /// Runs the real `velero`, and returns what it printed. Fails if that fails.
    pub async fn velero(&self, arguments: &[&str]) -> String {
        let (status, text) = self.try_velero(arguments).await;
        assert!(status.success(), "velero {arguments:?} ended with {status}: {text}\n{}", self.log());
        text
    }

    /// Runs the real `velero`; returns how it ended and what it printed.
    pub async fn try_velero(&self, arguments: &[&str]) -> (std::process::ExitStatus, String) {
        let mut command = Command::new(plimsoll_testkit::cache::program("velero").unwrap());
        command.kill_on_drop(true).stdin(Stdio::null()).current_dir(self.bed.directory.path());
        command.args(arguments).args(["--colorized=false", "--namespace", &self.namespace]);
        command.arg("--kubeconfig").arg(&self.bed.kubeconfig);
        let output = command.output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status, String::from_utf8_lossy(&text).into_owned())
    }

    pub async fn create_secret(&self, name: &str, key: &str, value: &str) {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let string_data = Some([(key.to_owned(), value.to_owned())].into());
        let secret = Secret { metadata, string_data, ..Secret::default() };
        let api: Api<Secret> = Api::namespaced(self.bed.client.clone(), &self.namespace);
        api.create(&PostParams::default(), &secret).await.unwrap();
    }

    /// The reasons of all Events about an object.
    pub async fn events(&self, kind: &str, name: &str) -> Vec<String> {
        let about = |event: &DynamicObject| {
            event.data["involvedObject"]["kind"] == kind && event.data["involvedObject"]["name"] == name
        };
        let reason = |event: DynamicObject| event.data["reason"].as_str().unwrap_or_default().to_owned();
        self.list("Event").await.into_iter().filter(about).map(reason).collect()
    }

    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        let group = if kind == "Operation" { ("plimsoll.dev", "v1alpha1") } else { ("velero.io", "v1") };
        let resource = match kind {
            "ActionSet" | "Blueprint" | "Profile" => {
                ApiResource::from_gvk(&GroupVersionKind::gvk("cr.kanister.io", "v1alpha1", kind))
            }
            "DataUpload" | "DataDownload" => {
                ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v2alpha1", kind))
            }
            "VolumeSnapshot" => ApiResource::from_gvk(&GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", kind)),
            "Deployment" | "StatefulSet" | "DaemonSet" => {
                ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", kind))
            }
            "ConfigMap" | "Event" | "Secret" | "Pod" | "PersistentVolumeClaim" => {
                ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind))
            }
            _ => ApiResource::from_gvk(&GroupVersionKind::gvk(group.0, group.1, kind)),
        };
        Api::namespaced_with(self.bed.client.clone(), &self.namespace, &resource)
    }

    pub async fn create(&self, object: Value) -> kube::Result<DynamicObject> {
        let kind = object["kind"].as_str().unwrap().to_owned();
        self.api(&kind).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await
    }

    pub async fn backup(&self, name: &str, spec: Value) {
        self.create(
            json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": name }, "spec": spec }),
        )
        .await
        .unwrap();
    }

    pub async fn restore(&self, name: &str, spec: Value) {
        self.create(
            json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": { "name": name }, "spec": spec }),
        )
        .await
        .unwrap();
    }

    pub async fn get(&self, kind: &str, name: &str) -> Value {
        let found = self.api(kind).get(name).await.unwrap();
        serde_json::to_value(found).unwrap()
    }

    pub async fn find(&self, kind: &str, name: &str) -> Option<Value> {
        self.api(kind).get_opt(name).await.unwrap().map(|found| serde_json::to_value(found).unwrap())
    }

    pub async fn patch(&self, kind: &str, name: &str, patch: Value) {
        self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        self.api(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn list(&self, kind: &str) -> Vec<DynamicObject> {
        self.api(kind).list(&ListParams::default()).await.unwrap().items
    }

    /// The names in the tarball of a backup, without the second copy of each.
    pub fn archived(&self, backup: &str) -> Vec<String> {
        let file = self.bucket.join(format!("backups/{backup}/{backup}.tar.gz"));
        let listing = std::process::Command::new("tar").arg("-tzf").arg(&file).output().unwrap();
        assert!(listing.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&listing.stderr));
        let names = String::from_utf8(listing.stdout).unwrap();
        names.lines().filter(|name| !name.contains("-preferredversion/")).map(str::to_owned).collect()
    }

    /// One object of the tarball of a backup.
    pub fn archived_object(&self, backup: &str, name: &str) -> Value {
        let file = self.bucket.join(format!("backups/{backup}/{backup}.tar.gz"));
        let content = std::process::Command::new("tar").arg("-xzOf").arg(&file).arg(name).output().unwrap();
        serde_json::from_slice(&content.stdout).unwrap_or_else(|e| panic!("{name} in {}: {e}", file.display()))
    }

    /// The messages of one level in the results of a backup, one for each line.
    pub fn messages(&self, backup: &str, level: &str) -> String {
        let file = self.bucket.join(format!("backups/{backup}/{backup}-results.gz"));
        let content = std::process::Command::new("gzip").arg("-dc").arg(&file).output().unwrap();
        let results: Value = serde_json::from_slice(&content.stdout).unwrap();
        let mut lines = Vec::new();
        collect(&results[level], &mut lines);
        lines.join("\n")
    }

    /// Waits until it has ended; returns it.
    pub async fn ended(&self, kind: &str, name: &str) -> Value {
        let mut last = Value::Null;
        eventually(&format!("{kind} {name} has ended"), async || {
            last = self.get(kind, name).await;
            is_ended(&last)
        })
        .await;
        last
    }
}

/// Sends SIGTERM to a server: it releases its lease immediately.
pub async fn terminate_server(mut server: Child) {
    let process = rustix::process::Pid::from_raw(i32::try_from(server.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    let status = tokio::time::timeout(WAIT_TIMEOUT, server.wait()).await.unwrap().unwrap();
    assert!(status.success(), "a terminated server exits with 0: {status}");
}

fn collect(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(all) => all.iter().for_each(|one| collect(one, into)),
        Value::Object(all) => all.values().for_each(|one| collect(one, into)),
        _ => {}
    }
}

pub fn phase(object: &Value) -> &str {
    object.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a condition of an object is true; `None` if it is absent.
pub fn condition_status(object: &Value, condition: &str) -> Option<bool> {
    let all = object.pointer("/status/conditions")?.as_array()?;
    let found = all.iter().find(|one| one["type"] == condition)?;
    Some(found["status"] == "True")
}

pub fn is_ended(object: &Value) -> bool {
    ["Completed", "PartiallyFailed", "Failed", "FailedValidation", "Canceled"].contains(&phase(object))
}
