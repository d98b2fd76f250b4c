//! Asking work to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{RepositoryError, Result};

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

    /// An error if somebody asked.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(RepositoryError::Cancelled) } else { Ok(()) }
    }
}
