//! Removing what is in the way, also if it is a directory with very much in it: between two entries somebody may ask to stop.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

/// Removes a file, or a directory with everything in it. Links are not followed; that nothing is there is no error.
pub(super) fn remove(path: &Path, stopped: &dyn Fn() -> bool) -> std::io::Result<()> {
    match path.symlink_metadata() {
        Ok(existing) if existing.is_dir() => Ok(empty(CWD, path, stopped).and_then(|()| remove_directory(CWD, path))?),
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes what is in a directory, from within: a link that somebody puts in its place leads nowhere.
fn empty(above: BorrowedFd<'_>, name: impl rustix::path::Arg, stopped: &dyn Fn() -> bool) -> rustix::io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = openat(above, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        if stopped() {
            return Err(Errno::CANCELED);
        }
        if ![c".", c".."].contains(&entry.file_name()) {
            remove_entry(directory.as_fd(), entry.file_name(), stopped)?;
        }
    }
    Ok(())
}

fn remove_entry(directory: BorrowedFd<'_>, name: &CStr, stopped: &dyn Fn() -> bool) -> rustix::io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {
            empty(directory, name, stopped)?;
            remove_directory(directory, name)
        }
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

fn remove_directory(above: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<()> {
    unlinkat(above, name, AtFlags::REMOVEDIR)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_directory_goes_with_everything_in_it_but_not_what_its_links_lead_to() {
        let folder = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
        std::fs::create_dir_all(inside.join("deep/er")).expect("directories");
        std::fs::write(inside.join("deep/er/file"), "x").expect("writes");
        std::fs::create_dir(&outside).expect("a directory");
        std::fs::write(outside.join("kept"), "x").expect("writes");
        std::os::unix::fs::symlink(&outside, inside.join("deep/link")).expect("a link");
        remove(&inside, &|| false).expect("removes");
        remove(&inside, &|| false).expect("it is gone already");
        assert!(!inside.exists() && outside.join("kept").exists());
        remove(&outside.join("kept"), &|| false).expect("removes a file");
        assert!(outside.exists() && !outside.join("kept").exists());
    }

    #[test]
    fn who_asks_to_stop_waits_for_no_more_than_one_entry() {
        let folder = tempfile::tempdir().expect("a directory");
        let full = folder.path().join("full");
        std::fs::create_dir(&full).expect("a directory");
        for number in 0..20 {
            std::fs::write(full.join(number.to_string()), "").expect("writes");
        }
        let asked = Cell::new(0);
        let stopped = || {
            asked.set(asked.get() + 1);
            asked.get() > 7
        };
        assert!(remove(&full, &stopped).is_err());
        let left = std::fs::read_dir(&full).expect("lists").count();
        assert!((13..20).contains(&left), "{left} are left");
    }
}
