//! Opening what lies below a directory. A link on the way is refused, whoever puts it there and whenever: it may lead anywhere.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

/// A directory, and whether the system can be asked to stay below it.
pub(crate) struct Beneath {
    base: PathBuf,
    /// Nothing where the system is too old for it: then only the last part of a path is kept from being a link.
    root: Option<OwnedFd>,
}

impl Beneath {
    pub(crate) fn new(base: &Path) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, base, flags, Mode::empty()).ok();
        let root = root.filter(|root| openat2(root, ".", flags, Mode::empty(), confined()).is_ok());
        Self { base: base.to_owned(), root }
    }

    /// Opens a path that begins with the directory's own.
    pub(crate) fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> std::io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match (&self.root, path.strip_prefix(&self.base)) {
            (Some(root), Ok(below)) if below.as_os_str().is_empty() => openat2(root, ".", flags, mode, confined()),
            (Some(root), Ok(below)) => openat2(root, below, flags, mode, confined()),
            _ => openat(CWD, path, flags, mode),
        };
        Ok(opened?.into())
    }
}

fn confined() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_is_opened_and_no_link_is_followed_wherever_it_stands() {
        let folder = tempfile::tempdir().expect("a directory");
        let (base, outside) = (folder.path().join("base"), folder.path().join("outside"));
        for directory in [&base.join("real"), &outside] {
            std::fs::create_dir_all(directory).expect("a directory");
            std::fs::write(directory.join("file"), "x").expect("a file");
        }
        std::os::unix::fs::symlink(&outside, base.join("link")).expect("a link");
        std::os::unix::fs::symlink("real/file", base.join("inside")).expect("a link");
        let beneath = Beneath::new(&base);
        let open = |path: &str| beneath.open(&base.join(path), OFlags::RDONLY, Mode::empty());
        assert!(open("real/file").is_ok() && open("real").is_ok() && open("").is_ok());
        for path in ["link", "inside", "link/file", "real/../../outside/file"] {
            let error = open(path).expect_err(path);
            assert!(matches!(error.raw_os_error(), Some(18 | 40)), "{path}: {error}");
        }
        let new = beneath.open(&base.join("link/new"), OFlags::WRONLY | OFlags::CREATE, Mode::RUSR);
        assert!(new.is_err() && !outside.join("new").exists());
    }
}
