//! Locks as restic keeps them: a file for each running process, refreshed while it works.
//!
//! The age of a lock is judged by the store's clock: the time the store gave to our own lock file is "now".

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::format::id::Id;
use crate::format::time::Time;
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result, system};

/// Whether others may work at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Readers and backups: any number at a time.
    Shared,
    /// Whoever deletes: nobody else.
    Exclusive,
}

/// What a lock file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockFile {
    /// When it was written, by the holder's clock.
    pub time: Time,
    /// Whether it excludes everybody else.
    #[serde(default)]
    pub exclusive: bool,
    /// The holder's machine.
    #[serde(default)]
    pub hostname: String,
    /// The holder's name.
    #[serde(default)]
    pub username: String,
    /// The holder's process.
    #[serde(default)]
    pub pid: u32,
    /// The holder's number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uid: u32,
    /// The holder's group.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gid: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

const STALE: Duration = Duration::from_mins(30);
const REFRESH: Duration = Duration::from_mins(5);
const GIVE_UP: Duration = Duration::from_secs(22 * 60 + 30);
/// How long another process may need until its lock shows up in a listing.
const SETTLE: Duration = Duration::from_millis(200);

impl LockFile {
    fn mine(kind: LockKind) -> Self {
        let (uid, gid, username) = system::current_user();
        let exclusive = kind == LockKind::Exclusive;
        let (hostname, pid) = (system::hostname(), std::process::id());
        Self { time: Time::now(), exclusive, hostname, username, pid, uid, gid }
    }

    /// Whether the process that wrote it is known to be gone: only this machine can know.
    fn holder_is_gone(&self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        self.hostname == system::hostname()
            && pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
    }

    fn holder(&self) -> String {
        let kind = if self.exclusive { "exclusively " } else { "" };
        format!("{kind}{}@{} (process {}) since {}", self.username, self.hostname, self.pid, self.time)
    }
}

/// A lock of another process, with its age by the store's clock.
struct OtherLock {
    id: Id,
    file: LockFile,
    age: Duration,
}

impl OtherLock {
    fn is_stale(&self) -> bool {
        self.age > STALE || self.file.holder_is_gone()
    }
}

/// A lock that is held; dropping it releases it.
pub struct Lock {
    shared: Arc<Shared>,
    refresher: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    repository: Arc<Repository>,
    kind: LockKind,
    /// Nothing where the store refuses deletes: a lock that cannot be removed would only be in the way.
    held: Mutex<Option<Held>>,
    released: Condvar,
    ended: AtomicBool,
}

#[derive(Clone, Copy)]
struct Held {
    id: Id,
    refreshed: Instant,
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Lock").field("kind", &self.shared.kind).finish_non_exhaustive()
    }
}

impl Lock {
    /// Takes a lock. Locks whose process is gone, or that are older than half an hour, are removed on the way.
    pub fn take(repository: &Arc<Repository>, kind: LockKind) -> Result<Self> {
        let lock = Self::write(repository, kind)?;
        lock.settle()?;
        Ok(lock)
    }

    /// The first half of taking a lock. Reading may begin; nothing may be relied on before [`Lock::settle`].
    pub(crate) fn write(repository: &Arc<Repository>, kind: LockKind) -> Result<Self> {
        ignore_hangups(repository);
        let held = if repository.refuses_deletes()? { None } else { Some(repository.acquire(kind)?) };
        let (released, ended) = (Condvar::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { repository: repository.clone(), kind, held: Mutex::new(held), released, ended });
        let refresher = held.map(|_| {
            let shared = shared.clone();
            std::thread::spawn(move || shared.keep_fresh())
        });
        Ok(Self { shared, refresher })
    }

    /// The second half: once another process that began at the same moment must have shown up, looks again.
    pub(crate) fn settle(&self) -> Result<()> {
        let held = *self.shared.held.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(held) = held else { return Ok(()) };
        std::thread::sleep(SETTLE.saturating_sub(held.refreshed.elapsed()));
        match self.shared.repository.conflict(self.shared.kind, held.id)? {
            None => Ok(()),
            Some(holder) => {
                let location = self.shared.repository.store.name().to_owned();
                Err(RepositoryError::Locked { location, holder })
            }
        }
    }

