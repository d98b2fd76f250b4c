//! Lock files in the store: writing, listing, evaluating and removing them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime};

use plimsoll_store::StoreError;

use super::LockKind;
use super::file::{LockFile, OtherLock, STALE_AGE};
use crate::cancel::{Cancel, POLL_INTERVAL};
use crate::concurrently::concurrently;
use crate::format::id::Id;
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result};

/// The locks in the store.
struct LockScan {
    /// Whether the store denies deletes, as far as that is known without writing.
    denies_deletes: bool,
    /// The locks that are not orphaned.
    locks: Vec<OtherLock>,
    /// Whether an operation was interrupted, as far as that is known.
    has_interrupted: bool,
}

/// The result of writing a lock.
pub(super) struct AcquiredLock {
    /// `None` if the store denies deletes.
    pub id: Option<Id>,
    /// Whether an operation was interrupted before, as far as that is known.
    pub follows_interruption: bool,
}

/// A lock that was not refreshed for this long is that of an interrupted operation.
const INTERRUPTED_AGE: Duration = Duration::from_mins(10);

impl Repository {
    /// Writes a lock unless another one conflicts. The check comes first, so that a failed attempt does not block others. `None` if
    /// the store denies deletes: there only a recent lock of a process that may delete conflicts, and old locks cannot be removed.
    pub(super) fn acquire(&self, kind: LockKind) -> Result<AcquiredLock> {
        let scan = self.scan_locks()?;
        let conflicts = |other: &&OtherLock| {
            if scan.denies_deletes {
                other.conflicts_with(LockKind::Shared) && other.age <= STALE_AGE
            } else {
                other.conflicts_with(kind)
            }
        };
        if let Some(other) = scan.locks.iter().find(conflicts) {
            return Err(RepositoryError::Locked { location: self.store.name().into(), holder: other.holder() });
        }
        if scan.denies_deletes || (kind == LockKind::Exclusive && self.cannot_remove_locks()?) {
            // Without locks nothing tells of an interruption.
            return Ok(AcquiredLock { id: None, follows_interruption: true });
        }
        let id = self.write_lock(kind)?;
        Ok(AcquiredLock { id: Some(id), follows_interruption: scan.has_interrupted })
    }

