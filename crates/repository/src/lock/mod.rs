//! Locks as restic keeps them: a file for each running process, refreshed while it works.
//!
//! The age of a lock is judged by the store's clock: the time the store gave to our own lock file is "now".

mod clock;
mod file;
mod files;
mod hold;
mod holder;
mod refusal;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::LockClock;
pub use file::LockFile;
use file::STALE;
pub use holder::{LockHolder, Standing, machine};

use crate::cancel::Cancel;
use crate::format::id::Id;
use crate::repository::Repository;
use crate::{RepositoryError, Result};

/// Whether others may work at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Readers and backups: any number at a time.
    Shared,
    /// Whoever deletes: nobody else.
    Exclusive,
}

/// How often the lock file is replaced by a younger one.
const REFRESH: Duration = Duration::from_mins(5);
/// How soon that is tried again when it failed.
const REFRESH_AGAIN: Duration = Duration::from_secs(30);
/// After this time without a refresh nothing is written any more: at 30 minutes others may take the lock for dead.
const GIVE_UP: Duration = Duration::from_secs(22 * 60 + 30);
/// How long another process may need until its lock shows up in a listing.
const SETTLE: Duration = Duration::from_millis(200);
/// How long releasing may take before it goes on by itself.
const RELEASE: Duration = Duration::from_secs(10);
const RELEASE_IN_A_HURRY: Duration = Duration::from_millis(300);
/// How often the refresher looks at the clock.
const LOOK: Duration = Duration::from_millis(250);

/// A lock that is held; dropping it releases it.
pub struct Lock {
    shared: Arc<Shared>,
}

struct Shared {
    repository: Arc<Repository>,
    kind: LockKind,
    clock: LockClock,
    written: Duration,
    /// Nothing where the store refuses deletes: a lock that cannot be removed would only be in the way.
    held: Mutex<Option<Held>>,
    released: Condvar,
    ended: AtomicBool,
    /// Others may have worked as if it was not there: nothing makes it good again.
    is_lost: AtomicBool,
    in_a_hurry: AtomicBool,
    cancel: Cancel,
    /// What the second look came to, until somebody has asked.
    second_look: Mutex<Option<Result<()>>>,
    looked: Condvar,
}

#[derive(Clone, Copy)]
struct Held {
    id: Id,
    /// By the clock of the repository.
    refreshed: Duration,
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Lock").field("kind", &self.shared.kind).finish_non_exhaustive()
    }
}

impl Lock {
    /// Takes a lock. Locks of processes that are known to be gone are removed on the way, which only those can be that lived where
    /// this one does; others never, however old they are: who looks only once cannot know that nobody renews them.
    ///
    /// # Cancel safety
    /// After the cancel that the repository was opened with, it returns at once, and so does a release. A lock file that is on
    /// its way then is removed again by itself, as long as the process lives.
    pub fn take(repository: &Arc<Repository>, kind: LockKind) -> Result<Self> {
        Self::take_unless(repository, kind, &repository.options.cancel)
    }

    /// The same, no longer than until somebody asks to stop.
    pub(crate) fn take_unless(repository: &Arc<Repository>, kind: LockKind, cancel: &Cancel) -> Result<Self> {
        let (repository, given) = (repository.clone(), cancel.clone());
        cancel.run(move || {
            let lock = Self::write(&repository, kind, &given)?;
            lock.shared.wait_for_second_look()?;
            Ok(lock)
        })
    }

