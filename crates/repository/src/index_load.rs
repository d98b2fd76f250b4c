//! Loading the index, from the store or from the copy on this machine's disk.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::StreamExt;
use plimsoll_progress::Task;

use crate::blob_index::{BlobIndex, Origin};
use crate::cancel::Cancel;
use crate::format::id::Id;
use crate::format::index::{self, IndexedPack};
use crate::format::pack;
use crate::repository::{FileKind, LOADS_AT_ONCE, Listed, Repository};
use crate::{RepositoryError, Result};

/// Cached files younger than this stay, whatever the repository has.
const SPARED: Duration = Duration::from_hours(1);

/// Where index files are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexSource {
    /// On this machine's disk, if they are there.
    CacheFirst,
    /// In the store, whatever this machine has: for who wants to know what the store has.
    Store,
}

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
        self.each_index_file_from(IndexSource::CacheFirst, step, cancel, take)
    }

    /// The same, from where it is asked for.
    pub(crate) fn each_index_file_from(
        &self,
        source: IndexSource,
        step: &dyn Fn(usize, usize),
        cancel: &Cancel,
        mut take: impl FnMut(Id, Result<Vec<IndexedPack>>) -> Result<()>,
    ) -> Result<()> {
        let files = self.list(FileKind::Index, cancel)?;
        step(0, files.len());
        self.wait(cancel, async {
            let loads = files.iter().map(|file| async move { (file.id, self.load_index_file(file.id, source).await) });
            let mut loads = futures::stream::iter(loads).buffer_unordered(LOADS_AT_ONCE);
            let mut done = 0;
            while let Some((id, sealed)) = loads.next().await {
                // Unpacked one at a time: that takes many times the memory of what was loaded.
                let packs = sealed.and_then(|sealed| self.open_file(FileKind::Index, id, &sealed)).and_then(|json| {
                    index::parse(&json).map_err(|cause| RepositoryError::corrupt(FileKind::Index.key_of(&id), cause))
                });
                take(id, packs)?;
                done += 1;
                step(done, files.len());
            }
            Ok(())
        })?;
        self.forget_cached(&files);
        Ok(())
    }

    async fn load_index_file(&self, id: Id, source: IndexSource) -> Result<Bytes> {
        let folder = self.cache_folder().filter(|_| source == IndexSource::CacheFirst);
        let cached = folder.map(|folder| folder.join(id.to_string()));
        if let Some(sealed) = cached.as_deref().and_then(|file| read_verified(file, id)) {
            return Ok(sealed.into());
        }
        let sealed = self.load_sealed(FileKind::Index, id).await?;
        self.keep_cached(id, &sealed);
        Ok(sealed)
    }

    /// Keeps a copy of an index file on this machine, if that is wanted.
    pub(crate) fn keep_cached(&self, id: Id, sealed: &[u8]) {
        if let Some(folder) = self.cache_folder() {
            keep(&folder.join(id.to_string()), sealed);
        }
    }

    fn cache_folder(&self) -> Option<PathBuf> {
        self.options.cache.as_ref().map(|root| root.join(self.config.id.to_string()).join("index"))
    }

    /// Removes cached files that the repository no longer has. A young one may be there since it was listed: by another
    /// transfer of this machine, which may not even have completed it.
    fn forget_cached(&self, files: &[Listed]) {
        let Some(entries) = self.cache_folder().and_then(|folder| std::fs::read_dir(folder).ok()) else { return };
        for entry in entries.flatten() {
            let known = entry.file_name().to_str().and_then(Id::parse);
            if known.is_none_or(|id| files.iter().all(|file| file.id != id)) && is_old(&entry) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
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

fn is_old(entry: &std::fs::DirEntry) -> bool {
    let modified = entry.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > SPARED))
}

fn read_verified(file: &Path, id: Id) -> Option<Vec<u8>> {
    let content = std::fs::read(file).ok()?;
    (Id::of(&content) == id).then_some(content)
}

/// Keeps a copy. Failing costs a download later, nothing else; half a copy is noticed by its hash.
fn keep(file: &Path, content: &[u8]) {
    let Some(folder) = file.parent() else { return };
    let temporary = folder.join(format!("tmp-{:016x}", rand::random::<u64>()));
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&temporary, content))
        .and_then(|()| std::fs::rename(&temporary, file));
    if let Err(error) = written {
        tracing::debug!(file = %file.display(), %error, "index file not cached");
    }
}
