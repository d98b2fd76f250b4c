//! Loading the index, from the store or from the copy on this machine's disk.

use std::collections::HashSet;

use futures::stream::StreamExt;
use plimsoll_progress::Task;

use crate::blob_index::{BlobIndex, Origin};
use crate::cancel::Cancel;
use crate::file_cache::Source;
use crate::format::id::Id;
use crate::format::index::{self, IndexedPack};
use crate::format::pack;
use crate::repository::{FileKind, LOADS_AT_ONCE, Repository};
use crate::{RepositoryError, Result};

impl Repository {
    /// The union of all index files. One that is damaged is an error: what it lists would be missed silently.
    pub(crate) fn load_index(&self, task: &Task, cancel: &Cancel) -> Result<BlobIndex> {
        let mut index = BlobIndex::default();
        let step = |done, total| task.say(format!("loading the index: {done} of {total} files"));
        self.each_index_file(&step, cancel, |file, packs| {
            index.add_file(file, &packs?);
            Ok(())
        })?;
        Ok(index)
    }

    /// The same for those who only read: what a damaged file should have listed is found in the packs themselves, as far
    /// as they can be read. Answers with what is wrong, too.
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
            self.add_orphans(&mut index, cancel)?;
        }
        Ok((index, damage))
    }

    /// Adds what the packs themselves say: an index file that is gone is missed by nobody but a tree that is in no other.
    pub(crate) fn add_orphans(&self, index: &mut BlobIndex, cancel: &Cancel) -> Result<()> {
        self.orphan_packs(index, cancel)?.iter().for_each(|pack| index.add_orphan(pack));
        Ok(())
    }

    /// An error if something that an index was made from is gone since it was loaded: whoever loads it while the lock is not
    /// yet known to be good may have met the end of a prune. To be asked when it is.
    pub(crate) fn require_unswept(&self, index: &BlobIndex, cancel: &Cancel) -> Result<()> {
        let Origin { files, packs } = index.origin();
        let there: HashSet<_> = self.list(FileKind::Index, cancel)?.into_iter().map(|file| file.id).collect();
        let pack_is_there = |id: &Id| {
            let key = FileKind::Pack.key_of(id);
            self.wait(cancel, async { Ok(self.store.exists(&key).await?) })
        };
        let mut unswept = files.iter().all(|file| there.contains(file));
        for pack in packs {
            unswept = unswept && pack_is_there(pack)?;
        }
        if unswept {
            return Ok(());
        }
        let holder = "somebody who was about to end sweeping it up when this began".into();
        Err(RepositoryError::Locked { location: self.store.name().into(), holder })
    }

    /// Hands every index file's packs, or what is wrong with it, to `take`; tells `step` how many are done, of how many.
    pub(crate) fn each_index_file(
        &self,
        step: &dyn Fn(usize, usize),
        cancel: &Cancel,
        take: impl FnMut(Id, Result<Vec<IndexedPack>>) -> Result<()>,
    ) -> Result<()> {
        self.each_index_file_from(Source::CacheFirst, step, cancel, take)
    }

    /// The same, from where it is asked for.
    pub(crate) fn each_index_file_from(
        &self,
        source: Source,
        step: &dyn Fn(usize, usize),
        cancel: &Cancel,
        mut take: impl FnMut(Id, Result<Vec<IndexedPack>>) -> Result<()>,
    ) -> Result<()> {
        let files = self.list(FileKind::Index, cancel)?;
        step(0, files.len());
        let mut done = 0;
        self.each_file(FileKind::Index, source, files.iter().map(|file| file.id), cancel, |id, json| {
            let packs = json.and_then(|json| {
                index::parse(&json).map_err(|cause| RepositoryError::corrupt(FileKind::Index.key_of(&id), cause))
            });
            take(id, packs)?;
            done += 1;
            step(done, files.len());
            Ok(())
        })?;
        self.forget_cached(FileKind::Index, &files);
        Ok(())
    }

    /// Packs that no index file names, with their blobs: what an interrupted backup had stored.
    pub(crate) fn orphan_packs(&self, index: &BlobIndex, cancel: &Cancel) -> Result<Vec<IndexedPack>> {
        let orphans = self.list_those(FileKind::Pack, cancel, |pack| !index.has_pack(&pack.id))?;
        self.wait(cancel, async {
            let reads = orphans.iter().map(|pack| async move { (pack.id, self.read_header(pack.id, pack.size).await) });
            let mut reads = futures::stream::iter(reads).buffer_unordered(LOADS_AT_ONCE);
            let mut adopted = Vec::new();
            while let Some((id, blobs)) = reads.next().await {
                match blobs {
                    Ok(blobs) => adopted.push(IndexedPack { id, blobs }),
                    // It is used by nothing; check names it, prune removes it.
                    Err(error) => tracing::warn!(pack = %id, %error, "a pack outside the index is not readable"),
                }
            }
            Ok(adopted)
        })
    }

    /// The blobs a pack says it holds.
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
