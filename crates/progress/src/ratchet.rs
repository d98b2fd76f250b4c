//! Trees of one operation from several sources, shown one after the other: nothing that was shown goes back.

use std::collections::HashMap;
use std::sync::Arc;

use crate::counts::Counts;
use crate::percent::Percent;
use crate::snapshot::{Node, Snapshot};
use crate::state::State;

/// What was shown of one operation, whichever source it came from: the memory of the server, its stream, or a custom resource that is
/// a little older.
#[derive(Debug, Default)]
pub struct Ratchet {
    shown: HashMap<Arc<str>, Floor>,
}

/// What was shown of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Floor {
    meters: Vec<Counts>,
    percent: Option<Percent>,
}

impl Ratchet {
    /// The tree as it may be shown now. It has a token only if its numbers are those that were given.
    #[must_use]
    pub fn show(&mut self, mut tree: Snapshot) -> Snapshot {
        let mut raised = false;
        for node in &mut tree.nodes {
            if let Some(floor) = self.shown.get(&node.path) {
                raised |= floor.raise(node);
            }
            self.shown.insert(Arc::clone(&node.path), Floor::of(node));
        }
        tree.token = tree.token.filter(|_| !raised);
        tree
    }
}

impl Floor {
    pub(crate) fn of(node: &Node) -> Self {
        Self { meters: node.meters.clone(), percent: node.percent }
    }

    /// Lets a node show nothing less than this. Says whether that changed it.
    pub(crate) fn raise(&self, node: &mut Node) -> bool {
        let mut changed = false;
        let measured = node.primary().and_then(Percent::of_counts);
        for counts in &mut node.meters {
            let shown = self.meters.iter().find(|shown| shown.unit == counts.unit);
            let shown = shown.copied().unwrap_or_else(|| Counts::zero(counts.unit));
            let raised = counts.raised_over(&shown);
            let raised = if node.state == State::Done { raised.ended_well() } else { raised };
            changed |= raised != *counts;
            *counts = raised;
        }
        // A percentage of the first meter follows it: the share of an estimate that begins again says nothing.
        if measured.is_some() && node.percent == measured && node.state.is_open() {
            node.percent = node.primary().and_then(Percent::of_counts);
        }
        if let Some(shown) = self.percent.filter(|_| node.state != State::Skipped) {
            let percent = node.percent.unwrap_or(shown).floored(shown.hundredths());
            // What is at work again is not complete, whatever an earlier process thought.
            let percent = if node.state == State::Done { percent } else { percent.below_whole() };
            changed |= node.percent != Some(percent);
            node.percent = Some(percent);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Clock, Operation, Ratchet, Total, Unit, VirtualClock, percent::Percent};

    #[test]
    fn an_older_tree_shows_what_was_shown_and_has_no_token_until_it_has_caught_up() {
        let clock = VirtualClock::new();
        let operation = Operation::new("backup-x", clock.clock());
        operation.begin_epoch(7);
        let bytes = operation.root().child("volume").meter(Unit::Bytes);
        bytes.set_total(Total::Final(100));
        let take = |done| {
            bytes.set_done(done);
            clock.advance(Duration::from_secs(1));
            operation.snapshot()
        };
        let (written, live, later) = (take(40), take(60), take(61));
        let mut ratchet = Ratchet::default();
        let mut show = |tree: &crate::Snapshot| {
            let shown = ratchet.show(tree.clone());
            let done = shown.node("volume").map_or(0, |node| node.meters[0].done);
            (done, shown.percent().map(Percent::plain), shown.token.is_some())
        };
        assert_eq!(show(&live), (60, Some("60.00".into()), true));
        assert_eq!(show(&written), (60, Some("60.00".into()), false), "the stream was lost");
        assert_eq!(show(&later), (61, Some("61.00".into()), true));
    }

    #[test]
    fn a_new_leader_that_begins_with_an_older_tree_shows_nothing_less() {
        let first = Operation::new("backup-x", Clock::system());
        let items = first.root().child("reading").meter(Unit::Items);
        items.set_total(Total::Final(10));
        items.add(3);
        let saved = first.snapshot();
        items.add(4);
        let mut ratchet = Ratchet::default();
        let _ = ratchet.show(first.snapshot());
        let (second, _gap) = Operation::resume(&saved, "pod-a", Clock::system());
        let shown = ratchet.show(second.snapshot());
        assert_eq!(shown.node("reading").map(|node| node.meters[0].done), Some(7));
    }
}
