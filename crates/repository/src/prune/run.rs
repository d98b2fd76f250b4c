//! The execution of a prune, in slices.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use plimsoll_progress::{Meter, Task, Total, Unit};

use super::delete::{Deleted, PackToDelete, delete_packs};
use super::dropped_copies::damaged_remaining_copies;
use super::index_rewrite::rewrite_index;
use super::inventory::{Inventory, PackState, Refreshed};
use super::options::PruneOptions;
use super::plan::{Planned, PrunePlan, UnindexedPacks, plan, summarize};
use super::rewrite::{Rewrite, RewriteLimits, Rewritten, select};
use crate::cancel::Cancel;
use crate::format::id::Id;
use crate::format::pack::{self, EMPTY_SIZE};
use crate::lock::{Lock, LockKind, take_waiting, wait};
use crate::repository::{FileKind, Repository};
use crate::store_waits::show_waits;
use crate::{RepositoryError, Result};

/// The outcome of a prune.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneOutcome {
    /// Deleted packs.
    pub deleted_packs: u64,
    /// Their bytes.
    pub deleted_bytes: u64,
    /// New packs with blobs of deleted packs.
    pub new_packs: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Packs whose deletion the store denied, because of retention for example. They are in no index file any more, and the next prune
    /// tries again.
    pub denied_packs: u64,
    /// Their bytes.
    pub denied_bytes: u64,
    /// How many times the exclusive lock was taken.
    pub slices: u64,
}

impl PruneOutcome {
    /// The bytes by which the repository became smaller.
    pub fn freed_bytes(&self) -> u64 {
        self.deleted_bytes.saturating_sub(self.moved_bytes)
    }

    fn add_deleted(&mut self, deleted: Deleted) {
        self.deleted_packs += deleted.packs;
        self.deleted_bytes += deleted.bytes;
        self.denied_packs += deleted.denied_packs;
        self.denied_bytes += deleted.denied_bytes;
    }
}

/// A prune that is planned and not started.
pub struct PreparedPrune {
    repository: Arc<Repository>,
    options: PruneOptions,
    inventory: Inventory,
    plan: PrunePlan,
}

/// How many times a prune starts anew because another one changed the repository meanwhile.
const MAX_RESTARTS: usize = 3;
/// The part of a slice in which packs are rewritten, in percent. In the rest the index is written and old packs are deleted.
const REWRITE_PERCENT: u32 = 60;

impl Repository {
    /// Plans a prune with a shared lock. Backups can run meanwhile; nothing is changed.
    pub fn prepare_prune(
        self: &Arc<Self>,
        options: PruneOptions,
        task: &Task,
        cancel: &Cancel,
    ) -> Result<PreparedPrune> {
        self.require_config()?;
        let _waits = show_waits(&self.store, task);
        let mut inventory = load(self, task, cancel)?;
        let unindexed = UnindexedPacks::split(inventory.compare_packs(self, cancel)?, SystemTime::now(), &options);
        let planned = plan(self, &inventory, &options)?;
        let plan = summarize(&inventory, &planned, &unindexed);
        Ok(PreparedPrune { repository: self.clone(), options, inventory, plan })
    }
}

/// Loads the inventory with a shared lock: packs and index files cannot be removed meanwhile.
fn load(repository: &Arc<Repository>, task: &Task, cancel: &Cancel) -> Result<Inventory> {
    let lock = Lock::take_cancellable(repository, LockKind::Shared, cancel)?;
    let loaded = Inventory::load(repository, task, cancel);
    if loaded.is_err() {
        lock.shorten_release();
    }
    loaded
}

impl PreparedPrune {
    /// What the prune would do.
    pub fn plan(&self) -> &PrunePlan {
        &self.plan
    }

    /// Prunes. `task` gets a meter of moved bytes and one of deleted packs. The caller ends it.
    ///
    /// # Cancel safety
    /// After a cancel the call returns within about a second. The repository is valid, and the next prune does the rest. If an index
    /// file is being written, the lock file is kept until the store has answered.
    pub fn run(self, task: &Task, cancel: &Cancel) -> Result<PruneOutcome> {
        let _waits = show_waits(&self.repository.store, task);
        let moved = task.meter(Unit::Bytes);
        moved.set_total(Total::Growing(self.plan.moved_bytes));
        let deletes = task.child("deleting packs");
        let deleted = deletes.meter(Unit::Items);
        deleted
            .set_total(Total::Growing(self.plan.removed_packs + self.plan.rewritten_packs + self.plan.unindexed_packs));
        let Self { repository, options, inventory, .. } = self;
        let (pending, outcome) = Default::default();
        let mut run = Run { repository, options, inventory, pending, outcome, task, cancel, moved, deleted };
        run.run()?;
        run.moved.finalize_total();
        run.deleted.finalize_total();
        deletes.finish();
        Ok(run.outcome)
    }
}

