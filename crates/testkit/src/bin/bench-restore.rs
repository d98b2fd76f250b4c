//! How fast and in how much memory we restore the standard load, beside clients that only create it and the real Velero.
//!
//!     bench-restore PLIMSOLL [NAMESPACES] [--without-velero]
//!
//! `PLIMSOLL` is the program to measure. Every restore stands beside 32 clients that create the same objects with no checks, in
//! the same run: only the ratios mean something on another machine.

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use plimsoll_testkit::enclosure::Lifetime;
use plimsoll_testkit::load::{Load, Rate};
use plimsoll_testkit::peers::s3::{ACCESS_KEY, SECRET_KEY};
use plimsoll_testkit::peers::{S3Program, S3Server, Velero};
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Cluster, Proxy, wait};
use serde_json::{Value, json};

const CLIENTS: usize = 32;
const BUCKET: &str = "bench";
const NAMESPACE: &str = "plimsoll-bench";
const LATENCY: Duration = Duration::from_millis(20);

struct Arguments {
    plimsoll: PathBuf,
    namespaces: usize,
    velero: bool,
}

fn arguments() -> Result<Arguments> {
    const USAGE: &str = "usage: bench-restore PLIMSOLL [NAMESPACES] [--without-velero]";
    let (flags, plain): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let namespaces = plain.get(1).map_or(Ok(100), |number| number.parse()).context(USAGE)?;
    let velero = !flags.iter().any(|flag| flag == "--without-velero");
    Ok(Arguments { plimsoll: plain.first().context(USAGE)?.into(), namespaces, velero })
}

fn main() -> Result<()> {
    let arguments = arguments()?;
    Cluster::preflight()?;
    let cluster = Cluster::start(Lifetime::Bound)?;
    tokio::runtime::Runtime::new()?.block_on(run(&cluster, &arguments))
}

async fn run(cluster: &Cluster, arguments: &Arguments) -> Result<()> {
    let client = cluster.client().await?;
    let store = S3Server::start(S3Program::Versity, "127.0.0.1")?;
    store.create_bucket(BUCKET)?;
    let ours = Ours { client: client.clone(), plimsoll: arguments.plimsoll.clone() };
    ours.prepare(cluster, store.endpoint()).await?;

    let load = Load::new("load", arguments.namespaces);
    let raw = load.create(&client, CLIENTS).await?;
    row("create, 32 clients", raw, None, None);
    let near = ours.serve(cluster.kubeconfig(), "near").await?;
    near.back_up("once", &load).await?;
    load.delete(&client).await?;
    let (restore, memory) = near.restore("once", "once").await?;
    row("plimsoll restore", restore, Some(("times the clients", raw)), Some(memory));

    load.own_twice(&client, CLIENTS).await?;
    near.back_up("owned", &load).await?;
    load.delete(&client).await?;
    let (restore, memory) = near.restore("owned", "owned").await?;
    row("plimsoll, 2 owners", restore, Some(("times the clients", raw)), Some(memory));
    load.delete(&client).await?;
    drop(near);

    far_away(cluster, &ours, &load).await?;
    if arguments.velero {
        beside_velero(cluster, &store, &load, raw).await?;
    }
    Ok(())
}

/// The same with every request taking longer by [`LATENCY`].
async fn far_away(cluster: &Cluster, ours: &Ours, load: &Load) -> Result<()> {
    let proxy = Proxy::before_api_server(cluster).await?;
    let _slow = proxy.inject(Requests::all(), Fault::Latency(LATENCY));
    let raw = load.create(&proxy.client().await?, CLIENTS).await?;
    row("create, 20 ms away", raw, None, None);
    load.delete(&ours.client).await?;
    let kubeconfig = proxy.kubeconfig().context("a proxy before an API server has a kubeconfig")?;
    let far = ours.serve(kubeconfig, "far").await?;
    for (backup, what) in [("once", "plimsoll, 20 ms away"), ("owned", "2 owners, 20 ms away")] {
        let (restore, memory) = far.restore(&format!("far-{backup}"), backup).await?;
        row(what, restore, Some(("times the clients", raw)), Some(memory));
        load.delete(&ours.client).await?;
    }
    Ok(())
}

async fn beside_velero(cluster: &Cluster, store: &S3Server, load: &Load, raw: Rate) -> Result<()> {
    Velero::preflight()?;
    store.create_bucket("velero")?;
    let client = cluster.client().await?;
    let velero = Velero::start(cluster, store.endpoint(), "velero").await?;
    load.create(&client, CLIENTS).await?;
    velero.cli(["backup", "create", "bench", "--include-namespaces", &load.namespaces().join(",")])?;
    ended(&client, velero.namespace(), "Backup", "bench", Instant::now()).await?;
    load.delete(&client).await?;
    let started = Instant::now();
    velero.cli(["restore", "create", "bench", "--from-backup", "bench"])?;
    let restore = ended(&client, velero.namespace(), "Restore", "bench", started).await?;
    row("velero restore", restore, Some(("times the clients", raw)), Some(peak_memory(velero.server().id())));
    Ok(())
}

