//! The same numbers in Prometheus' words: pure functions of what is known.
//!
//! Two families of names: ours, `plimsoll_…`, for what only we know, and Velero's own, `velero_…`, because dashboards and alerts for
//! them exist. Operations are named one by one only while they run, and only so many; everything else is counted.

mod format;
mod ours;
mod tally;
mod velero;

use plimsoll_observe::{Line, World};

pub use tally::Tally;

use self::format::Page;
use crate::feed::Due;

/// So many operations are named; of more, the ones that need a person first.
pub const MOST_NAMED: usize = 100;
/// So many schedules and other series are told apart; further ones are left out.
pub const MOST_SERIES: usize = 500;

/// Everything, in the text format.
pub fn text(lines: &[&Line], world: &World, tally: &Tally, due: Due) -> String {
    let mut page = Page::default();
    ours::write(&mut page, lines, world, tally, due);
    velero::write(&mut page, world, tally);
    page.finish()
}
