//! The expected work of one volume, until the cluster has shown its own rates.

use std::time::Duration;

use plimsoll_progress::{Basis, Work};

/// Bytes a second of one transfer, until this cluster has shown its own rate.
const USUAL_RATE: f64 = 50e6;
/// What a transfer takes beside its bytes: its mover starts and opens the repository.
const USUAL_START: Duration = Duration::from_secs(5);
/// What the data of a snapshot takes beside its bytes: its volume is provisioned and mounted.
const USUAL_EXPOSURE: Duration = Duration::from_secs(25);
/// What a snapshot takes.
const USUAL_SNAPSHOT: Duration = Duration::from_secs(10);

/// The work of a transfer of this size.
pub(crate) fn transfer_work(bytes: u64, basis: Basis) -> Work {
    Work::amount(bytes, USUAL_RATE, basis).with_fixed(USUAL_START)
}

/// The work of moving the data of a snapshot of this size.
pub fn movement_work(bytes: u64, basis: Basis) -> Work {
    Work::amount(bytes, USUAL_RATE, basis).with_fixed(USUAL_EXPOSURE)
}

/// The work of taking a snapshot.
pub(crate) const fn snapshot_work() -> Work {
    Work::assumed(USUAL_SNAPSHOT)
}
