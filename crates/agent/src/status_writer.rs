//! Shows a transfer's progress in its custom resource: a task of its own, so that a slow API server costs freshness only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_mover::{TransferProgress as Shown, transfer_progress, transfer_progress_with_total};
use plimsoll_operations::{WriteBudget, projection, summary_patch};
use plimsoll_progress::{Counts, Observer, Percent, Snapshot, State};
use plimsoll_volumes::transfer::{Transfer, TransferRecord, progress};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// A reader should never see anything older than two seconds; the write itself takes its time too.
const WRITE_INTERVAL: Duration = Duration::from_millis(1500);
/// How often the tree of a transfer is read: a new stall is written at once.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// An API server that is slower than the interval is not asked again at once.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// So many writes a second, all nodes together. With 160 transfers nothing is older than two seconds, with 1,000 the API
/// server still gets fewer than a hundred writes a second in all: the rest is for the operations above them.
const MAX_WRITES_PER_SECOND: u32 = 90;

/// How many transfers of each kind run in the cluster, as far as this agent has seen, and this agent's share of their writes.
#[derive(Clone, Debug)]
pub(crate) struct ClusterTransfers {
    everywhere: RunningByKind,
    /// A clone for each transfer that this agent reports on, and one of its own.
    here: Arc<()>,
    write_budget: WriteBudget,
}

/// How many transfers of each kind run on all nodes.
type RunningByKind = Arc<Mutex<HashMap<String, usize>>>;

impl ClusterTransfers {
    /// Nothing yet. Needs a Tokio runtime.
    pub fn start() -> Self {
        let (everywhere, here) = (RunningByKind::default(), Arc::new(()));
        // Its share is that of its transfers.
        let share = {
            let (everywhere, here) = (Arc::clone(&everywhere), Arc::downgrade(&here));
            move || {
                let here = number(here.strong_count().saturating_sub(1).max(1));
                write_duration(count(&everywhere).max(here)) / here
            }
        };
        Self { everywhere, here, write_budget: WriteBudget::start(share) }
    }

    /// So many of this kind.
    pub fn set(&self, kind: &str, count: usize) {
        self.everywhere.lock().unwrap_or_else(PoisonError::into_inner).insert(kind.to_owned(), count);
    }

    /// How often each of them may be written.
    fn interval(&self) -> Duration {
        let here = number(Arc::strong_count(&self.here).saturating_sub(1));
        WRITE_INTERVAL.max(write_duration(count(&self.everywhere).max(here)))
    }
}

fn count(everywhere: &RunningByKind) -> u32 {
    number(everywhere.lock().unwrap_or_else(PoisonError::into_inner).values().sum())
}

/// How long it takes to write so many transfers once.
fn write_duration(transfers: u32) -> Duration {
    Duration::from_secs(1).saturating_mul(transfers) / MAX_WRITES_PER_SECOND
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// WriteBudget until it is stopped.
pub(crate) struct StatusWriter {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<ProgressFloor>,
}

impl Drop for StatusWriter {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What to show.
pub(crate) struct StatusWriterSettings<T> {
    pub record: TransferRecord<T>,
    pub tree: Observer,
    pub floor: ProgressFloor,
    /// All bytes, where that is known before the mover has started.
    pub expected: Option<u64>,
    pub running: ClusterTransfers,
    /// Told when the custom resource is deleted.
    pub gone: CancellationToken,
}

impl StatusWriter {
    /// Starts writing.
    pub fn start<T: Transfer>(settings: StatusWriterSettings<T>) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(write_until_stopped(settings, stop.clone()));
        Self { stop, task }
    }

    /// Stops, after a write that is under way: nothing older can follow the last one. What was shown.
    pub async fn stop(mut self) -> ProgressFloor {
        self.stop.cancel();
        (&mut self.task).await.unwrap_or_default()
    }
}

async fn write_until_stopped<T: Transfer>(
    mut settings: StatusWriterSettings<T>,
    stop: CancellationToken,
) -> ProgressFloor {
    let mut last = Value::Null;
    // The time a write takes is no part of the interval, as long as it is shorter.
    let mut due = Instant::now();
    loop {
        let mut look = || status(&settings.tree.snapshot(), &mut settings.floor, settings.expected);
        let seen = look();
        let urgent = stalled(&seen) != stalled(&last);
        if (Instant::now() >= due && !same(&seen, &last)) || urgent {
            tokio::select! {
                () = settings.running.write_budget.acquire(urgent) => {}
                () = stop.cancelled() => return settings.floor,
            }
            // As it is now: others may have been before it.
            let status = look();
            due = Instant::now() + settings.running.interval();
            match settings.record.show(&status).await {
                Ok(()) => last = status,
                Err(error) if error.code() == Some(404) => {
                    settings.gone.cancel();
                    return settings.floor;
                }
                Err(error) => debug!("{error}"),
            }
        }
        let now = Instant::now();
        let next = due.clamp(now + MIN_INTERVAL, now + POLL_INTERVAL);
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = stop.cancelled() => return settings.floor,
        }
    }
}

