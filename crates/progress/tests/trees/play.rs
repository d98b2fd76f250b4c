//! Plays a whole operation on the virtual clock, and looks at it as a person would.

use std::time::Duration;

use plimsoll_progress::{
    Basis, Ending, History, Meter, Operation, RunRecord, Snapshot, Stall, Task, Total, Unit, VirtualClock, Wait, Work,
};

use super::peers::{Estimators, Readings};
use super::transfer::{Transfer, whole};
use super::world::{Case, Cluster, DataPath, Trouble, Weather};

/// What was said at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// Seconds since the start.
    pub at: f64,
    /// In hundredths.
    pub percent: Option<u16>,
    pub left: Option<(f64, f64)>,
    /// What other estimators say: seconds.
    pub others: Readings,
    /// Bytes or items have moved since the last look.
    pub moved: bool,
    /// Why it is called stalled, if it is.
    pub stall: Option<Stall>,
}

/// An operation from its start to its end.
pub struct Played {
    pub looks: Vec<Look>,
    pub seconds: f64,
    pub end: Snapshot,
}

impl Played {
    /// Adds it to what is known for the next run.
    pub fn record(&self, case: &Case, cluster: &Cluster, run: u64, history: &mut History) {
        let incremental = case.incremental && run > 0;
        history.add(RunRecord { incremental, ..RunRecord::of(&self.end).expect("it has ended well") });
        for (index, volume) in cluster.volumes.iter().enumerate() {
            history.set_size(&claim(index), whole(volume.bytes));
        }
    }
}

fn claim(index: usize) -> String {
    format!("claim-{index}")
}

/// What an operation does next.
enum Step {
    /// Something that moves nothing.
    Fixed { seconds: f64, planned: Work },
    /// Objects, one after the other. Transfers begin after this share of them.
    Items { transfers_after: Option<f64> },
    /// Snapshots, so many at a time.
    Snapshots { seconds: Vec<f64> },
    /// The transfers.
    Transfers,
}

/// So many snapshots are taken at a time.
const SNAPSHOTS_AT_A_TIME: usize = 8;
/// No run is followed for longer: it would be a defect of the player.
const MAX_LOOKS: usize = 2_000_000;

struct Player<'a> {
    case: &'a Case,
    cluster: &'a Cluster,
    history: &'a History,
    run: u64,
    weather: Weather,
    clock: VirtualClock,
    operation: Operation,
    steps: Vec<(&'static str, Step)>,
    tasks: Vec<Task>,
    action: Option<Task>,
    transfers: Vec<Transfer>,
    requested: bool,
    at: usize,
    /// What is done of the step at work, in seconds or items.
    done: f64,
    /// The snapshots of each step.
    snapshots: Vec<Vec<Task>>,
    /// The step at work sends no signal.
    quiet: Option<Wait>,
    moved: f64,
}

/// Plays one run.
pub fn play(case: &Case, cluster: &Cluster, run: u64, history: &History) -> Played {
    let mut player = Player::new(case, cluster, run, history);
    let mut estimators = Estimators::default();
    let mut looks: Vec<Look> = Vec::new();
    let goal = ideal_seconds(case, cluster);
    let interval = (goal / 400.0).clamp(0.5, 5.0);
    let trouble_at = player.weather.around(goal * 0.4, 0.3);
    let mut troubled = case.trouble == Trouble::None || case.trouble == Trouble::VolumeFails;
    while !player.has_ended() && looks.len() < MAX_LOOKS {
        let snapshot = player.operation.snapshot();
        let root = &snapshot.nodes[0];
        let at = player.clock.now().as_secs_f64();
        looks.push(Look {
            at,
            percent: root.percent.map(plimsoll_progress::Percent::hundredths),
            left: root.left.map(|left| (whole_seconds(left.low), whole_seconds(left.high))),
            others: estimators.look(at, player.settled(), player.total()),
            moved: player.moved > 0.0,
            stall: snapshot.stall.clone(),
        });
        player.pass(interval);
        if !troubled && player.clock.now().as_secs_f64() > trouble_at {
            troubled = true;
            player.trouble(&snapshot);
        }
    }
    player.operation.end(Ending::Succeeded);
    Played { looks, seconds: player.clock.now().as_secs_f64(), end: player.operation.snapshot() }
}

