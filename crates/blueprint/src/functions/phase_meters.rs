//! The progress of a phase, as its function reports it to the task of the phase.
//!
//! | meter | counts |
//! |---|---|
//! | `Steps` | prerequisites, execution, cleanup: for functions whose progress is measured in steps |
//! | `Bytes` | bytes that data movers have processed |
//! | `Uploaded`, `Downloaded` | bytes that went over the network, and the total to process in that direction |

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_progress::{Counts, PercentRule, Task, Total, Unit};

use super::function_spec::ProgressKind;
use crate::percent::{self, Bytes, Hundredths, Step};

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// To the store.
    #[default]
    Upload,
    /// From the store.
    Download,
}

impl Direction {
    fn unit(self) -> Unit {
        match self {
            Self::Upload => Unit::Uploaded,
            Self::Download => Unit::Downloaded,
        }
    }
}

/// The progress of one data mover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferProgress {
    /// The direction.
    pub direction: Direction,
    /// Bytes processed.
    pub read: u64,
    /// Total bytes, if known.
    pub total: Option<u64>,
    /// Bytes transferred, once reported.
    pub sent: Option<u64>,
    /// Maximum of the seconds left.
    pub seconds_left: Option<u64>,
}

/// The percentage of a running phase, from the meters of its task.
fn percent_rule(kind: ProgressKind) -> PercentRule {
    match kind {
        ProgressKind::Bytes => |meters| phase_percent(ProgressKind::Bytes, meters),
        ProgressKind::OnCompletion => |meters| phase_percent(ProgressKind::OnCompletion, meters),
        ProgressKind::Steps => |meters| phase_percent(ProgressKind::Steps, meters),
    }
}

fn phase_percent(kind: ProgressKind, meters: &[Counts]) -> Hundredths {
    let counts = |unit: Unit| meters.iter().find(|counts| counts.unit == unit);
    let step = Step::from_count(counts(Unit::Steps).map_or(0, Counts::settled));
    let bytes = counts(Unit::Bytes).map(|bytes| Bytes { done: bytes.settled(), total: bytes.total.value() });
    percent::running(kind, step, bytes.unwrap_or_default())
}

/// The meters of a phase. Several data movers count into the same ones.
pub struct PhaseMeters {
    kind: ProgressKind,
    task: Task,
    movers: Mutex<BTreeMap<String, TransferProgress>>,
}

impl PhaseMeters {
    /// The meters of `task`.
    pub fn new(kind: ProgressKind, task: Task) -> Self {
        if kind == ProgressKind::Steps {
            task.meter(Unit::Steps).set_total(Total::Final(Step::COUNT));
        }
        task.percent_rule(percent_rule(kind));
        Self { kind, task, movers: Mutex::default() }
    }

    /// Advances to a step.
    pub fn reach(&self, step: Step) {
        if self.kind == ProgressKind::Steps {
            self.task.meter(Unit::Steps).set_done(step.count());
        }
        self.task.touch();
    }

    /// Reports the progress of one of several data movers.
    pub fn report(&self, mover: &str, progress: TransferProgress) {
        let mut movers = self.lock();
        movers.insert(mover.to_owned(), progress);
        let all: Vec<_> = movers.values().copied().collect();
        self.count_processed(&all);
        for direction in [Direction::Upload, Direction::Download] {
            let same_direction: Vec<_> = all.iter().filter(|one| one.direction == direction).copied().collect();
            self.count_transferred(direction.unit(), &same_direction);
        }
        self.task.report_left(all.iter().filter_map(|one| one.seconds_left).max());
    }

    fn count_processed(&self, movers: &[TransferProgress]) {
        let meter = self.task.meter(Unit::Bytes);
        let total = total(movers);
        if let Some(total) = total {
            meter.set_total(Total::Growing(total));
        }
        // Bytes of a mover without a total must not count against the total of the others.
        if total.is_some() || meter.counts().total == Total::Unknown {
            meter.set_done(movers.iter().fold(0, |sum: u64, one| sum.saturating_add(one.read)));
        }
    }

    fn count_transferred(&self, unit: Unit, movers: &[TransferProgress]) {
        if let Some(total) = total(movers) {
            self.task.meter(unit).set_total(Total::Growing(total));
        }
        if let Some(sent) = movers.iter().filter_map(|one| one.sent).reduce(u64::saturating_add) {
            self.task.meter(unit).set_done(sent);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, TransferProgress>> {
        self.movers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The total of all movers; `None` while one of them does not know its own.
fn total(movers: &[TransferProgress]) -> Option<u64> {
    let sum = |sum: u64, one: &TransferProgress| Some(sum.saturating_add(one.total?));
    movers.iter().try_fold(0, sum).filter(|_| !movers.is_empty())
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Clock, Counts, Operation};

    use super::*;

    fn progress(direction: Direction, read: u64, total: Option<u64>, sent: Option<u64>) -> TransferProgress {
        TransferProgress { direction, read, total, sent, seconds_left: None }
    }

    fn counts(tree: &Operation, unit: Unit) -> Option<Counts> {
        tree.snapshot().node("p").unwrap().counts(unit).copied()
    }

    #[test]
    fn a_total_is_counted_once_every_data_mover_knows_its_own() {
        let tree = Operation::new("set", Clock::system());
        let meters = PhaseMeters::new(ProgressKind::Bytes, tree.root().child("p"));
        meters.report("a", progress(Direction::Upload, 5, Some(10), None));
        let of_one = counts(&tree, Unit::Bytes).unwrap();
        assert_eq!((of_one.done, of_one.total), (5, Total::Growing(10)));
        meters.report("b", progress(Direction::Upload, 500, None, None));
        assert_eq!(counts(&tree, Unit::Bytes).unwrap(), of_one, "500 of 10 would be wrong");
        meters.report("b", progress(Direction::Upload, 500, Some(990), None));
        let of_both = counts(&tree, Unit::Bytes).unwrap();
        assert_eq!((of_both.done, of_both.total), (505, Total::Growing(1000)));
    }

    #[test]
    fn both_directions_are_counted_apart() {
        let tree = Operation::new("set", Clock::system());
        let meters = PhaseMeters::new(ProgressKind::Steps, tree.root().child("p"));
        meters.report("push", progress(Direction::Upload, 7, None, Some(7)));
        meters.report("pull", progress(Direction::Download, 3, Some(9), Some(3)));
        let (up, down) = (counts(&tree, Unit::Uploaded).unwrap(), counts(&tree, Unit::Downloaded).unwrap());
        assert_eq!((up.done, up.total), (7, Total::Unknown));
        assert_eq!((down.done, down.total), (3, Total::Growing(9)));
        let steps = counts(&tree, Unit::Steps).unwrap();
        assert_eq!((steps.done, steps.total), (0, Total::Final(3)));
    }
}
