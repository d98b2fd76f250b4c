//! Locks as in restic: a file for each running process, refreshed while it works.
//!
//! The age of a lock is measured with the store's clock: the modification time of our own lock file is "now".

mod clock;
mod file;
mod files;
mod holder;
mod save_under_lock;
mod undeletable_lock;
mod waiting;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::LockClock;
pub use file::LockFile;
use file::STALE_AGE;
pub use holder::{HolderLiveness, LockHolder, machine};
pub(crate) use waiting::{take_waiting, wait};

use crate::cancel::Cancel;
use crate::format::id::Id;
use crate::repository::Repository;
use crate::{RepositoryError, Result};

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// For readers and backups: any number at the same time.
    Shared,
    /// For deletions: conflicts with all other locks.
    Exclusive,
}

/// The interval of replacing the lock file with a new one.
const REFRESH_INTERVAL: Duration = Duration::from_mins(5);
/// The retry interval after a failed refresh.
const REFRESH_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Without a refresh for this long nothing is written any more: after 30 minutes others consider the lock stale.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(22 * 60 + 30);
/// The time until the lock of another process appears in a listing.
const CONFIRM_DELAY: Duration = Duration::from_millis(200);
/// The time limits for a release, normally and after a cancel; then it continues in the background.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
const SHORT_RELEASE_TIMEOUT: Duration = Duration::from_millis(300);
/// The interval of the refresher's checks of the clock.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// A lock of the repository, released on drop.
pub struct Lock {
    shared: Arc<Shared>,
}

struct Shared {
    repository: Arc<Repository>,
    kind: LockKind,
    clock: LockClock,
    written: Duration,
    /// `None` if the store denies deletes: a lock that cannot be removed would block others.
    held: Mutex<Option<Held>>,
    released: Condvar,
    ended: AtomicBool,
    /// Set when the lock file was removed: others may have worked without respecting it.
    is_lost: AtomicBool,
    is_urgent: AtomicBool,
    cancel: Cancel,
    follows_interruption: bool,
    /// The result of the second check for conflicts.
    confirmation: Mutex<Option<Result<()>>>,
    confirmed: Condvar,
}

#[derive(Clone, Copy)]
struct Held {
    id: Id,
    /// By the repository's clock.
    refreshed: Duration,
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Lock").field("kind", &self.shared.kind).finish_non_exhaustive()
    }
}

impl Lock {
    /// Takes a lock. Removes orphaned locks, which are those of ended processes in the same PID namespace or pod. Other locks are not
    /// removed, however old they are: a single observation cannot show that they are not refreshed.
    ///
    /// # Cancel safety
    /// After the cancel of the repository's options it returns at once, and so does a release. A pending lock file is removed in the
    /// background while the process runs.
    pub fn take(repository: &Arc<Repository>, kind: LockKind) -> Result<Self> {
        Self::take_cancellable(repository, kind, &repository.options.cancel)
    }

    /// Takes a lock. Returns early after a cancel.
    pub(crate) fn take_cancellable(repository: &Arc<Repository>, kind: LockKind, cancel: &Cancel) -> Result<Self> {
        let (repository, lock_cancel) = (repository.clone(), cancel.clone());
        cancel.run(move || {
            let lock = Self::write(&repository, kind, &lock_cancel)?;
            lock.shared.wait_for_confirmation()?;
            Ok(lock)
        })
    }