fn whole_seconds(seconds: u64) -> f64 {
    Duration::from_secs(seconds).as_secs_f64()
}

/// About how long it takes, for the interval between two looks.
fn ideal_seconds(case: &Case, cluster: &Cluster) -> f64 {
    let nodes = f64::from(u32::try_from(cluster.nodes()).unwrap_or(1));
    let moves = if case.path == DataPath::Csi { 0.0 } else { 1.0 };
    let alone = |volume: &super::world::Volume| volume.before + volume.after + moves * volume.bytes / volume.limit;
    cluster.items / cluster.items_per_second + cluster.volumes.iter().map(alone).sum::<f64>() / nodes
}

impl<'a> Player<'a> {
    fn new(case: &'a Case, cluster: &'a Cluster, run: u64, history: &'a History) -> Self {
        let mut weather = Weather::new(cluster, case.seed.wrapping_mul(31).wrapping_add(run));
        let clock = VirtualClock::new();
        let operation = Operation::new("played", clock.clock());
        let steps = steps(case, cluster, &mut weather);
        let mut player = Self {
            case,
            cluster,
            history,
            run,
            weather,
            clock,
            operation,
            steps,
            tasks: Vec::new(),
            action: None,
            transfers: Vec::new(),
            requested: false,
            at: 0,
            done: 0.0,
            snapshots: Vec::new(),
            quiet: None,
            moved: 0.0,
        };
        player.plan();
        player
    }

    /// Plans everything, as a server does when it begins and when it takes over.
    fn plan(&mut self) {
        self.operation.expect(self.history.earlier());
        let root = self.operation.root();
        let is_action = self.case.path == DataPath::ActionSet;
        self.action = is_action.then(|| root.child("backup"));
        let parent = self.action.clone().unwrap_or(root);
        if is_action {
            parent.equal_weights();
        }
        self.tasks = self.steps.iter().map(|(name, _)| parent.planned(name)).collect();
        for (task, (_, step)) in self.tasks.iter().zip(&self.steps) {
            match step {
                Step::Fixed { planned, .. } => task.plan(*planned),
                Step::Items { .. } => task.plan(Work::assumed(Duration::from_secs(10))),
                Step::Snapshots { .. } => task.queue(SNAPSHOTS_AT_A_TIME),
                Step::Transfers if self.case.path == DataPath::Plugins => task.queue(self.cluster.volumes.len()),
                Step::Transfers => task.queue(self.cluster.slots),
            }
        }
        self.plan_below();
    }

    fn plan_below(&mut self) {
        let incremental = self.case.incremental && self.run > 0;
        self.snapshots.clear();
        for (task, (_, step)) in self.tasks.iter().zip(&self.steps) {
            let mut snapshots = Vec::new();
            match step {
                Step::Snapshots { seconds } => {
                    let planned = (0..seconds.len()).map(|index| {
                        let snapshot = task.planned(claim(index));
                        snapshot.plan(Work::assumed(Duration::from_secs(10)));
                        snapshot
                    });
                    snapshots.extend(planned);
                }
                Step::Transfers if self.transfers.is_empty() => {
                    for (index, volume) in self.cluster.volumes.iter().enumerate() {
                        let size = self.planned_size(index);
                        self.transfers.push(Transfer::plan(task, &claim(index), volume, size, incremental));
                    }
                    if self.case.trouble == Trouble::VolumeFails {
                        self.transfers[0].fail_halfway();
                    }
                }
                Step::Transfers => self.transfers.iter_mut().for_each(|transfer| transfer.follow_in(task)),
                _ => {}
            }
            self.snapshots.push(snapshots);
        }
    }

    /// What a server knows of a size before the transfer.
    fn planned_size(&self, index: usize) -> (u64, Basis) {
        let volume = &self.cluster.volumes[index];
        match self.history.size(&claim(index)) {
            _ if self.case.path == DataPath::Restore => (whole(volume.bytes), Basis::Exact),
            Some(bytes) => (bytes, Basis::Estimated),
            None => (whole(volume.capacity), Basis::Assumed),
        }
    }

