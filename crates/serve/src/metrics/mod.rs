//! The same numbers in Prometheus' words: pure functions of what is known.
//!
//! Two families of names: ours, `plimsoll_…`, for what only we know, and Velero's own, `velero_…`, because dashboards and alerts for
//! them exist. Operations are named one by one only while they run, and only so many; everything else is counted.

mod exposition;
mod plimsoll;
mod totals;
mod velero;

use plimsoll_observe::{Line, World};

pub use totals::Totals;

use self::exposition::Exposition;
use crate::feed::Due;

/// So many operations are named; of more, the ones that need a person first.
pub const MAX_NAMED_OPERATIONS: usize = 100;
/// So many schedules and other series are told apart; further ones are left out.
pub const MAX_SERIES: usize = 500;

/// Everything, in the text format.
pub fn text(lines: &[&Line], world: &World, totals: &Totals, due: Due) -> String {
    let mut exposition = Exposition::default();
    plimsoll::write(&mut exposition, lines, world, totals, due);
    velero::write(&mut exposition, world, totals);
    exposition.finish()
}