    /// Writes the lock file, the first step of taking a lock. Reading may start, but its result is valid only after
    /// [`Lock::wait_until_confirmed`]. Blocks on the store; `cancel` only shortens the release. The second check for conflicts runs in
    /// the background after [`CONFIRM_DELAY`], when a concurrent lock must be visible. A much later check could miss a process that has
    /// finished meanwhile.
    pub(crate) fn write(repository: &Arc<Repository>, kind: LockKind, cancel: &Cancel) -> Result<Self> {
        ignore_hangups(repository);
        let clock = LockClock::new(repository.options.clock.clone());
        // Its age counts from before the write, and the confirm delay from after it.
        let refreshed = clock.now();
        let acquired = repository.acquire(kind)?;
        let held = acquired.id.map(|id| Held { id, refreshed });
        let written = clock.now();
        let shared = Arc::new(Shared {
            repository: repository.clone(),
            kind,
            clock,
            written,
            held: Mutex::new(held),
            released: Condvar::new(),
            ended: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            is_urgent: AtomicBool::new(false),
            cancel: cancel.clone(),
            follows_interruption: acquired.follows_interruption,
            confirmation: Mutex::default(),
            confirmed: Condvar::new(),
        });
        if let Some(held) = held {
            let (refreshing, confirming) = (shared.clone(), shared.clone());
            std::thread::spawn(move || refreshing.run_refresher(held.refreshed + REFRESH_INTERVAL));
            std::thread::spawn(move || confirming.check_conflicts_again(held.id));
        }
        Ok(Self { shared })
    }

    /// Waits for the second check for conflicts, until a cancel at most. To be called once.
    pub(crate) fn wait_until_confirmed(&self, cancel: &Cancel) -> Result<()> {
        let shared = self.shared.clone();
        cancel.run(move || shared.wait_for_confirmation())
    }

    /// Shortens the time limit of the release.
    pub(crate) fn shorten_release(&self) {
        self.shared.is_urgent.store(true, Ordering::Release);
    }

    /// Ends the lock without removing its file, because a write that it protects may still happen.
    fn abandon(&self) {
        self.shared.end();
    }

    /// Whether there is a lock file. There is none if the store denies deletes.
    pub fn is_visible(&self) -> bool {
        self.shared.held().is_some()
    }

    /// Whether another operation was interrupted before this one, as far as its lock tells.
    pub(crate) fn follows_interruption(&self) -> bool {
        self.shared.follows_interruption
    }

    /// Returns an error if the lock was not refreshed in time or was removed.
    pub fn check(&self) -> Result<()> {
        let Some(held) = *self.shared.held() else { return Ok(()) };
        if self.shared.is_lost.load(Ordering::Acquire) {
            return Err(self.shared.removed_error());
        }
        let age = self.shared.clock.now().saturating_sub(held.refreshed);
        if age <= REFRESH_TIMEOUT {
            return Ok(());
        }
        Err(self.shared.lost_error(format!("not refreshed for {} s", age.as_secs())))
    }

    /// Returns an error also if the lock file does not exist. Called before writing references to data that a prune may have removed.
    pub(crate) fn confirm(&self, cancel: &Cancel) -> Result<()> {
        loop {
            self.check()?;
            let Some(checked) = *self.shared.held() else { return Ok(()) };
            if self.shared.repository.has_lock(checked.id, cancel)? {
                return Ok(());
            }
            // It may have been refreshed meanwhile.
            let is_unchanged = (*self.shared.held()).is_some_and(|held| held.id == checked.id);
            if is_unchanged {
                return Err(self.shared.removed_error());
            }
        }
    }

