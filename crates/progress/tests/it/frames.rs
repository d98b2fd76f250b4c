//! Frames: what goes over pipes and streams, and the trees of other processes.

use std::time::Duration;

use plimsoll_progress::{
    Encoder, Ending, Frame, FrameError, FrameOutcome, Graft, Meter, Operation, Replica, Snapshot, StallReason, State,
    Total, Unit, VirtualClock,
};
use proptest::prelude::*;

fn parts(clock: &VirtualClock) -> (Operation, Encoder, Replica) {
    (Operation::new("mover", clock.clock()), Encoder::new(1), Replica::new(clock.clock()))
}

#[test]
fn only_what_changed_is_sent() {
    let clock = VirtualClock::new();
    let (operation, mut encoder, _) = parts(&clock);
    let tasks: Vec<_> = (0..10).map(|n| operation.root().child(format!("file {n}"))).collect();
    assert_eq!(encoder.encode(&operation.snapshot()).map(|frame| (frame.full, frame.nodes.len())), Some((true, 11)));
    clock.advance(Duration::from_secs(5));
    assert_eq!(encoder.encode(&operation.snapshot()), None, "time passes for everyone");
    tasks[3].say("a block");
    let frame = encoder.encode(&operation.snapshot()).expect("a change");
    assert_eq!(frame.nodes.iter().map(|node| &*node.path).collect::<Vec<_>>(), ["file 3"]);
    assert_eq!((frame.full, frame.position()), (false, (1, 2)));
    assert!(encoder.encode_always(&operation.snapshot()).nodes.is_empty(), "a sign of life");
}

