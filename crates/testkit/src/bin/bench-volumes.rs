//! Volume data: every mover on the standard data, and the whole backup of it through pods beside the real Velero with its node
//! agent, in the same run.
//!
//!     bench-volumes PLIMSOLL [SCALE] [--movers-only] [--pods-only] [--extremes]
//!
//! `PLIMSOLL` is the program to measure; `SCALE` divides the data. Only the ratios are meaningful on another machine. `--extremes`
//! instead runs every mover on one directory with a million entries and on one file of 10 GiB: 35 GB of disk.

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
use plimsoll_testkit::measure::{Arguments, peak_memory};
use plimsoll_testkit::peers::{PlimsollInPods, S3Server, VeleroInPods};
use plimsoll_testkit::process::Process;
use plimsoll_testkit::{Cluster, Namespace, Pod, Shape, Volume, cache, memory};
use rand::rngs::StdRng;
use rand::{RngCore as _, SeedableRng as _};
use serde_json::{Value, json};

fn main() -> Result<()> {
    let usage = "usage: bench-volumes PLIMSOLL [SCALE] [--movers-only] [--pods-only] [--extremes]";
    let arguments = Arguments::parse(usage, 1)?;
    let extremes = arguments.has("--extremes");
    let scale = arguments.size.max(1);
    if extremes {
        println!("one directory with many entries");
        movers(&arguments, |source| many_entries(source, scale))?;
        println!("one large file");
        movers(&arguments, |source| large_file(source, scale))?;
    }
    if !extremes && !arguments.has("--pods-only") {
        movers(&arguments, |source| standard(source, scale))?;
    }
    if !extremes && !arguments.has("--movers-only") {
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

fn standard(source: &Path, scale: u32) -> Result<()> {
    for shape in data(scale) {
        shape.write_into(source)?;
    }
    Ok(())
}

fn large_file(source: &Path, scale: u32) -> Result<()> {
    let (mut random, mut block) = (StdRng::seed_from_u64(3), vec![0; 16 << 20]);
    let mut file = std::fs::File::create(source.join("large"))?;
    for _ in 0..640 / scale.min(640) {
        random.fill_bytes(&mut block);
        file.write_all(&block)?;
    }
    Ok(())
}

/// A million of them, small.
fn many_entries(source: &Path, scale: u32) -> Result<()> {
    let folder = source.join("many");
    std::fs::create_dir_all(&folder)?;
    for number in 0..1_000_000 / scale {
        std::fs::write(folder.join(format!("entry-{number:07}")), number.to_string())?;
    }
    Ok(())
}

fn row(what: &str, mover: &str, time: Duration, best: Duration) {
    let (seconds, ratio) = (time.as_secs_f64(), time.as_secs_f64() / best.as_secs_f64().max(0.001));
    println!("{what:<24} {mover:<10} {seconds:>8.2} s  {ratio:>6.2} times the fastest");
}

/// What one run of a mover took: its time, and the most memory that it and its program had, in kilobytes.
#[derive(Clone, Copy, Default)]
struct Cost {
    time: Duration,
    memory: u64,
}

/// Runs each mover: first backup, unchanged second one, restore into an empty directory. Every figure is printed
/// immediately, because the whole may take most of an hour, and again in a comparison at the end.
fn movers(arguments: &Arguments<u32>, fill: impl Fn(&Path) -> Result<()>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("source");
    std::fs::create_dir(&source)?;
    fill(&source)?;
    let mut kinds = vec![("builtIn", None)];
    for name in ["restic", "kopia"] {
        kinds.extend(cache::program(name).ok().map(|program| (name, Some(program))));
    }
    let mut costs: Vec<(&str, [Cost; 3])> = Vec::new();
    for (kind, program) in &kinds {
        let bench = Bench { plimsoll: &arguments.plimsoll, kind, program: program.as_deref(), folder: folder.path() };
        std::fs::create_dir(bench.bucket())?;
        bench.run(&json!("ensure"))?;
        let backup =
            json!({ "backup": { "directory": source, "source": "bench/pod/data", "tags": { "pvc-uid": "bench" } } });
        memory::fill_page_cache(folder.path(), std::slice::from_ref(&source))?;
        let (first, outcome) = bench.step(STEPS[0], &backup)?;
        let (second, _) = bench.step(STEPS[1], &backup)?;
        let target = folder.path().join(format!("target-{kind}"));
        std::fs::create_dir(&target)?;
        let snapshot = outcome.pointer("/backup/snapshot").context("a backup has a snapshot")?.clone();
        memory::fill_page_cache(folder.path(), &[bench.bucket()])?;
        let (restore, _) =
            bench.step(STEPS[2], &json!({ "restore": { "snapshot": snapshot, "directory": target } }))?;
        std::fs::remove_dir_all(&target)?;
        std::fs::remove_dir_all(bench.bucket())?;
        costs.push((*kind, [first, second, restore]));
    }
    for (index, what) in STEPS.into_iter().enumerate() {
        let best = costs.iter().map(|(_, costs)| costs[index].time).min().unwrap_or_default();
        for (kind, costs) in &costs {
            row(what, kind, costs[index].time, best);
        }
    }
    Ok(())
}

const STEPS: [&str; 3] = ["first backup", "second, unchanged", "restore"];

/// One mover with its repository.
struct Bench<'a> {
    plimsoll: &'a Path,
    kind: &'a str,
    program: Option<&'a Path>,
    folder: &'a Path,
}

impl Bench<'_> {
    fn bucket(&self) -> PathBuf {
        self.folder.join(format!("repository-{}", self.kind))
    }

    /// One of the steps that are measured.
    fn step(&self, what: &str, work: &Value) -> Result<(Cost, Value)> {
        let (cost, verdict) = self.run(work)?;
        println!("  {what}, {}: {:.2} s, {} MB at most", self.kind, cost.time.as_secs_f64(), cost.memory / 1024);
        Ok((cost, verdict))
    }

    /// A job as the agent gives it to a mover: over its standard input.
    fn run(&self, work: &Value) -> Result<(Cost, Value)> {
        let place = json!({ "provider": "directory", "bucket": self.bucket(), "prefix": "r" });
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
        let (mut verdict, mut memory) = (Value::Null, 0);
        for line in lines {
            let line: Value = serde_json::from_str(&line?)?;
            // There is a line every second.
            memory = memory.max(peak_of(process.id()));
            if let Some(failure) = line.get("error") {
                bail!("{}: {failure}", self.kind);
            }
            if let Some(outcome) = line.get("outcome") {
                verdict = outcome.clone();
            }
        }
        drop(stdin);
        process.wait()?;
        Ok((Cost { time: started.elapsed(), memory }, verdict))
    }
}