struct Ours {
    client: Client,
    plimsoll: PathBuf,
}

/// A server that ends with its handle.
struct Server<'a> {
    ours: &'a Ours,
    process: Child,
    scratch: PathBuf,
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

impl Ours {
    async fn prepare(&self, cluster: &Cluster, endpoint: &str) -> Result<()> {
        let install = Command::new(&self.plimsoll)
            .args(["crds", "apply", "--kubeconfig"])
            .arg(cluster.kubeconfig())
            .stdout(Stdio::null())
            .status()?;
        anyhow::ensure!(install.success(), "plimsoll crds install failed");
        let keys = format!("[default]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key={SECRET_KEY}\n");
        self.create("v1", "Namespace", None, json!({ "metadata": { "name": NAMESPACE } })).await?;
        let secret = json!({ "metadata": { "name": "keys" }, "stringData": { "cloud": keys } });
        self.create("v1", "Secret", Some(NAMESPACE), secret).await?;
        let location = json!({ "metadata": { "name": "default" }, "spec": { "provider": "aws", "default": true,
            "objectStorage": { "bucket": BUCKET }, "credential": { "name": "keys", "key": "cloud" },
            "config": { "region": "us-east-1", "s3ForcePathStyle": "true", "s3Url": endpoint } } });
        let created = || self.create("velero.io/v1", "BackupStorageLocation", Some(NAMESPACE), location.clone());
        wait::until("the definitions", Duration::from_secs(30), || async { anyhow::Ok(created().await.ok()) }).await
    }

    async fn create(&self, api_version: &str, kind: &str, namespace: Option<&str>, mut object: Value) -> Result<()> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    /// Starts a server and waits until it leads: a first small backup takes the election.
    async fn serve(&self, kubeconfig: &Path, name: &str) -> Result<Server<'_>> {
        let scratch = std::env::temp_dir().join(format!("bench-restore-{}-{name}", std::process::id()));
        let process = Command::new(&self.plimsoll)
            .args(["server", "--lease-duration", "15s", "--namespace", NAMESPACE, "--kubeconfig"])
            .arg(kubeconfig)
            .arg("--scratch-dir")
            .arg(&scratch)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("failed to start plimsoll server")?;
        let server = Server { ours: self, process, scratch };
        let spec = json!({ "includedNamespaces": [NAMESPACE], "includedResources": ["secrets"] });
        server.perform("Backup", &format!("warm-{name}"), spec).await?;
        Ok(server)
    }
}

impl Server<'_> {
    async fn back_up(&self, name: &str, load: &Load) -> Result<Rate> {
        self.perform("Backup", name, json!({ "includedNamespaces": load.namespaces() })).await
    }

    async fn restore(&self, name: &str, backup: &str) -> Result<(Rate, u64)> {
        let rate = self.perform("Restore", name, json!({ "backupName": backup })).await?;
        Ok((rate, peak_memory(self.process.id())))
    }

    async fn perform(&self, kind: &str, name: &str, spec: Value) -> Result<Rate> {
        let started = Instant::now();
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        self.ours.create("velero.io/v1", kind, Some(NAMESPACE), object).await?;
        ended(&self.ours.client, NAMESPACE, kind, name, started).await
    }
}

/// Waits for the end of a backup or restore, and reads how many items it counted.
async fn ended(client: &Client, namespace: &str, kind: &str, name: &str, started: Instant) -> Result<Rate> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v1", kind));
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let ended = wait::until(format!("{kind} {name} to end"), Duration::from_mins(30), || async {
        let object = objects.get(name).await?;
        let phase = object.data["status"]["phase"].as_str().unwrap_or_default();
        let over = matches!(phase, "Completed" | "PartiallyFailed" | "Failed" | "FailedValidation");
        anyhow::Ok(over.then_some(object))
    });
    let object = ended.await?;
    let time = started.elapsed();
    let status = &object.data["status"];
    anyhow::ensure!(status["phase"] == "Completed", "{kind} {name} ended as {status}");
    let count = status["progress"]["totalItems"].as_u64().context("no totalItems")?;
    Ok(Rate { count: usize::try_from(count)?, time })
}

/// The most memory a process has had, in kilobytes.
fn peak_memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "a benchmark's figures are small")]
fn row(what: &str, rate: Rate, beside: Option<(&str, Rate)>, memory: Option<u64>) {
    let ratio = beside.map(|(other, base)| format!("{:.2} {other}", rate.time.as_secs_f64() / base.time.as_secs_f64()));
    let memory = memory.map(|kilobytes| format!("{:.0} MB at most", kilobytes as f64 / 1024.0));
    let (count, time, speed) = (rate.count, rate.time.as_secs_f64(), rate.per_second());
    let (ratio, memory) = (ratio.unwrap_or_default(), memory.unwrap_or_default());
    println!("{what:<22} {count:>7} objects {time:>8.2} s {speed:>8.0}/s  {ratio:<24} {memory}");
}
