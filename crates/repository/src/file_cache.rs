//! The local cache of index and snapshot files. Every cached file is verified against its ID, so a damaged cache is harmless.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;

use crate::Result;
use crate::format::id::Id;
use crate::repository::{FileKind, ListedFile, Repository};

/// Cached files that are younger are not removed.
const MIN_REMOVAL_AGE: Duration = Duration::from_hours(1);

/// Where to read a file that may be cached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// From the cache, if it is there.
    CacheFirst,
    /// From the store only, to check the store.
    Store,
}

impl Repository {
    /// The stored bytes of a file, verified against its ID.
    pub(crate) async fn load_from(&self, source: Source, kind: FileKind, id: Id) -> Result<Bytes> {
        let folder = self.cache_folder(kind).filter(|_| source == Source::CacheFirst);
        let cached = folder.map(|folder| folder.join(id.to_string()));
        if let Some(encrypted) = cached.as_deref().and_then(|file| read_verified(file, id)) {
            return Ok(encrypted.into());
        }
        let encrypted = self.load_encrypted(kind, id).await?;
        self.cache_file(kind, id, &encrypted);
        Ok(encrypted)
    }

    /// Stores a copy of a file in the cache, if there is one.
    pub(crate) fn cache_file(&self, kind: FileKind, id: Id, encrypted: &[u8]) {
        if let Some(folder) = self.cache_folder(kind) {
            write_cached(&folder.join(id.to_string()), encrypted);
        }
    }

    /// The cache folder for kinds that are read repeatedly: locks change, keys must not be cached, packs are too many.
    fn cache_folder(&self, kind: FileKind) -> Option<PathBuf> {
        let is_cached = matches!(kind, FileKind::Index | FileKind::Snapshot);
        let root = self.options.cache.as_ref().filter(|_| is_cached)?;
        Some(root.join(self.config.id.to_string()).join(kind.folder()))
    }

    /// The folder for marks of unfinished backups, if there is a cache.
    pub(crate) fn mark_folder(&self) -> Option<PathBuf> {
        Some(self.options.cache.as_ref()?.join(self.config.id.to_string()).join("unfinished"))
    }

    /// Removes cached files that the repository no longer has. A recent file may have been added after the listing, by another
    /// transfer on this machine, and may be incomplete.
    pub(crate) fn remove_stale_cached(&self, kind: FileKind, files: &[ListedFile]) {
        let Some(entries) = self.cache_folder(kind).and_then(|folder| std::fs::read_dir(folder).ok()) else { return };
        let existing: std::collections::HashSet<_> = files.iter().map(|file| file.id).collect();
        for entry in entries.flatten() {
            let id = entry.file_name().to_str().and_then(Id::parse);
            if id.is_none_or(|id| !existing.contains(&id)) && is_old(&entry) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

fn is_old(entry: &std::fs::DirEntry) -> bool {
    let modified = entry.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > MIN_REMOVAL_AGE))
}

fn read_verified(file: &Path, id: Id) -> Option<Vec<u8>> {
    let content = std::fs::read(file).ok()?;
    (Id::of(&content) == id).then_some(content)
}

/// Writes a cached file. A failure only costs a later download; an incomplete file is detected by its hash.
fn write_cached(file: &Path, content: &[u8]) {
    let Some(folder) = file.parent() else { return };
    let temporary = folder.join(format!("tmp-{:016x}", rand::random::<u64>()));
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&temporary, content))
        .and_then(|()| std::fs::rename(&temporary, file));
    if let Err(error) = written {
        tracing::debug!(file = %file.display(), %error, "failed to cache a file");
    }
}
