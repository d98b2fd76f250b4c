//! What is in the repository: index, packs and used blobs. Kept from one slice to the next and brought up to date.

use std::cell::RefCell;
use std::collections::HashSet;

use plimsoll_progress::Task;

use super::index_rewrite::UntidyIndex;
use crate::blob_index::{BlobIndex, BlobLocation};
use crate::cancel::Cancel;
use crate::file_cache::Source;
use crate::format::id::Id;
use crate::format::index::{self, IndexedPack};
use crate::format::pack::{EMPTY_SIZE, stored_size};
use crate::repository::{FileKind, ListedFile, Repository};
use crate::used_blobs::UsedBlobs;
use crate::{RepositoryError, Result};

/// The state of a pack of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackState {
    Intact,
    /// Missing in the store, or of another size than the index says.
    Broken,
    /// This prune has removed it.
    Removed,
}

/// The index, packs and used blobs of a repository.
pub(super) struct Inventory {
    pub index: BlobIndex,
    pub used: UsedBlobs,
    /// The number of packs at the start of the prune. Newer ones are not changed by it.
    pub first_new_pack: u32,
    /// The index files that it was loaded from.
    files: HashSet<Id>,
    pub untidy: UntidyIndex,
    /// The states of the packs, by their numbers. Packs that are added later are intact.
    states: Vec<PackState>,
    /// Copies that turned out to be damaged.
    rejected: Vec<BlobLocation>,
}

/// Whether an inventory could be brought up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refreshed {
    UpToDate,
    /// Another prune removed index files, or a removed pack is back.
    Outdated,
}

impl Inventory {
    /// Loads everything. The caller holds a lock.
    pub(super) fn load(repository: &Repository, task: &Task, cancel: &Cancel) -> Result<Self> {
        let step = task.child("finding used data");
        // Before the index: what a listed snapshot needs is in an index file then.
        let snapshots = list_ids(repository, FileKind::Snapshot, cancel)?;
        let (mut index, mut untidy) = (BlobIndex::default(), UntidyIndex::default());
        let say = |done, total| step.say(format!("loading the index: {done} of {total} files"));
        repository.each_index_file(&say, cancel, |file, packs| {
            let packs = packs?;
            untidy.add(&packs, |pack| index.has_pack(pack));
            index.add_file(file, &packs);
            Ok(())
        })?;
        let files = index.sources().files.iter().copied().collect();
        let first_new_pack = u32::try_from(index.pack_count()).unwrap_or(u32::MAX);
        let mut used = UsedBlobs::default();
        used.add_snapshots(repository, &index, &snapshots, &step, cancel)?;
        step.finish();
        Ok(Self { index, used, first_new_pack, files, untidy, states: Vec::new(), rejected: Vec::new() })
    }

    /// Adds what other clients have written since. The caller holds the exclusive lock.
    pub(super) fn refresh(&mut self, repository: &Repository, task: &Task, cancel: &Cancel) -> Result<Refreshed> {
        let listed = list_ids(repository, FileKind::Index, cancel)?;
        let known = listed.iter().filter(|id| self.files.contains(*id)).count();
        if known < self.files.len() {
            return Ok(Refreshed::Outdated);
        }
        let new: Vec<Id> = listed.into_iter().filter(|id| !self.files.contains(id)).collect();
        let mut has_removed = false;
        repository.each_file(FileKind::Index, Source::CacheFirst, new.into_iter(), cancel, |file, json| {
            let packs = index::parse(&json?);
            let packs = packs.map_err(|cause| RepositoryError::corrupt(FileKind::Index.key_of(&file), cause))?;
            let is_removed = |pack: &IndexedPack| {
                self.index.pack_number(&pack.id).is_some_and(|number| self.state(number) == PackState::Removed)
            };
            has_removed |= packs.iter().any(is_removed);
            self.untidy.add(&packs, |pack| self.index.has_pack(pack));
            self.index.add_file(file, &packs);
            self.files.insert(file);
            Ok(())
        })?;
        if has_removed {
            return Ok(Refreshed::Outdated);
        }
        let snapshots = list_ids(repository, FileKind::Snapshot, cancel)?;
        self.used.add_snapshots(repository, &self.index, &snapshots, task, cancel)?;
        Ok(Refreshed::UpToDate)
    }

    /// Compares the packs in the store with the index. Returns those that are in no index file.
    pub(super) fn compare_packs(&mut self, repository: &Repository, cancel: &Cancel) -> Result<Vec<ListedFile>> {
        let expected = self.expected_sizes();
        let states = RefCell::new(vec![PackState::Broken; expected.len()]);
        let is_unindexed = |pack: &ListedFile| {
            let Some(number) = self.index.pack_number(&pack.id) else { return true };
            if expected.get(number as usize) == Some(&pack.size)
                && let Some(state) = states.borrow_mut().get_mut(number as usize)
            {
                *state = PackState::Intact;
            }
            false
        };
        let unindexed = repository.list_packs(expected.len(), cancel, is_unindexed)?;
        let mut states = states.into_inner();
        for (state, before) in states.iter_mut().zip(&self.states) {
            if *before == PackState::Removed {
                *state = PackState::Removed;
            }
        }
        self.states = states;
        Ok(unindexed)
    }

    /// The size of each pack according to the index.
    fn expected_sizes(&self) -> Vec<u64> {
        let mut sizes = vec![EMPTY_SIZE; self.index.pack_count()];
        self.index.for_each_blob(|kind, _, id, location| {
            for location in std::iter::once(&location).chain(self.index.further_copies(kind, id)) {
                if let Some(size) = sizes.get_mut(location.pack as usize) {
                    *size += stored_size(location.length, location.uncompressed > 0);
                }
            }
        });
        sizes
    }

    pub(super) fn state(&self, pack: u32) -> PackState {
        self.states.get(pack as usize).copied().unwrap_or(PackState::Intact)
    }

    pub(super) fn is_intact(&self, pack: u32) -> bool {
        self.state(pack) == PackState::Intact
    }

    /// Whether this copy turned out to be damaged.
    pub(super) fn is_rejected(&self, location: &BlobLocation) -> bool {
        self.rejected.contains(location)
    }

    /// Notes that this copy is damaged.
    pub(super) fn reject(&mut self, location: BlobLocation) {
        self.rejected.push(location);
    }

    /// Notes that these packs are in no index file any more, and that `moved` has their used blobs.
    pub(super) fn replace_packs(&mut self, removed: &[u32], moved: &[IndexedPack], rewritten: RewrittenIndex) {
        let packs = self.index.pack_count();
        self.states.resize(packs.max(self.states.len()), PackState::Intact);
        for number in removed {
            if let Some(state) = self.states.get_mut(*number as usize) {
                *state = PackState::Removed;
            }
        }
        let states = &self.states;
        self.index.replace_removed(moved, |pack| states.get(pack as usize) == Some(&PackState::Removed));
        self.files.retain(|file| !rewritten.deleted.contains(file));
        self.files.extend(rewritten.written);
        self.untidy = UntidyIndex::default();
    }
}

/// The index files that a rewrite added and deleted.
#[derive(Debug, Default)]
pub(crate) struct RewrittenIndex {
    pub written: Vec<Id>,
    pub deleted: Vec<Id>,
}

pub(super) fn list_ids(repository: &Repository, kind: FileKind, cancel: &Cancel) -> Result<Vec<Id>> {
    Ok(repository.list(kind, cancel)?.into_iter().map(|file| file.id).collect())
}
