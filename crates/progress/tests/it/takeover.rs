//! Another process takes up where one left off.

use std::time::Duration;

use plimsoll_progress::{Ending, Operation, Snapshot, State, Total, Unit, VirtualClock};

use crate::invariants::check_nothing_goes_back;

/// A backup that was half done when its process died.
fn saved(clock: &VirtualClock) -> Snapshot {
    let operation = Operation::new("backup-x", clock.clock());
    let collecting = operation.root().child("collecting");
    let items = collecting.meter(Unit::Items);
    items.set_total(Total::Final(10));
    items.add(10);
    collecting.finish();
    let volume = operation.root().child("volume");
    let bytes = volume.meter(Unit::Bytes);
    bytes.set_total(Total::Final(100));
    bytes.add(60);
    let later = operation.root().planned("later");
    clock.advance(Duration::from_secs(20));
    let snapshot = operation.snapshot();
    drop(later);
    snapshot
}

#[test]
fn what_ran_is_taken_over_what_ended_stays_and_nothing_goes_back() {
    let clock = VirtualClock::new();
    let saved = saved(&clock);
    let (operation, gap) = Operation::resume(&saved, "pod-a", clock.clock());
    let snapshot = operation.snapshot();
    check_nothing_goes_back(&saved, &snapshot);
    let states: Vec<State> = snapshot.nodes.iter().map(|node| node.state).collect();
    assert_eq!(states, [State::Waiting, State::Done, State::TakenOver, State::Pending]);
    for index in [0, 2] {
        assert_eq!(snapshot.nodes[index].reason.as_deref(), Some("taken over from pod-a"));
    }
    assert_eq!(snapshot.nodes[0].ages.elapsed, Some(Duration::from_secs(20)), "the time it took goes on");
    drop(gap);
    assert_eq!(operation.snapshot().state(), State::Running);
}

#[test]
fn the_gap_is_no_stall_and_rates_start_empty() {
    let clock = VirtualClock::new();
    let saved = saved(&clock);
    let (operation, _gap) = Operation::resume(&saved, "pod-a", clock.clock());
    clock.advance(Duration::from_hours(10));
    let snapshot = operation.snapshot();
    assert_eq!(snapshot.stall, None);
    assert!(snapshot.nodes.iter().all(|node| node.rate.is_none()));
}

#[test]
fn counting_from_the_start_again_shows_the_floor_until_it_is_passed() {
    let clock = VirtualClock::new();
    let (operation, gap) = Operation::resume(&saved(&clock), "pod-a", clock.clock());
    drop(gap);
    let volume = operation.root().child("volume");
    let bytes = volume.meter(Unit::Bytes);
    let shown = || {
        let snapshot = operation.snapshot();
        let node = snapshot.node("volume").expect("there");
        (node.meters[0].done, node.percent.expect("known").to_string())
    };
    assert_eq!(shown(), (60, "~60.00".to_owned()), "the old total is an estimate now");
    bytes.set_total(Total::Final(100));
    bytes.add(59);
    assert_eq!(shown(), (60, "60.00".to_owned()));
    bytes.add(2);
    assert_eq!(shown(), (61, "61.00".to_owned()));
    bytes.add(39);
    volume.finish();
    assert_eq!(shown(), (100, "100.00".to_owned()));
}

#[test]
fn a_stage_that_was_finished_and_is_done_again_is_not_complete_until_it_is_finished_again() {
    let clock = VirtualClock::new();
    let (operation, gap) = Operation::resume(&saved(&clock), "pod-a", clock.clock());
    drop(gap);
    let shown = || operation.snapshot().node("collecting").and_then(|node| node.percent).expect("known").to_string();
    assert_eq!(shown(), "100.00");
    let collecting = operation.root().child("collecting");
    assert_eq!(shown(), "~99.99");
    let items = collecting.meter(Unit::Items);
    items.set_total(Total::Final(10));
    items.add(3);
    assert_eq!(shown(), "99.99");
    collecting.finish();
    assert_eq!(shown(), "100.00");
}

#[test]
fn floors_of_another_kind_of_settling_never_exceed_the_total() {
    let clock = VirtualClock::new();
    let first = Operation::new("restore-x", clock.clock());
    let meter = first.root().meter(Unit::Items);
    meter.set_total(Total::Final(10));
    meter.add(5);
    meter.skip(5);
    let (second, _gap) = Operation::resume(&first.snapshot(), "pod-a", clock.clock());
    let meter = second.root().meter(Unit::Items);
    meter.set_total(Total::Final(10));
    meter.add(10);
    second.end(Ending::Succeeded);
    let counts = second.snapshot().nodes[0].meters[0];
    assert_eq!((counts.done, counts.skipped, counts.total, counts.overrun), (5, 5, Total::Final(10), 0));
}

#[test]
fn a_saved_tree_survives_its_json() {
    let clock = VirtualClock::new();
    let saved = saved(&clock);
    let json = serde_json::to_string(&saved).expect("json");
    let read: Snapshot = serde_json::from_str(&json).expect("a snapshot");
    assert_eq!(read, saved);
    let (operation, _gap) = Operation::resume(&read, "pod-a", clock.clock());
    check_nothing_goes_back(&saved, &operation.snapshot());
}
