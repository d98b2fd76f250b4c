//! When silence is a verdict, on whom, and why.

use std::time::Duration;

use plimsoll_progress::{Operation, Stall, StallReason, StallRule, Total, Unit, VirtualClock};
use proptest::prelude::*;

fn operation() -> (VirtualClock, Operation) {
    let clock = VirtualClock::new();
    let operation = Operation::new("backup-x", clock.clock());
    (clock, operation)
}

fn pass(clock: &VirtualClock, seconds: u64) {
    clock.advance(Duration::from_secs(seconds));
}

fn verdict(operation: &Operation) -> Option<(String, StallReason, u64, String)> {
    let tell = |stall: Stall| (stall.task.to_string(), stall.reason, stall.age.as_secs(), stall.message.to_string());
    operation.snapshot().stall.map(tell)
}

#[test]
fn the_verdict_names_the_deepest_task_since_when_and_why() {
    let (clock, operation) = operation();
    let volumes = operation.root().child("volumes");
    let stuck = volumes.child("demo/data");
    let fine = volumes.child("demo/logs");
    let moving = fine.meter(Unit::Bytes);
    stuck.say("uploading");
    stuck.hint("connection reset by peer");
    for _ in 0..4 {
        pass(&clock, 10);
        moving.add(1);
        operation.snapshot();
    }
    let expected =
        ("volumes/demo/data".to_owned(), StallReason::NoAdvance, 40, "uploading: connection reset by peer".to_owned());
    assert_eq!(verdict(&operation), Some(expected));
    let snapshot = operation.snapshot();
    assert!(snapshot.nodes.iter().filter(|node| node.stall.is_some()).count() == 1, "only the one that is stuck");
    stuck.touch();
    assert_eq!(verdict(&operation), None, "a sign of life ends it");
}

proptest! {
    #[test]
    fn a_task_is_stalled_exactly_when_its_silence_reaches_the_floor_and_its_own_cadence(
        floor in 1..120_u64, factor in 1..10_u32, cadence in 1..60_u64, silence in 0..1000_u64,
    ) {
        let (clock, operation) = operation();
        let rule = StallRule { floor: Duration::from_secs(floor), factor };
        let operation = operation.with_stall_rule(rule);
        // A gap counts for no more than the patience of its time, so a cadence beyond the floor is learnt step by step.
        prop_assume!(cadence <= floor);
        let meter = operation.root().meter(Unit::Items);
        operation.snapshot();
        for _ in 0..20 {
            pass(&clock, cadence);
            meter.add(1);
            operation.snapshot();
        }
        pass(&clock, silence);
        let patience = floor.max(u64::from(factor) * cadence);
        prop_assert_eq!(verdict(&operation).is_some(), silence >= patience, "{} vs {}", silence, patience);
    }

    #[test]
    fn a_quiet_task_is_never_stalled_by_silence_alone(silence in 0..1_000_000_u64) {
        let (clock, operation) = operation();
        let task = operation.root().child("plugin without progress");
        task.quiet();
        pass(&clock, silence);
        prop_assert_eq!(verdict(&operation), None);
        let snapshot = operation.snapshot();
        let node = snapshot.node("plugin without progress").expect("there");
        prop_assert!(node.quiet && node.ages.advance == Duration::from_secs(silence));
        task.liveness_failed("its pod is gone");
        prop_assert_eq!(verdict(&operation).map(|verdict| (verdict.1, verdict.3)), Some((StallReason::LivenessFailed, "its pod is gone".to_owned())));
        task.liveness_ok();
        prop_assert_eq!(verdict(&operation), None);
    }
}

#[test]
fn a_quiet_task_past_its_deadline_is_stalled_and_a_moving_one_only_overdue() {
    let (clock, operation) = operation();
    let quiet = operation.root().child("quiet");
    quiet.quiet();
    quiet.deadline(Duration::from_mins(1));
    let moving = operation.root().child("moving");
    moving.deadline(Duration::from_mins(1));
    pass(&clock, 61);
    moving.touch();
    assert_eq!(
        verdict(&operation).map(|verdict| (verdict.0, verdict.1)),
        Some(("quiet".into(), StallReason::DeadlineExceeded))
    );
    let snapshot = operation.snapshot();
    let node = snapshot.node("moving").expect("there");
    assert!(
        node.overdue && node.stall.is_none() && node.state.is_open(),
        "stalled is not failed, overdue is not stalled"
    );
}

#[test]
fn waiting_too_long_is_a_stall_that_says_what_for_and_waiting_for_ones_turn_is_none() {
    let (clock, operation) = operation();
    let pod = operation.root().child("pod");
    let waiting = pod.wait("waiting for pod demo/db-0 to be scheduled");
    pod.hint("0/3 nodes are available");
    let queue = operation.root().child("queue");
    let turn = queue.wait_in_queue("queued behind backup y");
    pass(&clock, 31);
    let message = "waiting for pod demo/db-0 to be scheduled: 0/3 nodes are available".to_owned();
    assert_eq!(verdict(&operation), Some(("pod".into(), StallReason::WaitingTooLong, 31, message)));
    drop(waiting);
    assert_eq!(verdict(&operation), None);
    pod.finish();
    pass(&clock, 100_000);
    assert_eq!(verdict(&operation), None, "a queued task is never late");
    turn.end();
    pass(&clock, 31);
    assert_eq!(verdict(&operation).map(|verdict| verdict.0), Some("queue".into()));
}

#[test]
fn a_waiting_in_other_words_is_the_same_waiting_and_stays_a_stall() {
    let (clock, operation) = operation();
    let pod = operation.root().child("pod");
    let waiting = pod.wait("the agent has not been heard of for 0 s");
    for second in 1..=40 {
        pass(&clock, 1);
        waiting.reword(format!("the agent has not been heard of for {second} s"));
    }
    let message = "the agent has not been heard of for 40 s".to_owned();
    assert_eq!(verdict(&operation), Some(("pod".into(), StallReason::WaitingTooLong, 40, message)));
}

#[test]
fn one_long_stall_does_not_teach_a_task_to_be_slow() {
    let (clock, operation) = operation();
    let meter = operation.root().meter(Unit::Items);
    meter.set_total(Total::Final(1000));
    for _ in 0..16 {
        pass(&clock, 1);
        meter.add(1);
        operation.snapshot();
    }
    pass(&clock, 36_000);
    assert!(verdict(&operation).is_some());
    meter.add(1);
    assert_eq!(verdict(&operation), None);
    pass(&clock, 31);
    assert!(verdict(&operation).is_some(), "still half a minute, not five hours");
}

#[test]
fn a_task_that_has_ended_or_not_begun_is_never_stalled() {
    let (clock, operation) = operation();
    let done = operation.root().child("done");
    done.finish();
    let planned = operation.root().planned("planned");
    let working = operation.root().child("working");
    pass(&clock, 1000);
    working.touch();
    assert_eq!(verdict(&operation), None);
    drop(planned);
}
