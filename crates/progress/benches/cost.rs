//! What reporting costs: an add from two threads, and a snapshot of ten thousand tasks.
//!
//! Plain loops and a clock; `cargo bench -p plimsoll-progress` prints one line each, and fails if a target is missed.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use plimsoll_progress::{Clock, Encoder, Limits, Meter, Operation, Task, Total, Unit, truncate, view};

const ADDS: u32 = 20_000_000;
const TASKS: usize = 10_000;
const NANOSECONDS_PER_ADD: f64 = 20.0;
const MILLISECONDS_PER_SNAPSHOT: f64 = 5.0;

fn main() -> ExitCode {
    let add = nanoseconds_per_add(2);
    report("meter add, one thread", nanoseconds_per_add(1), "ns", None);
    let add_ok = report("meter add, two threads, one meter", add, "ns", Some(NANOSECONDS_PER_ADD));
    let (operation, tasks) = tree();
    let times = snapshot_times(&operation, &tasks);
    let snapshot_ok = report("snapshot of 10,000 tasks, best", times[0], "ms", Some(MILLISECONDS_PER_SNAPSHOT));
    report("snapshot of 10,000 tasks, median", times[times.len() / 2], "ms", None);
    report("snapshot of 10,000 tasks, slowest", times[times.len() - 1], "ms", None);
    projections(&operation, &tasks);
    if add_ok && snapshot_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::print_stdout, reason = "a benchmark prints")]
fn report(what: &str, value: f64, unit: &str, target: Option<f64>) -> bool {
    let ok = target.is_none_or(|target| value <= target);
    let verdict = target.map_or_else(String::new, |target| {
        format!("   target <= {target} {unit}: {}", if ok { "met" } else { "MISSED" })
    });
    println!("{what:<40} {value:>9.3} {unit}{verdict}");
    ok
}

/// The best of five rounds: what the code costs, not what the neighbours on the machine do.
fn nanoseconds_per_add(threads: usize) -> f64 {
    (0..5).map(|_| one_round(threads)).fold(f64::INFINITY, f64::min)
}

fn one_round(threads: usize) -> f64 {
    let operation = Operation::new("bench", Clock::system());
    let meter = operation.root().meter(Unit::Bytes);
    let barrier = Barrier::new(threads);
    let slowest = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| add_many(&meter, &barrier))).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).max()
    });
    slowest.unwrap_or(Duration::MAX).as_secs_f64() * 1e9 / f64::from(ADDS)
}

fn add_many(meter: &Meter, barrier: &Barrier) -> Duration {
    barrier.wait();
    let start = Instant::now();
    for n in 0..ADDS {
        meter.add(u64::from(black_box(n) & 1));
    }
    start.elapsed()
}

/// A backup with a hundred groups of a hundred volumes, all at work.
fn tree() -> (Operation, Vec<Task>) {
    let operation = Operation::new("backup-large", Clock::system());
    let mut tasks = Vec::with_capacity(TASKS);
    for group in 0..100 {
        let parent = operation.root().child(format!("namespace-{group}"));
        for volume in 1..100 {
            let task = parent.child(format!("volume-{volume}"));
            task.say("var/lib/data/some/file");
            task.meter(Unit::Bytes).set_total(Total::Final(1 << 30));
            let _files = task.meter(Unit::Files);
            tasks.push(task);
        }
        tasks.push(parent);
    }
    (operation, tasks)
}

fn snapshot_times(operation: &Operation, tasks: &[Task]) -> Vec<f64> {
    let mut times: Vec<f64> = (0..60)
        .map(|_| {
            for task in tasks {
                task.meter(Unit::Bytes).add(4096);
            }
            let start = Instant::now();
            let snapshot = operation.snapshot();
            let elapsed = start.elapsed();
            drop(black_box(snapshot));
            elapsed.as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times
}

fn projections(operation: &Operation, tasks: &[Task]) {
    let mut encoder = Encoder::new(1);
    let first = operation.snapshot();
    encoder.encode(&first);
    tasks.iter().step_by(100).for_each(|task| task.meter(Unit::Bytes).add(1 << 20));
    let snapshot = operation.snapshot();
    timed("frame of what changed in 10,000 tasks", || encoder.encode(&snapshot));
    timed("truncation of 10,000 tasks to 200", || truncate::truncate(&snapshot, Limits::STORED));
    timed("rows of 10,000 tasks", || view::rows(&snapshot));
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) {
    let start = Instant::now();
    black_box(work());
    report(what, start.elapsed().as_secs_f64() * 1e3, "ms", None);
}
