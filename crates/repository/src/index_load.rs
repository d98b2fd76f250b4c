//! Loading the index, from the store or from the local cache.

use std::collections::HashSet;

use futures::stream::{StreamExt, TryStreamExt};
use plimsoll_progress::Task;
use plimsoll_store::ObjectInfo;

use crate::blob_index::{BlobIndex, IndexSources};
use crate::cancel::Cancel;
use crate::file_cache::Source;
use crate::format::id::Id;
use crate::format::index::{self, IndexedPack};
use crate::format::pack;
use crate::repository::{FileKind, ListedFile, MAX_CONCURRENT_LOADS, Repository, parse_listed};
use crate::{RepositoryError, Result};

/// Fewer packs are listed in one or a few requests.
const MIN_PACKS_BY_PREFIX: usize = 4000;
const MAX_CONCURRENT_LISTS: usize = 32;

impl Repository {
    /// Loads all index files. A damaged one is an error, because its blobs would be missed silently.
    pub(crate) fn load_index(&self, task: &Task, cancel: &Cancel) -> Result<BlobIndex> {
        let mut index = BlobIndex::default();
        let step = |done, total| task.say(format!("loading the index: {done} of {total} files"));
        self.each_index_file(&step, cancel, |file, packs| {
            index.add_file(file, &packs?);
            Ok(())
        })?;
        Ok(index)
    }

    /// Loads all index files for reading. The blobs of a damaged file are read from the headers of the packs, if they are readable.
    /// Returns the errors too.
    pub(crate) fn rescue_index(&self, task: &Task, cancel: &Cancel) -> Result<(BlobIndex, Vec<RepositoryError>)> {
        let (mut index, mut damage) = (BlobIndex::default(), Vec::new());
        let step = |done, total| task.say(format!("loading the index: {done} of {total} files"));
        self.each_index_file(&step, cancel, |file, packs| {
            match packs {
                Ok(packs) => index.add_file(file, &packs),
                Err(error @ RepositoryError::Corrupt { .. }) => damage.push(error),
                Err(error) => return Err(error),
            }
            Ok(())
        })?;
        if !damage.is_empty() {
            self.add_unindexed_packs(&mut index, cancel)?;
        }
        Ok((index, damage))
    }

    /// Adds packs that are not in the index, from their headers. A missing index file is otherwise detected only by missing trees.
    pub(crate) fn add_unindexed_packs(&self, index: &mut BlobIndex, cancel: &Cancel) -> Result<()> {
        self.unindexed_packs(index, cancel)?.iter().for_each(|pack| index.add_unindexed(pack));
        Ok(())
    }

    /// Returns an error if a source of the index was deleted since it was loaded. An index that is loaded before the lock is
    /// confirmed may be from the end of a prune. To be called after the confirmation.
    pub(crate) fn require_not_pruned(&self, index: &BlobIndex, cancel: &Cancel) -> Result<()> {
        let IndexSources { files, packs } = index.sources();
        let existing: HashSet<_> = self.list(FileKind::Index, cancel)?.into_iter().map(|file| file.id).collect();
        let pack_exists = |id: &Id| {
            let key = FileKind::Pack.key_of(id);
            self.wait(cancel, async { Ok(self.store.exists(&key).await?) })
        };
        let mut is_complete = files.iter().all(|file| existing.contains(file));
        for pack in packs {
            is_complete = is_complete && pack_exists(pack)?;
        }
        if is_complete {
            return Ok(());
        }
        let holder = "a prune that ended when this operation started".into();
        Err(RepositoryError::Locked { location: self.store.name().into(), holder })
    }

    /// Passes the packs or the error of every index file to `on_file`, and the progress to `step`.
    pub(crate) fn each_index_file(
        &self,
        step: &dyn Fn(usize, usize),
        cancel: &Cancel,
        on_file: impl FnMut(Id, Result<Vec<IndexedPack>>) -> Result<()>,
    ) -> Result<()> {
        self.each_index_file_from(Source::CacheFirst, step, cancel, on_file)
    }

    /// Like [`Repository::each_index_file`], from this source.
    pub(crate) fn each_index_file_from(
        &self,
        source: Source,
        step: &dyn Fn(usize, usize),
        cancel: &Cancel,
        mut on_file: impl FnMut(Id, Result<Vec<IndexedPack>>) -> Result<()>,
    ) -> Result<()> {
        let files = self.list(FileKind::Index, cancel)?;
        step(0, files.len());
        let mut done = 0;
        self.each_file(FileKind::Index, source, files.iter().map(|file| file.id), cancel, |id, json| {
            let packs = json.and_then(|json| {
                index::parse(&json).map_err(|cause| RepositoryError::corrupt(FileKind::Index.key_of(&id), cause))
            });
            on_file(id, packs)?;
            done += 1;
            step(done, files.len());
            Ok(())
        })?;
        self.remove_stale_cached(FileKind::Index, &files);
        Ok(())
    }

    /// The packs that are in no index file, with their blobs: from an interrupted backup.
    pub(crate) fn unindexed_packs(&self, index: &BlobIndex, cancel: &Cancel) -> Result<Vec<IndexedPack>> {
        let unindexed = self.list_packs(index.pack_count(), cancel, |pack| !index.has_pack(&pack.id))?;
        self.wait(cancel, async {
            let reads =
                unindexed.iter().map(|pack| async move { (pack.id, self.read_header(pack.id, pack.size).await) });
            let mut reads = futures::stream::iter(reads).buffer_unordered(MAX_CONCURRENT_LOADS);
            let mut packs = Vec::new();
            while let Some((id, blobs)) = reads.next().await {
                match blobs {
                    Ok(blobs) => packs.push(IndexedPack { id, blobs }),
                    // It is unused; check reports it and prune removes it.
                    Err(error) => tracing::warn!(pack = %id, %error, "failed to read a pack that is not in the index"),
                }
            }
            Ok(packs)
        })
    }

    /// Lists the packs that match, of about `count`. A listing has a thousand files at most and must wait for the one before, so many
    /// packs are listed by the beginnings of their names.
    pub(crate) fn list_packs(
        &self,
        count: usize,
        cancel: &Cancel,
        predicate: impl Fn(&ListedFile) -> bool,
    ) -> Result<Vec<ListedFile>> {
        if count < MIN_PACKS_BY_PREFIX {
            return self.list_where(FileKind::Pack, cancel, predicate);
        }
        let predicate = |info: ObjectInfo| std::future::ready(Ok(parse_listed(&info).filter(&predicate)));
        let lists = (0..=u8::MAX).map(|first| {
            let folder = format!("{}/{first:02x}", FileKind::Pack.folder());
            async move { self.store.list(&folder).try_filter_map(predicate).try_collect::<Vec<_>>().await }
        });
        let lists = futures::stream::iter(lists).buffer_unordered(MAX_CONCURRENT_LISTS);
        self.wait(cancel, async { Ok(lists.try_concat().await?) })
    }

    /// The blobs in the header of a pack.
    pub(crate) async fn read_header(&self, id: Id, size: u64) -> Result<Vec<crate::format::blob::PackedBlob>> {
        let key = FileKind::Pack.key_of(&id);
        let damaged = |cause| RepositoryError::corrupt(key.clone(), cause);
        let mut tail = self.store.get_range(&key, size.saturating_sub(pack::FIRST_READ)..size).await?;
        let needed = pack::header_size(&tail, size).map_err(damaged)?;
        if needed > tail.len() {
            tail = self.store.get_range(&key, size - needed as u64..size).await?;
        }
        pack::parse_header(&tail[tail.len() - needed..], size, &self.key).map_err(damaged)
    }
}
