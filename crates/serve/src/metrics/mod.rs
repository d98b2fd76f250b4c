//! Prometheus metrics, as pure functions of the cluster's state.
//!
//! Three prefixes: `plimsoll_…` for our own metrics, and `velero_…` and `kanister_…` for theirs, because dashboards and alerts for
//! them exist.
//! An operation has series of its own only while it runs, and the number of series is limited.

mod exposition;
mod kanister;
mod plimsoll;
mod totals;
mod velero;

use plimsoll_observe::{ClusterState, OperationSummary};

pub use totals::Totals;

use self::exposition::Exposition;
use crate::refresh::NextRun;

/// Operations with series of their own; the stuck ones first.
pub const MAX_NAMED_OPERATIONS: usize = 100;
/// Schedules and other label values with series of their own; further ones are left out.
pub const MAX_SERIES: usize = 500;

/// All metrics in the text format.
pub fn text(lines: &[&OperationSummary], cluster: &ClusterState, totals: &Totals, next_run: NextRun) -> String {
    let mut exposition = Exposition::default();
    plimsoll::write(&mut exposition, lines, cluster, totals, next_run);
    velero::write(&mut exposition, cluster, totals);
    kanister::write(&mut exposition, totals);
    exposition.finish()
}
