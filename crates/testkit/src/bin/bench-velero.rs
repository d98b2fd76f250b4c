//! How fast the real Velero backs up and restores the standard load, beside the API server alone in the same run.
//!
//! Only the ratios mean something on another machine.

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use plimsoll_testkit::enclosure::Lifetime;
use plimsoll_testkit::load::{Load, Rate};
use plimsoll_testkit::peers::{S3Program, S3Server, Velero};
use plimsoll_testkit::{Cluster, wait};

const CLIENTS: usize = 32;

fn main() -> Result<()> {
    let namespaces =
        std::env::args().nth(1).map_or(Ok(100), |number| number.parse()).context("usage: bench-velero [namespaces]")?;
    Cluster::preflight()?;
    Velero::preflight()?;
    // Its own cluster: what others leave in a shared one would be backed up too.
    let cluster = Cluster::start(Lifetime::Bound)?;
    tokio::runtime::Runtime::new()?.block_on(run(&cluster, namespaces))
}

async fn run(cluster: &Cluster, namespaces: usize) -> Result<()> {
    let client = cluster.client().await?;
    let few = Load::new("alone", namespaces.div_ceil(10));
    let single = few.create(&client, 1).await?;
    row("create, 1 client", single, None);
    few.delete(&client).await?;
    let load = Load::new("load", namespaces);
    let many = load.create(&client, CLIENTS).await?;
    row(&format!("create, {CLIENTS} clients"), many, None);
    let listed = Load::list(&client).await?;
    row("list, 500 a page", listed, None);

    let store = S3Server::start(S3Program::Versity, "127.0.0.1")?;
    store.create_bucket("bench")?;
    let velero = Velero::start(cluster, store.endpoint(), "bench").await?;
    let namespaces = load.namespaces().join(",");
    let backup = timed(&client, &velero, "Backup", "bench", || {
        velero.cli(["backup", "create", "bench", "--include-namespaces", &namespaces])
    });
    let backup = backup.await?;
    row("velero backup", backup, Some(("of list", listed)));
    load.delete(&client).await?;
    let restore = timed(&client, &velero, "Restore", "bench", || {
        velero.cli(["restore", "create", "bench", "--from-backup", "bench"])
    });
    let restore = restore.await?;
    row("velero restore", restore, Some((&format!("of create, {CLIENTS} clients"), many)));
    row("velero restore", restore, Some(("of create, 1 client", single)));
    Ok(())
}

/// Starts an operation, waits for its end, and reads how many items it counted.
async fn timed(
    client: &Client,
    velero: &Velero,
    kind: &str,
    name: &str,
    begin: impl FnOnce() -> Result<String>,
) -> Result<Rate> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v1", kind));
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), velero.namespace(), &resource);
    let started = Instant::now();
    begin()?;
    let ended = wait::until(format!("{kind} {name} to end"), Duration::from_mins(30), || async {
        let object = objects.get(name).await?;
        let phase = object.data["status"]["phase"].as_str().unwrap_or_default().to_owned();
        anyhow::Ok(
            matches!(phase.as_str(), "Completed" | "PartiallyFailed" | "Failed" | "FailedValidation").then_some(object),
        )
    });
    let object = ended.await?;
    let time = started.elapsed();
    let phase = &object.data["status"]["phase"];
    anyhow::ensure!(phase == "Completed", "{kind} {name} ended as {phase}: {}", object.data["status"]);
    let count = object.data["status"]["progress"]["totalItems"].as_u64().context("no totalItems")?;
    Ok(Rate { count: usize::try_from(count)?, time })
}

fn row(what: &str, rate: Rate, beside: Option<(&str, Rate)>) {
    let ratio = beside.map(|(other, base)| format!("{:.3} {other}", rate.per_second() / base.per_second()));
    let (count, time, speed) = (rate.count, rate.time.as_secs_f64(), rate.per_second());
    println!("{what:<22} {count:>7} objects {time:>8.1} s {speed:>8.0}/s  {}", ratio.unwrap_or_default());
}