/// The stalled task, if there is one.
fn stalled(status: &Value) -> Option<&Value> {
    status.pointer("/plimsoll/stalled/task")
}

/// What was shown before. A mover that is started again counts from the beginning: what is shown waits until it has caught up,
/// unless there is less to do by now than was done then.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgressFloor {
    bytes: Option<Shown>,
    /// The greatest share of the bytes: where a total grows, it waits too.
    percent: Option<Percent>,
    files: (Option<i64>, Option<i64>),
}

impl ProgressFloor {
    /// What the custom resource shows.
    pub fn of<T: Transfer>(object: &T) -> Self {
        let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        let (shown, summary) = (object.shown().unwrap_or_default(), object.summary().unwrap_or_default());
        let both = number(shown.total_bytes).zip(number(shown.bytes_done));
        let bytes = both.map(|(total_bytes, bytes_done)| Shown { total_bytes, bytes_done });
        let percent = bytes.map(|shown| Percent::of(shown.bytes_done, shown.total_bytes));
        Self { bytes, percent, files: (summary.files_done, summary.total_files) }
    }

    /// Bytes as they may be shown, which from now on is the least that is.
    fn raise(&mut self, counted: Shown) -> Shown {
        let before = self.bytes.filter(|before| before.bytes_done < counted.total_bytes);
        let least = before.map_or(0, |before| before.bytes_done);
        let below = counted.total_bytes.saturating_sub(1);
        let shown = Shown { bytes_done: counted.bytes_done.max(least).min(below), ..counted };
        let percent = Percent::of(shown.bytes_done, shown.total_bytes);
        let held = self.percent.filter(|held| before.is_some() && held.hundredths() > percent.hundredths());
        (self.bytes, self.percent) = (Some(shown), Some(held.unwrap_or(percent)));
        shown
    }

    /// The same for files. One that knows nothing yet leaves what was known.
    fn raise_file_counts(&mut self, (done, total): (Option<i64>, Option<i64>)) -> (Option<i64>, Option<i64>) {
        let fits = |least: &i64| total.is_none_or(|total| *least <= total);
        let raised = done.max(self.files.0.filter(fits));
        self.files = (raised, total.or(self.files.1.filter(|total| Some(*total) >= raised)));
        self.files
    }
}

/// What the custom resource shows of a tree.
pub(crate) fn status(snapshot: &Snapshot, floor: &mut ProgressFloor, expected: Option<u64>) -> Value {
    // The mover's own tree hangs below the root.
    let movers = || snapshot.nodes.iter().skip(1);
    let towards = |total| movers().find_map(|node| transfer_progress_with_total(node, total));
    let counted = movers().find_map(transfer_progress).or_else(|| expected.and_then(towards));
    // Nothing of nothing is the end, and that is not told here.
    let shown = counted.filter(|counted| counted.total_bytes > 0).map(|counted| floor.raise(counted));
    let mut summary = projection::summary(snapshot, Timestamp::now());
    if snapshot.state() != State::Done {
        // Of the bytes that are shown. A mover that still looks through its volume has done about all that it has found.
        let grows = snapshot.percent().is_none_or(Percent::is_approximate);
        summary.percent = floor.percent.map(|percent| percent.approximately(grows).to_string());
    }
    summary.doing = progress::doing(snapshot).map(str::to_owned);
    (summary.files_done, summary.total_files) = floor.raise_file_counts(progress::files(snapshot));
    let mut status = json!({ "plimsoll": summary_patch(&summary) });
    if summary.doing.is_none() {
        status["plimsoll"]["doing"] = Value::Null;
    }
    if let Some(shown) = shown {
        status["progress"] = json!({ "totalBytes": shown.total_bytes, "bytesDone": shown.bytes_done });
    }
    status
}

