use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use plimsoll_api::velero::v1::PodVolumeBackup;
use plimsoll_progress::{Clock, Operation, Total, Unit};
use plimsoll_volumes::transfer::TransferRecord;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{ClusterTransfers, ProgressFloor, StatusWriter, StatusWriterSettings};

/// When each transfer was written.
type Written = Arc<Mutex<HashMap<String, Vec<Instant>>>>;

/// An API server that records what is written, and answers after a delay.
fn recording_client(written: &Written, takes: Duration) -> Client {
    let written = Arc::clone(written);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let written = Arc::clone(&written);
        async move {
            tokio::time::sleep(takes).await;
            let object =
                json!({ "apiVersion": "velero.io/v1", "kind": "PodVolumeBackup", "metadata": { "name": name } });
            written.lock().unwrap().entry(name).or_default().push(Instant::now());
            let body = kube::client::Body::from(object.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(http::Response::new(body))
        }
    });
    Client::new(service, "velero")
}

/// What came of it.
struct RunResult {
    /// When each transfer was written.
    written: HashMap<String, Vec<Instant>>,
    ended: Instant,
    /// How far the first one came.
    done: u64,
}

/// So many transfers move for a minute of virtual time.
async fn run(transfers: usize, takes: Duration) -> RunResult {
    run_for(600, transfers, takes).await
}

/// The same for so many tenths of a second.
async fn run_for(tenths: u32, transfers: usize, takes: Duration) -> RunResult {
    run_here(tenths, transfers, transfers, takes).await
}

/// The same, with more of them elsewhere.
async fn run_here(tenths: u32, transfers: usize, everywhere: usize, takes: Duration) -> RunResult {
    let (written, running) = (Written::default(), ClusterTransfers::start());
    let client = recording_client(&written, takes);
    running.set("PodVolumeBackup", everywhere);
    let begin = |number: usize| {
        let object: PodVolumeBackup =
            serde_json::from_value(json!({ "metadata": { "name": format!("t-{number}") }, "spec": {} })).unwrap();
        let tree = Operation::new("t", Clock::system());
        let mover = tree.root().child("built-in");
        let bytes = mover.meter(Unit::Bytes);
        bytes.set_total(Total::Final(1 << 40));
        let reporter = StatusWriter::start(StatusWriterSettings {
            record: TransferRecord::new(client.clone(), "velero", &object),
            tree: tree.observer(),
            floor: ProgressFloor::default(),
            expected: None,
            running: running.clone(),
            gone: CancellationToken::new(),
        });
        (tree, mover, bytes, reporter)
    };
    let mut all = Vec::new();
    for number in 0..transfers {
        all.push(begin(number));
        // The first ones request their permits while they are still few.
        tokio::task::yield_now().await;
    }
    for _ in 0..tenths {
        for (_, _, bytes, _) in &all {
            bytes.add(1 << 20);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let written = written.lock().unwrap().clone();
    RunResult { written, ended: Instant::now(), done: all[0].2.counts().done }
}

/// The most writes within any second.
fn most_in_a_second(written: &HashMap<String, Vec<Instant>>) -> usize {
    let mut all: Vec<Instant> = written.values().flatten().copied().collect();
    all.sort_unstable();
    let within = |from: usize| all[from..].iter().take_while(|at| **at - all[from] < Duration::from_secs(1)).count();
    (0..all.len()).map(within).max().unwrap_or(0)
}

impl RunResult {
    /// How old what stood in any of the resources became before it was written again, or until the end.
    fn oldest(&self) -> Duration {
        let until_next = |times: &Vec<Instant>| {
            let nexts = times.iter().skip(1).chain([&self.ended]);
            times.iter().zip(nexts).map(|(one, next)| *next - *one).max()
        };
        self.written.values().filter_map(until_next).max().unwrap_or(Duration::MAX)
    }

    fn write_budget(&self) -> usize {
        self.written.values().map(Vec::len).sum()
    }
}

/// Seconds of CPU that this process has used.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// Says whether a target was reached.
fn held(what: &str, measured: f64, target: f64) -> bool {
    let verdict = if measured <= target { "reached" } else { "MISSED" };
    println!("  {what}: {measured:.2}, target at most {target}: {verdict}");
    measured <= target
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a benchmark of half a minute each: hack/run-benches freshness"]
async fn freshness_and_cost() {
    const TENTHS: u32 = 300;
    let seconds = f64::from(TENTHS) / 10.0;
    let mut all_held = true;
    for (transfers, takes) in [(160, 20), (1000, 20), (160, 2000)] {
        let before = cpu();
        let ran = run_for(TENTHS, transfers, Duration::from_millis(takes)).await;
        let cores = (cpu() - before) / seconds;
        assert_eq!(ran.written.len(), transfers, "each of them is written");
        let (oldest, moved) = (ran.oldest().as_secs_f64(), u32::try_from(ran.done >> 20).unwrap());
        let a_second = f64::from(u32::try_from(ran.write_budget()).unwrap()) / seconds;
        let busiest = u32::try_from(most_in_a_second(&ran.written)).unwrap();
        println!(
            "{transfers} transfers, {takes} ms a write: at most {oldest:.2} s old, {a_second:.1} writes a second, \
             moved {moved} of {TENTHS} steps, {cores:.2} cores for the writers and the API that counts"
        );
        all_held &= held("writes in the busiest second", f64::from(busiest), 100.0);
        match (transfers, takes) {
            (160, 20) => all_held &= held("seconds between two writes of one, or the end", oldest, 2.0),
            (1000, _) => all_held &= held("cores", cores, 0.5),
            _ => all_held &= held("steps that a slow API server cost", f64::from(TENTHS) - f64::from(moved), 0.0),
        }
    }
    // A debug build is several times slower: its figures show that this works, and no more.
    assert!(all_held || cfg!(debug_assertions), "a target was missed");
}

#[tokio::test(start_paused = true)]
async fn of_160_transfers_none_is_shown_older_than_two_seconds() {
    let ran = run(160, Duration::from_millis(20)).await;
    assert_eq!(ran.written.len(), 160);
    assert!(ran.oldest() <= Duration::from_secs(2), "{:?}", ran.oldest());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_transfers_cost_at_most_a_hundred_writes_a_second_and_each_is_written() {
    let RunResult { written, .. } = run(1000, Duration::from_millis(20)).await;
    let most = most_in_a_second(&written);
    assert!(most <= 100, "{most} writes in one second");
    let fewest = written.values().map(Vec::len).min();
    assert!(written.len() == 1000 && fewest >= Some(4), "{} transfers, {fewest:?} writes", written.len());
}

#[tokio::test(start_paused = true)]
async fn an_agent_with_a_few_of_a_thousand_transfers_writes_no_more_than_its_share() {
    let write_budget = run_here(600, 4, 1000, Duration::from_millis(20)).await.write_budget();
    // Ninety a second for all of them, for a minute.
    assert!((16..=24).contains(&write_budget), "{write_budget} writes");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_takes_two_seconds_for_a_write_slows_no_transfer() {
    let ran = run(20, Duration::from_secs(2)).await;
    assert_eq!(ran.done, 600 << 20);
    assert!(ran.oldest() <= Duration::from_secs(4), "{:?}", ran.oldest());
}
