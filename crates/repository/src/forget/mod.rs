//! Forget: removes snapshots. Their data stays until a prune.

mod calendar;
mod policy;

use std::sync::Arc;
use std::time::Duration;

pub use policy::{CalendarDuration, Kept, RetentionPolicy, SnapshotGroup};

use plimsoll_progress::{Task, Unit};

use crate::cancel::Cancel;
use crate::format::id::Id;
use crate::lock::{LockKind, take_waiting};
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result};

impl Repository {
    /// Removes these snapshots, with the exclusive lock. A snapshot that does not exist is no error. Returns how many were removed.
    pub fn forget(
        self: &Arc<Self>,
        snapshots: &[Id],
        lock_timeout: Duration,
        task: &Task,
        cancel: &Cancel,
    ) -> Result<usize> {
        self.require_config()?;
        let lock = take_waiting(self, LockKind::Exclusive, lock_timeout, task, cancel)?;
        let existing: Vec<Id> = self.list(FileKind::Snapshot, cancel)?.into_iter().map(|file| file.id).collect();
        let done = task.meter(Unit::Items);
        done.grow_total(snapshots.len() as u64);
        let mut removed = 0;
        for id in snapshots {
            if existing.contains(id) {
                lock.confirm(cancel)?;
                let key = FileKind::Snapshot.key_of(id);
                self.wait(cancel, async { self.store.delete(&key).await.map_err(RepositoryError::from) })?;
                removed += 1;
            }
            done.add(1);
        }
        done.finalize_total();
        Ok(removed)
    }
}
