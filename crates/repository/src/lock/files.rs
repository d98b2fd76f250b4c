//! Lock files in the store: written, listed, judged, removed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant, SystemTime};

use plimsoll_store::StoreError;

use super::LockKind;
use super::file::{LockFile, OtherLock, STALE};
use crate::cancel::{Cancel, LOOK};
use crate::format::id::Id;
use crate::repository::{FileKind, Repository};
use crate::side_by_side::side_by_side;
use crate::{RepositoryError, Result};

/// What a look at the locks has brought to light.
struct Found {
    /// The store lets nothing be deleted, as far as that can be known without writing.
    refuses_deletes: bool,
    /// Those that somebody may hold.
    locks: Vec<OtherLock>,
}

impl Repository {
    /// Looks who has a lock, and writes one if nobody is in the way: who only wants to know must not keep others out
    /// meanwhile. Nothing where the store refuses deletes; there a lock in the way is one that somebody who may delete has
    /// written not long ago, and old ones are what nobody could remove.
    pub(super) fn acquire(&self, kind: LockKind) -> Result<Option<Id>> {
        let found = self.look()?;
        let is_in_the_way = |other: &&OtherLock| {
            if found.refuses_deletes {
                other.excludes(LockKind::Shared) && other.age <= STALE
            } else {
                other.excludes(kind)
            }
        };
        if let Some(other) = found.locks.iter().find(is_in_the_way) {
            return Err(RepositoryError::Locked { location: self.store.name().into(), holder: other.holder() });
        }
        if found.refuses_deletes || (kind == LockKind::Exclusive && self.keeps_locks()?) {
            return Ok(None);
        }
        self.write_lock(kind).map(Some)
    }

    /// Whether a lock cannot be removed once it is there. Found out with one that is in few people's way: an exclusive one that
    /// stays would keep everybody out, readers too.
    fn keeps_locks(&self) -> Result<bool> {
        let tried = self.write_lock(LockKind::Shared)?;
        match self.try_to_remove_lock(tried) {
            Ok(()) => Ok(false),
            Err(error) if is_refusal(&error) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Who else holds a lock that excludes this one. Locks whose holder is known to be gone are removed.
    pub(super) fn conflict(&self, kind: LockKind, own: Id) -> Result<Option<String>> {
        for other in self.other_locks(own)? {
            if other.is_left_behind {
                self.remove_lock(other.id);
            } else if other.excludes(kind) {
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
            let is_left_behind = file.as_ref().is_ok_and(|file| file.holder_is_gone(pod));
            others.push(OtherLock { id, file, modified, age, is_left_behind });
        }
        Ok(others)
    }

    pub(super) fn write_lock(&self, kind: LockKind) -> Result<Id> {
        let json = serde_json::to_vec(&LockFile::mine(kind, self.options.pod.as_deref()))
            .map_err(|error| RepositoryError::corrupt("lock", error.to_string()))?;
        self.runtime.block_on(self.save(FileKind::Lock, &json))
    }

    pub(super) fn has_lock(&self, id: Id, cancel: &Cancel) -> Result<bool> {
        self.wait(cancel, self.look_for_lock(id))
    }

    pub(super) async fn look_for_lock(&self, id: Id) -> Result<bool> {
        Ok(self.store.exists(&FileKind::Lock.key_of(&id)).await?)
    }

    /// Removes a lock file, and waits so long for it, which may become less meanwhile. After that the removal goes on by itself.
    pub(super) fn release_lock(self: &Arc<Self>, id: Id, patience: impl Fn() -> Duration) {
        let repository = self.clone();
        let (done, removed) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || {
            repository.remove_lock(id);
            let _ = done.send(());
        });
        let begun = Instant::now();
        while let Some(left) = patience().checked_sub(begun.elapsed()) {
            if removed.recv_timeout(left.min(LOOK)) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Removes a lock file; says whether it is gone.
    pub(super) fn remove_lock(&self, id: Id) -> bool {
        self.try_to_remove_lock(id).is_ok()
    }

    /// The same. That the store refuses it is remembered: it will get no more of them.
    fn try_to_remove_lock(&self, id: Id) -> Result<(), StoreError> {
        let removed = self.runtime.block_on(self.store.delete(&FileKind::Lock.key_of(&id)));
        if let Err(error) = &removed {
            if is_refusal(error) {
                self.keeps_everything.store(true, Ordering::Release);
                self.remember_refusal(id);
            }
            tracing::warn!(%error, lock = %id, "lock not removed");
        }
        removed
    }

    /// Whether this store lets nothing be deleted (append-only, object lock): asked with a name that nobody has, and,
    /// because not every store looks at permissions before names, with a lock that once could not be removed from this
    /// machine, and with those of processes that are gone.
    pub fn refuses_deletes(self: &Arc<Self>) -> Result<bool> {
        let repository = self.clone();
        self.options.cancel.run(move || Ok(repository.look()?.refuses_deletes))
    }

    /// Looks at what is there, and removes locks whose holder is known to be gone.
    fn look(&self) -> Result<Found> {
        let nobodys = FileKind::Lock.key_of(&Id::random());
        let probe = || -> Result<bool> {
            if self.still_refuses() {
                return Ok(true);
            }
            match self.wait(&self.options.cancel, async { Ok(self.store.delete(&nobodys).await) })? {
                Ok(()) => Ok(false),
                Err(error) if is_refusal(&error) => Ok(true),
                Err(error) => Err(error.into()),
            }
        };
        let (refuses_deletes, locks) = side_by_side(probe, || self.other_locks(Id::default()));
        let (left_behind, locks): (Vec<_>, Vec<_>) = locks?.into_iter().partition(|lock| lock.is_left_behind);
        if refuses_deletes? {
            return Ok(Found { refuses_deletes: true, locks });
        }
        for lock in left_behind {
            self.remove_lock(lock.id);
        }
        Ok(Found { refuses_deletes: self.keeps_everything.load(Ordering::Acquire), locks })
    }

    /// All locks. Whoever decides about them may know more about their holders than this machine does. One that cannot be read
    /// has no holder, and may be exclusive.
    pub fn locks(&self) -> Result<Vec<(Id, LockFile)>> {
        let others = self.other_locks(Id::default())?;
        Ok(others.into_iter().map(|other| (other.id, other.known())).collect())
    }

    /// Removes locks that nobody holds any more, as restic's `unlock` judges it: those of processes that are gone and those that
    /// nobody renewed for half an hour; or all of them. Says how many. A store that refuses deletes gets no lock for it: then
    /// this machine's clock must do.
    ///
    /// # Cancel safety
    /// After the cancel that the repository was opened with, it returns at once. What is on its way then, a lock that is written
    /// to know the time or the removal of one, goes on by itself, and nothing new is begun.
    pub fn unlock(self: &Arc<Self>, all: bool) -> Result<usize> {
        let repository = self.clone();
        self.options.cancel.run(move || repository.remove_locks(all))
    }

    fn remove_locks(&self, all: bool) -> Result<usize> {
        let others = if self.look()?.refuses_deletes {
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

fn is_refusal(error: &StoreError) -> bool {
    matches!(error, StoreError::PermissionDenied { .. } | StoreError::Unsupported { .. })
}
