//! Measures time and memory of a backup of the standard load, compared with a plain LIST and with Velero in the same run.
//!
//!     bench-backup PLIMSOLL [NAMESPACES] [--large] [--without-velero]
//!
//! `PLIMSOLL` is the program to measure. `--large` adds a run on ten times the load, for the memory. Only the ratios are
//! meaningful on another machine.

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::Client;
use plimsoll_testkit::enclosure::Lifetime;
use plimsoll_testkit::load::Load;
use plimsoll_testkit::measure::{Arguments, BenchmarkTarget, peak_memory, row, wait_for_operation};
use plimsoll_testkit::peers::{S3Server, Velero};
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Cluster, Proxy};
use serde_json::{Value, json};

const CLIENTS: usize = 32;
const BUCKET: &str = "bench";
const LATENCY: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    let usage = "usage: bench-backup PLIMSOLL [NAMESPACES] [--large] [--without-velero]";
    let arguments = Arguments::parse(usage, 100)?;
    Cluster::preflight()?;
    Velero::preflight()?;
    // Its own cluster: objects of other tests in a shared one would be backed up too.
    let cluster = Cluster::start(Lifetime::Bound)?;
    tokio::runtime::Runtime::new()?.block_on(run(&cluster, &arguments))
}

async fn run(cluster: &Cluster, arguments: &Arguments<usize>) -> Result<()> {
    let client = cluster.client().await?;
    let store = S3Server::start("127.0.0.1")?;
    store.create_bucket(BUCKET)?;
    let load = Load::new("load", arguments.size);
    println!("{}", row("create, 32 clients", load.create(&client, CLIENTS).await?, None, None));

    let ours = BenchmarkTarget::prepare(arguments.plimsoll.clone(), cluster, store.endpoint(), BUCKET).await?;
    let spec = json!({ "includedNamespaces": load.namespaces() });
    for round in 1..=2 {
        compare(&client, &ours, cluster.kubeconfig(), &format!("near-{round}"), &spec).await?;
    }
    let proxy = Proxy::for_api_server(cluster).await?;
    let slow = proxy.inject(Requests::all(), Fault::Latency(LATENCY));
    let kubeconfig = proxy.kubeconfig().context("a proxy before an API server has a kubeconfig")?;
    compare(&proxy.client().await?, &ours, kubeconfig, "far-20ms", &spec).await?;
    drop(slow);

    if !arguments.has("--without-velero") {
        compare_with_velero(cluster, &store, &load).await?;
    }
    if arguments.has("--large") {
        let more = Load::new("more", arguments.size * 9);
        println!("{}", row("create, 32 clients", more.create(&client, CLIENTS).await?, None, None));
        compare(&client, &ours, cluster.kubeconfig(), "large", &json!({})).await?;
    }
    Ok(())
}

/// A plain LIST, and then a backup by a server of its own.
async fn compare(client: &Client, ours: &BenchmarkTarget, kubeconfig: &Path, name: &str, spec: &Value) -> Result<()> {
    let listed = Load::list(client).await?;
    println!("{}", row(&format!("list, {name}"), listed, None, None));
    let server = ours.serve(kubeconfig, name).await?;
    let backup = server.run_operation("Backup", name, spec.clone()).await?;
    let figures =
        row(&format!("plimsoll, {name}"), backup, Some(("times the list", listed)), Some(server.peak_memory()));
    println!("{figures}");
    Ok(())
}

async fn compare_with_velero(cluster: &Cluster, store: &S3Server, load: &Load) -> Result<()> {
    store.create_bucket("velero")?;
    let client = cluster.client().await?;
    let velero = Velero::start(cluster, store.endpoint(), "velero").await?;
    let listed = Load::list(&client).await?;
    let started = Instant::now();
    velero.cli(["backup", "create", "bench", "--include-namespaces", &load.namespaces().join(",")])?;
    let backup = wait_for_operation(&client, velero.namespace(), "Backup", "bench", started).await?;
    let memory = peak_memory(velero.server().id());
    println!("{}", row("velero", backup, Some(("times the list", listed)), Some(memory)));
    Ok(())
}
