//! Scans of a volume: losses of a mover without full fidelity, and sizes.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Cancel;
use crate::outcome::Problems;

/// The file with the ignore rules of kopia.
const IGNORE_FILE: &str = ".kopiaignore";
/// The file that marks a directory as a cache, and its signature (<https://bford.info/cachedir/>).
const CACHE_TAG: &str = "CACHEDIR.TAG";
const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Longer than most lists of extended attributes.
const XATTR_LIST_SIZE: usize = 4096;

/// Calls `visit` with every entry below a directory. Skips what cannot be read: the mover reports it.
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

/// Whether a directory is empty.
pub(crate) fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

/// What a mover loses silently that preserves no special files, non-UTF-8 names, hard links or extended attributes.
#[derive(Debug, Default)]
pub(crate) struct LossReport {
    /// Entries that are not restored, or not under their name.
    pub(crate) problems: Problems,
    /// Entries that kopia ignores by default: a loss only if the policy could not be changed.
    pub(crate) ignored: Problems,
    hard_linked: HashSet<(u64, u64)>,
    with_attributes: u64,
}

impl LossReport {
    pub(crate) fn scan(root: PathBuf, cancel: Cancel) -> std::thread::JoinHandle<Self> {
        std::thread::spawn(move || {
            let mut report = Self::default();
            walk(&root, &|| cancel.is_cancelled(), &mut |path, metadata| {
                report.inspect(path, path.strip_prefix(&root).unwrap_or(path), metadata);
            });
            report
        })
    }

    fn inspect(&mut self, path: &Path, name: &Path, metadata: &Metadata) {
        let kind = metadata.file_type();
        // A server creates its socket when it starts; a restored one is useless.
        if kind.is_socket() {
            return;
        }
        if std::str::from_utf8(path.file_name().unwrap_or_default().as_bytes()).is_err() {
            self.problems.add(name.display().to_string(), "the name is not UTF-8 and is restored changed");
        } else if !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
            self.problems.add(name.display().to_string(), "pipes and devices are not backed up");
        }
        self.inspect_ignore_markers(path, name, metadata);
        if kind.is_file() && metadata.nlink() > 1 {
            self.hard_linked.insert((metadata.dev(), metadata.ino()));
        }
        if has_attributes(path) {
            self.with_attributes += 1;
        }
    }

    fn inspect_ignore_markers(&mut self, path: &Path, name: &Path, metadata: &Metadata) {
        let is_named = |expected: &str| path.file_name().is_some_and(|name| name == expected);
        if is_named(IGNORE_FILE) && !metadata.is_dir() {
            self.ignored.add(name.display().to_string(), "kopia applies its ignore rules");
        } else if is_named(CACHE_TAG) && metadata.is_file() && is_cache_tag(path) {
            let cache = name.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            self.ignored.add(cache.display().to_string(), "kopia ignores the content of cache directories");
        }
    }

    /// A warning about entries that are restored incompletely.
    pub(crate) fn warning(&self) -> Option<String> {
        let links = (!self.hard_linked.is_empty())
            .then(|| format!("{} hard-linked files are restored as separate files", self.hard_linked.len()));
        let attributes = (self.with_attributes > 0)
            .then(|| format!("{} entries are restored without extended attributes", self.with_attributes));
        let warnings: Vec<String> = links.into_iter().chain(attributes).collect();
        (!warnings.is_empty()).then(|| warnings.join(", "))
    }
}

fn is_cache_tag(path: &Path) -> bool {
    let mut signature = [0; CACHE_SIGNATURE.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut signature));
    read.is_ok() && signature == CACHE_SIGNATURE
}

/// Whether an entry has extended attributes, without the SELinux label: that is set when the entry is restored.
fn has_attributes(path: &Path) -> bool {
    let mut names = [0; XATTR_LIST_SIZE];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(error) => return error == rustix::io::Errno::RANGE,
    };
    let mut names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.any(|name| name != b"security.selinux")
}

/// The bytes of all files. A hard-linked file counts once.
pub(crate) fn size(root: &Path, stop: &dyn Fn() -> bool) -> u64 {
    let mut seen = HashSet::new();
    let mut sum = 0;
    walk(root, stop, &mut |_, metadata| {
        let is_repeated = metadata.nlink() > 1 && !seen.insert((metadata.dev(), metadata.ino()));
        if metadata.is_file() && !is_repeated {
            sum += metadata.len();
        }
    });
    sum
}

/// The growth of a directory, measured repeatedly in at most a tenth of the time.
#[derive(Debug)]
pub(crate) struct DirectoryGrowth {
    grown: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
}

/// One part in so many of the time is spent on measuring.
const DUTY_CYCLE: u32 = 10;

impl DirectoryGrowth {
    /// Measures the growth beyond `before`, the size before the restore. Without it, beyond the current size.
    pub(crate) fn watch(root: PathBuf, before: Option<u64>, interval: Duration) -> Self {
        Self::measure(before, interval, move |stop| size(&root, stop))
    }

    fn measure(
        mut before: Option<u64>,
        interval: Duration,
        mut size: impl FnMut(&dyn Fn() -> bool) -> u64 + Send + 'static,
    ) -> Self {
        let (grown, stopped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (to, stop) = (grown.clone(), stopped.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Acquire) {
                let started = Instant::now();
                let now = size(&|| stop.load(Ordering::Acquire));
                to.fetch_max(now.saturating_sub(*before.get_or_insert(now)), Ordering::Release);
                std::thread::sleep(interval.max(started.elapsed() * (DUTY_CYCLE - 1)));
            }
        });
        Self { grown, stopped }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.grown.load(Ordering::Acquire)
    }
}

