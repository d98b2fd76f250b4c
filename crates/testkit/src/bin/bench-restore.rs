//! Measures time and memory of a restore of the standard load, compared with clients that only create it and with Velero.
//!
//!     bench-restore PLIMSOLL [NAMESPACES] [--without-velero]
//!
//! `PLIMSOLL` is the program to measure. Every restore is compared with 32 clients that create the same objects without checks,
//! in the same run and under the same conditions: only the ratios are meaningful on another machine.

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::Client;
use plimsoll_testkit::enclosure::Lifetime;
use plimsoll_testkit::load::{LABEL, Load, Rate};
use plimsoll_testkit::measure::{Arguments, BenchmarkTarget, Server, peak_memory, row, wait_for_operation};
use plimsoll_testkit::peers::{S3Server, Velero};
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Cluster, Proxy, Webhook};
use serde_json::json;

const CLIENTS: usize = 32;
const BUCKET: &str = "bench";
const LATENCY: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    let arguments = Arguments::parse("usage: bench-restore PLIMSOLL [NAMESPACES] [--without-velero]", 100)?;
    Cluster::preflight()?;
    let cluster = Cluster::start(Lifetime::Bound)?;
    tokio::runtime::Runtime::new()?.block_on(run(&cluster, &arguments))
}

async fn run(cluster: &Cluster, arguments: &Arguments<usize>) -> Result<()> {
    let client = cluster.client().await?;
    let store = S3Server::start("127.0.0.1")?;
    store.create_bucket(BUCKET)?;
    let ours = BenchmarkTarget::prepare(arguments.plimsoll.clone(), cluster, store.endpoint(), BUCKET).await?;
    let load = Load::new("load", arguments.size);
    let bench = Bench { client: client.clone(), load: load.clone() };

    let near = ours.serve(cluster.kubeconfig(), "near").await?;
    let raw = bench.create(&client, "near").await?;
    near.run_operation("Backup", "once", json!({ "includedNamespaces": load.namespaces() })).await?;
    load.add_second_field_manager(&client, CLIENTS).await?;
    near.run_operation("Backup", "twice", json!({ "includedNamespaces": load.namespaces() })).await?;
    load.delete(&client).await?;
    bench.restore(&near, "near", raw).await?;
    with_webhook(cluster, &bench, &ours, &near).await?;
    drop(near);
    with_latency(cluster, &bench, &ours).await?;
    if !arguments.has("--without-velero") {
        compare_with_velero(cluster, &store, &bench).await?;
    }
    Ok(())
}

struct Bench {
    client: Client,
    load: Load,
}

impl Bench {
    /// The rate of the API server without any checks by the client.
    async fn create(&self, client: &Client, conditions: &str) -> Result<Rate> {
        let raw = self.load.create(client, CLIENTS).await?;
        println!("{}", row(&format!("32 clients, {conditions}"), raw, None, None));
        Ok(raw)
    }

    /// Restores both backups: objects with one field manager, and with two.
    async fn restore(&self, server: &Server<'_>, conditions: &str, raw: Rate) -> Result<()> {
        for backup in ["once", "twice"] {
            let name = format!("{conditions}-{backup}");
            let rate = server.run_operation("Restore", &name, json!({ "backupName": backup })).await?;
            let what = format!("plimsoll, {name}");
            println!("{}", row(&what, rate, Some(("times the clients", raw)), Some(server.peak_memory())));
            self.load.delete(&self.client).await?;
        }
        Ok(())
    }
}

/// The same with a validating webhook for every object.
async fn with_webhook(cluster: &Cluster, bench: &Bench, ours: &BenchmarkTarget, near: &Server<'_>) -> Result<()> {
    let machine = cluster.machine()?;
    let webhook = Webhook::listen(&machine.addresses().host()).await?;
    let configuration = webhook.configuration("bench", LABEL);
    let (version, kind) = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration");
    ours.create(version, kind, None, configuration).await?;
    let raw = bench.create(&bench.client, "webhook").await?;
    anyhow::ensure!(webhook.calls() >= raw.count / 2, "the webhook was asked only {} times", webhook.calls());
    bench.load.delete(&bench.client).await?;
    bench.restore(near, "webhook", raw).await?;
    let path = format!("/apis/{version}/validatingwebhookconfigurations/bench");
    bench.client.request::<serde_json::Value>(http::Request::delete(path).body(Vec::new())?).await?;
    Ok(())
}

/// The same with every request taking longer by [`LATENCY`].
async fn with_latency(cluster: &Cluster, bench: &Bench, ours: &BenchmarkTarget) -> Result<()> {
    let proxy = Proxy::for_api_server(cluster).await?;
    let _slow = proxy.inject(Requests::all(), Fault::Latency(LATENCY));
    let raw = bench.create(&proxy.client().await?, "20ms").await?;
    bench.load.delete(&bench.client).await?;
    let kubeconfig = proxy.kubeconfig().context("a proxy before an API server has a kubeconfig")?;
    let far = ours.serve(kubeconfig, "far").await?;
    bench.restore(&far, "20ms", raw).await
}

async fn compare_with_velero(cluster: &Cluster, store: &S3Server, bench: &Bench) -> Result<()> {
    Velero::preflight()?;
    store.create_bucket("velero")?;
    let Bench { client, load } = bench;
    let velero = Velero::start(cluster, store.endpoint(), "velero").await?;
    let raw = bench.create(client, "velero").await?;
    velero.cli(["backup", "create", "bench", "--include-namespaces", &load.namespaces().join(",")])?;
    wait_for_operation(client, velero.namespace(), "Backup", "bench", Instant::now()).await?;
    load.delete(client).await?;
    let started = Instant::now();
    velero.cli(["restore", "create", "bench", "--from-backup", "bench"])?;
    let restore = wait_for_operation(client, velero.namespace(), "Restore", "bench", started).await?;
    let memory = peak_memory(velero.server().id());
    println!("{}", row("velero restore", restore, Some(("times the clients", raw)), Some(memory)));
    Ok(())
}