/// A mover and the program that it runs.
fn peak_of(mover: u32) -> u64 {
    let programs = Process::find(mover).map(Process::children).unwrap_or_default();
    peak_memory(mover) + programs.iter().map(|program| peak_memory(program.id().unsigned_abs())).sum::<u64>()
}

/// The whole backup through pods: the big volume and a small one in one pod; an unchanged second backup; and a pod with eight
/// small volumes, for the fixed cost of each.
async fn pods(cluster: &Cluster, arguments: &Arguments<u32>) -> Result<()> {
    let client = cluster.client().await?;
    let store = S3Server::start(&cluster.machine()?.addresses().host())?;
    let load = Box::pin(Load::start(cluster, &client, arguments.size.max(1))).await?;

    store.create_bucket("velero")?;
    let velero = VeleroInPods::install(cluster, store.endpoint(), "velero").await?;
    let theirs = load.measure(&client, velero.namespace(), "velero", |words| velero.cli(words)).await?;
    drop(velero);

    let mut rows = vec![("velero", theirs)];
    for who in ["kopia", "built-in"] {
        store.create_bucket(who)?;
        let wanted = format!("--server-argument=--uploader-type={who}");
        let ours =
            PlimsollInPods::install(cluster, &arguments.plimsoll, store.endpoint(), who, &[wanted.as_str()]).await?;
        rows.push((who, load.measure(&client, ours.namespace(), who, |words| ours.cli(words)).await?));
    }
    let figures: [(&str, Figure); 3] = [
        ("whole backup", |times| times.whole),
        ("second, unchanged", |times| times.again),
        ("each of 8 small volumes", |times| times.each),
    ];
    for (what, time) in figures {
        let best = rows.iter().map(|(_, times)| time(times)).min().unwrap_or_default();
        for (who, times) in &rows {
            row(what, who, time(times), best);
        }
    }
    Ok(())
}

