//! When the threads of a run stop: after the first failure, or a cancel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::{Cancel, RepositoryError, Result};

/// The first failure of a run and its cancel flag, which all of its threads check.
#[derive(Debug)]
pub(crate) struct StopState<'a> {
    failure: Mutex<Option<RepositoryError>>,
    stopped: AtomicBool,
    cancel: &'a Cancel,
}

impl<'a> StopState<'a> {
    pub(crate) fn new(cancel: &'a Cancel) -> Self {
        Self { failure: Mutex::default(), stopped: AtomicBool::new(false), cancel }
    }

    /// Stops the run. The first failure is kept.
    pub(crate) fn fail(&self, error: RepositoryError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stopped.store(true, Ordering::Release);
    }

    /// Whether work should stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || self.cancel.is_cancelled()
    }

    /// Returns an error if work should stop.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(RepositoryError::Cancelled) } else { Ok(()) }
    }

    /// Returns the first failure, or the cancel, after the threads have ended.
    pub(crate) fn take_failure(&self) -> Result<()> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(failure) => Err(failure),
            None => self.cancel.check(),
        }
    }
}
