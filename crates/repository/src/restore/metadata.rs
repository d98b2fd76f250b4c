//! Giving files back their owner, attributes, times and mode, in the order in which one does not undo the other.

use std::fs::File;

use rustix::fs::{Gid, Mode, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::attributes::Bearer;
use super::newborn::Newborn;
use super::place::Place;
use crate::format::mode;
use crate::format::time::Time;
use crate::format::tree::{Attribute, Node};

/// What is set after the content.
#[derive(Clone, Debug)]
pub(super) struct Metadata {
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: Time,
    atime: Time,
    attributes: Box<[Attribute]>,
}

impl Metadata {
    pub(super) fn of(node: &Node) -> Self {
        Self {
            mode: mode::permissions(node.mode),
            uid: node.uid,
            gid: node.gid,
            mtime: node.mtime,
            atime: node.atime,
            attributes: node.attributes.clone().into(),
        }
    }

    pub(super) fn mode(&self) -> u32 {
        self.mode
    }

    pub(super) fn attribute_bytes(&self) -> usize {
        self.attributes.iter().map(|attribute| attribute.name.len() + attribute.value.len()).sum()
    }

    /// On an open file that was made by us, except for what it was born with. One thing that cannot be set costs it no other.
    pub(super) fn apply_to_file(&self, file: &File, newborn: &Newborn, has_mode: bool) -> std::io::Result<()> {
        let (bearer, mut first) = (Bearer::File(file), FirstError::default());
        if !newborn.belongs_to(file, self.uid, self.gid) {
            let owner = rustix::fs::fchown(file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)));
            first.note(allowed(owner), || NO_OWNER.into());
        }
        if newborn.may_inherit() {
            // All of them, so that those that are wanted come in their own order.
            bearer.remove_others(&[], &mut first);
        }
        bearer.set(&self.attributes, &mut first);
        // An ACL among the attributes changes the mode again.
        if !has_mode || !self.attributes.is_empty() {
            first.note(done(rustix::fs::fchmod(file, self.wanted_mode())), || NO_MODE.into());
        }
        // The last thing: who takes up an interrupted restore knows by its time that a file is complete.
        first.note(done(rustix::fs::futimens(file, &self.times())), || NO_TIMES.into());
        first.into_result()
    }

    /// On an open directory. One thing that cannot be set costs it no other. `is_marked` says that it may have attributes already.
    pub(super) fn apply_to_directory(&self, directory: &File, is_marked: bool) -> std::io::Result<()> {
        let (bearer, mut first) = (Bearer::File(directory), FirstError::default());
        let owner = rustix::fs::fchown(directory, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)));
        first.note(allowed(owner), || NO_OWNER.into());
        if is_marked {
            bearer.remove_others(&self.attributes, &mut first);
        }
        bearer.set(&self.attributes, &mut first);
        first.note(done(rustix::fs::fchmod(directory, self.wanted_mode())), || NO_MODE.into());
        first.note(done(rustix::fs::futimens(directory, &self.times())), || NO_TIMES.into());
        first.into_result()
    }

    /// On a file that is there already, unless it has all that can be seen at a glance. Its content and times are right.
    pub(super) fn apply_to_kept(&self, place: &Place<'_>, existing: &Stat) -> std::io::Result<()> {
        let has = (existing.st_mode & 0o7777, existing.st_uid, existing.st_gid);
        let is_plain = self.attributes.is_empty() && Bearer::Place(place).has_none();
        if has == (self.mode, self.uid, self.gid) && is_plain {
            return Ok(());
        }
        self.apply_to_place(place, false, true)
    }

    /// On what is at a place, links not followed. One thing that cannot be set costs it no other. `is_marked` says that it may have
    /// attributes already.
    pub(super) fn apply_to_place(&self, place: &Place<'_>, is_link: bool, is_marked: bool) -> std::io::Result<()> {
        let (bearer, mut first) = (Bearer::Place(place), FirstError::default());
        let owner = place.set_owner(Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        first.note(allowed(owner), || NO_OWNER.into());
        if is_marked {
            bearer.remove_others(&self.attributes, &mut first);
        }
        bearer.set(&self.attributes, &mut first);
        if !is_link {
            first.note(done(place.set_mode(self.wanted_mode())), || NO_MODE.into());
        }
        first.note(done(place.set_times(&self.times())), || NO_TIMES.into());
        first.into_result()
    }

    fn wanted_mode(&self) -> Mode {
        Mode::from_raw_mode(self.mode)
    }

    fn times(&self) -> Timestamps {
        Timestamps { last_access: timespec(&self.atime), last_modification: timespec(&self.mtime) }
    }
}

