//! Opening what lies below a directory. No link on the way is followed, whoever puts it there and whenever: it may lead anywhere.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// A directory, and everything below it.
pub(crate) struct Beneath {
    path: PathBuf,
    top: OwnedFd,
    /// Whether the system opens a whole way without following a link on it: Linux does since 5.6, if it is let.
    pub(crate) whole_ways: bool,
}

impl Beneath {
    /// Links on the way to the directory are followed, and so is the directory itself.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let top = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let whole_ways = open_whole_way(top.as_fd(), Path::new("."), OFlags::PATH, Mode::empty()).is_ok();
        Ok(Self { path: path.to_owned(), top, whole_ways })
    }

    /// What the directory was opened by.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory itself, which can be looked at but not read.
    pub(crate) fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// Opens a path that begins with the directory's own.
    pub(crate) fn open_below(&self, path: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let way = path.strip_prefix(&self.path).map_err(|_| Errno::XDEV)?;
        let way = if way.as_os_str().is_empty() { Path::new(".") } else { way };
        if self.whole_ways {
            return open_whole_way(self.top(), way, flags, mode);
        }
        open_step_by_step(self.top(), way, flags, mode)
    }

    /// The same, with words that say what was in the way.
    pub(crate) fn file(&self, path: &Path, flags: OFlags, mode: Mode) -> std::io::Result<File> {
        self.open_below(path, flags, mode).map(File::from).map_err(explained)
    }
}

fn open_whole_way(top: BorrowedFd<'_>, way: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(top, way, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode, resolve)
}

/// The same with a call for each part of the way.
fn open_step_by_step(top: BorrowedFd<'_>, way: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let step = |from: &Option<OwnedFd>, name: &Path, flags: OFlags| {
        let from = from.as_ref().map_or(top, AsFd::as_fd);
        openat(from, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)
    };
    let mut folder = None;
    let (before, last) = (way.parent().unwrap_or(Path::new("")), way.file_name().map_or(Path::new("."), Path::new));
    for name in before {
        if name == ".." {
            return Err(Errno::XDEV);
        }
        folder = Some(step(&folder, Path::new(name), OFlags::PATH | OFlags::DIRECTORY)?);
    }
    step(&folder, last, flags)
}

pub(crate) fn explained(error: Errno) -> std::io::Error {
    let what = match error {
        Errno::LOOP => "a symbolic link",
        // How a link shows where it would be the last to be followed.
        Errno::NOTDIR => "a symbolic link or a file",
        error => return error.into(),
    };
    std::io::Error::other(format!("{what} has taken its place or that of a directory above it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_made_behind_a_link_whether_the_system_knows_whole_ways_or_not() {
        let folder = tempfile::tempdir().expect("a directory");
        let (base, outside) = (folder.path().join("base"), folder.path().join("outside"));
        std::fs::create_dir_all(base.join("real")).expect("a directory");
        std::fs::create_dir_all(&outside).expect("a directory");
        std::os::unix::fs::symlink(&outside, base.join("link")).expect("a link");
        std::os::unix::fs::symlink(outside.join("new"), base.join("dangling")).expect("a link");
        let whole = Beneath::open(&base).expect("opens");
        let steps = Beneath { whole_ways: false, ..Beneath::open(&base).expect("opens") };
        for (number, beneath) in [whole, steps].iter().enumerate() {
            let make = |path: &str| beneath.file(&base.join(path), OFlags::WRONLY | OFlags::CREATE, Mode::RUSR);
            assert!(make(&format!("real/new {number}")).is_ok() && make(&format!("new {number}")).is_ok());
            for path in ["link/new", "dangling", "real/../../outside/new", "../outside/new"] {
                assert!(make(path).is_err(), "{path}");
            }
        }
        assert_eq!(std::fs::read_dir(&outside).expect("lists").count(), 0);
    }
}
