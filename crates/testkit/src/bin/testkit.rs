//! Controls the cluster of the tests: `cluster-up`, `cluster-down`, `cluster-status`.

#![expect(clippy::print_stdout, reason = "a command line tool for developers")]

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use plimsoll_testkit::child_process::ChildProcess;
use plimsoll_testkit::cluster::{Cluster, Component};
use plimsoll_testkit::enclosure::Lifetime;

fn main() -> Result<ExitCode> {
    match std::env::args().nth(1).as_deref() {
        Some("cluster-up") => up(),
        Some("cluster-down") => down(),
        Some("cluster-status") => status(),
        // For the test kit's own tests, which kill this process.
        Some("hold") => hold_cluster(),
        Some("keep") => run_child_process(&std::env::args().nth(2).context("keep needs a directory")?),
        // And which run it in a pod.
        Some("in-cluster") => in_cluster(),
        _ => bail!("usage: testkit cluster-up | cluster-down | cluster-status"),
    }
}

fn up() -> Result<ExitCode> {
    if let Some(cluster) = Cluster::find_running() {
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
        bail!("cannot install the programs of the cluster");
    }
    Ok(())
}

fn down() -> Result<ExitCode> {
    match Cluster::find_running() {
        None => println!("not running"),
        Some(cluster) => {
            cluster.end()?;
            println!("ended");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Exits with 1 if no cluster runs, for use in scripts.
fn status() -> Result<ExitCode> {
    let Some(cluster) = Cluster::find_running() else {
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

fn hold_cluster() -> Result<ExitCode> {
    let cluster = Cluster::start(Lifetime::Bound)?;
    println!("{}", cluster.machine()?.directory().display());
    loop {
        std::thread::park();
    }
}

fn run_child_process(directory: &str) -> Result<ExitCode> {
    let mut command = Command::new("sleep");
    command.arg("1000");
    let child = ChildProcess::start(command, directory.into())?;
    println!("{}", child.id());
    loop {
        std::thread::park();
    }
}

/// Gets the version of the API server as a program in a pod, with the injected address, service account and CA.
fn in_cluster() -> Result<ExitCode> {
    plimsoll_testkit::install_crypto();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = kube::Config::incluster_env()?;
    let version = runtime.block_on(async { kube::Client::try_from(config)?.apiserver_version().await })?;
    println!("{}", version.git_version);
    Ok(ExitCode::SUCCESS)
}
