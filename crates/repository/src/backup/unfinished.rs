//! Marks in the cache for backups that have not indexed all their packs. The next backup of this machine then looks for packs that
//! are not in the index.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The mark of a running backup: a locked file. The system unlocks it when the process ends, however it ends.
#[derive(Debug, Default)]
pub(super) struct UnfinishedMark {
    own: Option<(PathBuf, File)>,
    /// The marks of backups that ended without indexing all their packs.
    earlier: Vec<(PathBuf, File)>,
}

impl UnfinishedMark {
    /// Writes a mark into this folder, if there is a cache. Without a mark, only another sign tells that a backup was interrupted.
    pub(super) fn write(folder: Option<PathBuf>) -> Self {
        let Some(folder) = folder else { return Self::default() };
        let earlier = interrupted(&folder);
        let path = folder.join(format!("{:016x}", rand::random::<u64>()));
        let created = std::fs::create_dir_all(&folder).and_then(|()| File::create_new(&path));
        let own = created.and_then(|file| {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok((path, file))
        });
        if let Err(error) = &own {
            tracing::debug!(folder = %folder.display(), %error, "failed to mark a backup as unfinished");
        }
        Self { own: own.ok(), earlier }
    }

    /// Whether an earlier backup of this machine ended without indexing all its packs.
    pub(super) fn follows_interruption(&self) -> bool {
        !self.earlier.is_empty()
    }

    /// All packs are indexed, also those of earlier backups.
    pub(super) fn remove(self) {
        for (path, _) in self.earlier.iter().chain(&self.own) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The marks that no process holds, held from now on.
fn interrupted(folder: &Path) -> Vec<(PathBuf, File)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let held = entries.filter_map(|entry| {
        let file = File::open(entry.path()).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some((entry.path(), file))
    });
    held.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_an_interrupted_backup_is_seen_until_its_packs_are_indexed() {
        let folder = tempfile::tempdir().expect("a directory");
        let write = || UnfinishedMark::write(Some(folder.path().join("marks")));
        let first = write();
        assert!(!first.follows_interruption());
        let second = write();
        assert!(!second.follows_interruption(), "the first one still runs");
        drop(first);
        let third = write();
        assert!(third.follows_interruption(), "the first one has ended");
        second.remove();
        drop(third);
        let fourth = write();
        assert!(fourth.follows_interruption(), "neither of them indexed its packs");
        fourth.remove();
        let fifth = write();
        assert!(!fifth.follows_interruption());
        fifth.remove();
        assert_eq!(std::fs::read_dir(folder.path().join("marks")).expect("lists").count(), 0);
        assert!(!UnfinishedMark::write(None).follows_interruption(), "without a cache");
    }
}
