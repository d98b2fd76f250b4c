//! Where a restore does something: a name in a directory that was opened below the target.
//!
//! Whoever writes there at the same time may put a link in the place of a directory on the way, and a path would follow it out
//! of the target. A descriptor stays in the directory that was opened, and none of these calls follows what has the name.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::Result;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Timestamps, Uid};
use rustix::io::Errno;

use super::removing;
use crate::beneath::{Beneath, explained};

/// What a path may have for the system, and for whoever uses afterwards what was restored.
const LONGEST_PATH: usize = 4095;
/// Directories that stay open: enough for those above the one that is being filled, however deep it lies.
const MOST_OPEN: usize = 8;

/// A name in an open directory, whether something has it or not.
pub(super) struct Place<'p> {
    folder: Rc<OwnedFd>,
    name: &'p OsStr,
}

impl Place<'_> {
    /// The target itself.
    pub(super) fn top(target: &Beneath) -> Result<Self> {
        Ok(Self { folder: Rc::new(target.top().try_clone_to_owned()?), name: OsStr::new(".") })
    }

    pub(super) fn stat(&self) -> Result<Stat> {
        Ok(rustix::fs::statat(&self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        let found = |place: &Self| place.stat().ok().map(|stat| (stat.st_dev, stat.st_ino));
        found(self).is_some_and(|own| found(other) == Some(own))
    }

    /// Makes a directory for nobody else yet.
    pub(super) fn make_directory(&self) -> Result<()> {
        Ok(rustix::fs::mkdirat(&self.folder, self.name, Mode::from_raw_mode(0o700))?)
    }

    pub(super) fn make_symlink(&self, target: &[u8]) -> Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.folder, self.name)?)
    }

    /// Makes a fifo or a device, for nobody else yet.
    pub(super) fn make_node(&self, kind: FileType, device: u64) -> Result<()> {
        Ok(rustix::fs::mknodat(&self.folder, self.name, kind, Mode::from_raw_mode(0o600), device)?)
    }

    /// Makes another name of a file.
    pub(super) fn make_hard_link(&self, first: &Self) -> Result<()> {
        Ok(rustix::fs::linkat(&first.folder, first.name, &self.folder, self.name, AtFlags::empty())?)
    }

    /// Removes what is there, with everything in it; that nothing is there is no error.
    pub(super) fn remove(&self, stopped: &dyn Fn() -> bool) -> Result<()> {
        Ok(removing::remove(&self.folder, self.name, stopped)?)
    }

    /// Removes what is there, unless it is a directory with something in it; that nothing is there is no error.
    pub(super) fn remove_alone(&self) -> Result<()> {
        let gone = match rustix::fs::unlinkat(&self.folder, self.name, AtFlags::empty()) {
            Err(Errno::ISDIR) => rustix::fs::unlinkat(&self.folder, self.name, AtFlags::REMOVEDIR),
            done => done,
        };
        match gone {
            Err(Errno::NOENT) => Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                Err(std::io::Error::other("a directory that is not empty is in its place, and stays"))
            }
            done => Ok(done?),
        }
    }

    /// Removes what is there, unless it is a directory.
    pub(super) fn remove_file(&self) -> Result<()> {
        Ok(rustix::fs::unlinkat(&self.folder, self.name, AtFlags::empty())?)
    }

    pub(super) fn set_owner(&self, uid: Uid, gid: Gid) -> rustix::io::Result<()> {
        rustix::fs::chownat(&self.folder, self.name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Through a descriptor of the file: the system sets no mode by a name without following it.
    pub(super) fn set_mode(&self, mode: Mode) -> rustix::io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, self.name, flags, Mode::empty())?;
        rustix::fs::chmodat(CWD, in_proc(&file), mode, AtFlags::empty())
    }

    pub(super) fn set_times(&self, times: &Timestamps) -> rustix::io::Result<()> {
        rustix::fs::utimensat(&self.folder, self.name, times, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The same place as a path, for calls on attributes, which take no descriptor of a directory.
    pub(super) fn as_path(&self) -> PathBuf {
        in_proc(&self.folder).join(self.name)
    }
}

/// What is open, as a path that leads nowhere else.
fn in_proc(open: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

/// Opens the directories that places are in, and keeps those used last.
pub(super) struct Places<'t> {
    target: &'t Beneath,
    /// The one used last is the last.
    opened: VecDeque<(PathBuf, Rc<OwnedFd>)>,
}

impl<'t> Places<'t> {
    pub(super) fn new(target: &'t Beneath) -> Self {
        Self { target, opened: VecDeque::new() }
    }

    /// The place at a path that begins with the target's own.
    pub(super) fn at<'p>(&mut self, path: &'p Path) -> Result<Place<'p>> {
        if path == self.target.path() {
            return Place::top(self.target);
        }
        if path.as_os_str().len() > LONGEST_PATH {
            return Err(Errno::NAMETOOLONG.into());
        }
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL.into()) };
        Ok(Place { folder: self.folder(above)?, name })
    }

    /// Calls `visit` with each name in a directory, and its place, until it answers `false`. One that is not for this user to
    /// read counts as empty.
    pub(super) fn each_in(&mut self, path: &Path, mut visit: impl FnMut(&OsStr, &Place<'_>) -> bool) -> Result<()> {
        let folder = self.folder(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = match rustix::fs::openat(&folder, ".", flags, Mode::empty()) {
            Err(Errno::ACCESS) => return Ok(()),
            opened => opened?,
        };
        for entry in Dir::new(readable)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." && !visit(name, &Place { folder: folder.clone(), name }) {
                break;
            }
        }
        Ok(())
    }

    /// A directory to do something in. It need not be readable.
    fn folder(&mut self, path: &Path) -> Result<Rc<OwnedFd>> {
        let known = self.opened.iter().rposition(|(known, _)| known.as_os_str() == path.as_os_str());
        let used = if let Some(used) = known.and_then(|at| self.opened.remove(at)) {
            used
        } else {
            let opened = self.target.open_below(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
            (path.to_owned(), Rc::new(opened.map_err(explained)?))
        };
        if self.opened.len() == MOST_OPEN {
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

    /// A target with a directory `d` in it, and another directory with the same names that is none of its business.
    struct Two {
        folder: tempfile::TempDir,
        targets: [Beneath; 2],
    }

    impl Two {
        /// The target is opened both ways: by a system that knows whole ways, and by one that does not.
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a directory");
            for inside in [folder.path().join("target/d"), folder.path().join("outside")] {
                std::fs::create_dir_all(inside.join("full/e")).expect("directories");
                for name in ["file", "other", "full/e/file"] {
                    std::fs::write(inside.join(name), name).expect("writes");
                }
            }
            let target = folder.path().join("target");
            let whole = Beneath::open(&target).expect("opens");
            let mut steps = Beneath::open(&target).expect("opens");
            steps.whole_ways = false;
            Self { folder, targets: [whole, steps] }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        /// Puts a link to the outside in the place of `d`.
        fn swap(&self) {
            std::fs::rename(self.path("target/d"), self.path("aside")).expect("renames");
            symlink(self.path("outside"), self.path("target/d")).expect("a link");
        }

        fn outside(&self) -> Vec<String> {
            let mut found = vec![describe(&self.path("outside"))];
            look(&self.path("outside"), &mut found);
            found.sort();
            found
        }
    }

    fn look(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("lists") {
            let path = entry.expect("an entry").path();
            found.push(describe(&path));
            if path.symlink_metadata().expect("is there").is_dir() {
                look(&path, found);
            }
        }
    }

    fn describe(path: &Path) -> String {
        let is = path.symlink_metadata().expect("is there");
        let attributes = rustix::fs::llistxattr_query(path).unwrap_or(0);
        let times = (is.mtime(), is.mtime_nsec());
        format!("{} {:o} {}:{} {} {times:?} {attributes}", path.display(), is.mode(), is.uid(), is.gid(), is.nlink())
    }

    type Effect = fn(&mut Places<'_>, &Path) -> Result<()>;

    /// All that a restore does in a directory, in an order in which each finds what it needs.
    const EFFECTS: [(&str, Effect); 12] = [
        ("a directory", |places, d| places.at(&d.join("directory"))?.make_directory()),
        ("a symbolic link", |places, d| places.at(&d.join("link"))?.make_symlink(b"anywhere")),
        ("a fifo", |places, d| places.at(&d.join("fifo"))?.make_node(FileType::Fifo, 0)),
        ("a hard link", |places, d| {
            let (first, another) = (d.join("file"), d.join("another"));
            let first = places.at(&first)?;
            places.at(&another)?.make_hard_link(&first)
        }),
        ("a look", |places, d| places.at(&d.join("file"))?.stat().map(drop)),
        ("an owner", |places, d| {
            let uid = rustix::process::getuid();
            let other = if uid.is_root() { Uid::from_raw(4242) } else { uid };
            Ok(places.at(&d.join("file"))?.set_owner(other, rustix::process::getgid())?)
        }),
        ("a mode", |places, d| Ok(places.at(&d.join("file"))?.set_mode(Mode::from_raw_mode(0o4751))?)),
        ("times", |places, d| {
            let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
            Ok(places.at(&d.join("file"))?.set_times(&Timestamps { last_access: time, last_modification: time })?)
        }),
        ("an attribute", |places, d| {
            let path = d.join("file");
            let place = places.at(&path)?;
            match rustix::fs::lsetxattr(place.as_path(), "user.swapped", b"value", XattrFlags::empty()) {
                Err(Errno::NOTSUP) => Ok(()),
                done => Ok(done?),
            }
        }),
        ("removal of a file", |places, d| places.at(&d.join("other"))?.remove_file()),
        ("removal of a directory", |places, d| places.at(&d.join("full"))?.remove(&|| false)),
        ("removal of all there is", |places, d| {
            let mut done = Ok(());
            places.each_in(d, |_, place| {
                done = place.remove(&|| false);
                done.is_ok()
            })?;
            done
        }),
    ];

    #[test]
    fn behind_a_link_that_took_the_place_of_a_directory_nothing_is_done() {
        let two = Two::new();
        two.swap();
        let before = two.outside();
        for target in &two.targets {
            for (what, effect) in EFFECTS {
                for d in ["target/d", "target/d/full"] {
                    let done = effect(&mut Places::new(target), &two.path(d));
                    let error = done.expect_err(what).to_string();
                    assert!(error.contains("has taken its place or that of a directory above it"), "{what}: {error}");
                }
                assert_eq!(two.outside(), before, "{what}");
            }
        }
    }

    #[test]
    fn what_is_done_in_an_open_directory_stays_in_it_whatever_takes_its_place() {
        for number in 0..2 {
            let two = Two::new();
            let (mut places, d) = (Places::new(&two.targets[number]), two.path("target/d"));
            places.at(&d.join("file")).expect("opens");
            two.swap();
            let before = two.outside();
            for (what, effect) in EFFECTS {
                effect(&mut places, &d).expect(what);
                assert_eq!(two.outside(), before, "{what}");
            }
            assert_eq!(std::fs::read_dir(two.path("aside")).expect("lists").count(), 0, "it was all done there");
        }
    }

    #[test]
    fn a_link_that_took_the_place_of_the_thing_itself_is_not_followed() {
        let two = Two::new();
        let d = two.path("target/d");
        for name in ["file", "other", "full"] {
            std::fs::rename(d.join(name), two.path(name)).expect("renames");
            symlink(two.path("outside").join(name), d.join(name)).expect("a link");
        }
        let (before, mut places) = (two.outside(), Places::new(&two.targets[0]));
        for (what, effect) in EFFECTS {
            let done = effect(&mut places, &d);
            assert_eq!(two.outside(), before, "{what}: {done:?}");
        }
        assert_eq!(std::fs::read_dir(&d).expect("lists").count(), 0, "the links are gone");
    }

    #[test]
    fn few_directories_stay_open_however_many_are_worked_in() {
        let two = Two::new();
        let (mut places, mut path) = (Places::new(&two.targets[0]), two.path("target"));
        for _ in 0..5 * MOST_OPEN {
            path.push("x");
            places.at(&path).and_then(|place| place.make_directory()).expect("makes it");
        }
        assert_eq!(places.opened.len(), MOST_OPEN);
        while path != two.path("target") {
            places.at(&path).and_then(|place| place.remove(&|| false)).expect("removes it");
            path.pop();
        }
        assert_eq!(places.opened.len(), MOST_OPEN);
    }

    #[test]
    fn the_target_is_a_place_too_but_nothing_above_or_beside_it_or_too_long_for_a_path() {
        let two = Two::new();
        let mut places = Places::new(&two.targets[0]);
        let top = two.path("target");
        places.at(&top).expect("opens").set_mode(Mode::from_raw_mode(0o711)).expect("a mode");
        assert_eq!(top.metadata().expect("is there").mode() & 0o777, 0o711);
        for other in [two.path(""), two.path("outside"), two.path("outside/file"), two.path("target/../outside/file")] {
            assert!(places.at(&other).is_err(), "{}", other.display());
        }
        let long = top.join("x/".repeat(2100));
        assert_eq!(places.at(&long).err().map(|error| error.kind()), Some(std::io::ErrorKind::InvalidFilename));
    }
}
