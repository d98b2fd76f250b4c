//! The upgrade of a repository from version 1 to version 2 of the format.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_progress::Task;

use crate::cancel::Cancel;
use crate::check::ReadData;
use crate::format::config::Config;
use crate::lock::{LockKind, take_waiting};
use crate::repository::Repository;
use crate::{RepositoryError, Result};

impl Repository {
    /// Upgrades a repository to version 2. The structure is checked first; with damage nothing is changed. Only `config` is replaced, in
    /// one write: stored data stays valid, and new data is compressed. A prune compresses the trees.
    ///
    /// Open the repository again afterwards. restic before 0.14 cannot use it any more.
    pub fn upgrade(self: &Arc<Self>, dry_run: bool, task: &Task, cancel: &Cancel) -> Result<()> {
        let location = || self.store.name().to_owned();
        if self.config.version != 1 {
            let cause = format!("it has version {} of the format; only version 1 can be upgraded", self.config.version);
            return Err(RepositoryError::Unsupported { location: location(), cause });
        }
        let found = self.check(ReadData::Nothing, task, cancel)?;
        if let Some(first) = found.errors.first() {
            return Err(RepositoryError::corrupt(location(), format!("{first}; the format was not upgraded")));
        }
        if dry_run {
            return Ok(());
        }
        let lock = take_waiting(self, LockKind::Exclusive, Duration::ZERO, task, cancel)?;
        let mut encrypted = Vec::new();
        self.key.encrypt(&Config { version: 2, ..self.config.clone() }.encode(), &mut encrypted);
        lock.confirm(cancel)?;
        // Not cancellable: an object is replaced as a whole, and the lock must stay until that has happened.
        self.runtime.block_on(self.store.put("config", encrypted)).map_err(RepositoryError::from)
    }
}