#[test]
fn a_frame_has_a_stable_form_and_unknown_fields_are_ignored() {
    let clock = VirtualClock::new();
    let (operation, mut encoder, mut replica) = parts(&clock);
    let meter = operation.root().meter(Unit::Bytes);
    meter.set_total(Total::Growing(3));
    meter.add(1);
    let line = encoder.encode(&operation.snapshot()).expect("the first").to_line();
    assert_eq!(
        line,
        r#"{"version":1,"operation":"mover","epoch":1,"sequence":1,"full":true,"nodes":[{"path":"","name":"mover","state":"running","meters":[{"unit":"bytes","done":1,"total":{"growing":3}}],"percent":"~33.33","signals":0,"ages":{"elapsedMs":0,"advanceMs":0}}]}"#
    );
    let newer = line
        .replace(r#""signals""#, r#""moodOfTheNode":{"a":[1]},"signals""#)
        .replace(r#""epoch""#, r#""x":1,"epoch""#);
    let newer = newer.replace(r#""running""#, r#""meditating""#);
    let frame = Frame::from_line(&newer).expect("unknown fields and states are no error");
    assert_eq!(replica.apply(&frame).expect("applies"), FrameOutcome::Fresh);
    assert_eq!(replica.snapshot().expect("there").state(), State::Unknown);
}

#[test]
fn a_frame_that_cannot_be_used_says_why() {
    let reason = |line: &str| Frame::from_line(line).expect_err("unusable").reason();
    assert_eq!(reason("Backing up /data"), "FrameMalformed");
    assert_eq!(reason("{}"), "FrameMalformed");
    assert_eq!(reason(r#"{"version":2}"#), "FrameVersionUnknown");
    assert_eq!(reason(&"x".repeat(17 << 20)), "FrameTooLong");
    let misplaced =
        r#"{"version":1,"operation":"o","epoch":1,"sequence":1,"full":true,"nodes":[{"path":"a/b","name":"c"}]}"#;
    assert_eq!(reason(misplaced), "FrameNodeMisplaced");
}

proptest! {
    #[test]
    fn hostile_lines_are_errors_and_never_a_panic(line in "\\PC{0,200}") {
        prop_assert!(Frame::from_line(&line).is_err());
    }

    #[test]
    fn hostile_nodes_never_panic_or_loop(paths in prop::collection::vec("[ab/]{0,6}", 0..12), done in any::<u64>(), skipped in any::<u64>()) {
        let nodes: Vec<String> = paths.iter().map(|path| {
            let name = path.rsplit('/').next().unwrap_or_default();
            format!(r#"{{"path":"{path}","name":"{name}","meters":[{{"unit":"items","done":{done},"skipped":{skipped},"total":{{"final":3}}}}],"folded":{{"done":{done},"failed":{skipped}}}}}"#)
        }).collect();
        let line = format!(r#"{{"version":1,"operation":"o","epoch":1,"sequence":1,"full":true,"nodes":[{}]}}"#, nodes.join(","));
        if let Ok(frame) = Frame::from_line(&line) {
            let clock = VirtualClock::new();
            let operation = Operation::new("leader", clock.clock());
            let graft = operation.root().graft("agent");
            graft.apply(&frame).expect("well placed");
            let snapshot = operation.snapshot();
            prop_assert!(snapshot.nodes.len() <= paths.len() + 1);
            plimsoll_progress::view::rows(&snapshot);
            plimsoll_progress::truncate::truncate(&snapshot, plimsoll_progress::Limits { nodes: 3, bytes: 2000 });
        }
    }

    #[test]
    fn in_whatever_order_frames_arrive_the_newest_is_shown(order in Just((0..8_u64).collect::<Vec<_>>()).prop_shuffle()) {
        let clock = VirtualClock::new();
        let (operation, _, mut replica) = parts(&clock);
        let meter = operation.root().meter(Unit::Items);
        let frames: Vec<Frame> = (0..8).map(|n| {
            meter.add(1);
            Frame::full(&operation.snapshot(), n / 4, n % 4)
        }).collect();
        let mut newest = 0;
        for (arrived, n) in order.into_iter().enumerate() {
            let applied = replica.apply(&frames[usize::try_from(n).expect("small")]).expect("applies");
            prop_assert_eq!(applied == FrameOutcome::Fresh, arrived == 0 || n > newest);
            newest = newest.max(n);
            prop_assert_eq!(replica.position(), Some((newest / 4, newest % 4)));
        }
        prop_assert_eq!(replica.snapshot().expect("there").nodes[0].meters[0].done, 8);
    }
}

#[test]
fn a_change_without_its_tree_is_refused_and_a_gap_is_noticed() {
    let clock = VirtualClock::new();
    let (operation, mut encoder, mut replica) = parts(&clock);
    let first = encoder.encode_always(&operation.snapshot());
    operation.root().say("one");
    let second = encoder.encode_always(&operation.snapshot());
    operation.root().say("two");
    let third = encoder.encode_always(&operation.snapshot());
    assert_eq!(replica.apply(&second).expect("applies"), FrameOutcome::NeedsFull);
    assert_eq!(replica.snapshot(), None);
    assert_eq!(replica.apply(&first).expect("applies"), FrameOutcome::Fresh);
    assert_eq!(replica.apply(&third).expect("applies"), FrameOutcome::AfterGap);
    assert_eq!(replica.apply(&second).expect("applies"), FrameOutcome::Stale);
    let other = Frame::full(&Operation::new("other", clock.clock()).snapshot(), 9, 9);
    assert!(matches!(replica.apply(&other), Err(FrameError::OtherOperation { .. })));
}

#[test]
fn ages_go_on_at_the_readers_clock() {
    let (there, here) = (VirtualClock::new(), VirtualClock::new());
    here.advance(Duration::from_secs(777));
    let operation = Operation::new("mover", there.clock());
    let task = operation.root().child("upload");
    there.advance(Duration::from_secs(4));
    let mut replica = Replica::new(here.clock());
    replica.apply(&Frame::full(&operation.snapshot(), 1, 1)).expect("applies");
    here.advance(Duration::from_secs(3));
    let snapshot = replica.snapshot().expect("there");
    assert_eq!(snapshot.nodes[1].ages.elapsed, Some(Duration::from_secs(7)));
    assert_eq!(snapshot.nodes[1].ages.advance, Duration::from_secs(7));
    drop(task);
}

/// A leader's tree with an agent's below it.
struct Grafting {
    clock: VirtualClock,
    agent: Operation,
    leader: Operation,
    graft: Graft,
}

impl Grafting {
    fn new() -> Self {
        let clock = VirtualClock::new();
        let leader = Operation::new("backup-x", clock.clock());
        let graft = leader.root().child("volumes").graft("demo-data");
        Self { agent: Operation::new("pvb-1", clock.clock()), clock, leader, graft }
    }

    /// A meter of the agent with a total of 100.
    fn hundred_bytes(&self) -> Meter {
        let bytes = self.agent.root().meter(Unit::Bytes);
        bytes.set_total(Total::Final(100));
        bytes
    }

    fn send(&self, epoch: u64, sequence: u64) -> Snapshot {
        self.graft.apply(&Frame::full(&self.agent.snapshot(), epoch, sequence)).expect("applies");
        self.leader.snapshot()
    }
}

#[test]
fn a_grafted_tree_counts_in_the_task_it_hangs_under() {
    let it = Grafting::new();
    let upload = it.agent.root().child("upload");
    let bytes = upload.meter(Unit::Bytes);
    bytes.set_total(Total::Final(4));
    bytes.add(1);
    let snapshot = it.send(1, 1);
    let paths: Vec<&str> = snapshot.nodes.iter().map(|node| &*node.path).collect();
    assert_eq!(paths, ["", "volumes", "volumes/demo-data", "volumes/demo-data/upload"]);
    assert_eq!(snapshot.percent().map(|percent| percent.to_string()), Some("25.00".to_owned()));
    assert_eq!(snapshot.sum(Unit::Bytes).map(|counts| counts.done), Some(1));
    it.agent.end(Ending::Succeeded);
    assert_eq!(it.send(1, 2).node("volumes/demo-data").map(|node| node.state), Some(State::Done));
}

#[test]
fn an_agent_that_starts_again_takes_nothing_back() {
    let mut it = Grafting::new();
    let bytes = it.hundred_bytes();
    bytes.add(70);
    it.send(1, 9);
    it.agent = Operation::new("pvb-1", it.clock.clock());
    let bytes = it.hundred_bytes();
    bytes.add(2);
    let snapshot = it.send(2, 1);
    let node = snapshot.node("volumes/demo-data").expect("there");
    assert_eq!((node.meters[0].done, node.percent.map(|percent| percent.to_string())), (70, Some("70.00".to_owned())));
}

#[test]
fn what_an_earlier_process_did_and_the_next_one_skips_counts_once() {
    let mut it = Grafting::new();
    let bytes = it.hundred_bytes();
    bytes.add(70);
    it.send(1, 9);
    it.agent = Operation::new("pvb-1", it.clock.clock());
    let bytes = it.hundred_bytes();
    let shown = |snapshot: &Snapshot| {
        let counts = snapshot.node("volumes/demo-data").expect("there").meters[0];
        (counts.done, counts.skipped, counts.settled())
    };
    for (sequence, skipped, expected) in [(1, 25, (70, 0, 70)), (2, 45, (70, 0, 70)), (3, 10, (70, 10, 80))] {
        bytes.skip(skipped);
        assert_eq!(shown(&it.send(2, sequence)), expected);
    }
}

#[test]
fn a_process_that_is_gone_leaves_nothing_at_work_and_makes_room_for_the_next_one() {
    let mut it = Grafting::new();
    let upload = it.agent.root().child("upload");
    let bytes = upload.meter(Unit::Bytes);
    bytes.set_total(Total::Final(100));
    bytes.add(70);
    it.send(1, 1);
    it.graft.interrupt("its process has ended");
    let waiting = it.leader.root().wait_in_queue("waiting to try again");
    it.clock.advance(Duration::from_mins(5));
    let snapshot = it.leader.snapshot();
    assert_eq!(snapshot.stall.as_ref().filter(|stall| stall.reason == StallReason::NoReport), None);
    let left = snapshot.nodes.iter().filter(|node| node.path.starts_with("volumes/demo-data"));
    let left: Vec<_> = left.map(|node| (node.state, node.reason.as_deref(), node.rate)).collect();
    assert_eq!(left, [(State::Interrupted, Some("its process has ended"), None); 2]);
    assert_eq!(snapshot.percent().map(|percent| percent.to_string()), Some("70.00".to_owned()), "it keeps what it had");
    drop(waiting);

    it.graft.restart();
    it.agent = Operation::new("pvb-1", it.clock.clock());
    assert_eq!(it.leader.snapshot().sum(Unit::Bytes).map(|bytes| bytes.done), Some(70), "it has not begun");
    assert!(!it.graft.has_counted());
    let upload = it.agent.root().child("upload");
    let bytes = upload.meter(Unit::Bytes);
    bytes.set_total(Total::Growing(5));
    bytes.add(2);
    let snapshot = it.send(2, 1);
    assert!(it.graft.has_counted());
    let below: Vec<_> = snapshot.nodes.iter().map(|node| (&*node.path, node.state)).skip(2).collect();
    let running = |path| (path, State::Running);
    assert_eq!(below, [running("volumes/demo-data"), running("volumes/demo-data/upload")], "under the same name");
    let counts = snapshot.nodes[3].meters[0];
    assert_eq!(
        (counts.done, counts.total),
        (70, Total::Growing(100)),
        "what was shown stays until it has done as much"
    );
    assert_eq!(snapshot.percent().map(|percent| percent.to_string()), Some("~70.00".to_owned()), "nothing goes back");
    bytes.set_total(Total::Final(100));
    bytes.add(80);
    assert_eq!(it.send(2, 2).percent().map(|percent| percent.to_string()), Some("82.00".to_owned()));
}

#[test]
fn the_agents_verdict_is_the_leaders_and_an_agents_silence_has_a_name() {
    let it = Grafting::new();
    let upload = it.agent.root().child("upload");
    upload.hint("503 Slow Down");
    it.clock.advance(Duration::from_secs(31));
    let stall = it.send(1, 1).stall.expect("the agent says so");
    assert_eq!(
        (&*stall.task, stall.reason, &*stall.message),
        ("volumes/demo-data/upload", StallReason::NoAdvance, "503 Slow Down")
    );
    upload.touch();
    assert_eq!(it.send(1, 2).stall, None);
    it.clock.advance(Duration::from_secs(31));
    let stall = it.leader.snapshot().stall.expect("no word");
    assert_eq!(
        (&*stall.task, stall.reason, &*stall.message),
        ("volumes", StallReason::NoReport, "no report from demo-data")
    );
}

#[test]
fn after_a_takeover_the_agents_tree_takes_the_place_of_the_saved_one() {
    let it = Grafting::new();
    let upload = it.agent.root().child("upload");
    let bytes = upload.meter(Unit::Bytes);
    bytes.set_total(Total::Final(100));
    bytes.add(70);
    let saved = it.send(1, 1);
    let (leader, gap) = Operation::resume(&saved, "pod-a", it.clock.clock());
    drop(gap);
    let graft = leader.root().child("volumes").graft("demo-data");
    assert_eq!(leader.snapshot().node("volumes/demo-data/upload").map(|node| node.state), Some(State::TakenOver));
    let mut late = Frame::full(&it.agent.snapshot(), 1, 2);
    late.nodes[1].meters[0].done = 65;
    graft.apply(&late).expect("applies");
    let snapshot = leader.snapshot();
    let found: Vec<_> = snapshot.nodes.iter().map(|node| (&*node.path, node.state)).collect();
    assert_eq!(found[2..], [("volumes/demo-data", State::Running), ("volumes/demo-data/upload", State::Running)]);
    assert_eq!(snapshot.nodes[3].meters[0].done, 70);
}
