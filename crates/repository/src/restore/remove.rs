//! Removing what is in the way, also if it is a directory with very much in it: between two entries somebody may ask to stop.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, unlinkat};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

/// Removes what has this name in a directory: a file, or a directory with everything in it. Links are not followed; that
/// nothing is there is no error.
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

/// Removes what is in a directory, from within: a link that somebody puts in its place leads nowhere.
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
    fn a_directory_goes_with_everything_in_it_but_not_what_its_links_lead_to() {
        let folder = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
        std::fs::create_dir_all(inside.join("deep/er")).expect("directories");
        std::fs::write(inside.join("deep/er/file"), "x").expect("writes");
        std::fs::create_dir(&outside).expect("a directory");
        std::fs::write(outside.join("kept"), "x").expect("writes");
        std::os::unix::fs::symlink(&outside, inside.join("deep/link")).expect("a link");
        let open = |path: &Path| std::fs::File::open(path).expect("opens");
        let top = open(folder.path());
        remove(&top, "inside", &|| false).expect("removes");
        remove(&top, "inside", &|| false).expect("it is gone already");
        assert!(!inside.exists() && outside.join("kept").exists());
        remove(open(&outside), "kept", &|| false).expect("removes a file");
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
        assert!(remove(std::fs::File::open(folder.path()).expect("opens"), "full", &stopped).is_err());
        let left = std::fs::read_dir(&full).expect("lists").count();
        assert!((13..20).contains(&left), "{left} are left");
    }
}
