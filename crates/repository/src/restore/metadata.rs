//! Giving files back their owner, attributes, times and mode, in the order in which one does not undo the other.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::newborn::Newborn;
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

    /// On an open file that was made by us, except for what it was born with.
    pub(super) fn apply_to_file(&self, file: &File, newborn: &Newborn, has_mode: bool) -> std::io::Result<()> {
        if !newborn.belongs_to(file, self.uid, self.gid) {
            allowed(rustix::fs::fchown(file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid))))?;
        }
        for attribute in &self.attributes {
            tolerated(rustix::fs::fsetxattr(file, &attribute.name, &attribute.value, XattrFlags::empty()))?;
        }
        // An ACL among the attributes changes the mode again.
        if !has_mode || !self.attributes.is_empty() {
            rustix::fs::fchmod(file, Mode::from_raw_mode(self.mode))?;
        }
        // The last thing: who takes up an interrupted restore knows by its time that a file is complete.
        Ok(rustix::fs::futimens(file, &self.times())?)
    }

    /// On a file that is there already, unless it has all that can be seen at a glance. Its content and times are right.
    pub(super) fn apply_to_kept(&self, path: &Path, existing: &std::fs::Metadata) -> std::io::Result<()> {
        let has = (existing.mode() & 0o7777, existing.uid(), existing.gid());
        if has == (self.mode, self.uid, self.gid) && self.attributes.is_empty() {
            return Ok(());
        }
        self.apply_to_path(path, false)
    }

    /// On a path, links not followed.
    pub(super) fn apply_to_path(&self, path: &Path, is_link: bool) -> std::io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        allowed(rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))?;
        for attribute in &self.attributes {
            tolerated(rustix::fs::lsetxattr(path, &attribute.name, &attribute.value, XattrFlags::empty()))?;
        }
        if !is_link {
            rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(self.mode), AtFlags::empty())?;
        }
        Ok(rustix::fs::utimensat(CWD, path, &self.times(), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn times(&self) -> Timestamps {
        Timestamps { last_access: timespec(&self.atime), last_modification: timespec(&self.mtime) }
    }
}

fn timespec(time: &Time) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) }
}

/// Only root may give files away; for anybody else they stay their own.
fn allowed(result: rustix::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(Errno::PERM | Errno::ACCESS) if !rustix::process::geteuid().is_root() => Ok(()),
        result => Ok(result?),
    }
}

/// Attributes of a namespace this user may not write, or that this file system does not have, are left out.
fn tolerated(result: rustix::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(Errno::NOTSUP) => Ok(()),
        result => allowed(result),
    }
}
