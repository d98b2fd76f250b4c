//! The plan of a prune, to be shown before it runs.

use std::time::SystemTime;

use super::decision::{Decision, Limits, decide};
use super::inventory::{Inventory, PackState};
use super::options::PruneOptions;
use super::pack_use::PackUses;
use crate::Result;
use crate::format::pack::EMPTY_SIZE;
use crate::repository::{ListedFile, Repository};

/// What a prune would do, and how much of a repository is used. All sizes are stored bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunePlan {
    /// Snapshots whose data is kept.
    pub snapshots: u64,
    /// Packs in the index.
    pub packs: u64,
    /// Bytes of all packs.
    pub stored_bytes: u64,
    /// Bytes that snapshots use.
    pub used_bytes: u64,
    /// Bytes of the index's packs that no snapshot uses.
    pub unused_bytes: u64,
    /// Of the unused bytes, those of further copies of used blobs.
    pub duplicate_bytes: u64,
    /// Packs without a used blob, which are removed.
    pub removed_packs: u64,
    /// Their bytes.
    pub removed_bytes: u64,
    /// Packs whose used blobs are moved into new packs.
    pub rewritten_packs: u64,
    /// Their bytes.
    pub rewritten_bytes: u64,
    /// Of these, the bytes that are moved.
    pub moved_bytes: u64,
    /// Packs in no index file, which are removed.
    pub unindexed_packs: u64,
    /// Their bytes.
    pub unindexed_bytes: u64,
    /// Packs in no index file that are too young to be removed.
    pub recent_packs: u64,
    /// Their bytes.
    pub recent_bytes: u64,
}

impl PrunePlan {
    /// The bytes that the prune frees.
    pub fn freed_bytes(&self) -> u64 {
        self.removed_bytes + (self.rewritten_bytes - self.moved_bytes) + self.unindexed_bytes
    }

    /// The unused bytes that remain after the prune.
    pub fn remaining_unused_bytes(&self) -> u64 {
        self.unused_bytes.saturating_sub(self.removed_bytes + (self.rewritten_bytes - self.moved_bytes))
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.removed_packs + self.rewritten_packs + self.unindexed_packs == 0
    }
}

/// The packs in no index file: those that are removed, and those that are too young.
#[derive(Default)]
pub(super) struct UnindexedPacks {
    pub old: Vec<ListedFile>,
    pub recent: Vec<ListedFile>,
}

impl UnindexedPacks {
    pub(super) fn split(unindexed: Vec<ListedFile>, now: SystemTime, options: &PruneOptions) -> Self {
        let is_old = |pack: &ListedFile| {
            let age = now.duration_since(pack.modified).unwrap_or_default();
            options.min_unindexed_age.is_zero() || age >= options.min_unindexed_age
        };
        let (old, recent) = unindexed.into_iter().partition(is_old);
        Self { old, recent }
    }
}

/// The use of all packs, and what to do with them.
pub(super) struct Planned {
    pub uses: PackUses,
    pub decision: Decision,
}

/// Decides from the current state.
pub(super) fn plan(repository: &Repository, inventory: &Inventory, options: &PruneOptions) -> Result<Planned> {
    let uses = PackUses::count(inventory, repository.version() > 1)?;
    let limits = Limits { max_unused_percent: options.max_unused_percent, pack_size: options.pack_size };
    let (mut candidates, mut unused_elsewhere) = (Vec::new(), 0);
    for (number, pack) in uses.present(inventory) {
        if number < inventory.first_new_pack {
            candidates.push((number, pack));
        } else {
            unused_elsewhere += pack.unused;
        }
    }
    let mut decision = decide(&candidates, unused_elsewhere, limits);
    // A broken pack has no used blob, because others have them. Its entries in the index are removed.
    decision.rewritten.retain(|number| inventory.is_intact(*number));
    Ok(Planned { uses, decision })
}

/// Summarizes a plan.
pub(super) fn summarize(inventory: &Inventory, planned: &Planned, unindexed: &UnindexedPacks) -> PrunePlan {
    let mut plan = PrunePlan { snapshots: inventory.used.snapshot_count() as u64, ..PrunePlan::default() };
    let stored = |number| if inventory.state(number) == PackState::Intact { EMPTY_SIZE } else { 0 };
    for (number, pack) in planned.uses.present(inventory) {
        plan.packs += 1;
        plan.stored_bytes += pack.size() + stored(number);
        plan.used_bytes += pack.used;
        plan.unused_bytes += pack.unused;
        plan.duplicate_bytes += pack.duplicate;
    }
    for number in &planned.decision.removed {
        plan.removed_packs += 1;
        plan.removed_bytes += planned.uses.of(*number).size();
    }
    for number in &planned.decision.rewritten {
        plan.rewritten_packs += 1;
        plan.rewritten_bytes += planned.uses.of(*number).size();
        plan.moved_bytes += planned.uses.of(*number).used;
    }
    let total = |packs: &[ListedFile]| (packs.len() as u64, packs.iter().map(|pack| pack.size).sum::<u64>());
    (plan.unindexed_packs, plan.unindexed_bytes) = total(&unindexed.old);
    (plan.recent_packs, plan.recent_bytes) = total(&unindexed.recent);
    plan.stored_bytes += plan.unindexed_bytes + plan.recent_bytes;
    plan
}
