//! Planned work: weights, queues, and the time left of the whole.

use std::time::Duration;

use plimsoll_progress::{Basis, Earlier, Meter, Operation, Snapshot, Source, Task, Total, Unit, VirtualClock, Work};

const GIB: u64 = 1 << 30;
const MIB: f64 = 1_048_576.0;

struct Backup {
    clock: VirtualClock,
    operation: Operation,
    reading: Task,
    volumes: Task,
    _saving: Task,
}

impl Backup {
    /// A backup whose volumes go one at a time on each node.
    fn new() -> Self {
        let clock = VirtualClock::new();
        let operation = Operation::new("backup-x", clock.clock());
        let root = operation.root();
        let (reading, volumes, saving) = (root.planned("reading"), root.planned("volumes"), root.planned("saving"));
        reading.plan(Work::assumed(Duration::from_secs(10)));
        saving.expect_duration(Duration::from_secs(1));
        volumes.queue(1);
        Self { clock, operation, reading, volumes, _saving: saving }
    }

    fn volume(&self, name: &str, node: &str, bytes: u64, basis: Basis) -> Task {
        let volume = self.volumes.planned(name);
        volume.plan(Work::amount(bytes, 50.0 * MIB, basis));
        volume.runs_on(node);
        volume
    }

    fn read(&self) {
        self.reading.start();
        self.clock.advance(Duration::from_secs(10));
        self.reading.finish();
        self.volumes.start();
    }

    /// Moves so many bytes in each of some seconds.
    fn transfer(&self, meter: &Meter, bytes: u64, seconds: u64) -> Snapshot {
        for _ in 0..seconds {
            self.operation.snapshot();
            meter.add(bytes);
            self.clock.advance(Duration::from_secs(1));
        }
        self.operation.snapshot()
    }
}

fn percent(snapshot: &Snapshot) -> f64 {
    snapshot.percent().expect("known").fraction() * 100.0
}

fn begin(volume: &Task, total: u64) -> Meter {
    volume.start();
    let meter = volume.meter(Unit::Bytes);
    meter.set_total(Total::Final(total));
    meter
}

#[test]
fn a_backup_stands_near_nothing_until_its_planned_volumes_move() {
    let it = Backup::new();
    let volumes = ["a", "b"].map(|name| it.volume(name, "node-a", 50 * GIB, Basis::Exact));
    it.read();
    let snapshot = it.operation.snapshot();
    assert!(percent(&snapshot) < 1.0, "10 s of about 35 min: {:?}", snapshot.percent());
    drop(volumes);
}

#[test]
fn volumes_weigh_what_they_hold_and_a_failed_one_leaves_nothing_to_do() {
    let it = Backup::new();
    let (small, large) = (it.volume("a", "node-a", GIB, Basis::Exact), it.volume("b", "node-b", 9 * GIB, Basis::Exact));
    it.read();
    let meter = begin(&small, GIB);
    let _meter = begin(&large, 9 * GIB);
    meter.add(GIB);
    small.finish();
    let stage =
        |snapshot: &Snapshot| snapshot.node("volumes").and_then(|node| node.percent).expect("known").to_string();
    assert_eq!(stage(&it.operation.snapshot()), "10.00");
    large.fail("no space left on device");
    assert_eq!(stage(&it.operation.snapshot()), "99.99");
}

#[test]
fn a_percentage_is_approximate_while_a_size_is_an_estimate() {
    let it = Backup::new();
    let volume = it.volume("a", "node-a", GIB, Basis::Estimated);
    it.read();
    assert!(it.operation.snapshot().percent().expect("known").to_string().starts_with('~'));
    let _meter = begin(&volume, GIB);
    let exact = it.operation.snapshot().percent().expect("known").to_string();
    assert!(!exact.starts_with('~'), "its scan has ended: {exact}");
}

#[test]
fn a_percentage_whose_plan_grew_is_held_and_goes_on_slowly() {
    let it = Backup::new();
    let volume = it.volume("a", "node-a", GIB, Basis::Assumed);
    it.read();
    let meter = begin_growing(&volume, GIB);
    let before = percent(&it.transfer(&meter, 100 << 20, 5));
    meter.set_total(Total::Growing(50 * GIB));
    it.clock.advance(Duration::from_secs(1));
    let held = it.operation.snapshot();
    assert!(held.percent().expect("known").is_held() && percent(&held) >= before, "{:?}", held.percent());
    let later = it.transfer(&meter, 100 << 20, 60);
    assert!(percent(&later) > before, "it goes on: {:?}", later.percent());
    assert!(percent(&later) < before + 2.0, "but slowly: {:?}", later.percent());
}

