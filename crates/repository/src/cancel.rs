//! Asking work to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{RepositoryError, Result};

/// How often it is looked whether somebody asked.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// A flag that ends work soon after it is raised. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks all work that holds a clone to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether somebody asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Does work that cannot be interrupted on a thread of its own, and waits for it no longer than until somebody asks to
    /// stop. What it results in after that is dropped.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let (done, result) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || done.send(work()));
        loop {
            self.check()?;
            match result.recv_timeout(LOOK) {
                Ok(result) => return result,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(RepositoryError::corrupt("a thread", "it ended without a result"));
                }
            }
        }
    }

    /// An error if somebody asked.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(RepositoryError::Cancelled) } else { Ok(()) }
    }
}
