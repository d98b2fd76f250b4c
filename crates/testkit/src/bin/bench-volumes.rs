//! Volume data: every mover on the standard data, and the whole backup of it through pods beside the real Velero with its node
//! agent, in the same run.
//!
//!     bench-volumes PLIMSOLL [SCALE] [--movers-only] [--pods-only]
//!
//! `PLIMSOLL` is the program to measure; `SCALE` divides the data. Only the ratios mean something on another machine.

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use plimsoll_testkit::enclosure::Lifetime;
use plimsoll_testkit::peers::{PlimsollInPods, S3Program, S3Server, VeleroInPods};
use plimsoll_testkit::{Cluster, Pod, Shape, cache};
use serde_json::{Value, json};

struct Arguments {
    plimsoll: PathBuf,
    scale: u32,
    movers: bool,
    pods: bool,
}

fn arguments() -> Result<Arguments> {
    const USAGE: &str = "usage: bench-volumes PLIMSOLL [SCALE] [--movers-only] [--pods-only]";
    let (flags, plain): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let asked = |flag: &str| flags.iter().any(|given| given == flag);
    let scale = plain.get(1).map_or(Ok(1), |number| number.parse()).context(USAGE)?;
    let plimsoll = plain.first().context(USAGE)?.into();
    Ok(Arguments { plimsoll, scale: scale.max(1), movers: !asked("--pods-only"), pods: !asked("--movers-only") })
}

fn main() -> Result<()> {
    let arguments = arguments()?;
    if arguments.movers {
        movers(&arguments)?;
    }
    if arguments.pods {
        Cluster::preflight()?;
        VeleroInPods::preflight()?;
        let cluster = Cluster::start(Lifetime::Bound)?;
        tokio::runtime::Runtime::new()?.block_on(pods(&cluster, &arguments))?;
    }
    Ok(())
}

/// The standard data, or a part of it.
fn data(scale: u32) -> [Shape; 2] {
    if scale == 1 {
        Shape::standard()
    } else {
        [Shape::small_files(20_000 / scale), Shape::random((11 / scale).max(1), 160 << 20)]
    }
}

fn row(what: &str, mover: &str, time: Duration, best: Duration) {
    let (seconds, ratio) = (time.as_secs_f64(), time.as_secs_f64() / best.as_secs_f64().max(0.001));
    println!("{what:<24} {mover:<10} {seconds:>8.2} s  {ratio:>6.2} times the fastest");
}

/// Each mover takes its turn: first backup, unchanged second one, restore into an empty directory.
fn movers(arguments: &Arguments) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("source");
    for shape in data(arguments.scale) {
        shape.write_into(&source)?;
    }
    let mut kinds = vec![("builtIn", None)];
    for name in ["restic", "kopia"] {
        kinds.extend(cache::program(name).ok().map(|program| (name, Some(program))));
    }
    let mut times: Vec<(&str, [Duration; 3])> = Vec::new();
    for (kind, program) in &kinds {
        let bench = Bench { plimsoll: &arguments.plimsoll, kind, program: program.as_deref(), folder: folder.path() };
        bench.run(&json!("ensure"))?;
        let backup =
            json!({ "backup": { "directory": source, "source": "bench/pod/data", "tags": { "pvc-uid": "bench" } } });
        let (first, outcome) = bench.run(&backup)?;
        let (second, _) = bench.run(&backup)?;
        let target = folder.path().join(format!("target-{kind}"));
        std::fs::create_dir(&target)?;
        let snapshot = outcome.pointer("/backup/snapshot").context("a backup has a snapshot")?.clone();
        let (restore, _) = bench.run(&json!({ "restore": { "snapshot": snapshot, "directory": target } }))?;
        std::fs::remove_dir_all(&target)?;
        times.push((*kind, [first, second, restore]));
    }
    for (index, what) in ["first backup", "second, unchanged", "restore"].into_iter().enumerate() {
        let best = times.iter().map(|(_, times)| times[index]).min().unwrap_or_default();
        for (kind, times) in &times {
            row(what, kind, times[index], best);
        }
    }
    Ok(())
}

/// One mover with its repository.
struct Bench<'a> {
    plimsoll: &'a Path,
    kind: &'a str,
    program: Option<&'a Path>,
    folder: &'a Path,
}

