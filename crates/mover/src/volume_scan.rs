//! Looking through a volume ourselves.

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

/// The file whose lines kopia leaves out.
const IGNORE_FILE: &str = ".kopiaignore";
/// The file that makes a directory a cache, and how it must begin (<https://bford.info/cachedir/>).
const CACHE_MARK: &str = "CACHEDIR.TAG";
const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Longer than most lists of the names of attributes.
const LONGEST_LIST: usize = 4096;

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

/// What a mover loses without a word that keeps neither special files, nor names that are not UTF-8, nor links, nor attributes.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// What does not come back, or not under its name.
    pub(crate) problems: Problems,
    /// What kopia leaves out by default, and what names more: a loss only where that could not be turned off.
    pub(crate) left_out: Problems,
    linked: HashSet<(u64, u64)>,
    attributed: u64,
}

impl Losses {
    pub(crate) fn find(root: PathBuf, cancel: Cancel) -> std::thread::JoinHandle<Self> {
        std::thread::spawn(move || {
            let mut losses = Self::default();
            walk(&root, &|| cancel.is_cancelled(), &mut |path, metadata| {
                losses.look(path, path.strip_prefix(&root).unwrap_or(path), metadata);
            });
            losses
        })
    }

    fn look(&mut self, path: &Path, name: &Path, metadata: &Metadata) {
        let kind = metadata.file_type();
        // Whoever listens makes it anew when it starts; nobody could use one that came back.
        if kind.is_socket() {
            return;
        }
        if std::str::from_utf8(path.file_name().unwrap_or_default().as_bytes()).is_err() {
            self.problems.add(name.display().to_string(), "its name is not UTF-8 and comes back changed");
        } else if !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
            self.problems.add(name.display().to_string(), "pipes and devices are not kept");
        }
        self.look_for_marks(path, name, metadata);
        if kind.is_file() && metadata.nlink() > 1 {
            self.linked.insert((metadata.dev(), metadata.ino()));
        }
        if has_attributes(path) {
            self.attributed += 1;
        }
    }

    fn look_for_marks(&mut self, path: &Path, name: &Path, metadata: &Metadata) {
        let called = |mark: &str| path.file_name().is_some_and(|name| name == mark);
        if called(IGNORE_FILE) && !metadata.is_dir() {
            self.left_out.add(name.display().to_string(), "kopia obeys it and leaves out what it names");
        } else if called(CACHE_MARK) && metadata.is_file() && is_cache_mark(path) {
            let cache = name.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            self.left_out.add(cache.display().to_string(), "kopia takes it for a cache and leaves its content out");
        }
    }

    /// What comes back, but not all that was known about it.
    pub(crate) fn warning(&self) -> Option<String> {
        let linked = (!self.linked.is_empty())
            .then(|| format!("{} files with several names come back as several files", self.linked.len()));
        let attributed =
            (self.attributed > 0).then(|| format!("{} entries come back without extended attributes", self.attributed));
        let words: Vec<String> = linked.into_iter().chain(attributed).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

fn is_cache_mark(path: &Path) -> bool {
    let mut begin = [0; CACHE_SIGNATURE.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == CACHE_SIGNATURE
}

/// Whether an entry has extended attributes of its own. Labels of the security module are given anew where it comes back.
fn has_attributes(path: &Path) -> bool {
    let mut names = [0; LONGEST_LIST];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(error) => return error == rustix::io::Errno::RANGE,
    };
    let mut names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.any(|name| name != b"security.selinux")
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

/// Of the time, one part in so many goes into looking.
const PARTS: u32 = 10;

impl Growth {
    /// Beyond these bytes, which were there before anybody wrote; if nobody counted them, beyond what is there now.
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
                let began = Instant::now();
                let now = size(&|| stop.load(Ordering::Acquire));
                to.fetch_max(now.saturating_sub(*before.get_or_insert(now)), Ordering::Release);
                std::thread::sleep(interval.max(began.elapsed() * (PARTS - 1)));
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
    fn sockets_are_no_loss_and_what_loses_its_names_or_attributes_is_counted() {
        let folder = tempfile::tempdir().expect("a directory");
        let at = |name: &str| folder.path().join(name);
        let _listener = std::os::unix::net::UnixListener::bind(at("socket")).expect("binds");
        std::fs::write(at("file"), "x").expect("writes");
        let none = Losses::find(folder.path().to_owned(), Cancel::default()).join().expect("ends");
        assert_eq!((none.problems.count, none.warning()), (0, None));
        std::fs::hard_link(at("file"), at("second")).expect("links");
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).expect("makes");
        let tagged = rustix::fs::setxattr(at("file"), "user.mine", b"1", rustix::fs::XattrFlags::empty()).is_ok();
        let found = Losses::find(folder.path().to_owned(), Cancel::default()).join().expect("ends");
        assert_eq!(found.problems.named.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["pipe"]);
        let words = found.warning().expect("something is lost");
        assert!(words.starts_with("1 files with several names"), "{words}");
        assert_eq!(words.contains("2 entries come back without extended attributes"), tagged, "{words}");
    }

    #[test]
    fn what_kopia_leaves_out_by_default_is_found_and_what_is_only_called_so_is_not() {
        let folder = tempfile::tempdir().expect("a directory");
        for (name, content) in [
            ("cache/CACHEDIR.TAG", CACHE_SIGNATURE),
            ("other/CACHEDIR.TAG", b"Signature: of somebody else, and as long as the one that counts"),
            ("short/CACHEDIR.TAG", b"Signature"),
            ("deep/.kopiaignore", b"*"),
        ] {
            let path = folder.path().join(name);
            std::fs::create_dir(path.parent().expect("has one")).expect("makes");
            std::fs::write(path, content).expect("writes");
        }
        std::fs::create_dir(folder.path().join(".kopiaignore")).expect("makes");
        let found = Losses::find(folder.path().to_owned(), Cancel::default()).join().expect("ends");
        let mut named: Vec<_> = found.left_out.named.iter().map(|one| one.path.as_str()).collect();
        named.sort_unstable();
        assert_eq!(named, ["cache", "deep/.kopiaignore"]);
        assert_eq!(found.problems.count, 0, "for whoever keeps them");
        std::fs::write(folder.path().join(CACHE_MARK), CACHE_SIGNATURE).expect("writes");
        let found = Losses::find(folder.path().to_owned(), Cancel::default()).join().expect("ends");
        assert!(found.left_out.named.iter().any(|one| one.path == "."), "{:?}", found.left_out);
    }

    #[test]
    fn sizes_count_a_file_with_two_names_once_and_what_was_there_before_not_at_all() {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("old"), [0; 100]).expect("writes");
        let before = size(folder.path(), &|| false);
        std::fs::create_dir(folder.path().join("d")).expect("makes");
        std::fs::write(folder.path().join("d/new"), [0; 30]).expect("writes");
        std::fs::hard_link(folder.path().join("d/new"), folder.path().join("again")).expect("links");
        // What was written before the watch began counts too.
        let growth = Growth::watch(folder.path().to_owned(), Some(before), Duration::from_millis(5));
        while growth.bytes() < 30 {
            std::thread::yield_now();
        }
        assert_eq!(growth.bytes(), 30);
        assert_eq!(size(folder.path(), &|| false), 130);
    }

    #[test]
    fn without_a_count_from_before_only_what_is_written_from_now_on_is_growth() {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("old"), [0; 100]).expect("writes");
        let (looks, seen) = std::sync::mpsc::channel();
        let root = folder.path().to_owned();
        let growth = Growth::measure(None, Duration::from_millis(5), move |stop| {
            let bytes = size(&root, stop);
            let _ = looks.send(bytes);
            bytes
        });
        assert_eq!(seen.recv().expect("a look"), 100);
        std::fs::write(folder.path().join("new"), [0; 30]).expect("writes");
        while growth.bytes() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(growth.bytes(), 30);
    }

    #[test]
    fn looking_takes_a_tenth_of_the_time_at_most_however_long_a_look_takes() {
        const LOOK: Duration = Duration::from_millis(10);
        let (looks, seen) = std::sync::mpsc::channel();
        // An interval that would allow a look after every other.
        let _growth = Growth::measure(Some(0), Duration::ZERO, move |_| {
            let began = Instant::now();
            while began.elapsed() < LOOK {
                std::hint::spin_loop();
            }
            let _ = looks.send((began, began.elapsed()));
            0
        });
        let looks: Vec<(Instant, Duration)> = seen.iter().take(5).collect();
        for pair in looks.windows(2) {
            let ((began, took), (next, _)) = (pair[0], pair[1]);
            assert!(next - began >= took * PARTS, "{took:?} of {:?}", next - began);
        }
    }

    #[test]
    fn a_look_at_a_volume_ends_when_nobody_wants_it_any_more() {
        let folder = tempfile::tempdir().expect("a directory");
        for name in ["a", "b", "c"] {
            std::fs::write(folder.path().join(name), [0; 10]).expect("writes");
        }
        let looked = std::cell::Cell::new(0);
        let stop = || looked.replace(looked.get() + 1) == 2;
        assert_eq!(size(folder.path(), &stop), 20);
    }
}
