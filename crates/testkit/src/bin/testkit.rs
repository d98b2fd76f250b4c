//! The cluster of the tests, by hand: `cluster-up`, `cluster-down`, `cluster-status`.

#![expect(clippy::print_stdout, reason = "a command line tool for developers")]

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use plimsoll_testkit::cluster::{Cluster, Component};
use plimsoll_testkit::enclosure::Lifetime;
use plimsoll_testkit::keeper::Kept;

fn main() -> Result<ExitCode> {
    match std::env::args().nth(1).as_deref() {
        Some("cluster-up") => up(),
        Some("cluster-down") => down(),
        Some("cluster-status") => status(),
        // For the test kit's own tests, which kill this process.
        Some("hold") => hold(),
        Some("keep") => keep(&std::env::args().nth(2).context("keep needs a directory")?),
        // And which run it in a pod.
        Some("in-cluster") => in_cluster(),
        _ => bail!("usage: testkit cluster-up | cluster-down | cluster-status"),
    }
}

fn up() -> Result<ExitCode> {
    if let Some(cluster) = Cluster::left_running() {
        println!("already running; export KUBECONFIG={}", cluster.kubeconfig().display());
        return Ok(ExitCode::SUCCESS);
    }
    install()?;
    Cluster::preflight()?;
    let started = Instant::now();
    println!("starting");
    let cluster = Cluster::start(Lifetime::Free)?;
    println!(
        "ready after {:.1} s; export KUBECONFIG={}",
        started.elapsed().as_secs_f32(),
        cluster.kubeconfig().display()
    );
    Ok(ExitCode::SUCCESS)
}

fn install() -> Result<()> {
    let installer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/install");
    let status = Command::new(&installer).arg("cluster").status();
    if !status.with_context(|| format!("failed to run {}", installer.display()))?.success() {
        bail!("the cluster's programs could not be installed");
    }
    Ok(())
}

fn down() -> Result<ExitCode> {
    match Cluster::left_running() {
        None => println!("not running"),
        Some(cluster) => {
            cluster.end()?;
            println!("ended");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends with 1 where no cluster runs, so that scripts can ask.
fn status() -> Result<ExitCode> {
    let Some(cluster) = Cluster::left_running() else {
        println!("not running");
        return Ok(ExitCode::FAILURE);
    };
    println!("running; export KUBECONFIG={}", cluster.kubeconfig().display());
    let machine = cluster.machine()?;
    for component in Component::ALL {
        let process = machine.process(component)?;
        let state = if process.is_alive() { "runs" } else { "has ended" };
        println!("{:<24} {state} (process {})", component.name(), process.id());
    }
    Ok(ExitCode::SUCCESS)
}

fn hold() -> Result<ExitCode> {
    let cluster = Cluster::start(Lifetime::Bound)?;
    println!("{}", cluster.machine()?.directory().display());
    loop {
        std::thread::park();
    }
}

fn keep(directory: &str) -> Result<ExitCode> {
    let mut command = Command::new("sleep");
    command.arg("1000");
    let kept = Kept::start(command, directory.into())?;
    println!("{}", kept.id());
    loop {
        std::thread::park();
    }
}

/// Asks the API server for its version, as any program in a pod would: with the injected address, account and authority.
fn in_cluster() -> Result<ExitCode> {
    plimsoll_testkit::install_crypto();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = kube::Config::incluster_env()?;
    let version = runtime.block_on(async { kube::Client::try_from(config)?.apiserver_version().await })?;
    println!("{}", version.git_version);
    Ok(ExitCode::SUCCESS)
}
