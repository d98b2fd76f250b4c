//! Copies of small files on this machine's disk, so that the next run need not download them again. Each is proved by its name,
//! which is its hash: whatever lies here, nothing wrong is read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;

use crate::Result;
use crate::format::id::Id;
use crate::repository::{FileKind, Listed, Repository};

/// Cached files younger than this stay, whatever the repository has.
const SPARED: Duration = Duration::from_hours(1);

/// Where files are read that this machine may have a copy of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// On this machine's disk, if they are there.
    CacheFirst,
    /// In the store, whatever this machine has: for who wants to know what the store has.
    Store,
}

impl Repository {
    /// The stored bytes of a file, verified against its name.
    pub(crate) async fn load_from(&self, source: Source, kind: FileKind, id: Id) -> Result<Bytes> {
        let folder = self.cache_folder(kind).filter(|_| source == Source::CacheFirst);
        let cached = folder.map(|folder| folder.join(id.to_string()));
        if let Some(sealed) = cached.as_deref().and_then(|file| read_verified(file, id)) {
            return Ok(sealed.into());
        }
        let sealed = self.load_sealed(kind, id).await?;
        self.keep_cached(kind, id, &sealed);
        Ok(sealed)
    }

    /// Keeps a copy of a file on this machine, if that is wanted.
    pub(crate) fn keep_cached(&self, kind: FileKind, id: Id, sealed: &[u8]) {
        if let Some(folder) = self.cache_folder(kind) {
            keep(&folder.join(id.to_string()), sealed);
        }
    }

    /// Of those kinds that are read again and again: locks come and go, keys must not lie around, packs are too many.
    fn cache_folder(&self, kind: FileKind) -> Option<PathBuf> {
        let is_kept = matches!(kind, FileKind::Index | FileKind::Snapshot);
        let root = self.options.cache.as_ref().filter(|_| is_kept)?;
        Some(root.join(self.config.id.to_string()).join(kind.folder()))
    }

    /// Removes cached files that the repository no longer has. A young one may be there since it was listed: by another
    /// transfer of this machine, which may not even have completed it.
    pub(crate) fn forget_cached(&self, kind: FileKind, files: &[Listed]) {
        let Some(entries) = self.cache_folder(kind).and_then(|folder| std::fs::read_dir(folder).ok()) else { return };
        let there: std::collections::HashSet<_> = files.iter().map(|file| file.id).collect();
        for entry in entries.flatten() {
            let known = entry.file_name().to_str().and_then(Id::parse);
            if known.is_none_or(|id| !there.contains(&id)) && is_old(&entry) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
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
        tracing::debug!(file = %file.display(), %error, "file not cached");
    }
}