    fn has_ended(&self) -> bool {
        self.at >= self.steps.len()
    }

    fn settled(&self) -> f64 {
        let bytes = self.operation.snapshot().sum(Unit::Bytes).map_or(0, |sum| sum.done);
        Duration::from_secs(bytes).as_secs_f64()
    }

    fn total(&self) -> f64 {
        let has_bytes = self.steps.iter().any(|(_, step)| matches!(step, Step::Transfers));
        if has_bytes { self.cluster.volumes.iter().map(|volume| volume.bytes).sum() } else { 0.0 }
    }

    fn pass(&mut self, seconds: f64) {
        self.weather.pass(seconds);
        self.moved = 0.0;
        self.pass_transfers(seconds);
        let mut left = seconds;
        while left > 0.0 && !self.has_ended() {
            let used = self.work(left);
            left -= used;
            self.clock.advance(Duration::from_secs_f64(used));
        }
    }

    /// Starts what may start, and moves what is at work.
    fn pass_transfers(&mut self, seconds: f64) {
        if !self.requested {
            return;
        }
        let active = |transfers: &[Transfer], node: usize| {
            transfers.iter().filter(|transfer| transfer.is_active() && transfer.node() == node).count()
        };
        let slots = if self.case.path == DataPath::Plugins { usize::MAX } else { self.cluster.slots };
        for index in 0..self.transfers.len() {
            let node = self.transfers[index].node();
            if self.transfers[index].is_open()
                && !self.transfers[index].is_active()
                && active(&self.transfers, node) < slots
            {
                self.transfers[index].start();
            }
        }
        for index in 0..self.transfers.len() {
            let beside = active(&self.transfers, self.transfers[index].node());
            self.moved += self.transfers[index].pass(seconds, self.cluster, &mut self.weather, beside);
        }
    }

    /// Works on the step for at most so many seconds; says how many it took.
    fn work(&mut self, seconds: f64) -> f64 {
        let task = self.tasks[self.at].clone();
        task.start();
        let used = match &self.steps[self.at].1 {
            Step::Fixed { seconds: needed, .. } => {
                self.quiet.get_or_insert_with(|| task.wait_quietly("waiting for its end", None));
                (needed - self.done).min(seconds)
            }
            Step::Items { transfers_after } => {
                let meter = task.meter(Unit::Items);
                let transfers_after = *transfers_after;
                return self.read_items(&task, &meter, transfers_after, seconds);
            }
            Step::Snapshots { seconds: needed } => {
                let needed = needed.clone();
                return self.take_snapshots(&task, &needed, seconds);
            }
            Step::Transfers => {
                self.request();
                if self.transfers.iter().any(Transfer::is_open) {
                    return seconds;
                }
                self.next(&task);
                return 0.0;
            }
        };
        self.done += used;
        if used < seconds {
            self.next(&task);
        }
        used.max(0.0)
    }

    fn next(&mut self, task: &Task) {
        self.quiet = None;
        task.finish();
        (self.at, self.done) = (self.at + 1, 0.0);
        if let Some(action) = self.action.as_ref().filter(|_| self.at == self.steps.len()) {
            action.finish();
        }
    }

    fn read_items(&mut self, task: &Task, meter: &Meter, transfers_after: Option<f64>, seconds: f64) -> f64 {
        meter.set_total(Total::Final(whole(self.cluster.items)));
        let speed = self.cluster.items_per_second * self.weather.noisy();
        let used = ((self.cluster.items - self.done) / speed).min(seconds);
        self.done += speed * used;
        self.moved += speed * used;
        meter.set_done(whole(self.done));
        if transfers_after.is_some_and(|share| self.done >= share * self.cluster.items) {
            self.request();
        }
        if used < seconds {
            self.next(task);
        }
        used.max(0.0)
    }

    fn request(&mut self) {
        if !self.requested {
            self.requested = true;
            if let Some(at) = self.steps.iter().position(|(_, step)| matches!(step, Step::Transfers)) {
                self.tasks[at].start();
            }
            self.transfers.iter_mut().for_each(Transfer::request);
        }
    }

