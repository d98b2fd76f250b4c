//! What must hold in every snapshot, and between any two of them.

use std::collections::HashSet;

use plimsoll_progress::{Counts, Node, Snapshot, State, Total};

/// Holds in every snapshot by itself.
pub fn check(snapshot: &Snapshot) {
    let mut seen: HashSet<&str> = HashSet::new();
    for node in &snapshot.nodes {
        let above = node.parent_path();
        assert!(above.is_none_or(|above| seen.contains(above)), "{} comes before its parent", node.path);
        assert!(seen.insert(&node.path), "{} is there twice", node.path);
        check_parent(snapshot, node);
        check_node(node);
    }
    let stalled = snapshot.nodes.iter().any(|node| node.stall.is_some());
    assert_eq!(snapshot.stall.is_some(), stalled, "the verdict on the whole and on its parts differ");
}

fn check_parent(snapshot: &Snapshot, node: &Node) {
    let parent = node.parent_path().and_then(|path| snapshot.node(path));
    let ended = parent.is_some_and(|parent| parent.state.is_ended());
    assert!(!(ended && node.state.is_open()), "{} is open under an ended task", node.path);
}

fn check_node(node: &Node) {
    for counts in &node.meters {
        check_counts(node, counts);
    }
    let complete = node.percent.is_some_and(|percent| percent.hundredths() == 10_000);
    assert_eq!(complete, node.state == State::Done, "100 exactly at the good end: {node:?}");
    if let Some(left) = node.left {
        assert!(left.low >= 1 && left.low <= left.high, "{left:?}");
        assert!(node.state.is_open() && node.stall.is_none(), "time left of a task that does not move: {node:?}");
    }
    if matches!(node.state, State::Waiting | State::Failed | State::Interrupted | State::TakenOver | State::Skipped) {
        assert!(node.reason.as_ref().is_some_and(|reason| !reason.is_empty()), "no reason: {node:?}");
    }
}

fn check_counts(node: &Node, counts: &Counts) {
    if let Some(total) = counts.total.value() {
        assert!(counts.settled() <= total, "settled beyond the total: {node:?}");
    }
    if node.state == State::Done {
        assert_eq!(counts.total, Total::Final(counts.settled()), "equality at success: {node:?}");
    }
}

/// Holds between an earlier and a later snapshot, even if another process took over in between.
pub fn check_nothing_goes_back(earlier: &Snapshot, later: &Snapshot) {
    for before in &earlier.nodes {
        let after = later.node(&before.path).expect("a task does not go");
        for counts in &before.meters {
            let now = after.counts(counts.unit).expect("a meter does not go");
            assert!(now.done >= counts.done, "done fell: {counts:?} -> {now:?}");
            assert!(now.skipped >= counts.skipped, "skipped fell: {counts:?} -> {now:?}");
            assert!(now.failed >= counts.failed, "failed fell: {counts:?} -> {now:?}");
        }
        if after.state != State::Skipped
            && let Some(shown) = before.percent
        {
            let now = after.percent.expect("a percentage does not go");
            // What was finished and is done again is a hair below the end until it is finished again.
            let least = if after.state == State::Done { shown.hundredths() } else { shown.hundredths().min(9_999) };
            assert!(now.hundredths() >= least, "{} fell from {shown} to {now}", before.path);
        }
    }
}

/// Holds between two snapshots of one process: what is final or ended stays so.
pub fn check_final_stays(earlier: &Snapshot, later: &Snapshot) {
    for before in &earlier.nodes {
        let after = later.node(&before.path).expect("a task does not go");
        if before.state.is_ended() {
            assert_eq!(before.state, after.state, "an ended task changed");
            assert_eq!(before.meters, after.meters, "an ended task counted");
        }
        for counts in before.meters.iter().filter(|counts| counts.total.is_final()) {
            let now = after.counts(counts.unit).expect("a meter does not go");
            assert!(now.total == counts.total || after.state == State::Done, "a final total changed: {before:?}");
        }
    }
}
