//! From what the system says about a file to a node.

use std::fs::Metadata;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::buffer::spare_capacity;

use super::options::{BackupOptions, DeviceIds};
use crate::format::mode;
use crate::format::time::Time;
use crate::format::tree::{Attribute, Node, NodeKind};
use crate::system::Names;

/// Makes nodes the same way for one whole backup.
pub(super) struct NodeMaker {
    users: Names,
    groups: Names,
    device_ids: DeviceIds,
    access_times: bool,
}

impl NodeMaker {
    pub(super) fn new(options: &BackupOptions) -> Self {
        Self {
            users: Names::of_users(),
            groups: Names::of_groups(),
            device_ids: options.device_ids,
            access_times: options.access_times,
        }
    }

    /// Everything but content, subtree, size and attributes.
    pub(super) fn make(&self, name: &[u8], metadata: &Metadata) -> Node {
        let kind = kind_of(metadata);
        let mtime = time(metadata.mtime(), metadata.mtime_nsec());
        let linked =
            matches!(kind, NodeKind::File | NodeKind::Symlink | NodeKind::BlockDevice | NodeKind::CharacterDevice);
        let links = if linked { metadata.nlink() } else { 0 };
        let keep_device = self.device_ids == DeviceIds::All || (kind == NodeKind::File && links > 1);
        let is_device = matches!(kind, NodeKind::BlockDevice | NodeKind::CharacterDevice);
        Node {
            name: name.to_vec(),
            kind,
            mode: mode::stored(metadata.mode()),
            mtime,
            atime: if self.access_times { time(metadata.atime(), metadata.atime_nsec()) } else { mtime },
            ctime: time(metadata.ctime(), metadata.ctime_nsec()),
            uid: metadata.uid(),
            gid: metadata.gid(),
            user: self.users.get(metadata.uid()),
            group: self.groups.get(metadata.gid()),
            inode: metadata.ino(),
            device_id: if keep_device { metadata.dev() } else { 0 },
            links,
            device: if is_device { metadata.rdev() } else { 0 },
            ..Node::default()
        }
    }
}

fn kind_of(metadata: &Metadata) -> NodeKind {
    let kind = metadata.file_type();
    if kind.is_dir() {
        NodeKind::Directory
    } else if kind.is_symlink() {
        NodeKind::Symlink
    } else if kind.is_block_device() {
        NodeKind::BlockDevice
    } else if kind.is_char_device() {
        NodeKind::CharacterDevice
    } else if kind.is_fifo() {
        NodeKind::Fifo
    } else if kind.is_socket() {
        NodeKind::Socket
    } else {
        NodeKind::File
    }
}

fn time(seconds: i64, nanoseconds: i64) -> Time {
    Time::utc(seconds, u32::try_from(nanoseconds).unwrap_or(0))
}

/// Where a symbolic link points to.
pub(super) fn link_target(path: &Path) -> std::io::Result<Vec<u8>> {
    std::fs::read_link(path).map(|target| target.into_os_string().into_vec())
}

/// The attributes of a path, links not followed, in the system's order. File systems without attributes have none. One that
/// cannot be read is named to `problem` and left out.
pub(super) fn attributes(path: &Path, problem: impl FnMut(String)) -> std::io::Result<Vec<Attribute>> {
    match rustix::fs::llistxattr_query(path) {
        Ok(0) | Err(rustix::io::Errno::NOTSUP) => return Ok(Vec::new()),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let mut list = Vec::with_capacity(64 * 1024);
    rustix::fs::llistxattr(path, spare_capacity(&mut list))?;
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(read_each(names, |name| attribute(path, name), problem))
}

fn read_each<'n>(
    names: impl Iterator<Item = &'n [u8]>,
    read: impl Fn(&[u8]) -> rustix::io::Result<Vec<u8>>,
    mut problem: impl FnMut(String),
) -> Vec<Attribute> {
    let mut found = Vec::new();
    for name in names {
        match read(name) {
            Ok(value) => found.push(Attribute { name: name.to_vec(), value }),
            // Removed since it was listed.
            Err(rustix::io::Errno::NODATA) => {}
            Err(error) => {
                let error = std::io::Error::from(error);
                problem(format!("its attribute {} cannot be read: {error}", String::from_utf8_lossy(name)));
            }
        }
    }
    found
}

fn attribute(path: &Path, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
    let mut value = Vec::with_capacity(64 * 1024);
    rustix::fs::lgetxattr(path, name, spare_capacity(&mut value))?;
    value.shrink_to_fit();
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_that_cannot_be_read_is_named_and_costs_no_other() {
        let read = |name: &[u8]| match name {
            b"user.secret" => Err(rustix::io::Errno::ACCESS),
            b"user.gone" => Err(rustix::io::Errno::NODATA),
            name => Ok(name.to_vec()),
        };
        let (names, mut problems) = ([&b"user.a"[..], b"user.secret", b"user.gone", b"user.z"], Vec::new());
        let found = read_each(names.into_iter(), read, |problem| problems.push(problem));
        let found: Vec<_> = found.iter().map(|attribute| attribute.name.as_slice()).collect();
        assert_eq!(found, [b"user.a", b"user.z"]);
        assert_eq!(problems, ["its attribute user.secret cannot be read: Permission denied (os error 13)"]);
    }
}
