//! The caches of repositories on a node, and their size limit.
//!
//! Each repository has a directory of its own below the root. Movers bound what they keep in one (kopia to 2 GiB, restic and ours to
//! indexes and metadata), but not how many there are: a node has a repository for every namespace that ever had a pod on it.
//! So whenever a transfer ends, the directories that were longest unused go until the rest is within the limit.
//!
//! Guarantees: a directory that a transfer of any agent on this machine works with stays, because its holder has a lock on it that
//! ends with its process. What is removed is removed whole, by a rename first. Nothing here can fail a transfer.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use plimsoll_mover::Repository;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use tracing::{info, warn};

/// Directories that were taken out of use and not yet removed begin with this.
const REMOVED_PREFIX: &str = "gone-";

/// The caches of one node.
#[derive(Debug)]
pub(crate) struct Caches {
    root: Option<PathBuf>,
    limit: u64,
    ended: Arc<Notify>,
}

/// A repository's directory, which stays as long as this is held.
#[derive(Debug)]
pub(crate) struct CacheGuard {
    path: PathBuf,
    lock: File,
    ended: Arc<Notify>,
}

impl CacheGuard {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for CacheGuard {
    fn drop(&mut self) {
        // The caches that were longest unused are removed first.
        let _ = self.lock.set_modified(SystemTime::now());
        let _ = self.lock.unlock();
        self.ended.notify_one();
    }
}

impl Caches {
    pub(crate) fn new(root: Option<PathBuf>, limit: u64) -> Self {
        Self { root, limit, ended: Arc::new(Notify::new()) }
    }

    /// The directory of a repository. A transfer without one only takes longer.
    pub(crate) fn acquire(&self, repository: &Repository) -> Option<CacheGuard> {
        let path = directory(self.root.as_ref()?, repository);
        match lock(&path) {
            Ok(lock) => Some(CacheGuard { path, lock, ended: Arc::clone(&self.ended) }),
            Err(error) => {
                warn!("{} cannot be used as a cache, so this transfer has none: {error}", path.display());
                None
            }
        }
    }

    /// Enforces the limit until it is dropped.
    pub(crate) async fn evict_when_idle(&self) {
        let Some(root) = self.root.clone() else { return std::future::pending().await };
        loop {
            let (root, limit) = (root.clone(), self.limit);
            match tokio::task::spawn_blocking(move || enforce_limit(&root, limit)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => warn!("failed to enforce the size limit of the caches: {error}"),
                Err(error) => warn!("failed to enforce the size limit of the caches: {error}"),
            }
            self.ended.notified().await;
        }
    }
}

/// A directory of its own for each repository, whatever characters its name has.
fn directory(root: &Path, repository: &Repository) -> PathBuf {
    let digest = Sha256::digest(repository.location.name().as_bytes());
    root.join(hex::encode(&digest[..8]))
}

/// Creates a directory and locks it against removal. A process that removes it renames it first: then a new one is created and
/// locked.
fn lock(path: &Path) -> io::Result<File> {
    loop {
        fs::create_dir_all(path)?;
        let folder = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        folder.lock_shared()?;
        if is_still_there(path, &folder) {
            folder.set_modified(SystemTime::now())?;
            return Ok(folder);
        }
    }
}

/// Whether the opened directory is still the one at this path.
fn is_still_there(path: &Path, opened: &File) -> bool {
    fs::metadata(path).is_ok_and(|there| opened.metadata().is_ok_and(|held| held.ino() == there.ino()))
}

struct Cache {
    path: PathBuf,
    used: SystemTime,
    bytes: u64,
}

/// Removes what was longest unused until the rest is within the limit.
fn enforce_limit(root: &Path, limit: u64) -> io::Result<()> {
    let mut caches = list(root)?;
    let mut kept: u64 = caches.iter().map(|cache| cache.bytes).sum();
    caches.sort_by_key(|cache| cache.used);
    for cache in caches {
        if kept <= limit {
            break;
        }
        let (path, bytes) = (cache.path.display(), cache.bytes);
        match remove(root, &cache.path) {
            Ok(true) => {
                info!("removed {path} of the cache, {bytes} bytes of a repository that was longest unused");
                kept -= bytes;
            }
            Ok(false) => {}
            Err(error) => warn!("{path} of the cache, longest unused, cannot be removed: {error}"),
        }
    }
    Ok(())
}

fn list(root: &Path) -> io::Result<Vec<Cache>> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut caches = Vec::new();
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        // Another agent may remove it meanwhile.
        let Some(metadata) = entry.metadata().ok().filter(fs::Metadata::is_dir) else { continue };
        if entry.file_name().to_string_lossy().starts_with(REMOVED_PREFIX) {
            // Another process was killed while it removed it, or is still removing it.
            let _ = fs::remove_dir_all(&path);
            continue;
        }
        caches.push(Cache { bytes: size(&path), used: metadata.modified()?, path });
    }
    Ok(caches)
}

