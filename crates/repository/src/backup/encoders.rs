//! The encoders that the threads of a backup share. Each takes memory, so there are as many as workers, not as threads.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::options::BackupOptions;
use super::packer::BlobEncoder;
use crate::{RepositoryError, Result};

pub(super) struct Encoders {
    idle: Mutex<Vec<BlobEncoder>>,
    returned: Condvar,
}

impl Encoders {
    pub(super) fn new(count: usize, options: &BackupOptions) -> Result<Self> {
        let encoder = |_| BlobEncoder::new(options.compression, options.verify);
        let idle = Mutex::new((0..count).map(encoder).collect::<Result<_>>()?);
        Ok(Self { idle, returned: Condvar::new() })
    }

    /// Runs `work` with an encoder; waits for one. Returns an error when `stopped` returns `true`.
    pub(super) fn with<T>(
        &self,
        stopped: impl Fn() -> bool,
        work: impl FnOnce(&mut BlobEncoder) -> Result<T>,
    ) -> Result<T> {
        let mut encoder = self.take(stopped)?;
        let done = work(&mut encoder);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(encoder);
        self.returned.notify_one();
        done
    }

    fn take(&self, stopped: impl Fn() -> bool) -> Result<BlobEncoder> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(encoder) = idle.pop() {
                return Ok(encoder);
            }
            if stopped() {
                return Err(RepositoryError::Cancelled);
            }
            let waited = self.returned.wait_timeout(idle, Duration::from_millis(50));
            idle = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