    /// Whether there is a lock file: there is none where the store refuses deletes.
    pub fn is_visible(&self) -> bool {
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// An error once the lock has gone unrefreshed for so long that others may take it for dead.
    pub fn check(&self) -> Result<()> {
        let held = *self.shared.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held {
            Some(held) if held.refreshed.elapsed() > GIVE_UP => {
                let location = self.shared.repository.store.name().to_owned();
                let cause = format!("it could not be refreshed for {} s", held.refreshed.elapsed().as_secs());
                Err(RepositoryError::LockLost { location, cause })
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        {
            // Under the lock, or the refresher could miss it between looking and waiting.
            let _held = self.shared.held.lock().unwrap_or_else(PoisonError::into_inner);
            self.shared.ended.store(true, Ordering::Release);
        }
        self.shared.released.notify_all();
        if let Some(refresher) = self.refresher.take() {
            let _ = refresher.join();
        }
        let held = self.shared.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(held) = held {
            self.shared.repository.remove_lock(held.id);
        }
    }
}

impl Shared {
    fn keep_fresh(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pause = REFRESH;
        while !self.ended.load(Ordering::Acquire) {
            let (guard, timeout) = self.released.wait_timeout(held, pause).unwrap_or_else(PoisonError::into_inner);
            held = guard;
            if timeout.timed_out() && !self.ended.load(Ordering::Acquire) {
                let old = *held;
                drop(held);
                let renewed = old.and_then(|old| self.renew(old));
                // After a failure try again soon: there is a limit to how long that may go on.
                pause = if renewed.is_some() { REFRESH } else { REFRESH / 10 };
                held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
                *held = renewed.or(old);
            }
        }
    }

    fn renew(&self, old: Held) -> Option<Held> {
        match self.repository.write_lock(self.kind) {
            Ok(id) => {
                self.repository.remove_lock(old.id);
                Some(Held { id, refreshed: Instant::now() })
            }
            Err(error) => {
                tracing::warn!(%error, "lock not refreshed");
                None
            }
        }
    }
}

impl Repository {
    fn acquire(&self, kind: LockKind) -> Result<Held> {
        let id = self.write_lock(kind)?;
        let held = Held { id, refreshed: Instant::now() };
        let conflict = self.conflict(kind, id);
        match conflict {
            Ok(None) => Ok(held),
            Ok(Some(holder)) => {
                self.remove_lock(id);
                Err(RepositoryError::Locked { location: self.store.name().into(), holder })
            }
            Err(error) => {
                self.remove_lock(id);
                Err(error)
            }
        }
    }

    /// Who else holds a lock that excludes this one. Stale locks are removed.
    fn conflict(&self, kind: LockKind, own: Id) -> Result<Option<String>> {
        for other in self.other_locks(own)? {
            if other.is_stale() {
                self.remove_lock(other.id);
            } else if kind == LockKind::Exclusive || other.file.exclusive {
                return Ok(Some(other.file.holder()));
            }
        }
        Ok(None)
    }

    fn other_locks(&self, own: Id) -> Result<Vec<OtherLock>> {
        let files = self.list(FileKind::Lock)?;
        let now = files.iter().find(|file| file.id == own).map_or_else(SystemTime::now, |file| file.modified);
        let mut others = Vec::new();
        for (id, loaded) in self.load_each(FileKind::Lock, files.iter().map(|file| file.id).filter(|id| *id != own)) {
            let modified = files.iter().find(|file| file.id == id).map_or(now, |file| file.modified);
            let age = now.duration_since(modified).unwrap_or_default();
            let what = FileKind::Lock.key_of(&id);
            let file =
                serde_json::from_slice(&loaded?).map_err(|error| RepositoryError::corrupt(what, error.to_string()))?;
            others.push(OtherLock { id, file, age });
        }
        Ok(others)
    }

    fn write_lock(&self, kind: LockKind) -> Result<Id> {
        let json = serde_json::to_vec(&LockFile::mine(kind))
            .map_err(|error| RepositoryError::corrupt("lock", error.to_string()))?;
        self.runtime.block_on(self.save(FileKind::Lock, &json))
    }

    fn remove_lock(&self, id: Id) {
        if let Err(error) = self.runtime.block_on(self.store.delete(&FileKind::Lock.key_of(&id))) {
            tracing::warn!(%error, lock = %id, "lock not removed");
        }
    }

    /// Whether this store lets nothing be deleted (append-only, object lock): asked with a name that nobody has.
    pub fn refuses_deletes(&self) -> Result<bool> {
        match self.runtime.block_on(self.store.delete(&FileKind::Lock.key_of(&Id::random()))) {
            Ok(()) => Ok(false),
            Err(
                plimsoll_store::StoreError::PermissionDenied { .. } | plimsoll_store::StoreError::Unsupported { .. },
            ) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes locks that nobody holds any more, or all of them; says how many.
    pub fn unlock(&self, all: bool) -> Result<usize> {
        let own = self.write_lock(LockKind::Shared)?;
        let others = self.other_locks(own);
        self.remove_lock(own);
        let stale: Vec<_> = others?.into_iter().filter(|other| all || other.is_stale()).collect();
        for other in &stale {
            self.remove_lock(other.id);
        }
        Ok(stale.len())
    }
}

/// restic sends SIGHUP to the process in a lock to see whether it lives: that must not end us. Once registered, the
/// signal has no effect for the rest of the process.
fn ignore_hangups(repository: &Repository) {
    let _runtime = repository.runtime.enter();
    if let Err(error) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()) {
        tracing::warn!(%error, "SIGHUP is not ignored");
    }
}