/// Pods with volumes to back up. The volumes go with it.
struct Load {
    big: Namespace,
    small: Namespace,
    volumes: Vec<Volume>,
    scratch: tempfile::TempDir,
}

/// One of the times.
type Figure = fn(&Times) -> Duration;

/// How long it took.
struct Times {
    whole: Duration,
    again: Duration,
    /// A small volume more.
    each: Duration,
}

/// So many small volumes.
const SMALL: u32 = 8;

impl Load {
    async fn start(cluster: &Cluster, client: &Client, scale: u32) -> Result<Self> {
        let (big, small) = (cluster.namespace("big").await?, cluster.namespace("small").await?);
        let mut volumes = vec![cluster.volume(big.name(), "big").await?];
        for shape in data(scale) {
            volumes[0].fill(&shape)?;
        }
        let extra = cluster.volume(big.name(), "small").await?;
        extra.fill(&Shape::random(1, 2 << 20))?;
        volumes.push(extra);
        let pod = Pod::idle("db").mount("big", "/big").mount("small", "/small");
        pod.create(client, big.name()).await?.ready().await?;
        let mut pod = Pod::idle("db");
        for number in 0..SMALL {
            let name = format!("small-{number}");
            let volume = cluster.volume(small.name(), &name).await?;
            volume.fill(&Shape::random(1, 2 << 20).seeded(number.into()))?;
            volumes.push(volume);
            pod = pod.mount(&name, format!("/{name}"));
        }
        pod.create(client, small.name()).await?.ready().await?;
        Ok(Self { big, small, volumes, scratch: tempfile::tempdir()? })
    }

    async fn measure(
        &self,
        client: &Client,
        namespace: &str,
        who: &str,
        run: impl Fn(Vec<&str>) -> Result<String>,
    ) -> Result<Times> {
        let timed = |words: Vec<&str>| {
            let started = Instant::now();
            run(words).map(|_| started.elapsed())
        };
        // The same page cache for the first and the last run.
        let sources: Vec<PathBuf> = self.volumes.iter().map(|volume| volume.directory().to_owned()).collect();
        memory::fill_page_cache(self.scratch.path(), &sources)?;
        let watching = tokio::spawn(watch(client.clone(), namespace.to_owned()));
        let whole = timed(backup_of(self.big.name(), "b", true))?;
        watching.abort();
        transfers(client, namespace, who).await?;
        let again = timed(backup_of(self.big.name(), "again", true))?;
        // The repository is made and the keys are read before the clock runs.
        timed(backup_of(self.small.name(), "warm", true))?;
        let without = timed(backup_of(self.small.name(), "without", false))?;
        let with = timed(backup_of(self.small.name(), "with", true))?;
        Ok(Times { whole, again, each: with.saturating_sub(without) / SMALL })
    }
}

fn backup_of<'a>(namespace: &'a str, name: &'a str, volumes: bool) -> Vec<&'a str> {
    let mut words = vec!["backup", "create", name, "--include-namespaces", namespace, "--wait"];
    words.extend(volumes.then_some("--default-volumes-to-fs-backup"));
    words
}

fn transfers_of(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v1", "PodVolumeBackup"));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Reports, while a backup runs, the longest time between two progress updates of its largest volume.
async fn watch(client: Client, namespace: String) {
    let api = transfers_of(&client, &namespace);
    let (mut shown, mut since, mut longest, mut seen) = (0, Instant::now(), Duration::ZERO, 0_u32);
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let Ok(found) = api.list(&ListParams::default()).await else { continue };
        let bytes = |one: &DynamicObject| one.data.pointer("/status/progress/bytesDone").and_then(Value::as_u64);
        let now = found.items.iter().filter_map(bytes).max().unwrap_or(0);
        if now > shown {
            if seen > 0 {
                longest = longest.max(since.elapsed());
            }
            (shown, since, seen) = (now, Instant::now(), seen + 1);
            println!("  sample {seen}: {now} bytes; longest time between two so far {:.1} s", longest.as_secs_f64());
        }
    }
}

/// When each volume's transfer began and ended: side by side, or one after the other.
async fn transfers(client: &Client, namespace: &str, who: &str) -> Result<()> {
    for transfer in transfers_of(client, namespace).list(&ListParams::default()).await? {
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