fn begin_growing(volume: &Task, total: u64) -> Meter {
    volume.start();
    let meter = volume.meter(Unit::Bytes);
    meter.set_total(Total::Growing(total));
    meter
}

#[test]
fn the_time_left_is_that_of_the_queue_on_the_slowest_node() {
    let it = Backup::new();
    let a = it.volume("a", "node-a", GIB, Basis::Exact);
    let _queued: Vec<Task> = (0..4).map(|n| it.volume(&format!("b{n}"), "node-b", GIB, Basis::Exact)).collect();
    let b = it.volume("b", "node-b", GIB, Basis::Exact);
    it.read();
    let (first, second) = (begin(&a, GIB), begin(&b, GIB));
    let mut snapshot = it.operation.snapshot();
    for _ in 0..30 {
        first.add(10 << 20);
        snapshot = it.transfer(&second, 10 << 20, 1);
    }
    // Both have 724 MiB left at 10 MiB/s; four more of 1024 MiB wait on one of the nodes.
    let truth = 72 + 4 * 102;
    let root = snapshot.root().expect("a root");
    let left = root.left.expect("the pace is known");
    assert!((left.low..=left.high).contains(&truth), "{left:?}, {truth}");
    assert_eq!(root.from, Some(Source::Pace));
    assert!(root.waits_for.as_deref().is_some_and(|path| path.starts_with("volumes/b")), "{:?}", root.waits_for);
    assert!(
        left.low > snapshot.node("volumes/a").and_then(|node| node.left).expect("moving").high,
        "not that of one volume"
    );
}

#[test]
fn nothing_is_said_while_the_plan_is_only_an_assumption() {
    let it = Backup::new();
    let _volume = it.volume("a", "node-a", 100 * GIB, Basis::Assumed);
    it.read();
    assert_eq!(it.operation.snapshot().root().and_then(|root| root.left), None);
}

#[test]
fn earlier_runs_know_the_rate_before_the_first_byte() {
    let it = Backup::new();
    let rate = plimsoll_progress::EarlierRate { per_second: 10.0 * MIB, fixed: Duration::from_secs(4) };
    it.operation.expect(Earlier { rates: [("volumes".to_owned(), rate)].into(), ..Earlier::default() });
    let _volume = it.volume("a", "node-a", 10 * GIB, Basis::Estimated);
    it.read();
    let snapshot = it.operation.snapshot();
    let root = snapshot.root().expect("a root");
    let left = root.left.expect("earlier runs know");
    assert!((left.low..=left.high).contains(&1028), "{left:?}");
    assert_eq!(root.from, Some(Source::History));
}

#[test]
fn time_in_a_queue_is_not_time_at_work() {
    let it = Backup::new();
    let volume = it.volume("a", "node-a", GIB, Basis::Exact);
    it.read();
    volume.start();
    let turn = volume.wait_in_queue("queued");
    it.clock.advance(Duration::from_secs(100));
    turn.end();
    it.clock.advance(Duration::from_secs(20));
    volume.finish();
    let snapshot = it.operation.snapshot();
    let ages = snapshot.node("volumes/a").expect("there").ages;
    assert_eq!((ages.elapsed, ages.busy()), (Some(Duration::from_mins(2)), Duration::from_secs(20)));
}

#[test]
fn a_time_left_says_where_it_comes_from_and_what_the_end_waits_for() {
    let it = Backup::new();
    let runs = plimsoll_progress::EarlierRuns { runs: 5, low: 2460, high: 3300 };
    it.operation.expect(Earlier { runs: Some(std::sync::Arc::new(runs)), ..Earlier::default() });
    let done = it.volume("a", "node-b", GIB, Basis::Exact);
    let (moving, _queued) = (it.volume("b", "node-b", GIB, Basis::Exact), it.volume("c", "node-b", GIB, Basis::Exact));
    it.read();
    begin(&done, GIB).add(GIB);
    done.finish();
    let meter = begin(&moving, GIB);
    let snapshot = it.transfer(&meter, 10 << 20, 20);
    let why = snapshot.explanation().expect("a time left is known");
    assert_eq!(why.text, "2 of 3 volumes left, 824.0 MiB at 10.0 MiB/s on node node-b; last 5 runs 41m00s to 55m00s");
    assert_eq!((why.from, why.waits_for.as_deref()), (Source::Pace, Some("volumes/c")));
}
