//! Random lives of an operation: the rules hold whatever the work reports and whenever a snapshot is taken.

use std::time::Duration;

use plimsoll_progress::{
    Basis, Encoder, Ending, Frame, FrameOutcome, Limits, Operation, Percent, Replica, Snapshot, State, Task, Total,
    Unit, VirtualClock, Wait, Work, truncate,
};
use proptest::prelude::*;

use crate::invariants::{check, check_final_stays, check_nothing_goes_back};

#[derive(Clone, Debug)]
enum Step {
    Child(usize),
    Planned(usize),
    Start(usize),
    Add(usize, u64),
    Skip(usize, u64),
    Fail(usize, u64),
    SetDone(usize, u64),
    SetTotal(usize, Total),
    AddBytes(usize, u64),
    Say(usize, u8),
    Wait(usize),
    Plan(usize, u64, bool),
    Queue(usize),
    StopWaiting,
    Finish(usize),
    FailTask(usize),
    SkipTask(usize),
    Drop(usize),
    Pass(u64),
    Look,
    TakeOver,
}

fn total() -> impl Strategy<Value = Total> {
    prop_oneof![
        1 => Just(Total::Unknown),
        5 => (0..200_u64).prop_map(Total::Growing),
        3 => (0..200_u64).prop_map(Total::Final),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let task = || 0..8_usize;
    prop_oneof![
        3 => task().prop_map(Step::Child),
        1 => task().prop_map(Step::Planned),
        1 => task().prop_map(Step::Start),
        8 => (task(), 0..40_u64).prop_map(|(task, n)| Step::Add(task, n)),
        2 => (task(), 0..20_u64).prop_map(|(task, n)| Step::Skip(task, n)),
        2 => (task(), 0..20_u64).prop_map(|(task, n)| Step::Fail(task, n)),
        2 => (task(), 0..90_u64).prop_map(|(task, n)| Step::SetDone(task, n)),
        5 => (task(), total()).prop_map(|(task, total)| Step::SetTotal(task, total)),
        2 => (task(), 0..9999_u64).prop_map(|(task, n)| Step::AddBytes(task, n)),
        1 => (task(), any::<u8>()).prop_map(|(task, n)| Step::Say(task, n)),
        1 => task().prop_map(Step::Wait),
        2 => (task(), 0..500_u64, any::<bool>()).prop_map(|(task, n, exact)| Step::Plan(task, n, exact)),
        1 => task().prop_map(Step::Queue),
        1 => Just(Step::StopWaiting),
        1 => task().prop_map(Step::Finish),
        1 => task().prop_map(Step::FailTask),
        1 => task().prop_map(Step::SkipTask),
        1 => task().prop_map(Step::Drop),
        4 => (1..50_000_u64).prop_map(Step::Pass),
        8 => Just(Step::Look),
        1 => Just(Step::TakeOver),
    ]
}

/// An operation, its workers, and a reader at the other end of a pipe.
struct World {
    clock: VirtualClock,
    operation: Operation,
    tasks: Vec<Task>,
    waits: Vec<Wait>,
    last: Option<Snapshot>,
    epoch: u64,
    encoder: Encoder,
    replica: Replica,
}

impl World {
    fn new() -> Self {
        let clock = VirtualClock::new();
        let operation = Operation::new("backup-x", clock.clock());
        Self {
            tasks: vec![operation.root()],
            operation,
            waits: Vec::new(),
            last: None,
            epoch: 1,
            encoder: Encoder::new(1),
            replica: Replica::new(clock.clock()),
            clock,
        }
    }

    fn task(&self, index: usize) -> &Task {
        &self.tasks[index % self.tasks.len()]
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Child(at) => {
                self.tasks.push(self.task(at).child(format!("task {}.{}", self.epoch, self.tasks.len())));
            }
            Step::Planned(at) => self.tasks.push(self.task(at).planned(format!("planned/later {}", self.epoch))),
            Step::Start(at) => self.task(at).start(),
            Step::Add(at, n) => self.task(at).meter(Unit::Items).add(n),
            Step::Skip(at, n) => self.task(at).meter(Unit::Items).skip(n),
            Step::Fail(at, n) => self.task(at).meter(Unit::Items).fail(n),
            Step::SetDone(at, n) => self.task(at).meter(Unit::Items).set_done(n),
            Step::SetTotal(at, total) => {
                self.task(at).meter(Unit::Items).set_total(total);
            }
            Step::AddBytes(at, n) => self.task(at).meter(Unit::Bytes).add(n),
            Step::Say(at, n) => self.task(at).say(format!("item {n}")),
            Step::Wait(at) => self.waits.push(self.task(at).wait("waiting for a pod")),
            Step::Plan(at, n, exact) => {
                let basis = if exact { Basis::Exact } else { Basis::Assumed };
                self.task(at).plan(Work::amount(n, 10.0, basis).with_fixed(Duration::from_secs(n % 7)));
                self.task(at).runs_on(format!("node-{}", n % 3));
            }
            Step::Queue(at) => self.task(at).queue(at % 3),
            Step::StopWaiting => drop(self.waits.pop()),
            Step::Finish(at) => self.unless_root(at, Task::finish),
            Step::FailTask(at) => self.unless_root(at, |task| task.fail("it broke")),
            Step::SkipTask(at) => self.unless_root(at, |task| task.skip("not needed")),
            Step::Drop(at) if self.tasks.len() > 1 => drop(self.tasks.remove(1 + at % (self.tasks.len() - 1))),
            Step::Drop(_) => {}
            Step::Pass(millis) => self.clock.advance(Duration::from_millis(millis)),
            Step::Look => self.look(),
            Step::TakeOver => self.take_over(),
        }
    }

    fn unless_root(&self, at: usize, work: impl Fn(&Task)) {
        let task = self.task(at);
        if !task.path().is_empty() {
            work(task);
        }
    }

    fn look(&mut self) {
        let snapshot = self.operation.snapshot();
        check(&snapshot);
        if let Some(last) = &self.last {
            check_nothing_goes_back(last, &snapshot);
            check_final_stays(last, &snapshot);
        }
        self.send(&snapshot);
        let small = truncate::truncate(&snapshot, Limits { nodes: 5, bytes: 64 << 10 });
        assert!(small.nodes.len() <= 5);
        self.last = Some(snapshot);
    }

    /// What arrives at the other end of the pipe is what was sent.
    fn send(&mut self, snapshot: &Snapshot) {
        if let Some(frame) = self.encoder.encode(snapshot) {
            let frame = Frame::from_line(&frame.to_line()).expect("our own frame");
            assert_eq!(self.replica.apply(&frame).expect("our own operation"), FrameOutcome::Fresh);
        }
        let copy = self.replica.snapshot().expect("a frame was sent");
        for (copied, node) in copy.nodes.iter().zip(&snapshot.nodes) {
            assert!(copied.has_same_content(node), "\n{copied:?}\n{node:?}");
        }
        assert_eq!(copy.nodes.len(), snapshot.nodes.len());
    }

    /// The process dies, and another takes up what was saved last; it counts from the start again.
    fn take_over(&mut self) {
        let Some(saved) = self.last.take() else { return };
        let (operation, gap) = Operation::resume(&saved, "pod-a", self.clock.clock());
        self.waits.clear();
        self.tasks = vec![operation.root()];
        self.tasks.extend(
            saved
                .nodes
                .iter()
                .filter(|node| node.parent_path() == Some(""))
                .map(|node| operation.root().child(&node.name)),
        );
        drop(gap);
        self.operation = operation;
        self.epoch += 1;
        self.encoder = Encoder::new(self.epoch);
        let snapshot = self.operation.snapshot();
        check(&snapshot);
        check_nothing_goes_back(&saved, &snapshot);
        self.send(&snapshot);
        self.last = Some(snapshot);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_work_reports_the_rules_hold(steps in prop::collection::vec(step(), 1..120), well in any::<bool>()) {
        let mut world = World::new();
        for step in &steps {
            world.play(step);
        }
        world.look();
        let reached = world.operation.snapshot().percent();
        world.operation.end(if well { Ending::Succeeded } else { Ending::Cancelled("asked to".into()) });
        world.look();
        let ended = world.operation.snapshot();
        prop_assert!(ended.nodes.iter().all(|node| node.state.is_ended()));
        prop_assert_eq!(ended.state(), if well { State::Done } else { State::Cancelled });
        if well {
            prop_assert_eq!(ended.percent().map(|percent| percent.to_string()), Some("100.00".to_owned()));
        } else {
            prop_assert_eq!(ended.percent().map(Percent::plain), reached.map(Percent::plain));
        }
    }
}
