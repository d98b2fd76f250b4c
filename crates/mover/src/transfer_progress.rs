//! What a transfer's CR shows of its tree.

use plimsoll_progress::{Node, State, Total, Unit};

use crate::job::Kind;

/// What a task says while its source is still being looked through and no total can be told.
pub const SCANNING: &str = "scanning";

/// `status.progress` of a PodVolumeBackup or PodVolumeRestore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferProgress {
    /// All bytes.
    pub total_bytes: u64,
    /// Those that are done: fewer, until the transfer has ended well.
    pub bytes_done: u64,
}

/// What a transfer's CR may show. Nothing while the source is being scanned or the total is unknown: both numbers first
/// appear together.
pub fn transfer_progress(node: &Node) -> Option<TransferProgress> {
    let counts = node.counts(Unit::Bytes)?;
    // What need not be moved again counts too.
    let settled = counts.settled();
    if node.state == State::Done {
        return Some(TransferProgress { total_bytes: settled, bytes_done: settled });
    }
    if node.item.as_deref() == Some(SCANNING) {
        return None;
    }
    let total_bytes = match counts.total {
        // Nothing of nothing would look like the end.
        Total::Unknown | Total::Growing(0) | Total::Final(0) => return None,
        // Ours knows its total soon. What it has found until then is about what it has done: a percentage of that would fall.
        Total::Growing(_) if &*node.name == Kind::BuiltIn.name() => return None,
        // An estimate that the work has passed already says nothing but "at least this much".
        Total::Growing(total) => total.max(settled.saturating_add(1)),
        Total::Final(total) => total,
    };
    Some(TransferProgress { total_bytes, bytes_done: settled.min(total_bytes.saturating_sub(1)) })
}

/// The same where the total is known from elsewhere while our own mover still looks through a snapshot: a large one it restores
/// part by part.
pub fn progress_towards(node: &Node, total_bytes: u64) -> Option<TransferProgress> {
    let counts = node.counts(Unit::Bytes).filter(|_| &*node.name == Kind::BuiltIn.name() && !node.state.is_ended())?;
    let settled = counts.settled();
    let known = matches!(counts.total, Total::Growing(_)) && settled > 0 && total_bytes > 0;
    known.then(|| TransferProgress { total_bytes, bytes_done: settled.min(total_bytes - 1) })
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Clock, Ending, Operation};

    use super::*;
    use crate::meters::Meters;

    fn shown(operation: &Operation) -> Option<(u64, u64)> {
        let snapshot = operation.snapshot();
        transfer_progress(snapshot.root()?).map(|progress| (progress.bytes_done, progress.total_bytes))
    }

    #[test]
    fn both_numbers_appear_together_once_the_scan_has_ended_and_are_equal_only_at_a_good_end() {
        let operation = Operation::new("t", Clock::system());
        let meters = Meters::new(&operation.root());
        assert_eq!(shown(&operation), None);
        meters.scanning(10, 20);
        assert_eq!(shown(&operation), None);
        meters.total(1000);
        meters.item("a/file");
        meters.done(40);
        assert_eq!(shown(&operation), Some((40, 1000)));
        meters.done(1000);
        assert_eq!(shown(&operation), Some((999, 1000)));
        meters.finish(1000, 1);
        assert_eq!(shown(&operation), Some((999, 1000)));
        operation.end(Ending::Succeeded);
        assert_eq!(shown(&operation), Some((1000, 1000)));
    }

    #[test]
    fn our_own_mover_shows_nothing_before_it_knows_the_total_unless_somebody_else_does() {
        let operation = Operation::new("parent", Clock::system());
        let mover = operation.root().child(Kind::BuiltIn.name());
        let bytes = mover.meter(Unit::Bytes);
        let node = || operation.snapshot().node(Kind::BuiltIn.name()).cloned().expect("a node");
        bytes.grow_total(100);
        bytes.skip(99);
        assert_eq!(transfer_progress(&node()), None, "99 % of what it has found so far");
        let shown = progress_towards(&node(), 1000).expect("the snapshot's size");
        assert_eq!((shown.bytes_done, shown.total_bytes), (99, 1000));
        bytes.grow_total(900);
        bytes.finalize_total();
        let shown = transfer_progress(&node()).expect("the total is known");
        assert_eq!((shown.bytes_done, shown.total_bytes), (99, 1000));
        assert_eq!(progress_towards(&node(), 2000), None);
    }

    #[test]
    fn an_estimate_that_was_too_small_is_never_a_hundred_percent() {
        let operation = Operation::new("t", Clock::system());
        let meters = Meters::new(&operation.root());
        meters.estimate(100);
        meters.done(130);
        assert_eq!(shown(&operation), Some((130, 131)));
    }

    #[test]
    fn a_failed_transfer_keeps_its_last_values_and_an_empty_one_ends_at_nothing_of_nothing() {
        let operation = Operation::new("t", Clock::system());
        let meters = Meters::new(&operation.root());
        meters.total(100);
        meters.done(30);
        operation.end(Ending::Failed("x".into()));
        assert_eq!(shown(&operation), Some((30, 100)));
        let operation = Operation::new("t", Clock::system());
        Meters::new(&operation.root()).finish(0, 0);
        assert_eq!(shown(&operation), None);
        operation.end(Ending::Succeeded);
        assert_eq!(shown(&operation), Some((0, 0)));
    }
}
