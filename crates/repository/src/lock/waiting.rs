//! Takes a lock, and waits while other clients hold conflicting ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_progress::Task;

use super::{Lock, LockKind};
use crate::cancel::{Cancel, POLL_INTERVAL};
use crate::repository::Repository;
use crate::{RepositoryError, Result};

/// The intervals of attempts, as of restic's `--retry-lock`.
const FIRST_INTERVAL: Duration = Duration::from_secs(5);
const MAX_INTERVAL: Duration = Duration::from_mins(1);

/// Takes a lock. Tries again until `timeout` while another client holds a conflicting lock, and shows its holder on the task. An
/// attempt that finds a conflict writes no lock file, so it blocks no other client.
pub(crate) fn take_waiting(
    repository: &Arc<Repository>,
    kind: LockKind,
    timeout: Duration,
    task: &Task,
    cancel: &Cancel,
) -> Result<Lock> {
    let (started, mut interval) = (Instant::now(), FIRST_INTERVAL);
    loop {
        let holder = match Lock::take_cancellable(repository, kind, cancel) {
            Err(RepositoryError::Locked { holder, .. }) if started.elapsed() < timeout => holder,
            taken => return taken,
        };
        let _waiting = task.wait(format!("waiting for the lock of {holder}"));
        let remaining = timeout.saturating_sub(started.elapsed());
        wait(interval.min(remaining), cancel)?;
        interval = (interval * 2).min(MAX_INTERVAL);
    }
}

/// Waits, until a cancel at most.
pub(crate) fn wait(duration: Duration, cancel: &Cancel) -> Result<()> {
    let started = Instant::now();
    while let Some(remaining) = duration.checked_sub(started.elapsed()) {
        cancel.check()?;
        std::thread::sleep(remaining.min(POLL_INTERVAL));
    }
    cancel.check()
}
