//! Looking through a volume ourselves.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Cancel;
use crate::outcome::Problems;

/// Calls `visit` with everything below a directory. What cannot be read is passed over: the program that reads it for
/// good will name it.
fn walk(root: &Path, stop: &dyn Fn() -> bool, visit: &mut dyn FnMut(&Path, &Metadata)) {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if stop() {
                return;
            }
            let path = entry.path();
            let Ok(metadata) = path.symlink_metadata() else { continue };
            visit(&path, &metadata);
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
}

/// Whether a directory holds anything at all.
pub(crate) fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

/// What a mover that keeps neither special files nor names that are not UTF-8 would lose without a word.
pub(crate) fn not_kept(root: PathBuf, cancel: Cancel) -> std::thread::JoinHandle<Problems> {
    std::thread::spawn(move || {
        let mut problems = Problems::default();
        walk(&root, &|| cancel.is_cancelled(), &mut |path, metadata| {
            let name = path.strip_prefix(&root).unwrap_or(path);
            let kind = metadata.file_type();
            if std::str::from_utf8(path.file_name().unwrap_or_default().as_bytes()).is_err() {
                problems.add(name.display().to_string(), "its name is not UTF-8 and comes back changed");
            } else if !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
                problems.add(name.display().to_string(), "pipes, sockets and devices are not kept");
            }
        });
        problems
    })
}

/// The bytes of all files, each counted once whatever its names.
pub(crate) fn size(root: &Path, stop: &dyn Fn() -> bool) -> u64 {
    let mut linked = HashSet::new();
    let mut sum = 0;
    walk(root, stop, &mut |_, metadata| {
        let again = metadata.nlink() > 1 && !linked.insert((metadata.dev(), metadata.ino()));
        if metadata.is_file() && !again {
            sum += metadata.len();
        }
    });
    sum
}

/// How much a directory has grown, measured again and again without taking more than a tenth of the time.
#[derive(Debug)]
pub(crate) struct Growth {
    grown: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
}

impl Growth {
    /// Beyond these bytes, which were there before anybody wrote.
    pub(crate) fn watch(root: PathBuf, before: u64, interval: Duration) -> Self {
        let (grown, stopped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (to, stop) = (grown.clone(), stopped.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Acquire) {
                let began = Instant::now();
                let now = size(&root, &|| stop.load(Ordering::Acquire));
                to.fetch_max(now.saturating_sub(before), Ordering::Release);
                std::thread::park_timeout(interval.max(began.elapsed() * 9));
            }
        });
        Self { grown, stopped }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.grown.load(Ordering::Acquire)
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_a_file_with_two_names_once_and_what_was_there_before_not_at_all() {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("old"), [0; 100]).expect("writes");
        let before = size(folder.path(), &|| false);
        std::fs::create_dir(folder.path().join("d")).expect("makes");
        std::fs::write(folder.path().join("d/new"), [0; 30]).expect("writes");
        std::fs::hard_link(folder.path().join("d/new"), folder.path().join("again")).expect("links");
        // What was written before the watch began counts too.
        let growth = Growth::watch(folder.path().to_owned(), before, Duration::from_millis(5));
        while growth.bytes() < 30 {
            std::thread::yield_now();
        }
        assert_eq!(growth.bytes(), 30);
        assert_eq!(size(folder.path(), &|| false), 130);
    }
}
