//! Recursive removal that stops between two entries after a cancel.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, unlinkat};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

/// Removes a file or a directory with its content. Links are not followed. Succeeds if the name does not exist.
pub(super) fn remove(folder: impl AsFd, name: impl Arg + Copy, stopped: &dyn Fn() -> bool) -> Result<()> {
    let folder = folder.as_fd();
    match unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
            empty(Dir::new(openat(folder, name, flags, Mode::empty())?)?, stopped)?;
            unlinkat(folder, name, AtFlags::REMOVEDIR)
        }
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Removes the content of an open directory, so that a link that replaces the directory is not followed.
fn empty(mut directory: Dir, stopped: &dyn Fn() -> bool) -> Result<()> {
    while let Some(entry) = directory.read() {
        let entry = entry?;
        if stopped() {
            return Err(Errno::CANCELED);
        }
        if ![c".", c".."].contains(&entry.file_name()) {
            remove(directory.fd()?, entry.file_name(), stopped)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_directory_is_removed_without_the_targets_of_its_links() {
        let folder = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
        std::fs::create_dir_all(inside.join("deep/er")).expect("directories");
        std::fs::write(inside.join("deep/er/file"), "x").expect("writes");
        std::fs::create_dir(&outside).expect("a directory");
        std::fs::write(outside.join("kept"), "x").expect("writes");
        std::os::unix::fs::symlink(&outside, inside.join("deep/link")).expect("a link");
        let open = |path: &Path| std::fs::File::open(path).expect("opens");
        let root = open(folder.path());
        remove(&root, "inside", &|| false).expect("removes");
        remove(&root, "inside", &|| false).expect("it does not exist");
        assert!(!inside.exists() && outside.join("kept").exists());
        remove(open(&outside), "kept", &|| false).expect("removes a file");
        assert!(outside.exists() && !outside.join("kept").exists());
    }

    #[test]
    fn a_cancel_stops_the_removal_between_entries() {
        let folder = tempfile::tempdir().expect("a directory");
        let full = folder.path().join("full");
        std::fs::create_dir(&full).expect("a directory");
        for number in 0..20 {
            std::fs::write(full.join(number.to_string()), "").expect("writes");
        }
        let checks = Cell::new(0);
        let stopped = || {
            checks.set(checks.get() + 1);
            checks.get() > 7
        };
        assert!(remove(std::fs::File::open(folder.path()).expect("opens"), "full", &stopped).is_err());
        let remaining = std::fs::read_dir(&full).expect("lists").count();
        assert!((13..20).contains(&remaining), "{remaining} entries remain");
    }
}
