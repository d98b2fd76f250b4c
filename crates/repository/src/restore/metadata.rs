//! Sets owner, attributes, mode and times of restored files, in an order in which one does not change the others.

use std::fs::File;

use rustix::fs::{Gid, Mode, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::attributes::AttributeTarget;
use super::new_file::NewFileDefaults;
use super::target_entry::TargetEntry;
use crate::format::mode;
use crate::format::time::Time;
use crate::format::tree::{Attribute, Node};

/// The metadata that is set after the content.
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

    /// Sets the metadata of a new file, except for its defaults. A failure does not prevent the other steps.
    pub(super) fn apply_to_file(
        &self,
        file: &File,
        new_file_defaults: &NewFileDefaults,
        has_mode: bool,
    ) -> std::io::Result<()> {
        let (target, mut first) = (AttributeTarget::File(file), FirstError::default());
        if !new_file_defaults.belongs_to(file, self.uid, self.gid) {
            let owner = rustix::fs::fchown(file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)));
            first.record(allowed(owner), || SET_OWNER.into());
        }
        if new_file_defaults.may_inherit() {
            // Remove all, so that the attributes of the snapshot have their order.
            target.remove_others(&[], &mut first);
        }
        target.set(&self.attributes, &mut first);
        // An ACL among the attributes changes the mode again.
        if !has_mode || !self.attributes.is_empty() {
            first.record(done(rustix::fs::fchmod(file, self.file_mode())), || SET_MODE.into());
        }
        // The last step: a resumed restore recognizes complete files by their time.
        first.record(done(rustix::fs::futimens(file, &self.times())), || SET_TIMES.into());
        first.into_result()
    }

    /// Sets the metadata of an open directory. A failure does not prevent the other steps. `may_have_attributes` is set for a directory
    /// that may have attributes already.
    pub(super) fn apply_to_directory(&self, directory: &File, may_have_attributes: bool) -> std::io::Result<()> {
        let (target, mut first) = (AttributeTarget::File(directory), FirstError::default());
        let owner = rustix::fs::fchown(directory, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)));
        first.record(allowed(owner), || SET_OWNER.into());
        if may_have_attributes {
            target.remove_others(&self.attributes, &mut first);
        }
        target.set(&self.attributes, &mut first);
        first.record(done(rustix::fs::fchmod(directory, self.file_mode())), || SET_MODE.into());
        first.record(done(rustix::fs::futimens(directory, &self.times())), || SET_TIMES.into());
        first.into_result()
    }

    /// Sets the metadata of a kept file, unless mode, owner and attributes match. Its content and times are right.
    pub(super) fn apply_to_kept(&self, entry: &TargetEntry<'_>, existing: &Stat) -> std::io::Result<()> {
        let current = (existing.st_mode & 0o7777, existing.st_uid, existing.st_gid);
        let has_no_attributes = self.attributes.is_empty() && AttributeTarget::Entry(entry).is_empty();
        if current == (self.mode, self.uid, self.gid) && has_no_attributes {
            return Ok(());
        }
        self.apply_to_entry(entry, false, true)
    }

    /// Sets the metadata of an entry, without following links. A failure does not prevent the other steps.
    pub(super) fn apply_to_entry(
        &self,
        entry: &TargetEntry<'_>,
        is_link: bool,
        may_have_attributes: bool,
    ) -> std::io::Result<()> {
        let (target, mut first) = (AttributeTarget::Entry(entry), FirstError::default());
        let owner = entry.set_owner(Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        first.record(allowed(owner), || SET_OWNER.into());
        if may_have_attributes {
            target.remove_others(&self.attributes, &mut first);
        }
        target.set(&self.attributes, &mut first);
        if !is_link {
            first.record(done(entry.set_mode(self.file_mode())), || SET_MODE.into());
        }
        first.record(done(entry.set_times(&self.times())), || SET_TIMES.into());
        first.into_result()
    }

    fn file_mode(&self) -> Mode {
        Mode::from_raw_mode(self.mode)
    }

    fn times(&self) -> Timestamps {
        Timestamps { last_access: timespec(&self.atime), last_modification: timespec(&self.mtime) }
    }
}

fn timespec(time: &Time) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) }
}

/// The first error of several steps.
#[derive(Default)]
pub(super) struct FirstError(Option<std::io::Error>);

impl FirstError {
    /// Records an error with the failed action.
    pub(super) fn record(&mut self, result: std::io::Result<()>, action: impl FnOnce() -> String) {
        if let Err(error) = result
            && self.0.is_none()
        {
            self.0 = Some(std::io::Error::new(error.kind(), format!("{}: {error}", action())));
        }
    }

    fn into_result(self) -> std::io::Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

const SET_OWNER: &str = "failed to set the owner";
const SET_MODE: &str = "failed to set the mode";
const SET_TIMES: &str = "failed to set the times";

fn done(result: rustix::io::Result<()>) -> std::io::Result<()> {
    Ok(result?)
}

/// Ignores permission errors without root: only root may change owners.
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

    use super::super::target_entry::TargetDirectories;
    use super::*;
    use crate::confined_path::ConfinedPath;
    use crate::format::tree::NodeKind;

    fn attribute(name: &str, value: &[u8]) -> Attribute {
        Attribute { name: name.into(), value: value.to_vec() }
    }

    /// Metadata whose first attribute is rejected by any file system with access control lists.
    fn metadata() -> Metadata {
        let attributes =
            vec![attribute("system.posix_acl_access", b"\x02\0\0\0nonsense"), attribute("user.kept", b"value")];
        let (mtime, mode) = (Time::utc(1_000_000_000, 5), 0o640);
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Metadata::of(&Node { kind: NodeKind::File, mode, uid, gid, mtime, atime: mtime, attributes, ..Node::default() })
    }

    fn assert_has_the_rest(path: &Path, result: std::io::Result<()>) {
        let error = result.expect_err("an invalid list").to_string();
        assert!(error.starts_with("failed to set attribute system.posix_acl_access: "), "{error}");
        let actual = path.metadata().expect("exists");
        assert_eq!((actual.mode() & 0o7777, actual.mtime(), actual.mtime_nsec()), (0o640, 1_000_000_000, 5));
        let mut value = [0; 10];
        let length = rustix::fs::lgetxattr(path, "user.kept", &mut value[..]).expect("the second attribute is set");
        assert_eq!(&value[..length], b"value");
    }

    #[test]
    fn a_rejected_attribute_is_reported_and_the_other_metadata_is_set() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("file");
        if rustix::fs::lgetxattr_query(folder.path(), "system.posix_acl_access") == Err(Errno::NOTSUP) {
            return;
        }
        let file = File::create(&path).expect("a file");
        let target = ConfinedPath::new(folder.path()).expect("opens");
        let new_file_defaults = NewFileDefaults::new(&TargetEntry::root(&target).expect("opens"), false);
        assert_has_the_rest(&path, metadata().apply_to_file(&file, &new_file_defaults, false));
        let other = folder.path().join("other");
        File::create(&other).expect("a file");
        let entry = TargetDirectories::new(&target).at(&other).expect("exists");
        assert_has_the_rest(&other, metadata().apply_to_entry(&entry, false, false));
    }
}