fn timespec(time: &Time) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) }
}

/// What went wrong first: everything else is tried all the same.
#[derive(Default)]
pub(super) struct FirstError(Option<std::io::Error>);

impl FirstError {
    /// Remembers an error, in words that say what could not be done.
    pub(super) fn note(&mut self, result: std::io::Result<()>, what: impl FnOnce() -> String) {
        if let Err(error) = result
            && self.0.is_none()
        {
            self.0 = Some(std::io::Error::new(error.kind(), format!("{}: {error}", what())));
        }
    }

    fn into_result(self) -> std::io::Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

const NO_OWNER: &str = "its owner cannot be set";
const NO_MODE: &str = "its mode cannot be set";
const NO_TIMES: &str = "its times cannot be set";

fn done(result: rustix::io::Result<()>) -> std::io::Result<()> {
    Ok(result?)
}

/// Only root may give files away; for anybody else they stay their own.
pub(super) fn allowed(result: rustix::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(Errno::PERM | Errno::ACCESS) if !rustix::process::geteuid().is_root() => Ok(()),
        result => done(result),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::super::place::Places;
    use super::*;
    use crate::beneath::Beneath;
    use crate::format::tree::NodeKind;

    fn attribute(name: &str, value: &[u8]) -> Attribute {
        Attribute { name: name.into(), value: value.to_vec() }
    }

    /// A file's metadata whose first attribute is refused by any file system that knows access control lists.
    fn wanted() -> Metadata {
        let attributes =
            vec![attribute("system.posix_acl_access", b"\x02\0\0\0nonsense"), attribute("user.kept", b"value")];
        let (mtime, mode) = (Time::utc(1_000_000_000, 5), 0o640);
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Metadata::of(&Node { kind: NodeKind::File, mode, uid, gid, mtime, atime: mtime, attributes, ..Node::default() })
    }

    fn assert_has_the_rest(path: &Path, result: std::io::Result<()>) {
        let error = result.expect_err("the list is nonsense").to_string();
        assert!(error.starts_with("its attribute system.posix_acl_access cannot be set: "), "{error}");
        let found = path.metadata().expect("is there");
        assert_eq!((found.mode() & 0o7777, found.mtime(), found.mtime_nsec()), (0o640, 1_000_000_000, 5));
        let mut value = [0; 10];
        let length = rustix::fs::lgetxattr(path, "user.kept", &mut value[..]).expect("the second one is set");
        assert_eq!(&value[..length], b"value");
    }

    #[test]
    fn an_attribute_that_cannot_be_set_is_named_and_costs_neither_the_others_nor_mode_and_times() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("file");
        if rustix::fs::lgetxattr_query(folder.path(), "system.posix_acl_access") == Err(Errno::NOTSUP) {
            return;
        }
        let file = File::create(&path).expect("a file");
        let target = Beneath::open(folder.path()).expect("opens");
        let newborn = Newborn::new(&Place::top(&target).expect("opens"), false);
        assert_has_the_rest(&path, wanted().apply_to_file(&file, &newborn, false));
        let other = folder.path().join("other");
        File::create(&other).expect("a file");
        let place = Places::new(&target).at(&other).expect("is there");
        assert_has_the_rest(&other, wanted().apply_to_place(&place, false, false));
    }
}
