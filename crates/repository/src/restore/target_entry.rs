//! Entries of a restore's target: a name in a directory that was opened below the target.
//!
//! A tenant may replace a directory with a link during the restore, and a path would follow it out of the target. A descriptor stays
//! in the opened directory, and none of these calls follows links.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::Result;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Timestamps, Uid};
use rustix::io::Errno;

use super::remove;
use crate::confined_path::{ConfinedPath, explain_symlink};

/// The maximum length of a path in the system.
const MAX_PATH_LENGTH: usize = 4095;
/// The maximum number of open directories.
const MAX_OPEN_DIRECTORIES: usize = 8;

/// A name in an open directory. The entry may not exist.
pub(super) struct TargetEntry<'p> {
    folder: Rc<OwnedFd>,
    name: &'p OsStr,
}

impl TargetEntry<'_> {
    /// The target itself.
    pub(super) fn root(target: &ConfinedPath) -> Result<Self> {
        Ok(Self { folder: Rc::new(target.root().try_clone_to_owned()?), name: OsStr::new(".") })
    }

    pub(super) fn stat(&self) -> Result<Stat> {
        Ok(rustix::fs::statat(&self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        let identity = |entry: &Self| entry.stat().ok().map(|stat| (stat.st_dev, stat.st_ino));
        identity(self).is_some_and(|own| identity(other) == Some(own))
    }

    /// Creates a directory with access for the owner only.
    pub(super) fn create_directory(&self) -> Result<()> {
        Ok(rustix::fs::mkdirat(&self.folder, self.name, Mode::from_raw_mode(0o700))?)
    }

    pub(super) fn create_symlink(&self, target: &[u8]) -> Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.folder, self.name)?)
    }

    /// Creates a FIFO or a device with access for the owner only.
    pub(super) fn create_node(&self, kind: FileType, device: u64) -> Result<()> {
        Ok(rustix::fs::mknodat(&self.folder, self.name, kind, Mode::from_raw_mode(0o600), device)?)
    }

    /// Creates a hard link.
    pub(super) fn create_hard_link(&self, first: &Self) -> Result<()> {
        Ok(rustix::fs::linkat(&first.folder, first.name, &self.folder, self.name, AtFlags::empty())?)
    }

    /// Removes the entry with its content. Succeeds if it does not exist.
    pub(super) fn remove(&self, stopped: &dyn Fn() -> bool) -> Result<()> {
        Ok(remove::remove(&self.folder, self.name, stopped)?)
    }

    /// Removes the entry, unless it is a non-empty directory. Succeeds if it does not exist.
    pub(super) fn remove_if_empty(&self) -> Result<()> {
        let removed = match rustix::fs::unlinkat(&self.folder, self.name, AtFlags::empty()) {
            Err(Errno::ISDIR) => rustix::fs::unlinkat(&self.folder, self.name, AtFlags::REMOVEDIR),
            done => done,
        };
        match removed {
            Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                Err(std::io::Error::other("a non-empty directory with this name is kept"))
            }
            done => Ok(done?),
        }
    }

    /// Removes the entry, unless it is a directory.
    pub(super) fn remove_file(&self) -> Result<()> {
        Ok(rustix::fs::unlinkat(&self.folder, self.name, AtFlags::empty())?)
    }

    pub(super) fn set_owner(&self, uid: Uid, gid: Gid) -> rustix::io::Result<()> {
        rustix::fs::chownat(&self.folder, self.name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Sets the mode through a descriptor, because the system call by name follows links.
    pub(super) fn set_mode(&self, mode: Mode) -> rustix::io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, self.name, flags, Mode::empty())?;
        rustix::fs::chmodat(CWD, in_proc(&file), mode, AtFlags::empty())
    }

    pub(super) fn set_times(&self, times: &Timestamps) -> rustix::io::Result<()> {
        rustix::fs::utimensat(&self.folder, self.name, times, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The entry as a path, for calls on attributes, which take no directory descriptor.
    pub(super) fn as_path(&self) -> PathBuf {
        in_proc(&self.folder).join(self.name)
    }
}

/// The path of an open descriptor.
fn in_proc(open: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

/// Opens the directories of entries and keeps those used last.
pub(super) struct TargetDirectories<'t> {
    target: &'t ConfinedPath,
    /// In the order of their last use.
    opened: VecDeque<(PathBuf, Rc<OwnedFd>)>,
}

impl<'t> TargetDirectories<'t> {
    pub(super) fn new(target: &'t ConfinedPath) -> Self {
        Self { target, opened: VecDeque::new() }
    }

    /// The entry at a path below the target.
    pub(super) fn at<'p>(&mut self, path: &'p Path) -> Result<TargetEntry<'p>> {
        if path == self.target.path() {
            return TargetEntry::root(self.target);
        }
        if path.as_os_str().len() > MAX_PATH_LENGTH {
            return Err(Errno::NAMETOOLONG.into());
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL.into()) };
        Ok(TargetEntry { folder: self.folder(parent)?, name })
    }

    /// Calls `visit` with each name and entry of a directory, until it returns `false`. An unreadable directory counts as empty.
    pub(super) fn each_in(
        &mut self,
        path: &Path,
        mut visit: impl FnMut(&OsStr, &TargetEntry<'_>) -> bool,
    ) -> Result<()> {
        let folder = self.folder(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = match rustix::fs::openat(&folder, ".", flags, Mode::empty()) {
            Err(Errno::ACCESS) => return Ok(()),
            opened => opened?,
        };
        for entry in Dir::new(readable)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." && !visit(name, &TargetEntry { folder: folder.clone(), name }) {
                break;
            }
        }
        Ok(())
    }

    /// Opens a directory, which need not be readable.
    fn folder(&mut self, path: &Path) -> Result<Rc<OwnedFd>> {
        let cached = self.opened.iter().rposition(|(opened, _)| opened.as_os_str() == path.as_os_str());
        let used = if let Some(used) = cached.and_then(|at| self.opened.remove(at)) {
            used
        } else {
            let opened = self.target.open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
            (path.to_owned(), Rc::new(opened.map_err(explain_symlink)?))
        };
        if self.opened.len() == MAX_OPEN_DIRECTORIES {
            self.opened.pop_front();
        }
        let folder = used.1.clone();
        self.opened.push_back(used);
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use rustix::fs::{Timespec, XattrFlags};

    use super::*;

    /// A target with a directory `d`, and a directory with the same names outside of it.
    struct Fixture {
        folder: tempfile::TempDir,
        targets: [ConfinedPath; 2],
    }

    impl Fixture {
        /// The target is opened with and without `openat2`.
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a directory");
            for inside in [folder.path().join("target/d"), folder.path().join("outside")] {
                std::fs::create_dir_all(inside.join("full/e")).expect("directories");
                for name in ["file", "other", "full/e/file"] {
                    std::fs::write(inside.join(name), name).expect("writes");
                }
            }
            let target = folder.path().join("target");
            let with_openat2 = ConfinedPath::new(&target).expect("opens");
            let mut by_component = ConfinedPath::new(&target).expect("opens");
            by_component.has_openat2 = false;
            Self { folder, targets: [with_openat2, by_component] }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// Replaces `d` with a link to the outside directory.
        fn swap(&self) {
            std::fs::rename(self.path("target/d"), self.path("aside")).expect("renames");
            symlink(self.path("outside"), self.path("target/d")).expect("a link");
        }

        fn outside(&self) -> Vec<String> {
            let mut listed = vec![describe(&self.path("outside"))];
            list_recursively(&self.path("outside"), &mut listed);
            listed.sort();
            listed
        }
    }

    fn list_recursively(folder: &Path, listed: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("lists") {
            let path = entry.expect("an entry").path();
            listed.push(describe(&path));
            if path.symlink_metadata().expect("exists").is_dir() {
                list_recursively(&path, listed);
            }
        }
    }

    fn describe(path: &Path) -> String {
        let is = path.symlink_metadata().expect("exists");
        let attributes = rustix::fs::llistxattr_query(path).unwrap_or(0);
        let times = (is.mtime(), is.mtime_nsec());
        format!("{} {:o} {}:{} {} {times:?} {attributes}", path.display(), is.mode(), is.uid(), is.gid(), is.nlink())
    }

    type Operation = fn(&mut TargetDirectories<'_>, &Path) -> Result<()>;

    /// All operations of a restore in a directory, in an order in which each finds what it needs.
    const OPERATIONS: [(&str, Operation); 12] = [
        ("a directory", |directories, d| directories.at(&d.join("directory"))?.create_directory()),
        ("a symbolic link", |directories, d| directories.at(&d.join("link"))?.create_symlink(b"anywhere")),
        ("a fifo", |directories, d| directories.at(&d.join("fifo"))?.create_node(FileType::Fifo, 0)),
        ("a hard link", |directories, d| {
            let (first, another) = (d.join("file"), d.join("another"));
            let first = directories.at(&first)?;
            directories.at(&another)?.create_hard_link(&first)
        }),
        ("a list_recursively", |directories, d| directories.at(&d.join("file"))?.stat().map(drop)),
        ("an owner", |directories, d| {
            let uid = rustix::process::getuid();
            let other = if uid.is_root() { Uid::from_raw(4242) } else { uid };
            Ok(directories.at(&d.join("file"))?.set_owner(other, rustix::process::getgid())?)
        }),
        ("a mode", |directories, d| Ok(directories.at(&d.join("file"))?.set_mode(Mode::from_raw_mode(0o4751))?)),
        ("times", |directories, d| {
            let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
            Ok(directories
                .at(&d.join("file"))?
                .set_times(&Timestamps { last_access: time, last_modification: time })?)
        }),
        ("an attribute", |directories, d| {
            let path = d.join("file");
            let entry = directories.at(&path)?;
            match rustix::fs::lsetxattr(entry.as_path(), "user.swapped", b"value", XattrFlags::empty()) {
                Err(Errno::NOTSUP) => Ok(()),
                done => Ok(done?),
            }
        }),
        ("removal of a file", |directories, d| directories.at(&d.join("other"))?.remove_file()),
        ("removal of a directory", |directories, d| directories.at(&d.join("full"))?.remove(&|| false)),
        ("removal of all there is", |directories, d| {
            let mut done = Ok(());
            directories.each_in(d, |_, entry| {
                done = entry.remove(&|| false);
                done.is_ok()
            })?;
            done
        }),
    ];

    #[test]
    fn no_operation_follows_a_link_that_replaced_a_directory() {
        let fixture = Fixture::new();
        fixture.swap();
        let before = fixture.outside();
        for target in &fixture.targets {
            for (what, operation) in OPERATIONS {
                for d in ["target/d", "target/d/full"] {
                    let done = operation(&mut TargetDirectories::new(target), &fixture.path(d));
                    let error = done.expect_err(what).to_string();
                    assert!(error.contains("replaced it or a parent directory"), "{what}: {error}");
                }
                assert_eq!(fixture.outside(), before, "{what}");
            }
        }
    }

    #[test]
    fn operations_in_an_open_directory_stay_in_it() {
        for number in 0..2 {
            let fixture = Fixture::new();
            let (mut directories, d) = (TargetDirectories::new(&fixture.targets[number]), fixture.path("target/d"));
            directories.at(&d.join("file")).expect("opens");
            fixture.swap();
            let before = fixture.outside();
            for (what, operation) in OPERATIONS {
                operation(&mut directories, &d).expect(what);
                assert_eq!(fixture.outside(), before, "{what}");
            }
            assert_eq!(
                std::fs::read_dir(fixture.path("aside")).expect("lists").count(),
                0,
                "all operations were done there"
            );
        }
    }

    #[test]
    fn a_link_that_replaced_the_entry_is_not_followed() {
        let fixture = Fixture::new();
        let d = fixture.path("target/d");
        for name in ["file", "other", "full"] {
            std::fs::rename(d.join(name), fixture.path(name)).expect("renames");
            symlink(fixture.path("outside").join(name), d.join(name)).expect("a link");
        }
        let (before, mut directories) = (fixture.outside(), TargetDirectories::new(&fixture.targets[0]));
        for (what, operation) in OPERATIONS {
            let done = operation(&mut directories, &d);
            assert_eq!(fixture.outside(), before, "{what}: {done:?}");
        }
        assert_eq!(std::fs::read_dir(&d).expect("lists").count(), 0, "the links are removed");
    }

    #[test]
    fn the_number_of_open_directories_is_limited() {
        let fixture = Fixture::new();
        let (mut directories, mut path) = (TargetDirectories::new(&fixture.targets[0]), fixture.path("target"));
        for _ in 0..5 * MAX_OPEN_DIRECTORIES {
            path.push("x");
            directories.at(&path).and_then(|entry| entry.create_directory()).expect("created");
        }
        assert_eq!(directories.opened.len(), MAX_OPEN_DIRECTORIES);
        while path != fixture.path("target") {
            directories.at(&path).and_then(|entry| entry.remove(&|| false)).expect("removed");
            path.pop();
        }
        assert_eq!(directories.opened.len(), MAX_OPEN_DIRECTORIES);
    }

    #[test]
    fn the_target_is_an_entry_and_paths_outside_of_it_are_rejected() {
        let fixture = Fixture::new();
        let mut directories = TargetDirectories::new(&fixture.targets[0]);
        let root = fixture.path("target");
        directories.at(&root).expect("opens").set_mode(Mode::from_raw_mode(0o711)).expect("a mode");
        assert_eq!(root.metadata().expect("exists").mode() & 0o777, 0o711);
        for other in [
            fixture.path(""),
            fixture.path("outside"),
            fixture.path("outside/file"),
            fixture.path("target/../outside/file"),
        ] {
            assert!(directories.at(&other).is_err(), "{}", other.display());
        }
        let long = root.join("x/".repeat(2100));
        assert_eq!(directories.at(&long).err().map(|error| error.kind()), Some(std::io::ErrorKind::InvalidFilename));
    }
}