impl Bench<'_> {
    /// A job as the agent gives it to a mover: over its standard input.
    fn run(&self, work: &Value) -> Result<(Duration, Value)> {
        let place = json!({ "provider": "directory", "bucket": self.folder.join(format!("repository-{}", self.kind)), "prefix": "r" });
        // "bench", in base64.
        let job = json!({ "name": "bench", "kind": self.kind, "program": self.program, "work": work,
            "repository": { "place": place, "password": "YmVuY2g=" }, "cache": self.folder.join(format!("cache-{}", self.kind)) });
        let started = Instant::now();
        let mut process = Command::new(self.plimsoll)
            .arg("mover")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut stdin = process.stdin.take().context("a mover has a standard input")?;
        writeln!(stdin, "{job}")?;
        let lines = BufReader::new(process.stdout.take().context("a mover has a standard output")?).lines();
        let mut verdict = Value::Null;
        for line in lines {
            let line: Value = serde_json::from_str(&line?)?;
            if let Some(failure) = line.get("failure") {
                bail!("{}: {failure}", self.kind);
            }
            if let Some(outcome) = line.get("verdict") {
                verdict = outcome.clone();
            }
        }
        drop(stdin);
        process.wait()?;
        Ok((started.elapsed(), verdict))
    }
}

/// The whole backup through pods: the big volume and a small one in one pod, then eight small ones, for the fixed cost of each.
async fn pods(cluster: &Cluster, arguments: &Arguments) -> Result<()> {
    let client = cluster.client().await?;
    let store = S3Server::start(S3Program::Versity, &cluster.machine()?.addresses().host())?;
    let namespace = cluster.namespace("bench").await?;
    let big = cluster.volume(namespace.name(), "big").await?;
    for shape in data(arguments.scale) {
        big.fill(&shape)?;
    }
    let small = cluster.volume(namespace.name(), "small").await?;
    small.fill(&Shape::random(1, 2 << 20))?;
    let pod = Pod::idle("db").mount("big", "/big").mount("small", "/small");
    pod.create(&client, namespace.name()).await?.ready().await?;

    store.create_bucket("velero")?;
    let velero = VeleroInPods::install(cluster, store.endpoint(), "velero").await?;
    let theirs = timed(|| velero.cli(backup_of(namespace.name(), "b")))?;
    samples(&client, velero.namespace(), "velero").await?;
    let theirs_again = timed(|| velero.cli(backup_of(namespace.name(), "again")))?;
    drop(velero);

    store.create_bucket("plimsoll")?;
    let kopia = ["--uploader-type", "kopia"];
    let ours = PlimsollInPods::install(cluster, &arguments.plimsoll, store.endpoint(), "plimsoll", &kopia).await?;
    let mine = timed(|| ours.cli(backup_of(namespace.name(), "b")))?;
    samples(&client, ours.namespace(), "plimsoll").await?;
    let mine_again = timed(|| ours.cli(backup_of(namespace.name(), "again")))?;
    for (what, theirs, mine) in [("whole backup", theirs, mine), ("second, unchanged", theirs_again, mine_again)] {
        row(what, "velero", theirs, theirs.min(mine));
        row(what, "plimsoll", mine, theirs.min(mine));
    }
    Ok(())
}

fn backup_of<'a>(namespace: &'a str, name: &'a str) -> [&'a str; 7] {
    ["backup", "create", name, "--include-namespaces", namespace, "--default-volumes-to-fs-backup", "--wait"]
}

fn timed(work: impl FnOnce() -> Result<String>) -> Result<Duration> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed())
}

/// When each volume's transfer began and ended: side by side, or one after the other.
async fn samples(client: &Client, namespace: &str, who: &str) -> Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v1", "PodVolumeBackup"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    for transfer in api.list(&ListParams::default()).await? {
        let text = |pointer: &str| transfer.data.pointer(pointer).and_then(Value::as_str).unwrap_or("?").to_owned();
        let bytes = transfer.data.pointer("/status/progress/totalBytes").and_then(Value::as_u64).unwrap_or(0);
        println!(
            "{who}: volume {} of {bytes} bytes from {} to {}",
            text("/spec/volume"),
            text("/status/startTimestamp"),
            text("/status/completionTimestamp")
        );
    }
    Ok(())
}
