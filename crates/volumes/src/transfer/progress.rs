//! What the tree of a transfer shows: its current activity and its files.

use plimsoll_progress::{Node, Snapshot, State, Total, Unit};

/// The current activity or wait of a transfer. A wait of the root takes precedence.
pub fn current_activity(snapshot: &Snapshot) -> Option<&str> {
    let waits = |node: &&Node| node.state == State::Waiting;
    let whole = snapshot.root().filter(waits).and_then(|root| root.reason.as_deref());
    let current = || {
        let node = snapshot.current()?;
        Some(node).filter(waits).and_then(|node| node.reason.as_deref()).or(node.item.as_deref())
    };
    whole.or_else(current).filter(|_| !snapshot.state().is_ended())
}

/// Processed files, and the total if known.
pub fn files(snapshot: &Snapshot) -> (Option<i64>, Option<i64>) {
    let number = |count: u64| i64::try_from(count).ok();
    let counts = snapshot.nodes.iter().skip(1).find_map(|node| node.counts(Unit::Files));
    let total = counts.and_then(|counts| match counts.total {
        Total::Final(total) if total > 0 => number(total),
        _ => None,
    });
    let done = counts.map(|counts| counts.done).filter(|done| *done > 0 || total.is_some());
    (done.and_then(number), total)
}
