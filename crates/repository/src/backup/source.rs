//! What is backed up, opened so that nobody leads out of it.
//!
//! Whoever writes there while it is read may put a link in the place of a directory that was walked, and with it a file of
//! this machine in the place of their own. So everything is opened below one descriptor, and no link on the way is followed.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Statx, StatxFlags};
use rustix::io::Errno;

use super::node::{Carrier, attributes};
use crate::beneath::{Beneath, explained};
use crate::format::tree::Attribute;

/// A directory, and everything below it.
pub(super) struct Source {
    beneath: Beneath,
    top: Folder,
}

impl Source {
    /// Links on the way to the directory are followed, and so is the directory itself.
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let beneath = Beneath::open(path)?;
        let top = Folder(beneath.top().try_clone_to_owned()?);
        Ok(Self { beneath, top })
    }

    /// The directory itself: what is in it can be looked at and opened, but it cannot be read.
    pub(super) fn top(&self) -> &Folder {
        &self.top
    }

    /// Opens a file without changing its access time where that is allowed. What has taken its place may be anything but a
    /// link.
    pub(super) fn file(&self, path: &Path) -> std::io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let opened = match self.beneath.open_below(path, flags | OFlags::NOATIME, Mode::empty()) {
            Err(Errno::PERM | Errno::ACCESS) => self.beneath.open_below(path, flags, Mode::empty()),
            opened => opened,
        };
        opened.map(File::from).map_err(explained)
    }

    /// Opens a directory to read it.
    pub(super) fn folder(&self, path: &Path) -> std::io::Result<Folder> {
        let opened = self.beneath.open_below(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        opened.map(Folder).map_err(explained)
    }
}

/// An open directory.
pub(super) struct Folder(OwnedFd);

impl Folder {
    pub(super) fn stat(&self) -> std::io::Result<Stat> {
        Stat::of(self)
    }

