//! Replaces index files: new files are written without the removed packs before the old files are deleted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::inventory::{RewrittenIndex, list_ids};
use crate::cancel::Cancel;
use crate::file_cache::Source;
use crate::format::id::Id;
use crate::format::index::{self, IndexedPack};
use crate::lock::Lock;
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result};

/// The number of blobs in an index file, as in restic.
const BLOBS_PER_FILE: usize = 50_000;
/// Files with fewer blobs are small.
const SMALL_FILE: usize = BLOBS_PER_FILE / 10;
/// Small files are joined if there are at least this many: an hourly backup adds one each time.
const MIN_SMALL_FILES: usize = 20;

/// Whether a file with these packs is small.
fn is_small(packs: &[IndexedPack]) -> bool {
    packs.iter().map(|pack| pack.blobs.len()).sum::<usize>() < SMALL_FILE
}

/// What is untidy in the index files, although it is valid.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UntidyIndex {
    small_files: usize,
    /// Whether a pack is in several files, as after a prune that was killed.
    has_repeated_packs: bool,
}

impl UntidyIndex {
    /// Adds a file. `is_known` tells whether a pack is in another file.
    pub(super) fn add(&mut self, packs: &[IndexedPack], is_known: impl Fn(&Id) -> bool) {
        self.small_files += usize::from(is_small(packs));
        self.has_repeated_packs |= packs.iter().any(|pack| is_known(&pack.id));
    }

    /// Whether it should be rewritten, even if no pack is removed.
    pub(super) fn needs_rewrite(self) -> bool {
        self.small_files >= MIN_SMALL_FILES || self.has_repeated_packs
    }
}

/// Packs and the numbers of their blobs.
#[derive(Default)]
struct IndexedOnce(HashMap<Id, usize>);

impl IndexedOnce {
    /// Adds a pack. Returns `false` if it is there already with as many blobs. A file that lists less of a pack than another one is not
    /// valid, and both are kept.
    fn add(&mut self, pack: &IndexedPack) -> bool {
        self.0.insert(pack.id, pack.blobs.len()) != Some(pack.blobs.len())
    }

    fn has(&self, pack: &IndexedPack) -> bool {
        self.0.get(&pack.id) == Some(&pack.blobs.len())
    }
}

/// Writes index files.
struct IndexWriter<'a> {
    repository: &'a Arc<Repository>,
    lock: &'a Arc<Lock>,
    cancel: &'a Cancel,
    packs: Vec<IndexedPack>,
    blobs: usize,
    written: Vec<Id>,
    /// The packs that were added: a pack may be in several of the replaced files.
    added: IndexedOnce,
}

impl IndexWriter<'_> {
    fn add(&mut self, pack: IndexedPack) -> Result<()> {
        if !self.added.add(&pack) {
            return Ok(());
        }
        self.blobs += pack.blobs.len();
        self.packs.push(pack);
        if self.blobs >= BLOBS_PER_FILE { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        if self.packs.is_empty() {
            return Ok(());
        }
        self.lock.confirm(self.cancel)?;
        let json = index::encode(&self.packs).map_err(|cause| RepositoryError::corrupt("a new index file", cause))?;
        let saving = self.repository.save_under(self.lock, FileKind::Index, json);
        self.written.push(self.repository.wait(self.cancel, saving)?);
        (self.packs, self.blobs) = (Vec::new(), 0);
        Ok(())
    }
}

/// Makes the index name `added` and none of `removed`. The index files in `damaged` are deleted unread. When it returns, the store confirms that the replaced files do not exist any
/// more and the new ones do, so the removed packs may be deleted.
pub(crate) fn rewrite_index(
    repository: &Arc<Repository>,
    lock: &Arc<Lock>,
    removed: &HashSet<Id>,
    damaged: &[Id],
    added: Vec<IndexedPack>,
    cancel: &Cancel,
) -> Result<RewrittenIndex> {
    let (packs, written) = (Vec::new(), Vec::new());
    let mut writer = IndexWriter { repository, lock, cancel, packs, blobs: 0, written, added: IndexedOnce::default() };
    added.into_iter().try_for_each(|pack| writer.add(pack))?;
    let files = list_ids(repository, FileKind::Index, cancel)?;
    let files: Vec<Id> = files.into_iter().filter(|id| !writer.written.contains(id) && !damaged.contains(id)).collect();
    let (mut replaced, mut small, mut kept) = (damaged.to_vec(), Vec::new(), IndexedOnce::default());
    let ids = files.iter().copied();
    repository.each_file(FileKind::Index, Source::CacheFirst, ids, cancel, |file, json| {
        let packs = parse(file, &json?)?;
        let is_left_out = |pack: &IndexedPack| removed.contains(&pack.id) || kept.has(pack);
        if packs.iter().any(|pack| is_left_out(pack) || writer.added.has(pack)) {
            replaced.push(file);
            let remaining: Vec<_> = packs.into_iter().filter(|pack| !is_left_out(pack)).collect();
            return remaining.into_iter().try_for_each(|pack| writer.add(pack));
        }
        for pack in &packs {
            kept.add(pack);
        }
        if is_small(&packs) {
            small.push(file);
        }
        Ok(())
    })?;
    if small.len() >= MIN_SMALL_FILES {
        repository.each_file(FileKind::Index, Source::CacheFirst, small.iter().copied(), cancel, |file, json| {
            parse(file, &json?)?.into_iter().try_for_each(|pack| writer.add(pack))
        })?;
        replaced.append(&mut small);
    }
    writer.write()?;
    let written = writer.written;
    delete_files(repository, lock, &replaced, cancel)?;
    confirm_files(repository, &written, &replaced, cancel)?;
    Ok(RewrittenIndex { written, deleted: replaced })
}

fn parse(file: Id, json: &[u8]) -> Result<Vec<IndexedPack>> {
    index::parse(json).map_err(|cause| RepositoryError::corrupt(FileKind::Index.key_of(&file), cause))
}

fn delete_files(repository: &Repository, lock: &Lock, files: &[Id], cancel: &Cancel) -> Result<()> {
    for file in files {
        lock.confirm(cancel)?;
        let key = FileKind::Index.key_of(file);
        repository.wait(cancel, async { Ok(repository.store.delete(&key).await?) })?;
    }
    Ok(())
}

/// Returns an error unless the store lists all written files and none of the replaced ones. An index file that stays would refer to
/// packs that are deleted next.
fn confirm_files(repository: &Repository, written: &[Id], replaced: &[Id], cancel: &Cancel) -> Result<()> {
    let listed: HashSet<Id> = list_ids(repository, FileKind::Index, cancel)?.into_iter().collect();
    if let Some(lost) = written.iter().find(|id| !listed.contains(*id)) {
        return Err(RepositoryError::corrupt(
            FileKind::Index.key_of(lost),
            "it was written and the store does not list it",
        ));
    }
    if let Some(left) = replaced.iter().find(|id| listed.contains(*id)) {
        let cause = "it was deleted and the store still lists it; its packs are kept";
        return Err(RepositoryError::corrupt(FileKind::Index.key_of(left), cause));
    }
    Ok(())
}