/// The disk usage of a directory, as far as it can be read: movers may change it.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(of_entry).sum()
}

/// Whether it was removed: not while it is in use.
fn remove(root: &Path, cache: &Path) -> io::Result<bool> {
    let folder = File::open(cache)?;
    if folder.try_lock().is_err() || !is_still_there(cache, &folder) {
        return Ok(false);
    }
    // A directory of its own: one of that name may be left by a process that could not remove it.
    let gone = tempfile::Builder::new().prefix(REMOVED_PREFIX).tempdir_in(root)?;
    fs::rename(cache, gone.path().join("cache"))?;
    drop(folder);
    gone.close()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_mover::{RepositoryLocation, Secret};

    use super::*;

    const PIECE: usize = 64 << 10;

    fn repository(prefix: &str) -> Repository {
        let place = RepositoryLocation {
            provider: "directory".into(),
            bucket: "/b".into(),
            prefix: prefix.into(),
            ..RepositoryLocation::default()
        };
        Repository { location: place, password: Secret::new("p") }
    }

    fn caches(root: &Path, pieces: usize) -> Caches {
        Caches::new(Some(root.to_owned()), (PIECE * pieces) as u64)
    }

    /// Uses the cache of a repository, so many seconds ago.
    fn used(caches: &Caches, prefix: &str, ago: u64) -> PathBuf {
        let held = caches.acquire(&repository(prefix)).expect("held");
        let path = held.path().to_owned();
        fs::create_dir_all(path.join("kopia/contents")).expect("made");
        fs::write(path.join("kopia/contents/piece"), vec![1; PIECE]).expect("written");
        drop(held);
        let then = SystemTime::now() - Duration::from_secs(ago);
        File::open(&path).expect("opened").set_modified(then).expect("set");
        path
    }

    fn limit_enforced(caches: &Caches) {
        enforce_limit(caches.root.as_deref().expect("has a root"), caches.limit).expect("tidied");
    }

    #[test]
    fn what_was_longest_unused_goes_until_the_rest_is_within_the_limit() {
        let root = tempfile::tempdir().expect("made");
        let caches = caches(root.path(), 2);
        let paths = [("a", 30), ("b", 40), ("c", 10), ("d", 20)].map(|(prefix, ago)| used(&caches, prefix, ago));
        limit_enforced(&caches);
        assert_eq!(paths.each_ref().map(|path| path.exists()), [false, false, true, true]);
        assert_eq!(root.path().read_dir().expect("read").count(), 2, "nothing else is left");
        limit_enforced(&caches);
        assert_eq!(paths.map(|path| path.exists()), [false, false, true, true]);
    }

    #[test]
    fn a_cache_that_is_held_stays_though_it_is_the_oldest_and_goes_once_it_is_not() {
        let root = tempfile::tempdir().expect("made");
        let caches = caches(root.path(), 0);
        let (old, new) = (used(&caches, "old", 99), used(&caches, "new", 1));
        let (one, two) = (caches.acquire(&repository("old")), caches.acquire(&repository("old")));
        limit_enforced(&caches);
        assert_eq!((old.join("kopia/contents/piece").exists(), new.exists()), (true, false));
        drop(one);
        limit_enforced(&caches);
        assert!(old.exists(), "another transfer still works with it");
        drop(two);
        limit_enforced(&caches);
        assert!(!old.exists());
    }

    #[test]
    fn a_transfer_that_waited_for_a_removed_cache_gets_a_new_one() {
        let root = tempfile::tempdir().expect("made");
        let caches = caches(root.path(), 0);
        let path = used(&caches, "a", 1);
        let removing = File::open(&path).expect("opened");
        removing.lock().expect("locked");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| caches.acquire(&repository("a")).expect("held"));
            fs::rename(&path, root.path().join("gone-1-a")).expect("moved");
            drop(removing);
            let held = waiting.join().expect("no panic");
            limit_enforced(&caches);
            assert!(held.path().exists() && held.path().read_dir().expect("read").next().is_none());
        });
        assert!(!root.path().join("gone-1-a").exists(), "what another process left half removed is removed");
    }

    #[test]
    fn without_a_directory_that_can_be_used_a_transfer_has_no_cache() {
        let root = tempfile::tempdir().expect("made");
        fs::write(root.path().join("file"), "").expect("written");
        assert!(caches(&root.path().join("file"), 1).acquire(&repository("a")).is_none());
        assert!(Caches::new(None, 1).acquire(&repository("a")).is_none());
        assert!(enforce_limit(&root.path().join("nothing"), 1).is_ok());
    }
}
