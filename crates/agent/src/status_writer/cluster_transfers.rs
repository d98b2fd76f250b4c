//! How often a transfer may be written, given how many run in the cluster.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_operations::WriteBudget;

/// A reader should never see anything older than two seconds, and the write takes time too.
const WRITE_INTERVAL: Duration = Duration::from_millis(1500);
/// Limit for all nodes together. With 160 transfers nothing is older than two seconds. With 1,000 the API server still gets fewer
/// than a hundred writes a second: the rest is for the operations above them.
const MAX_WRITES_PER_SECOND: u32 = 90;

/// How many transfers of each kind run in the cluster, as far as this agent knows, and this agent's share of their writes.
#[derive(Clone, Debug)]
pub(crate) struct ClusterTransfers {
    everywhere: RunningByKind,
    /// A clone for each transfer that this agent reports on, and one of its own.
    here: Arc<()>,
    pub(super) write_budget: WriteBudget,
}

/// How many transfers of each kind run on all nodes.
type RunningByKind = Arc<Mutex<HashMap<String, usize>>>;

impl ClusterTransfers {
    /// Starts without transfers. Needs a Tokio runtime.
    pub fn start() -> Self {
        let (everywhere, here) = (RunningByKind::default(), Arc::new(()));
        // Its share of the writes is its share of the transfers.
        let share = {
            let (everywhere, here) = (Arc::clone(&everywhere), Arc::downgrade(&here));
            move || {
                let here = number(here.strong_count().saturating_sub(1).max(1));
                write_duration(count(&everywhere).max(here)) / here
            }
        };
        Self { everywhere, here, write_budget: WriteBudget::start(share) }
    }

    /// Sets the number of transfers of a kind.
    pub fn set(&self, kind: &str, count: usize) {
        self.everywhere.lock().unwrap_or_else(PoisonError::into_inner).insert(kind.to_owned(), count);
    }

    /// How often each of them may be written.
    pub(super) fn interval(&self) -> Duration {
        let here = number(Arc::strong_count(&self.here).saturating_sub(1));
        WRITE_INTERVAL.max(write_duration(count(&self.everywhere).max(here)))
    }
}

fn count(everywhere: &RunningByKind) -> u32 {
    number(everywhere.lock().unwrap_or_else(PoisonError::into_inner).values().sum())
}

/// How long it takes to write this many transfers once.
fn write_duration(transfers: u32) -> Duration {
    Duration::from_secs(1).saturating_mul(transfers) / MAX_WRITES_PER_SECOND
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
