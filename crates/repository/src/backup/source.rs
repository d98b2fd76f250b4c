//! The source of a backup, opened without following links.
//!
//! A tenant may replace a walked directory with a link during the backup, to read files of the node. So all files are opened below
//! one descriptor, and links are not followed.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Statx, StatxFlags};
use rustix::io::Errno;

use super::node::{AttributeSource, attributes};
use crate::confined_path::{ConfinedPath, explain_symlink};
use crate::format::tree::Attribute;

/// A source directory.
pub(super) struct Source {
    confined: ConfinedPath,
    root: Folder,
}

impl Source {
    /// Opens the directory. Links in `path` itself are followed.
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let confined = ConfinedPath::new(path)?;
        let root = Folder(confined.root().try_clone_to_owned()?);
        Ok(Self { confined, root })
    }

    /// The directory, opened with `O_PATH`.
    pub(super) fn root(&self) -> &Folder {
        &self.root
    }

    /// Opens a file, without changing its access time if that is allowed. It may be anything but a link.
    pub(super) fn file(&self, path: &Path) -> std::io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let opened = match self.confined.open(path, flags | OFlags::NOATIME, Mode::empty()) {
            Err(Errno::PERM | Errno::ACCESS) => self.confined.open(path, flags, Mode::empty()),
            opened => opened,
        };
        opened.map(File::from).map_err(explain_symlink)
    }

    /// Opens a directory for reading.
    pub(super) fn folder(&self, path: &Path) -> std::io::Result<Folder> {
        let opened = self.confined.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        opened.map(Folder).map_err(explain_symlink)
    }
}

/// An open directory.
pub(super) struct Folder(OwnedFd);

impl Folder {
    pub(super) fn stat(&self) -> std::io::Result<Stat> {
        Stat::of(self)
    }

    /// The metadata of an entry, without following links.
    pub(super) fn stat_entry(&self, name: &[u8]) -> std::io::Result<Stat> {
        Stat::get(self.0.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Calls `visit` with the name and, if the file system reports it, the type of each entry, until it returns `false`.
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

    /// The target of a symbolic link.
    pub(super) fn link_target(&self, name: &[u8]) -> std::io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.0, name, Vec::new())?.into_bytes())
    }

    /// The attributes of the directory itself.
    pub(super) fn attributes(&self, problem: impl FnMut(String)) -> std::io::Result<Vec<Attribute>> {
        attributes(&AttributeSource::Open(self.0.as_fd()), problem)
    }

    /// The attributes of an entry, without following links. `path` is its full path, for a quick check whether there are any; they
    /// are read through this descriptor.
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
        let result = attributes(&AttributeSource::Path(&path), problem);
        if result.is_err() && !Path::new(&folder).exists() {
            return Err(std::io::Error::other("failed to read attributes: /proc is not available"));
        }
        result
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The metadata of a file.
pub(super) struct Stat(Statx);

impl Stat {
    /// Of an open file.
    pub(super) fn of(open: &impl AsFd) -> std::io::Result<Self> {
        Self::get(open.as_fd(), b"", AtFlags::EMPTY_PATH)
    }

    /// Of a path, following links.
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

    /// The ID of the device that contains the file.
    pub(super) fn containing_device(&self) -> u64 {
        rustix::fs::makedev(self.0.stx_dev_major, self.0.stx_dev_minor)
    }

    /// The device ID of a device file.
    pub(super) fn own_device(&self) -> u64 {
        rustix::fs::makedev(self.0.stx_rdev_major, self.0.stx_rdev_minor)
    }

    /// All fields.
    pub(super) fn fields(&self) -> &Statx {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tenant's directory with `d/file`, a directory of the machine with `file`, and the first opened with and without `openat2`.
    fn two_directories() -> (tempfile::TempDir, PathBuf, [Source; 2]) {
        let folder = tempfile::tempdir().expect("a directory");
        let (volume, own) = (folder.path().join("volume"), folder.path().join("own"));
        std::fs::create_dir_all(volume.join("d/e")).expect("directories");
        std::fs::create_dir_all(own.join("e")).expect("directories");
        for (path, content) in [(volume.join("d"), "of the tenant"), (own, "of the machine")] {
            std::fs::write(path.join("file"), content).expect("writes");
            std::fs::write(path.join("e/file"), content).expect("writes");
        }
        let with_openat2 = Source::open(&volume).expect("opens");
        let mut by_component = Source::open(&volume).expect("opens");
        by_component.confined.has_openat2 = false;
        (folder, volume, [with_openat2, by_component])
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
    fn paths_below_are_opened_with_and_without_openat2() {
        let (_folder, volume, sources) = two_directories();
        for source in &sources {
            assert_eq!(content(source, &volume.join("d/e/file")).expect("reads"), "of the tenant");
            assert_eq!(names(&source.folder(&volume).expect("opens")), ["d"]);
            assert_eq!(names(&source.folder(&volume.join("d")).expect("opens")), ["e", "file"]);
            let missing = source.file(&volume.join("d/none")).expect_err("missing");
            assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
            assert!(source.file(&volume.join("../own/file")).is_err(), "it is outside of the volume");
        }
    }

    #[test]
    fn a_link_that_replaced_a_directory_is_not_followed() {
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
            assert!(!sources[0].confined.has_openat2 || error.contains("symbolic link"), "{error}");
            std::fs::remove_file(volume.join("d")).expect("removes");
        }
    }

    #[test]
    fn attributes_are_read_from_the_opened_directory() {
        let (folder, volume, sources) = two_directories();
        let set = |path: PathBuf, value: &[u8]| {
            rustix::fs::setxattr(path, "user.owner", value, rustix::fs::XattrFlags::empty())
        };
        let own = folder.path().join("own");
        if set(volume.join("d/file"), b"tenant").and(set(own.join("file"), b"machine")) == Err(Errno::NOTSUP) {
            return;
        }
        let opened = sources[0].folder(&volume.join("d")).expect("opens");
        std::fs::rename(volume.join("d"), volume.join("aside")).expect("renames");
        symlink(&own, volume.join("d")).expect("a link");
        let attributes = opened.entry_attributes(b"file", &volume.join("d/file"), |problem| panic!("{problem}"));
        let values: Vec<_> = attributes.expect("reads").into_iter().map(|attribute| attribute.value).collect();
        assert_eq!(values, [b"tenant"]);
    }
}