/// Packs to delete that are in no index file.
#[derive(Default)]
struct PendingDeletes {
    /// Whether it has those of earlier operations. The packs are listed once, under the exclusive lock.
    has_unindexed: bool,
    packs: Vec<PackToDelete>,
}

struct Run<'a> {
    repository: Arc<Repository>,
    options: PruneOptions,
    inventory: Inventory,
    pending: PendingDeletes,
    outcome: PruneOutcome,
    task: &'a Task,
    cancel: &'a Cancel,
    moved: Meter,
    deleted: Meter,
}

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SliceEnd {
    /// Nothing is left to do.
    Complete,
    /// Its time is up.
    OutOfTime,
    /// Another prune changed the repository since the last slice.
    Outdated,
}

impl Run<'_> {
    fn run(&mut self) -> Result<()> {
        let mut restarts = 0;
        loop {
            match self.slice()? {
                SliceEnd::Complete => return Ok(()),
                SliceEnd::OutOfTime => self.pause()?,
                SliceEnd::Outdated if restarts == MAX_RESTARTS => {
                    let holder = "another prune that changes it at the same time".into();
                    return Err(RepositoryError::Locked { location: self.repository.store.name().into(), holder });
                }
                SliceEnd::Outdated => {
                    restarts += 1;
                    self.inventory = load(&self.repository, self.task, self.cancel)?;
                    self.pending = PendingDeletes::default();
                }
            }
        }
    }

    /// Lets other clients take the lock.
    fn pause(&self) -> Result<()> {
        let _waiting = self.task.wait("between two slices, so that other clients can use the repository");
        wait(self.options.pause, self.cancel)
    }

    /// Works with the exclusive lock until everything is done or the time of the slice is up.
    fn slice(&mut self) -> Result<SliceEnd> {
        let lock =
            take_waiting(&self.repository, LockKind::Exclusive, self.options.lock_timeout, self.task, self.cancel)?;
        if !lock.is_visible() {
            let cause = "the store does not allow deletes, so nothing can be pruned".into();
            return Err(RepositoryError::Unsupported { location: self.repository.store.name().into(), cause });
        }
        self.outcome.slices += 1;
        let lock = Arc::new(lock);
        let ended = self.work(&lock);
        if ended.is_err() {
            lock.shorten_release();
        }
        ended
    }

    fn work(&mut self, lock: &Arc<Lock>) -> Result<SliceEnd> {
        let started = Instant::now();
        let deadline = started + self.options.slice;
        if self.inventory.refresh(&self.repository, self.task, self.cancel)? == Refreshed::Outdated {
            return Ok(SliceEnd::Outdated);
        }
        self.find_unindexed()?;
        self.delete_pending(lock, deadline)?;
        while self.pending.packs.is_empty() {
            let planned = plan(&self.repository, &self.inventory, &self.options)?;
            if !planned.decision.removed.is_empty() {
                self.remove_packs(lock, &planned)?;
            } else if !planned.decision.rewritten.is_empty() {
                self.rewrite_packs(lock, &planned, started + self.options.slice * REWRITE_PERCENT / 100)?;
            } else {
                self.tidy_index(lock)?;
                return Ok(SliceEnd::Complete);
            }
            self.delete_pending(lock, deadline)?;
            if Instant::now() >= deadline {
                break;
            }
        }
        Ok(SliceEnd::OutOfTime)
    }

    /// Lists the packs once, under the exclusive lock: no backup that would index them is running.
    fn find_unindexed(&mut self) -> Result<()> {
        if self.pending.has_unindexed {
            // A backup between two slices may have put them into the index.
            let inventory = &self.inventory;
            self.pending.packs.retain(|pack| {
                let number = inventory.index.pack_number(&pack.id);
                number.is_none_or(|number| inventory.state(number) == PackState::Removed)
            });
            return Ok(());
        }
        let locks = self.repository.list(FileKind::Lock, self.cancel)?;
        // Our own lock is among them, so this is the store's clock.
        let now = locks.iter().map(|lock| lock.modified).max().unwrap_or_else(SystemTime::now);
        let listed = self.inventory.compare_packs(&self.repository, self.cancel)?;
        let old = UnindexedPacks::split(listed, now, &self.options).old;
        self.pending.packs = old.iter().map(|pack| PackToDelete { id: pack.id, size: pack.size }).collect();
        self.pending.has_unindexed = true;
        Ok(())
    }

    fn delete_pending(&mut self, lock: &Lock, deadline: Instant) -> Result<()> {
        let packs = &mut self.pending.packs;
        let deleted = delete_packs(&self.repository, lock, packs, deadline, &self.deleted, self.cancel)?;
        self.outcome.add_deleted(deleted);
        Ok(())
    }

    fn remove_packs(&mut self, lock: &Arc<Lock>, planned: &Planned) -> Result<()> {
        let mut removed = planned.decision.removed.clone();
        removed.sort_unstable();
        if self.reject_damaged_copies(planned, &removed)? {
            return Ok(());
        }
        self.task.say(format!("removing {} packs that no snapshot uses", removed.len()));
        self.replace(lock, planned, &Rewritten { done: removed, packs: Vec::new() })
    }

    fn rewrite_packs(&mut self, lock: &Arc<Lock>, planned: &Planned, deadline: Instant) -> Result<()> {
        let pack_size = usize::try_from(self.options.pack_size).unwrap_or(usize::MAX);
        let limits = RewriteLimits { bytes: self.options.round_bytes, pack_size, deadline };
        let packs = select(&self.inventory, &planned.uses, &planned.decision.rewritten, limits);
        let mut numbers: Vec<u32> = packs.iter().map(|pack| pack.number).collect();
        numbers.sort_unstable();
        if self.reject_damaged_copies(planned, &numbers)? {
            return Ok(());
        }
        self.task.say(format!("moving the used data of {} packs", packs.len()));
        let rewrite = Rewrite {
            repository: &self.repository,
            index: &self.inventory.index,
            lock,
            moved: &self.moved,
            cancel: self.cancel,
        };
        let rewritten = rewrite.run(packs, limits)?;
        self.replace(lock, planned, &rewritten)
    }

    /// Joins small index files, and those that name a pack twice.
    fn tidy_index(&mut self, lock: &Arc<Lock>) -> Result<()> {
        if self.inventory.untidy.needs_rewrite() {
            let files = rewrite_index(&self.repository, lock, &HashSet::new(), &[], Vec::new(), self.cancel)?;
            self.inventory.replace_packs(&[], &[], files);
        }
        Ok(())
    }

    /// Checks the copies that would remain. Returns whether some are damaged, so that the plan must be made again without them.
    fn reject_damaged_copies(&mut self, planned: &Planned, removed: &[u32]) -> Result<bool> {
        let damaged = damaged_remaining_copies(&self.repository, &self.inventory, &planned.uses, removed, self.cancel)?;
        for location in &damaged {
            let pack = self.inventory.index.pack(location.pack);
            tracing::warn!(%pack, offset = location.offset, "a copy of a blob is damaged; another copy is kept");
            self.inventory.reject(*location);
        }
        Ok(!damaged.is_empty())
    }

    /// Puts the new packs into the index in place of the old ones, which may be deleted then.
    fn replace(&mut self, lock: &Arc<Lock>, planned: &Planned, rewritten: &Rewritten) -> Result<()> {
        let removed: HashSet<Id> = rewritten.done.iter().map(|number| self.inventory.index.pack(*number)).collect();
        let files = rewrite_index(&self.repository, lock, &removed, &[], rewritten.packs.clone(), self.cancel)?;
        self.inventory.replace_packs(&rewritten.done, &rewritten.packs, files);
        let deletes = rewritten.done.iter().map(|number| PackToDelete {
            id: self.inventory.index.pack(*number),
            size: planned.uses.of(*number).size() + EMPTY_SIZE,
        });
        self.pending.packs.extend(deletes);
        self.outcome.new_packs += rewritten.packs.len() as u64;
        self.outcome.moved_bytes += rewritten.packs.iter().map(|pack| pack::file_size_of(&pack.blobs)).sum::<u64>();
        Ok(())
    }
}