    /// Whether locks cannot be removed. Tested with a shared lock: an exclusive one that stays would block all readers.
    fn cannot_remove_locks(&self) -> Result<bool> {
        let test_lock = self.write_lock(LockKind::Shared)?;
        match self.try_to_remove_lock(test_lock) {
            Ok(()) => Ok(false),
            Err(error) if is_denied(&error) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// The holder of another lock that conflicts. Removes orphaned locks.
    pub(super) fn conflict(&self, kind: LockKind, own: Id) -> Result<Option<String>> {
        for other in self.other_locks(own)? {
            if other.is_orphaned {
                self.remove_lock(other.id);
            } else if other.conflicts_with(kind) {
                return Ok(Some(other.holder()));
            }
        }
        Ok(None)
    }

    fn other_locks(&self, own: Id) -> Result<Vec<OtherLock>> {
        let files = self.list(FileKind::Lock, &self.options.cancel)?;
        let now = files.iter().find(|file| file.id == own).map_or_else(SystemTime::now, |file| file.modified);
        let mut others = Vec::new();
        let ids = files.iter().map(|file| file.id).filter(|id| *id != own);
        for (id, loaded) in self.load_each(FileKind::Lock, ids, &self.options.cancel)? {
            let modified = files.iter().find(|file| file.id == id).map_or(now, |file| file.modified);
            let age = now.duration_since(modified).unwrap_or_default();
            let file: std::result::Result<LockFile, String> = match loaded {
                Ok(json) => serde_json::from_slice(&json).map_err(|error| error.to_string()),
                Err(RepositoryError::Corrupt { cause, .. }) => Err(cause),
                Err(error) => return Err(error),
            };
            let pod = self.options.pod.as_deref();
            let is_orphaned = file.as_ref().is_ok_and(|file| file.holder_has_ended(pod));
            others.push(OtherLock { id, file, modified, age, is_orphaned });
        }
        Ok(others)
    }

    pub(super) fn write_lock(&self, kind: LockKind) -> Result<Id> {
        let json = serde_json::to_vec(&LockFile::current(kind, self.options.pod.as_deref()))
            .map_err(|error| RepositoryError::corrupt("lock", error.to_string()))?;
        self.runtime.block_on(self.save(FileKind::Lock, &json))
    }

    pub(super) fn has_lock(&self, id: Id, cancel: &Cancel) -> Result<bool> {
        self.wait(cancel, self.lock_exists(id))
    }

    pub(super) async fn lock_exists(&self, id: Id) -> Result<bool> {
        Ok(self.store.exists(&FileKind::Lock.key_of(&id)).await?)
    }

    /// Removes a lock file and waits until `timeout`, which may decrease meanwhile. Afterwards the removal continues in the background.
    pub(super) fn release_lock(self: &Arc<Self>, id: Id, timeout: impl Fn() -> Duration) {
        let repository = self.clone();
        let (done, removed) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || {
            repository.remove_lock(id);
            let _ = done.send(());
        });
        let started = Instant::now();
        while let Some(remaining) = timeout().checked_sub(started.elapsed()) {
            if removed.recv_timeout(remaining.min(POLL_INTERVAL)) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Removes a lock file. Returns whether it was removed.
    pub(super) fn remove_lock(&self, id: Id) -> bool {
        self.try_to_remove_lock(id).is_ok()
    }

    /// Removes a lock file. If the store denies it, no more locks are written.
    fn try_to_remove_lock(&self, id: Id) -> Result<(), StoreError> {
        let removed = self.runtime.block_on(self.store.delete(&FileKind::Lock.key_of(&id)));
        if let Err(error) = &removed {
            if is_denied(error) {
                self.denies_deletes.store(true, Ordering::Release);
                self.record_undeletable_lock(id);
            }
            tracing::warn!(%error, lock = %id, "failed to remove a lock");
        }
        removed
    }

    /// Whether this store denies deletes (append-only, object lock). Tested with a random ID and, because some stores check the
    /// existence before the permission, with a recorded undeletable lock and with orphaned locks.
    pub fn denies_deletes(self: &Arc<Self>) -> Result<bool> {
        let repository = self.clone();
        self.options.cancel.run(move || Ok(repository.scan_locks()?.denies_deletes))
    }

    /// Lists the locks and removes orphaned ones.
    fn scan_locks(&self) -> Result<LockScan> {
        let unused_key = FileKind::Lock.key_of(&Id::random());
        let probe = || -> Result<bool> {
            if self.still_denies_deletes() {
                return Ok(true);
            }
            match self.wait(&self.options.cancel, async { Ok(self.store.delete(&unused_key).await) })? {
                Ok(()) => Ok(false),
                Err(error) if is_denied(&error) => Ok(true),
                Err(error) => Err(error.into()),
            }
        };
        let (denies_deletes, locks) = concurrently(probe, || self.other_locks(Id::default()));
        let (orphaned, locks): (Vec<_>, Vec<_>) = locks?.into_iter().partition(|lock| lock.is_orphaned);
        let has_interrupted = !orphaned.is_empty() || locks.iter().any(|lock| lock.age > INTERRUPTED_AGE);
        if denies_deletes? {
            return Ok(LockScan { denies_deletes: true, locks, has_interrupted });
        }
        for lock in orphaned {
            self.remove_lock(lock.id);
        }
        Ok(LockScan { denies_deletes: self.denies_deletes.load(Ordering::Acquire), locks, has_interrupted })
    }

    /// All locks. The caller may know more about their holders than this machine. An unreadable lock has no holder and may be
    /// exclusive.
    pub fn locks(&self) -> Result<Vec<(Id, LockFile)>> {
        let others = self.other_locks(Id::default())?;
        Ok(others.into_iter().map(|other| (other.id, other.into_file())).collect())
    }

    /// Removes stale locks as restic's `unlock`: locks of ended processes and locks that were not refreshed for half an hour; or all
    /// locks. Returns their number. Ages are measured with a lock of our own, or with this machine's clock if the store denies
    /// deletes.
    ///
    /// # Cancel safety
    /// After the cancel of the repository's options it returns at once. A pending write or removal of a lock continues in the
    /// background, and nothing new is started.
    pub fn unlock(self: &Arc<Self>, all: bool) -> Result<usize> {
        let repository = self.clone();
        self.options.cancel.run(move || repository.remove_locks(all))
    }

    fn remove_locks(&self, all: bool) -> Result<usize> {
        let others = if self.scan_locks()?.denies_deletes {
            self.other_locks(Id::default())
        } else {
            let own = self.write_lock(LockKind::Shared)?;
            let others = self.other_locks(own);
            self.remove_lock(own);
            others
        };
        let mut removed = 0;
        for other in others?.into_iter().filter(|other| all || other.is_stale()) {
            self.options.cancel.check()?;
            removed += usize::from(self.remove_lock(other.id));
        }
        Ok(removed)
    }
}

fn is_denied(error: &StoreError) -> bool {
    matches!(error, StoreError::PermissionDenied { .. } | StoreError::Unsupported { .. })
}