impl Drop for DirectoryGrowth {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_no_loss_and_hard_links_and_attributes_are_counted() {
        let folder = tempfile::tempdir().expect("a directory");
        let at = |name: &str| folder.path().join(name);
        let _listener = std::os::unix::net::UnixListener::bind(at("socket")).expect("binds");
        std::fs::write(at("file"), "x").expect("writes");
        let none = LossReport::scan(folder.path().to_owned(), Cancel::default()).join().expect("ends");
        assert_eq!((none.problems.count, none.warning()), (0, None));
        std::fs::hard_link(at("file"), at("second")).expect("links");
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).expect("makes");
        let tagged = rustix::fs::setxattr(at("file"), "user.mine", b"1", rustix::fs::XattrFlags::empty()).is_ok();
        let report = LossReport::scan(folder.path().to_owned(), Cancel::default()).join().expect("ends");
        assert_eq!(report.problems.named.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["pipe"]);
        let warning = report.warning().expect("a loss");
        assert!(warning.starts_with("1 hard-linked files"), "{warning}");
        assert_eq!(warning.contains("2 entries are restored without extended attributes"), tagged, "{warning}");
    }

    #[test]
    fn entries_that_kopia_ignores_by_default_are_found() {
        let folder = tempfile::tempdir().expect("a directory");
        for (name, content) in [
            ("cache/CACHEDIR.TAG", CACHE_SIGNATURE),
            ("other/CACHEDIR.TAG", b"Signature: another one, which is as long as the expected signature"),
            ("short/CACHEDIR.TAG", b"Signature"),
            ("deep/.kopiaignore", b"*"),
        ] {
            let path = folder.path().join(name);
            std::fs::create_dir(path.parent().expect("has one")).expect("makes");
            std::fs::write(path, content).expect("writes");
        }
        std::fs::create_dir(folder.path().join(".kopiaignore")).expect("makes");
        let report = LossReport::scan(folder.path().to_owned(), Cancel::default()).join().expect("ends");
        let mut named: Vec<_> = report.ignored.named.iter().map(|one| one.path.as_str()).collect();
        named.sort_unstable();
        assert_eq!(named, ["cache", "deep/.kopiaignore"]);
        assert_eq!(report.problems.count, 0, "ignored entries are no problems");
        std::fs::write(folder.path().join(CACHE_TAG), CACHE_SIGNATURE).expect("writes");
        let report = LossReport::scan(folder.path().to_owned(), Cancel::default()).join().expect("ends");
        assert!(report.ignored.named.iter().any(|one| one.path == "."), "{:?}", report.ignored);
    }

    #[test]
    fn growth_counts_a_hard_linked_file_once_and_excludes_existing_files() {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("old"), [0; 100]).expect("writes");
        let before = size(folder.path(), &|| false);
        std::fs::create_dir(folder.path().join("d")).expect("makes");
        std::fs::write(folder.path().join("d/new"), [0; 30]).expect("writes");
        std::fs::hard_link(folder.path().join("d/new"), folder.path().join("again")).expect("links");
        // Writes before the first measurement count too.
        let growth = DirectoryGrowth::watch(folder.path().to_owned(), Some(before), Duration::from_millis(5));
        while growth.bytes() < 30 {
            std::thread::yield_now();
        }
        assert_eq!(growth.bytes(), 30);
        assert_eq!(size(folder.path(), &|| false), 130);
    }

    #[test]
    fn without_a_previous_size_growth_starts_with_the_first_measurement() {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("old"), [0; 100]).expect("writes");
        let (sender, measurements) = std::sync::mpsc::channel();
        let root = folder.path().to_owned();
        let growth = DirectoryGrowth::measure(None, Duration::from_millis(5), move |stop| {
            let bytes = size(&root, stop);
            let _ = sender.send(bytes);
            bytes
        });
        assert_eq!(measurements.recv().expect("a measurement"), 100);
        std::fs::write(folder.path().join("new"), [0; 30]).expect("writes");
        while growth.bytes() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(growth.bytes(), 30);
    }

    #[test]
    fn measuring_takes_at_most_a_tenth_of_the_time() {
        const MEASUREMENT: Duration = Duration::from_millis(10);
        let (sender, measurements) = std::sync::mpsc::channel();
        // An interval that would allow continuous measuring.
        let _growth = DirectoryGrowth::measure(Some(0), Duration::ZERO, move |_| {
            let started = Instant::now();
            while started.elapsed() < MEASUREMENT {
                std::hint::spin_loop();
            }
            let _ = sender.send((started, started.elapsed()));
            0
        });
        let measured: Vec<(Instant, Duration)> = measurements.iter().take(5).collect();
        for pair in measured.windows(2) {
            let ((started, took), (next, _)) = (pair[0], pair[1]);
            assert!(next - started >= took * DUTY_CYCLE, "{took:?} of {:?}", next - started);
        }
    }

    #[test]
    fn a_scan_ends_when_it_is_stopped() {
        let folder = tempfile::tempdir().expect("a directory");
        for name in ["a", "b", "c"] {
            std::fs::write(folder.path().join(name), [0; 10]).expect("writes");
        }
        let entries = std::cell::Cell::new(0);
        let stop = || entries.replace(entries.get() + 1) == 2;
        assert_eq!(size(folder.path(), &stop), 20);
    }
}
