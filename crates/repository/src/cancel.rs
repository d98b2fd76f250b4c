//! Cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{RepositoryError, Result};

/// The interval of checks for a cancel.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A cancel flag. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Cancels all work with a clone of this flag.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the work was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Runs work that cannot be interrupted on a thread of its own, and returns early after a cancel. A later result is dropped.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (done, result) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || done.send(work()));
        loop {
            self.check()?;
            match result.recv_timeout(POLL_INTERVAL) {
                Ok(result) => return result,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(RepositoryError::corrupt("worker thread", "ended without a result"));
                }
            }
        }
    }

    /// Returns an error after a cancel.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(RepositoryError::Cancelled) } else { Ok(()) }
    }
}