    /// They are taken in their order, so many at a time: snapshot n ends when a slot has had the time for it.
    fn take_snapshots(&mut self, task: &Task, needed: &[f64], seconds: f64) -> f64 {
        let mut slots = [0.0_f64; SNAPSHOTS_AT_A_TIME];
        let mut last: f64 = 0.0;
        for (needed, snapshot) in needed.iter().zip(&self.snapshots[self.at]) {
            slots.sort_by(f64::total_cmp);
            let (from, to) = (slots[0], slots[0] + needed);
            slots[0] = to;
            last = last.max(to);
            if self.done >= from {
                snapshot.start();
                snapshot.quiet();
            }
            if self.done >= to {
                snapshot.finish();
            }
        }
        let used = (last - self.done).clamp(0.0, seconds);
        self.done += used.max(1e-6);
        if used < seconds {
            self.snapshots[self.at].iter().for_each(Task::finish);
            self.next(task);
        }
        used
    }

    fn trouble(&mut self, saved: &Snapshot) {
        match self.case.trouble {
            Trouble::AgentKilled => {
                let node = self.cluster.volumes[0].node;
                self.transfers.iter_mut().filter(|transfer| transfer.node() == node).for_each(Transfer::restart);
            }
            // An ActionSet does not repeat its phases.
            Trouble::TakeOver if self.case.path != DataPath::ActionSet => {
                let (operation, gap) = Operation::resume(saved, "pod-a", self.clock.clock());
                gap.end();
                self.operation = operation;
                self.quiet = None;
                (self.at, self.done) = (0, 0.0);
                self.plan();
                if self.requested && self.transfers.iter().any(Transfer::is_open) {
                    let at = self.steps.iter().position(|(_, step)| matches!(step, Step::Transfers));
                    if let Some(at) = at {
                        self.tasks[at].start();
                    }
                }
            }
            _ => {}
        }
    }
}

fn steps(case: &Case, cluster: &Cluster, weather: &mut Weather) -> Vec<(&'static str, Step)> {
    let mut fixed = |seconds: f64, planned: f64| Step::Fixed {
        seconds: weather.around(seconds, 0.3),
        planned: Work::fixed(Duration::from_secs_f64(planned)),
    };
    let (planning, saving, committing) = (fixed(1.0, 1.0), fixed(1.0, 1.0), fixed(0.5, 0.5));
    let mut phase = |seconds: f64| Step::Fixed {
        seconds: weather.around(seconds, 0.3),
        planned: Work::assumed(Duration::from_secs(30)),
    };
    let (down, up) = (phase(cluster.usual_step() * 4.0), phase(cluster.usual_step() * 2.0));
    let mut snapshots = |factor: f64| {
        let seconds = |volume: &super::world::Volume| weather.around(volume.before * factor, 0.2);
        Step::Snapshots { seconds: cluster.volumes.iter().map(seconds).collect() }
    };
    match case.path {
        DataPath::PodVolumes => vec![
            ("planning", planning),
            ("reading", Step::Items { transfers_after: Some(0.3) }),
            ("volumes", Step::Transfers),
            ("saving", saving),
            ("committing", committing),
        ],
        DataPath::Restore => vec![
            ("planning", planning),
            ("restoring", Step::Items { transfers_after: Some(0.5) }),
            ("volumes", Step::Transfers),
            ("finalizing", committing),
            ("saving", saving),
        ],
        DataPath::Csi => vec![
            ("planning", planning),
            ("reading", Step::Items { transfers_after: None }),
            ("volumes", snapshots(0.5)),
            ("operations", snapshots(2.0)),
            ("saving", saving),
            ("committing", committing),
        ],
        DataPath::DataMovement | DataPath::Plugins => vec![
            ("planning", planning),
            ("reading", Step::Items { transfers_after: None }),
            ("volumes", snapshots(0.5)),
            ("operations", Step::Transfers),
            ("saving", saving),
            ("committing", committing),
        ],
        DataPath::ActionSet => vec![("scaleDown", down), ("backup", Step::Transfers), ("scaleUp", up)],
    }
}
