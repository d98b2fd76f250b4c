//! Opens paths below a directory without following symbolic links, which may lead out of it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// A directory whose content is opened without following links.
pub(crate) struct ConfinedPath {
    path: PathBuf,
    root: OwnedFd,
    /// Whether the system supports `openat2`: Linux does since 5.6, unless a seccomp filter denies it.
    pub(crate) has_openat2: bool,
}

impl ConfinedPath {
    /// Opens the directory. Links in `path` itself are followed.
    pub(crate) fn new(path: &Path) -> std::io::Result<Self> {
        let root = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let has_openat2 = open_with_openat2(root.as_fd(), Path::new("."), OFlags::PATH, Mode::empty()).is_ok();
        Ok(Self { path: path.to_owned(), root, has_openat2 })
    }

    /// The path that the directory was opened with.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor of the directory, opened with `O_PATH`.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens a path that starts with the path of the directory.
    pub(crate) fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let relative = path.strip_prefix(&self.path).map_err(|_| Errno::XDEV)?;
        let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        if self.has_openat2 {
            return open_with_openat2(self.root(), relative, flags, mode);
        }
        open_by_component(self.root(), relative, flags, mode)
    }

    /// Opens a file, with an error that explains a symbolic link.
    pub(crate) fn file(&self, path: &Path, flags: OFlags, mode: Mode) -> std::io::Result<File> {
        self.open(path, flags, mode).map(File::from).map_err(explain_symlink)
    }
}

fn open_with_openat2(root: BorrowedFd<'_>, relative: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(root, relative, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode, resolve)
}

/// Opens each component of the path.
fn open_by_component(root: BorrowedFd<'_>, relative: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let step = |from: &Option<OwnedFd>, name: &Path, flags: OFlags| {
        let from = from.as_ref().map_or(root, AsFd::as_fd);
        openat(from, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)
    };
    let mut folder = None;
    let (before, last) =
        (relative.parent().unwrap_or(Path::new("")), relative.file_name().map_or(Path::new("."), Path::new));
    for name in before {
        if name == ".." {
            return Err(Errno::XDEV);
        }
        folder = Some(step(&folder, Path::new(name), OFlags::PATH | OFlags::DIRECTORY)?);
    }
    step(&folder, last, flags)
}

pub(crate) fn explain_symlink(error: Errno) -> std::io::Error {
    let what = match error {
        Errno::LOOP => "a symbolic link",
        // The error for a link as the last component.
        Errno::NOTDIR => "a symbolic link or a file",
        error => return error.into(),
    };
    std::io::Error::other(format!("{what} replaced it or a parent directory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_created_behind_a_link_with_or_without_openat2() {
        let folder = tempfile::tempdir().expect("a directory");
        let (base, outside) = (folder.path().join("base"), folder.path().join("outside"));
        std::fs::create_dir_all(base.join("real")).expect("a directory");
        std::fs::create_dir_all(&outside).expect("a directory");
        std::os::unix::fs::symlink(&outside, base.join("link")).expect("a link");
        std::os::unix::fs::symlink(outside.join("new"), base.join("dangling")).expect("a link");
        let with_openat2 = ConfinedPath::new(&base).expect("opens");
        let by_component = ConfinedPath { has_openat2: false, ..ConfinedPath::new(&base).expect("opens") };
        for (number, confined) in [with_openat2, by_component].iter().enumerate() {
            let create = |path: &str| confined.file(&base.join(path), OFlags::WRONLY | OFlags::CREATE, Mode::RUSR);
            assert!(create(&format!("real/new {number}")).is_ok() && create(&format!("new {number}")).is_ok());
            for path in ["link/new", "dangling", "real/../../outside/new", "../outside/new"] {
                assert!(create(path).is_err(), "{path}");
            }
        }
        assert_eq!(std::fs::read_dir(&outside).expect("lists").count(), 0);
    }
}