    /// What the system says about an entry, which is not followed.
    pub(super) fn stat_entry(&self, name: &[u8]) -> std::io::Result<Stat> {
        Stat::get(self.0.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Calls `visit` with the name and, where the file system says it, the kind of each entry, until it answers `false`.
    pub(super) fn each_entry(&self, mut visit: impl FnMut(&[u8], FileType) -> bool) -> std::io::Result<()> {
        let mut buffer = Vec::with_capacity(32 * 1024);
        let mut entries = RawDir::new(&self.0, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." && !visit(name, entry.file_type()) {
                break;
            }
        }
        Ok(())
    }

    /// Where a symbolic link points to.
    pub(super) fn link_target(&self, name: &[u8]) -> std::io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.0, name, Vec::new())?.into_bytes())
    }

    /// The attributes of the directory itself.
    pub(super) fn attributes(&self, problem: impl FnMut(String)) -> std::io::Result<Vec<Attribute>> {
        attributes(&Carrier::Open(self.0.as_fd()), problem)
    }

    /// The attributes of an entry, which is not followed. `path` is its whole path: whether there are any at all is asked by
    /// that, because it is the quicker way, but they are read by this descriptor.
    pub(super) fn entry_attributes(
        &self,
        name: &[u8],
        path: &Path,
        problem: impl FnMut(String),
    ) -> std::io::Result<Vec<Attribute>> {
        if matches!(rustix::fs::llistxattr_query(path), Ok(0) | Err(Errno::NOTSUP | Errno::NOENT)) {
            return Ok(Vec::new());
        }
        let folder = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        let mut path = folder.clone().into_bytes();
        path.push(b'/');
        path.extend_from_slice(name);
        let path = PathBuf::from(std::ffi::OsString::from_vec(path));
        let found = attributes(&Carrier::Path(&path), problem);
        if found.is_err() && !Path::new(&folder).exists() {
            return Err(std::io::Error::other("its attributes cannot be read without /proc"));
        }
        found
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What the system says about a file.
pub(super) struct Stat(Statx);

impl Stat {
    /// Of what is open.
    pub(super) fn of(open: &impl AsFd) -> std::io::Result<Self> {
        Self::get(open.as_fd(), b"", AtFlags::EMPTY_PATH)
    }

    /// Of what is at a path, where all links lead to.
    pub(super) fn at(path: &Path) -> std::io::Result<Self> {
        Self::get(CWD, path.as_os_str().as_bytes(), AtFlags::empty())
    }

    fn get(folder: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> std::io::Result<Self> {
        Ok(Self(rustix::fs::statx(folder, name, flags, StatxFlags::BASIC_STATS)?))
    }

    pub(super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(u32::from(self.0.stx_mode))
    }

    pub(super) fn is_dir(&self) -> bool {
        self.kind() == FileType::Directory
    }

    pub(super) fn is_file(&self) -> bool {
        self.kind() == FileType::RegularFile
    }

    pub(super) fn size(&self) -> u64 {
        self.0.stx_size
    }

    /// The device that it is on.
    pub(super) fn on_device(&self) -> u64 {
        rustix::fs::makedev(self.0.stx_dev_major, self.0.stx_dev_minor)
    }

    /// The device that it is.
    pub(super) fn is_device(&self) -> u64 {
        rustix::fs::makedev(self.0.stx_rdev_major, self.0.stx_rdev_minor)
    }

    /// Everything else.
    pub(super) fn fields(&self) -> &Statx {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory of a tenant with `d/file`, one of this machine with `file`, and the first opened both ways.
    fn two_directories() -> (tempfile::TempDir, PathBuf, [Source; 2]) {
        let folder = tempfile::tempdir().expect("a directory");
        let (volume, own) = (folder.path().join("volume"), folder.path().join("own"));
        std::fs::create_dir_all(volume.join("d/e")).expect("directories");
        std::fs::create_dir_all(own.join("e")).expect("directories");
        for (path, content) in [(volume.join("d"), "of the tenant"), (own, "of the machine")] {
            std::fs::write(path.join("file"), content).expect("writes");
            std::fs::write(path.join("e/file"), content).expect("writes");
        }
        let whole = Source::open(&volume).expect("opens");
        let mut steps = Source::open(&volume).expect("opens");
        steps.beneath.whole_ways = false;
        (folder, volume, [whole, steps])
    }

    fn content(source: &Source, path: &Path) -> std::io::Result<String> {
        let mut text = String::new();
        source.file(path)?.read_to_string(&mut text).map(|_| text)
    }

    fn names(folder: &Folder) -> Vec<String> {
        let mut names = Vec::new();
        folder
            .each_entry(|name, _| {
                names.push(String::from_utf8_lossy(name).into_owned());
                true
            })
            .expect("lists");
        names.sort();
        names
    }

    #[test]
    fn what_lies_below_is_opened_whether_the_system_knows_whole_ways_or_not() {
        let (_folder, volume, sources) = two_directories();
        for source in &sources {
            assert_eq!(content(source, &volume.join("d/e/file")).expect("reads"), "of the tenant");
            assert_eq!(names(&source.folder(&volume).expect("opens")), ["d"]);
            assert_eq!(names(&source.folder(&volume.join("d")).expect("opens")), ["e", "file"]);
            let missing = source.file(&volume.join("d/none")).expect_err("is not there");
            assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
            assert!(source.file(&volume.join("../own/file")).is_err(), "it lies elsewhere");
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_directory_is_not_followed_wherever_it_is_on_the_way() {
        let (folder, volume, sources) = two_directories();
        std::fs::rename(volume.join("d"), volume.join("aside")).expect("renames");
        for target in [folder.path().join("own"), "../own".into(), "aside".into()] {
            symlink(&target, volume.join("d")).expect("a link");
            for source in &sources {
                for path in ["d/file", "d/e/file", "d"] {
                    assert!(content(source, &volume.join(path)).is_err(), "{path} by {}", target.display());
                }
                for path in ["d", "d/e"] {
                    assert!(source.folder(&volume.join(path)).is_err(), "{path} by {}", target.display());
                }
            }
            let error = sources[0].file(&volume.join("d/file")).expect_err("not followed").to_string();
            assert!(!sources[0].beneath.whole_ways || error.contains("symbolic link"), "{error}");
            std::fs::remove_file(volume.join("d")).expect("removes");
        }
    }

    #[test]
    fn attributes_are_those_of_the_entry_and_not_of_what_has_taken_the_place_of_its_directory() {
        let (folder, volume, sources) = two_directories();
        let set = |path: PathBuf, value: &[u8]| {
            rustix::fs::setxattr(path, "user.whose", value, rustix::fs::XattrFlags::empty())
        };
        let own = folder.path().join("own");
        if set(volume.join("d/file"), b"tenant").and(set(own.join("file"), b"machine")) == Err(Errno::NOTSUP) {
            return;
        }
        let opened = sources[0].folder(&volume.join("d")).expect("opens");
        std::fs::rename(volume.join("d"), volume.join("aside")).expect("renames");
        symlink(&own, volume.join("d")).expect("a link");
        let found = opened.entry_attributes(b"file", &volume.join("d/file"), |problem| panic!("{problem}"));
        let values: Vec<_> = found.expect("reads").into_iter().map(|attribute| attribute.value).collect();
        assert_eq!(values, [b"tenant"]);
    }
}