/// Whether the mover that runs now counts something: none does before it is past the locks of its repository.
pub(crate) fn mover_has_started(snapshot: &Snapshot) -> bool {
    let counts = |counts: &Counts| counts.settled() > 0 || counts.total.value().is_some_and(|total| total > 0);
    snapshot.nodes.iter().skip(1).any(|node| node.meters.iter().any(counts))
}

fn same(a: &Value, b: &Value) -> bool {
    let strip = |value: &Value| {
        let mut value = value.clone();
        if let Some(summary) = value.get_mut("plimsoll").and_then(Value::as_object_mut) {
            summary.remove("lastAdvance");
        }
        value
    };
    strip(a) == strip(b)
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use plimsoll_api::velero::v1::PodVolumeBackup;
    use plimsoll_progress::{Clock, Frame, Operation, Total, Unit, VirtualClock};

    use super::*;

    /// When each transfer was written.
    type Written = Arc<Mutex<HashMap<String, Vec<Instant>>>>;

    /// An API that notes what is written, and takes its time.
    fn noting(written: &Written, takes: Duration) -> Client {
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
    struct Ran {
        /// When each transfer was written.
        written: HashMap<String, Vec<Instant>>,
        ended: Instant,
        /// How far the first one came.
        done: u64,
    }

    /// So many transfers move for a minute of virtual time.
    async fn run(transfers: usize, takes: Duration) -> Ran {
        run_for(600, transfers, takes).await
    }

    /// The same for so many tenths of a second.
    async fn run_for(tenths: u32, transfers: usize, takes: Duration) -> Ran {
        run_here(tenths, transfers, transfers, takes).await
    }

    /// The same, with more of them elsewhere.
    async fn run_here(tenths: u32, transfers: usize, everywhere: usize, takes: Duration) -> Ran {
        let (written, running) = (Written::default(), ClusterTransfers::start());
        let client = noting(&written, takes);
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
            // The first ones ask for their turns while they are still few.
            tokio::task::yield_now().await;
        }
        for _ in 0..tenths {
            for (_, _, bytes, _) in &all {
                bytes.add(1 << 20);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let written = written.lock().unwrap().clone();
        Ran { written, ended: Instant::now(), done: all[0].2.counts().done }
    }

    /// The most writes within any second.
    fn most_in_a_second(written: &HashMap<String, Vec<Instant>>) -> usize {
        let mut all: Vec<Instant> = written.values().flatten().copied().collect();
        all.sort_unstable();
        let within =
            |from: usize| all[from..].iter().take_while(|at| **at - all[from] < Duration::from_secs(1)).count();
        (0..all.len()).map(within).max().unwrap_or(0)
    }

    impl Ran {
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
        let Ran { written, .. } = run(1000, Duration::from_millis(20)).await;
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

    #[test]
    fn a_transfer_says_what_it_does_and_what_it_waits_for_and_counts_files_that_are_known() {
        let tree = Operation::new("t", Clock::system());
        let mover = tree.root().child("built-in");
        let files = mover.meter(Unit::Files);
        let shown = || status(&tree.snapshot(), &mut ProgressFloor::default(), None)["plimsoll"].clone();
        assert_eq!((&shown()["doing"], &shown()["filesDone"]), (&Value::Null, &Value::Null));
        mover.say("scanning");
        assert_eq!(shown()["doing"], "scanning");
        files.set_total(Total::Growing(7));
        files.set_done(2);
        mover.say("deep/noise");
        assert_eq!((&shown()["filesDone"], &shown()["totalFiles"]), (&json!(2), &Value::Null), "it may still grow");
        files.set_total(Total::Final(9));
        let now = shown();
        assert_eq!(
            (&now["doing"], &now["filesDone"], &now["totalFiles"]),
            (&json!("deep/noise"), &json!(2), &json!(9))
        );
        let waiting = tree.root().wait("trying again: RepositoryLocked: by another process");
        assert_eq!(shown()["doing"], "trying again: RepositoryLocked: by another process");
        drop(waiting);
        assert_eq!(shown()["doing"], "deep/noise");
        tree.end(plimsoll_progress::Ending::Succeeded);
        assert_eq!(shown()["doing"], Value::Null);
    }

    #[test]
    fn a_mover_has_begun_once_it_knows_what_there_is_to_do_and_the_next_one_begins_for_itself() {
        let tree = Operation::new("t", Clock::system());
        let mover = tree.root().graft("built-in");
        let mover_has_started = || mover_has_started(&tree.snapshot());
        let tell = |attempt, sequence, total| {
            let told = Operation::new("m", Clock::system());
            told.root().meter(Unit::Bytes).set_total(total);
            mover.apply(&Frame::full(&told.snapshot(), attempt, sequence)).unwrap();
        };
        assert!(!mover_has_started(), "there is none");
        tell(1, 1, Total::Unknown);
        assert!(!mover_has_started(), "it may wait for anything");
        tell(1, 2, Total::Growing(7));
        assert!(mover_has_started(), "it has looked into the volume");
        mover.interrupt("mover process ended");
        mover.restart();
        assert!(!mover_has_started(), "this is another one");
        tell(2, 1, Total::Unknown);
        assert!(!mover_has_started(), "which may wait for anything, too");
    }

    /// The floor that a resource is which shows this.
    fn floor(bytes_done: u64, total_bytes: u64) -> ProgressFloor {
        let percent = Some(Percent::of(bytes_done, total_bytes));
        ProgressFloor { bytes: Some(Shown { total_bytes, bytes_done }), percent, ..ProgressFloor::default() }
    }

    fn progress(tree: &Operation, floor: &mut ProgressFloor) -> (Value, Value) {
        let shown = status(&tree.snapshot(), floor, None);
        (shown["progress"]["bytesDone"].clone(), shown["progress"]["totalBytes"].clone())
    }

    #[test]
    fn nothing_shown_goes_back_when_a_transfer_is_taken_up_again_and_nothing_reads_a_hundred_percent() {
        let tree = Operation::new("t", Clock::system());
        let mover = tree.root().child("built-in");
        let bytes = mover.meter(Unit::Bytes);
        assert_eq!(status(&tree.snapshot(), &mut ProgressFloor::default(), None).get("progress"), None);
        bytes.set_total(Total::Final(100));
        bytes.set_done(10);
        assert_eq!(progress(&tree, &mut ProgressFloor::default()), (json!(10), json!(100)));
        let mut before = floor(60, 100);
        let shown = status(&tree.snapshot(), &mut before, None);
        assert_eq!(shown["progress"]["bytesDone"], 60);
        assert_eq!(shown["plimsoll"]["percent"], "60.00", "both tell the same");
        bytes.set_done(100);
        assert_eq!(progress(&tree, &mut before), (json!(99), json!(100)));
    }

    #[test]
    fn a_volume_that_shrank_between_two_attempts_shows_what_the_second_one_has_done() {
        let tree = Operation::new("t", Clock::system());
        let bytes = tree.root().child("built-in").meter(Unit::Bytes);
        bytes.set_total(Total::Final(50));
        let mut before = floor(80, 100);
        for done in [0, 5, 49] {
            bytes.set_done(done);
            assert_eq!(progress(&tree, &mut before), (json!(done), json!(50)));
            let percent = status(&tree.snapshot(), &mut before, None)["plimsoll"]["percent"].clone();
            assert_eq!(percent, Percent::of(done, 50).to_string());
        }
    }

    #[test]
    fn a_volume_that_is_still_looked_through_has_no_percentage_that_would_have_to_wait_for_the_truth() {
        let tree = Operation::new("t", Clock::system());
        let bytes = tree.root().child("built-in").meter(Unit::Bytes);
        let percent = || status(&tree.snapshot(), &mut ProgressFloor::default(), None)["plimsoll"]["percent"].clone();
        bytes.set_total(Total::Growing(100));
        bytes.skip(99);
        assert_eq!(percent(), Value::Null, "99 % of what it has found so far");
        bytes.set_total(Total::Final(1000));
        assert_eq!(percent(), "9.90");
    }

    #[test]
    fn a_percentage_of_an_estimate_that_grows_waits_until_the_work_has_caught_up() {
        let tree = Operation::new("t", Clock::system());
        let bytes = tree.root().child("kopia").meter(Unit::Bytes);
        let mut floor = ProgressFloor::default();
        let mut percent = |done, total| {
            bytes.set_total(Total::Growing(total));
            bytes.set_done(done);
            status(&tree.snapshot(), &mut floor, None)["plimsoll"]["percent"].clone()
        };
        assert_eq!(percent(50, 100), "~50.00");
        assert_eq!(percent(60, 200), "~50.00");
        assert_eq!(percent(120, 200), "~60.00");
    }

    #[test]
    fn files_that_are_empty_show_no_bytes_before_the_transfer_has_ended() {
        let tree = Operation::new("t", Clock::system());
        let mover = tree.root().child("built-in");
        mover.meter(Unit::Bytes).set_total(Total::Final(0));
        assert_eq!(status(&tree.snapshot(), &mut ProgressFloor::default(), None).get("progress"), None);
        // The mover has ended, and the pod has not yet seen its data.
        mover.finish();
        assert_eq!(status(&tree.snapshot(), &mut ProgressFloor::default(), None).get("progress"), None);
    }

    /// A frame of a mover that has done so much of a hundred bytes and ten files.
    fn frame(attempt: u64, sequence: u64, done: u64, total: Total) -> Frame {
        let mover = Operation::new("m", Clock::system());
        let (bytes, files) = (mover.root().meter(Unit::Bytes), mover.root().meter(Unit::Files));
        bytes.set_total(total);
        bytes.set_done(done);
        files.set_total(Total::Final(10));
        files.set_done(done / 10);
        Frame::full(&mover.snapshot(), attempt, sequence)
    }

    #[test]
    fn after_a_killed_mover_the_bytes_of_the_next_one_are_shown_and_nothing_goes_back_or_looks_stalled() {
        let clock = VirtualClock::new();
        let tree = Operation::new("t", clock.clock());
        let (mover, mut floor) = (tree.root().graft("built-in"), ProgressFloor::default());
        let mut shown = || {
            let all = status(&tree.snapshot(), &mut floor, None);
            let (progress, summary) = (&all["progress"], &all["plimsoll"]);
            assert_eq!(summary["stalled"], Value::Null);
            (progress["bytesDone"].as_u64(), summary["percent"].clone(), summary["filesDone"].clone())
        };
        mover.apply(&frame(1, 1, 60, Total::Final(100))).unwrap();
        assert_eq!(shown(), (Some(60), json!("60.00"), json!(6)));

        mover.interrupt("mover process ended");
        for _ in 0..20 {
            // One lock after the other: what waits has a word for it, and what is gone has none.
            let _waiting = tree.root().wait("trying again: RepositoryLocked");
            clock.advance(Duration::from_secs(15));
            assert_eq!(shown(), (Some(60), json!("60.00"), json!(6)));
        }
        mover.restart();
        assert_eq!(shown(), (None, json!("60.00"), json!(6)), "what the resource shows stays");
        mover.apply(&frame(2, 1, 5, Total::Growing(7))).unwrap();
        assert_eq!(shown(), (None, json!("~60.00"), json!(6)), "it looks through the volume again");
        mover.apply(&frame(2, 2, 30, Total::Final(100))).unwrap();
        assert_eq!(shown(), (Some(60), json!("60.00"), json!(6)));
        mover.apply(&frame(2, 3, 75, Total::Final(100))).unwrap();
        assert_eq!(shown(), (Some(75), json!("75.00"), json!(7)));
        let movers: Vec<_> = tree.snapshot().nodes.iter().skip(1).map(|node| node.name.to_string()).collect();
        assert_eq!(movers, ["built-in"]);
    }
}
