//! Repairs the index from the packs: packs that are missing or incomplete leave it, and packs that are in no index file join it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_progress::{Task, Unit};

use crate::cancel::Cancel;
use crate::file_cache::Source;
use crate::format::id::Id;
use crate::format::index::IndexedPack;
use crate::format::pack;
use crate::lock::{LockKind, take_waiting};
use crate::prune::rewrite_index;
use crate::repository::{FileKind, ListedFile, Repository};
use crate::{RepositoryError, Result};

/// What a repair of the index changed, or would change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexRepair {
    /// Packs in no index file, which are added.
    pub added_packs: Vec<Id>,
    /// Packs that are missing, or of another size than their index file says, which leave the index. With a valid header they are
    /// added again.
    pub removed_packs: Vec<Id>,
    /// Index files that cannot be read, which are removed.
    pub damaged_files: Vec<Id>,
    /// Packs whose header cannot be read. They stay in the store.
    pub unreadable_packs: Vec<Id>,
}

impl IndexRepair {
    /// Whether the index is as it should be.
    pub fn is_empty(&self) -> bool {
        self.added_packs.is_empty() && self.removed_packs.is_empty() && self.damaged_files.is_empty()
    }
}

impl Repository {
    /// Repairs the index with the exclusive lock. No pack is deleted. New index files are written before old ones are removed.
    pub fn repair_index(self: &Arc<Self>, dry_run: bool, task: &Task, cancel: &Cancel) -> Result<IndexRepair> {
        self.require_config()?;
        let lock = Arc::new(take_waiting(self, LockKind::Exclusive, Duration::ZERO, task, cancel)?);
        let mut repair = IndexRepair::default();
        let mut indexed: HashMap<Id, u64> = HashMap::new();
        let step = |done, total| task.say(format!("reading the index: {done} of {total} files"));
        self.each_index_file_from(Source::Store, &step, cancel, |file, packs| {
            match packs {
                Ok(packs) => {
                    indexed.extend(packs.iter().map(|pack| (pack.id, pack::file_size_of(&pack.blobs))));
                }
                Err(RepositoryError::Corrupt { .. }) => repair.damaged_files.push(file),
                Err(error) => return Err(error),
            }
            Ok(())
        })?;
        let packs = self.list(FileKind::Pack, cancel)?;
        let present: HashMap<Id, u64> = packs.iter().map(|pack| (pack.id, pack.size)).collect();
        repair.removed_packs =
            indexed.iter().filter(|(id, size)| present.get(id) != Some(size)).map(|(id, _)| *id).collect();
        let to_read: Vec<_> = packs.into_iter().filter(|pack| indexed.get(&pack.id) != Some(&pack.size)).collect();
        let added = self.read_headers(&to_read, &mut repair, task, cancel)?;
        if dry_run || repair.is_empty() {
            return Ok(repair);
        }
        let removed: HashSet<Id> = repair.removed_packs.iter().copied().collect();
        rewrite_index(self, &lock, &removed, &repair.damaged_files, added, cancel)?;
        Ok(repair)
    }

    fn read_headers(
        &self,
        packs: &[ListedFile],
        repair: &mut IndexRepair,
        task: &Task,
        cancel: &Cancel,
    ) -> Result<Vec<IndexedPack>> {
        let step = task.child("reading the headers of packs");
        let done = step.meter(Unit::Items);
        done.grow_total(packs.len() as u64);
        let mut added = Vec::new();
        for pack in packs {
            match self.wait(cancel, self.read_header(pack.id, pack.size)) {
                Ok(blobs) => {
                    repair.added_packs.push(pack.id);
                    added.push(IndexedPack { id: pack.id, blobs });
                }
                Err(RepositoryError::Corrupt { .. }) => repair.unreadable_packs.push(pack.id),
                Err(error) => return Err(error),
            }
            done.add(1);
        }
        done.finalize_total();
        step.finish();
        Ok(added)
    }
}
