//! How fast and in how much memory we back up the standard load, beside a plain LIST and the real Velero in the same run.
//!
//!     bench-backup PLIMSOLL [NAMESPACES] [--large]
//!
//! `PLIMSOLL` is the program to measure. `--large` adds a run on ten times the load, for the memory. Only the ratios mean
//! something on another machine.

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
    large: bool,
}

fn arguments() -> Result<Arguments> {
    const USAGE: &str = "usage: bench-backup PLIMSOLL [NAMESPACES] [--large]";
    let (flags, plain): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let namespaces = plain.get(1).map_or(Ok(100), |number| number.parse()).context(USAGE)?;
    let large = flags.iter().any(|flag| flag == "--large");
    Ok(Arguments { plimsoll: plain.first().context(USAGE)?.into(), namespaces, large })
}

fn main() -> Result<()> {
    let arguments = arguments()?;
    Cluster::preflight()?;
    Velero::preflight()?;
    // Its own cluster: what others leave in a shared one would be backed up too.
    let cluster = Cluster::start(Lifetime::Bound)?;
    tokio::runtime::Runtime::new()?.block_on(run(&cluster, &arguments))
}

async fn run(cluster: &Cluster, arguments: &Arguments) -> Result<()> {
    let client = cluster.client().await?;
    let store = S3Server::start(S3Program::Versity, "127.0.0.1")?;
    store.create_bucket(BUCKET)?;
    let load = Load::new("load", arguments.namespaces);
    row("create, 32 clients", load.create(&client, CLIENTS).await?, None, None);

    let ours = Ours { client: client.clone(), plimsoll: arguments.plimsoll.clone() };
    ours.prepare(cluster, store.endpoint()).await?;
    for round in 1..=2 {
        let listed = Load::list(&client).await?;
        row("list, 500 a page", listed, None, None);
        let (backup, memory) = ours.back_up(cluster.kubeconfig(), &format!("near-{round}"), &load).await?;
        row("plimsoll backup", backup, Some(("times the list", listed)), Some(memory));
    }

    let proxy = Proxy::before_api_server(cluster).await?;
    let slow = proxy.inject(Requests::all(), Fault::Latency(LATENCY));
    let listed = Load::list(&proxy.client().await?).await?;
    row("list, 20 ms away", listed, None, None);
    let kubeconfig = proxy.kubeconfig().context("a proxy before an API server has a kubeconfig")?;
    let (backup, memory) = ours.back_up(kubeconfig, "far", &load).await?;
    row("plimsoll, 20 ms away", backup, Some(("times the list", listed)), Some(memory));
    drop(slow);

    store.create_bucket("velero")?;
    let velero = Velero::start(cluster, store.endpoint(), "velero").await?;
    let listed = Load::list(&client).await?;
    let started = Instant::now();
    velero.cli(["backup", "create", "bench", "--include-namespaces", &load.namespaces().join(",")])?;
    let backup = ended(&client, velero.namespace(), "bench", started).await?;
    let memory = peak_memory(velero.server().id());
    row("velero backup", backup, Some(("times the list", listed)), Some(memory));
    drop(velero);

    if arguments.large {
        let more = Load::new("more", arguments.namespaces * 9);
        row("create, 32 clients", more.create(&client, CLIENTS).await?, None, None);
        let listed = Load::list(&client).await?;
        row("list, 500 a page", listed, None, None);
        let (backup, memory) = ours.back_up_all(cluster.kubeconfig(), "large").await?;
        row("plimsoll backup", backup, Some(("times the list", listed)), Some(memory));
    }
    Ok(())
}

struct Ours {
    client: Client,
    plimsoll: PathBuf,
}

/// A server that ends with its handle.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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

    async fn create(&self, api_version: &str, kind: &str, namespace: Option<&str>, object: Value) -> Result<()> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let mut object = object;
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    /// Backs up the namespaces of a load, with a server of its own.
    async fn back_up(&self, kubeconfig: &Path, name: &str, load: &Load) -> Result<(Rate, u64)> {
        self.back_up_with(kubeconfig, name, json!({ "includedNamespaces": load.namespaces() })).await
    }

    async fn back_up_all(&self, kubeconfig: &Path, name: &str) -> Result<(Rate, u64)> {
        self.back_up_with(kubeconfig, name, json!({})).await
    }

    async fn back_up_with(&self, kubeconfig: &Path, name: &str, spec: Value) -> Result<(Rate, u64)> {
        let scratch = std::env::temp_dir().join(format!("bench-backup-{}", std::process::id()));
        let server = Command::new(&self.plimsoll)
            .args(["server", "--lease-duration", "5s", "--namespace", NAMESPACE, "--kubeconfig"])
            .arg(kubeconfig)
            .arg("--scratch-dir")
            .arg(&scratch)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("failed to start plimsoll server")?;
        let server = Server(server);
        self.wait_until_it_leads(name).await?;
        let started = Instant::now();
        self.create("velero.io/v1", "Backup", Some(NAMESPACE), json!({ "metadata": { "name": name }, "spec": spec }))
            .await?;
        let rate = ended(&self.client, NAMESPACE, name, started).await?;
        let memory = peak_memory(server.0.id());
        let _ = std::fs::remove_dir_all(scratch);
        Ok((rate, memory))
    }

    /// Somebody who starts a server and waits for a backup does not measure the election: a first small backup takes it.
    async fn wait_until_it_leads(&self, name: &str) -> Result<()> {
        let warm = format!("warm-{name}");
        let spec = json!({ "includedNamespaces": [NAMESPACE], "includedResources": ["secrets"] });
        self.create("velero.io/v1", "Backup", Some(NAMESPACE), json!({ "metadata": { "name": warm }, "spec": spec }))
            .await?;
        ended(&self.client, NAMESPACE, &warm, Instant::now()).await.map(|_| ())
    }
}

/// Waits for the end of a backup, and reads how many items it counted.
async fn ended(client: &Client, namespace: &str, name: &str, started: Instant) -> Result<Rate> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v1", "Backup"));
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let ended = wait::until(format!("backup {name} to end"), Duration::from_mins(30), || async {
        let object = objects.get(name).await?;
        let phase = object.data["status"]["phase"].as_str().unwrap_or_default();
        let over = matches!(phase, "Completed" | "PartiallyFailed" | "Failed" | "FailedValidation");
        anyhow::Ok(over.then_some(object))
    });
    let object = ended.await?;
    let time = started.elapsed();
    let status = &object.data["status"];
    anyhow::ensure!(status["phase"] == "Completed", "backup {name} ended as {status}");
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
    println!("{what:<22} {count:>7} objects {time:>8.2} s {speed:>8.0}/s  {ratio:<22} {memory}");
}
