//! `status.progress` of a transfer's CR, computed from its task tree.

use plimsoll_progress::{Node, State, Total, Unit};

use crate::job::MoverKind;

/// The item of a task while its source is scanned and the total is unknown.
pub const SCANNING: &str = "scanning";

/// `status.progress` of a PodVolumeBackup or PodVolumeRestore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferProgress {
    /// All bytes.
    pub total_bytes: u64,
    /// The bytes done; less than the total until the transfer succeeds.
    pub bytes_done: u64,
}

/// The progress of a transfer. `None` while the source is scanned or the total is unknown: both numbers appear together.
pub fn transfer_progress(node: &Node) -> Option<TransferProgress> {
    let counts = node.counts(Unit::Bytes)?;
    // Skipped bytes count too.
    let settled = counts.settled();
    if node.state == State::Done {
        return Some(TransferProgress { total_bytes: settled, bytes_done: settled });
    }
    if node.item.as_deref() == Some(SCANNING) {
        return None;
    }
    let total_bytes = match counts.total {
        // 0 of 0 would look complete.
        Total::Unknown | Total::Growing(0) | Total::Final(0) => return None,
        // The built-in mover's growing total is close to the bytes done: its percentage would fall.
        Total::Growing(_) if &*node.name == MoverKind::BuiltIn.name() => return None,
        // An estimate below the bytes done is only a lower limit.
        Total::Growing(total) => total.max(settled.saturating_add(1)),
        Total::Final(total) => total,
    };
    Some(TransferProgress { total_bytes, bytes_done: settled.min(total_bytes.saturating_sub(1)) })
}

/// The progress of a restore by the built-in mover with a total that is known from the snapshot, while the mover still reads the
/// snapshot's trees.
pub fn transfer_progress_with_total(node: &Node, total_bytes: u64) -> Option<TransferProgress> {
    let counts =
        node.counts(Unit::Bytes).filter(|_| &*node.name == MoverKind::BuiltIn.name() && !node.state.is_ended())?;
    let settled = counts.settled();
    let is_measurable = matches!(counts.total, Total::Growing(_)) && settled > 0 && total_bytes > 0;
    is_measurable.then(|| TransferProgress { total_bytes, bytes_done: settled.min(total_bytes - 1) })
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Clock, Ending, Operation};

    use super::*;
    use crate::meters::Meters;

    fn progress(operation: &Operation) -> Option<(u64, u64)> {
        let snapshot = operation.snapshot();
        transfer_progress(snapshot.root()?).map(|progress| (progress.bytes_done, progress.total_bytes))
    }

    #[test]
    fn both_numbers_appear_after_the_scan_and_are_equal_only_after_success() {
        let operation = Operation::new("t", Clock::system());
        let meters = Meters::new(&operation.root());
        assert_eq!(progress(&operation), None);
        meters.scanning(10, 20);
        assert_eq!(progress(&operation), None);
        meters.total(1000);
        meters.item("a/file");
        meters.done(40);
        assert_eq!(progress(&operation), Some((40, 1000)));
        meters.done(1000);
        assert_eq!(progress(&operation), Some((999, 1000)));
        meters.finish(1000, 1);
        assert_eq!(progress(&operation), Some((999, 1000)));
        operation.end(Ending::Succeeded);
        assert_eq!(progress(&operation), Some((1000, 1000)));
    }

    #[test]
    fn the_built_in_mover_has_no_progress_before_a_total_is_known() {
        let operation = Operation::new("parent", Clock::system());
        let mover = operation.root().child(MoverKind::BuiltIn.name());
        let bytes = mover.meter(Unit::Bytes);
        let node = || operation.snapshot().node(MoverKind::BuiltIn.name()).cloned().expect("a node");
        bytes.grow_total(100);
        bytes.skip(99);
        assert_eq!(transfer_progress(&node()), None, "99 % of a growing total");
        let shown = transfer_progress_with_total(&node(), 1000).expect("the snapshot's size");
        assert_eq!((shown.bytes_done, shown.total_bytes), (99, 1000));
        bytes.grow_total(900);
        bytes.finalize_total();
        let shown = transfer_progress(&node()).expect("the total is known");
        assert_eq!((shown.bytes_done, shown.total_bytes), (99, 1000));
        assert_eq!(transfer_progress_with_total(&node(), 2000), None);
    }

    #[test]
    fn a_low_estimate_is_never_100_percent() {
        let operation = Operation::new("t", Clock::system());
        let meters = Meters::new(&operation.root());
        meters.estimate(100);
        meters.done(130);
        assert_eq!(progress(&operation), Some((130, 131)));
    }

    #[test]
    fn a_failed_transfer_keeps_its_last_values_and_an_empty_one_ends_at_0_of_0() {
        let operation = Operation::new("t", Clock::system());
        let meters = Meters::new(&operation.root());
        meters.total(100);
        meters.done(30);
        operation.end(Ending::Failed("x".into()));
        assert_eq!(progress(&operation), Some((30, 100)));
        let operation = Operation::new("t", Clock::system());
        Meters::new(&operation.root()).finish(0, 0);
        assert_eq!(progress(&operation), None);
        operation.end(Ending::Succeeded);
        assert_eq!(progress(&operation), Some((0, 0)));
    }
}