    /// Whether the lock file still exists; true if there is none by design.
    pub(crate) async fn exists(&self) -> Result<bool> {
        let held = *self.shared.held();
        match held {
            Some(held) => self.shared.repository.lock_exists(held.id).await,
            None => Ok(true),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(held) = self.shared.end() {
            self.shared.repository.release_lock(held.id, || self.shared.release_timeout());
        }
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the refresher and returns the current lock file.
    fn end(&self) -> Option<Held> {
        let held = {
            // With the mutex held, or the refresher could miss it between the check and the wait.
            let mut held = self.held();
            self.ended.store(true, Ordering::Release);
            held.take()
        };
        self.released.notify_all();
        held
    }

    /// The time limit for a release.
    fn release_timeout(&self) -> Duration {
        let is_short = self.is_urgent.load(Ordering::Acquire) || self.cancel.is_cancelled();
        if is_short { SHORT_RELEASE_TIMEOUT } else { RELEASE_TIMEOUT }
    }

    fn location(&self) -> String {
        self.repository.store.name().to_owned()
    }

    fn lost_error(&self, cause: String) -> RepositoryError {
        RepositoryError::LockLost { location: self.location(), cause }
    }

    fn removed_error(&self) -> RepositoryError {
        self.lost_error("its file was removed, or may have been".into())
    }

    fn check_conflicts_again(&self, own: Id) {
        std::thread::sleep(CONFIRM_DELAY.saturating_sub(self.clock.now().saturating_sub(self.written)));
        if self.ended.load(Ordering::Acquire) {
            return self.set_confirmation(Ok(()));
        }
        let result = self.repository.conflict(self.kind, own).and_then(|conflict| match conflict {
            None => Ok(()),
            Some(holder) => Err(RepositoryError::Locked { location: self.location(), holder }),
        });
        self.set_confirmation(result);
    }

    fn set_confirmation(&self, result: Result<()>) {
        *self.confirmation() = Some(result);
        self.confirmed.notify_all();
    }

    fn confirmation(&self) -> MutexGuard<'_, Option<Result<()>>> {
        self.confirmation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_confirmation(&self) -> Result<()> {
        if self.held().is_none() {
            return Ok(());
        }
        let mut result = self.confirmation();
        while result.is_none() {
            result = self.confirmed.wait(result).unwrap_or_else(PoisonError::into_inner);
        }
        result.replace(Ok(())).unwrap_or(Ok(()))
    }

    /// Refreshes the lock until it ends. The interval counts from the start of the last write.
    fn run_refresher(&self, mut due: Duration) {
        while !self.waits_until_released() && !self.is_lost.load(Ordering::Acquire) {
            if self.clock.now() < due {
                continue;
            }
            // After a failure retry soon, because of the refresh timeout.
            due = self
                .refresh()
                .map_or_else(|| self.clock.now() + REFRESH_RETRY_INTERVAL, |refreshed| refreshed + REFRESH_INTERVAL);
        }
    }

    /// Waits for one poll interval. Returns whether the lock was released.
    fn waits_until_released(&self) -> bool {
        let held = self.held();
        if !self.ended.load(Ordering::Acquire) {
            drop(self.released.wait_timeout(held, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner));
        }
        self.ended.load(Ordering::Acquire)
    }

    /// Whether the lock was valid until now. Others may have removed its file as stale, and a new file would hide that.
    fn held_until(&self, now: Duration) -> Result<bool> {
        let Some(held) = *self.held() else { return Ok(true) };
        Ok(now.saturating_sub(held.refreshed) <= STALE_AGE && self.repository.has_lock(held.id, &Cancel::default())?)
    }

    /// Writes a new lock file, then removes the old one, so that one exists at any time. Returns the time of the refresh.
    fn refresh(&self) -> Option<Duration> {
        let refreshed = self.clock.now();
        let refreshed_file = self
            .held_until(refreshed)
            .and_then(|held| if held { self.repository.write_lock(self.kind).map(Some) } else { Ok(None) });
        match refreshed_file {
            Ok(None) => {
                let ended = self.ended.load(Ordering::Acquire);
                self.is_lost.store(!ended, Ordering::Release);
                None
            }
            Ok(Some(id)) => {
                let mut held = self.held();
                // The lock was released meanwhile: remove the new file.
                let ended = self.ended.load(Ordering::Acquire);
                let old = if ended { Some(Held { id, refreshed }) } else { held.replace(Held { id, refreshed }) };
                drop(held);
                if let Some(old) = old {
                    self.repository.remove_lock(old.id);
                }
                Some(refreshed)
            }
            Err(error) => {
                tracing::warn!(%error, "failed to refresh the lock");
                None
            }
        }
    }
}

/// Ignores SIGHUP. restic sends it to the PID in a lock with its own host name, to see whether the process runs. That may be the
/// lock of another machine with the same name. Once registered, the signal has no effect for the rest of the process.
fn ignore_hangups(repository: &Repository) {
    let _runtime = repository.runtime.enter();
    if let Err(error) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()) {
        tracing::warn!(%error, "failed to ignore SIGHUP");
    }
}