    /// The first half of taking a lock. Reading may begin; nothing may be relied on before [`Lock::settle_unless`]. Waits for
    /// the store, whatever is asked meanwhile; `cancel` only hurries the release. The second look follows by itself once
    /// another process that began at the same moment must have shown up, however long reading takes: who looks much later
    /// misses one who has done all its work meanwhile.
    pub(crate) fn write(repository: &Arc<Repository>, kind: LockKind, cancel: &Cancel) -> Result<Self> {
        ignore_hangups(repository);
        let clock = LockClock::new(repository.options.clock.clone());
        // Its age counts from before it was written, and how long others had to see it from after that.
        let refreshed = clock.now();
        let held = repository.acquire(kind)?.map(|id| Held { id, refreshed });
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
            in_a_hurry: AtomicBool::new(false),
            cancel: cancel.clone(),
            second_look: Mutex::default(),
            looked: Condvar::new(),
        });
        if let Some(held) = held {
            let (refreshing, looking) = (shared.clone(), shared.clone());
            std::thread::spawn(move || refreshing.keep_fresh(held.refreshed + REFRESH));
            std::thread::spawn(move || looking.look_again(held.id));
        }
        Ok(Self { shared })
    }

    /// The second half, to be asked for once: waits for the second look, no longer than until somebody asks to stop.
    pub(crate) fn settle_unless(&self, cancel: &Cancel) -> Result<()> {
        let shared = self.shared.clone();
        cancel.run(move || shared.wait_for_second_look())
    }

    /// Releasing it may not take long: somebody waits for the end.
    pub(crate) fn hurry(&self) {
        self.shared.in_a_hurry.store(true, Ordering::Release);
    }

    /// Ends the lock without removing its file: something that it protects may still happen, and nobody will know when.
    fn leave_behind(&self) {
        self.shared.end();
    }

    /// Whether there is a lock file: there is none where the store refuses deletes.
    pub fn is_visible(&self) -> bool {
        self.shared.held().is_some()
    }

    /// An error once the lock has gone unrefreshed for so long that others may take it for dead, or somebody removed it.
    pub fn check(&self) -> Result<()> {
        let Some(held) = *self.shared.held() else { return Ok(()) };
        if self.shared.is_lost.load(Ordering::Acquire) {
            return Err(self.shared.removed());
        }
        let age = self.shared.clock.now().saturating_sub(held.refreshed);
        if age <= GIVE_UP {
            return Ok(());
        }
        Err(self.shared.lost(format!("it could not be refreshed for {} s", age.as_secs())))
    }

    /// The same, and an error if the lock file is gone: asked before what others must not have swept away is referred to.
    pub(crate) fn confirm(&self, cancel: &Cancel) -> Result<()> {
        loop {
            self.check()?;
            let Some(asked) = *self.shared.held() else { return Ok(()) };
            if self.shared.repository.has_lock(asked.id, cancel)? {
                return Ok(());
            }
            // Unless it was replaced by a younger one meanwhile.
            let same = (*self.shared.held()).is_some_and(|held| held.id == asked.id);
            if same {
                return Err(self.shared.removed());
            }
        }
    }

    /// Whether the lock file is still there; true where none is kept.
    pub(crate) async fn is_there(&self) -> Result<bool> {
        let held = *self.shared.held();
        match held {
            Some(held) => self.shared.repository.look_for_lock(held.id).await,
            None => Ok(true),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(held) = self.shared.end() {
            self.shared.repository.release_lock(held.id, || self.shared.patience());
        }
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is refreshed any more. Answers with the file that is left.
    fn end(&self) -> Option<Held> {
        let held = {
            // Under the lock, or the refresher could miss it between looking and waiting.
            let mut held = self.held();
            self.ended.store(true, Ordering::Release);
            held.take()
        };
        self.released.notify_all();
        held
    }

    /// How long releasing may take.
    fn patience(&self) -> Duration {
        let hurry = self.in_a_hurry.load(Ordering::Acquire) || self.cancel.is_cancelled();
        if hurry { RELEASE_IN_A_HURRY } else { RELEASE }
    }

    fn location(&self) -> String {
        self.repository.store.name().to_owned()
    }

    fn lost(&self, cause: String) -> RepositoryError {
        RepositoryError::LockLost { location: self.location(), cause }
    }

    fn removed(&self) -> RepositoryError {
        self.lost("somebody removed its file, or may have".into())
    }

    fn look_again(&self, own: Id) {
        std::thread::sleep(SETTLE.saturating_sub(self.clock.now().saturating_sub(self.written)));
        if self.ended.load(Ordering::Acquire) {
            return self.has_looked(Ok(()));
        }
        let found = self.repository.conflict(self.kind, own).and_then(|conflict| match conflict {
            None => Ok(()),
            Some(holder) => Err(RepositoryError::Locked { location: self.location(), holder }),
        });
        self.has_looked(found);
    }

    fn has_looked(&self, found: Result<()>) {
        *self.second_look() = Some(found);
        self.looked.notify_all();
    }

    fn second_look(&self) -> MutexGuard<'_, Option<Result<()>>> {
        self.second_look.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_second_look(&self) -> Result<()> {
        if self.held().is_none() {
            return Ok(());
        }
        let mut found = self.second_look();
        while found.is_none() {
            found = self.looked.wait(found).unwrap_or_else(PoisonError::into_inner);
        }
        found.replace(Ok(())).unwrap_or(Ok(()))
    }

    /// The time between two refreshes counts from the file's writing, however long that or this thread took.
    fn keep_fresh(&self, mut due: Duration) {
        while !self.waits_until_released() && !self.is_lost.load(Ordering::Acquire) {
            if self.clock.now() < due {
                continue;
            }
            // After a failure try again soon: there is a limit to how long that may go on.
            due = self.renew().map_or_else(|| self.clock.now() + REFRESH_AGAIN, |refreshed| refreshed + REFRESH);
        }
    }

    /// Waits a moment; says whether the lock is to be given up.
    fn waits_until_released(&self) -> bool {
        let held = self.held();
        if !self.ended.load(Ordering::Acquire) {
            drop(self.released.wait_timeout(held, LOOK).unwrap_or_else(PoisonError::into_inner));
        }
        self.ended.load(Ordering::Acquire)
    }

    /// Whether the lock held until now: others remove the file of one they take for dead, and a younger file would only
    /// hide that.
    fn held_until(&self, now: Duration) -> Result<bool> {
        let Some(held) = *self.held() else { return Ok(true) };
        Ok(now.saturating_sub(held.refreshed) <= STALE && self.repository.has_lock(held.id, &Cancel::default())?)
    }

    /// Writes a younger lock file, then removes the old one: the file that is held is there at any time. Says when.
    fn renew(&self) -> Option<Duration> {
        let refreshed = self.clock.now();
        let renewed = self
            .held_until(refreshed)
            .and_then(|held| if held { self.repository.write_lock(self.kind).map(Some) } else { Ok(None) });
        match renewed {
            Ok(None) => {
                let ended = self.ended.load(Ordering::Acquire);
                self.is_lost.store(!ended, Ordering::Release);
                None
            }
            Ok(Some(id)) => {
                let mut held = self.held();
                // Given up meanwhile: then nobody else knows the new file.
                let ended = self.ended.load(Ordering::Acquire);
                let old = if ended { Some(Held { id, refreshed }) } else { held.replace(Held { id, refreshed }) };
                drop(held);
                if let Some(old) = old {
                    self.repository.remove_lock(old.id);
                }
                Some(refreshed)
            }
            Err(error) => {
                tracing::warn!(%error, "lock not refreshed");
                None
            }
        }
    }
}

/// restic sends SIGHUP to the process in a lock of a machine that is called like its own, to see whether it lives. That may be
/// another machine's lock, and our number: it must not end us. Once registered, the signal has no effect for the rest of the
/// process.
fn ignore_hangups(repository: &Repository) {
    let _runtime = repository.runtime.enter();
    if let Err(error) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()) {
        tracing::warn!(%error, "SIGHUP is not ignored");
    }
}
