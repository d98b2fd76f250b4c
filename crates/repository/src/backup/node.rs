//! Builds nodes from file metadata.

use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, StatxTimestamp};

use super::options::{BackupOptions, DeviceIds};
use super::source::Stat;
use crate::format::mode;
use crate::format::time::Time;
use crate::format::tree::{Attribute, Node, NodeKind};
use crate::system::Names;

/// Builds the nodes of a backup.
pub(super) struct NodeBuilder {
    users: Names,
    groups: Names,
    device_ids: DeviceIds,
    access_times: bool,
}

impl NodeBuilder {
    pub(super) fn new(options: &BackupOptions) -> Self {
        Self {
            users: Names::of_users(),
            groups: Names::of_groups(),
            device_ids: options.device_ids,
            access_times: options.access_times,
        }
    }

    /// Builds a node without content, subtree, size and attributes.
    pub(super) fn build(&self, name: &[u8], stat: &Stat) -> Node {
        let (kind, fields) = (kind_of(stat), stat.fields());
        let mtime = time(&fields.stx_mtime);
        let has_links =
            matches!(kind, NodeKind::File | NodeKind::Symlink | NodeKind::BlockDevice | NodeKind::CharacterDevice);
        let links = if has_links { u64::from(fields.stx_nlink) } else { 0 };
        let record_device = self.device_ids == DeviceIds::All || (kind == NodeKind::File && links > 1);
        let is_device = matches!(kind, NodeKind::BlockDevice | NodeKind::CharacterDevice);
        Node {
            name: name.to_vec(),
            kind,
            mode: mode::stored(u32::from(fields.stx_mode)),
            mtime,
            atime: if self.access_times { time(&fields.stx_atime) } else { mtime },
            ctime: time(&fields.stx_ctime),
            uid: fields.stx_uid,
            gid: fields.stx_gid,
            user: self.users.get(fields.stx_uid),
            group: self.groups.get(fields.stx_gid),
            inode: fields.stx_ino,
            device_id: if record_device { stat.containing_device() } else { 0 },
            links,
            device: if is_device { stat.own_device() } else { 0 },
            ..Node::default()
        }
    }
}

fn kind_of(stat: &Stat) -> NodeKind {
    match stat.kind() {
        FileType::Directory => NodeKind::Directory,
        FileType::Symlink => NodeKind::Symlink,
        FileType::BlockDevice => NodeKind::BlockDevice,
        FileType::CharacterDevice => NodeKind::CharacterDevice,
        FileType::Fifo => NodeKind::Fifo,
        FileType::Socket => NodeKind::Socket,
        FileType::RegularFile | FileType::Unknown => NodeKind::File,
    }
}

fn time(stamp: &StatxTimestamp) -> Time {
    Time::utc(stamp.tv_sec, stamp.tv_nsec)
}

/// A file whose extended attributes are read.
pub(super) enum AttributeSource<'a> {
    /// By path, without following links.
    Path(&'a Path),
    /// By descriptor.
    Open(BorrowedFd<'a>),
}

impl AttributeSource<'_> {
    /// The length of the list of names.
    fn list_length(&self) -> rustix::io::Result<usize> {
        match self {
            Self::Path(path) => rustix::fs::llistxattr_query(*path),
            Self::Open(open) => rustix::fs::flistxattr_query(open),
        }
    }

    fn list(&self, names: &mut Vec<u8>) -> rustix::io::Result<usize> {
        match self {
            Self::Path(path) => rustix::fs::llistxattr(*path, spare_capacity(names)),
            Self::Open(open) => rustix::fs::flistxattr(open, spare_capacity(names)),
        }
    }

    fn get(&self, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
        let mut value = Vec::with_capacity(64 * 1024);
        match self {
            Self::Path(path) => rustix::fs::lgetxattr(*path, name, spare_capacity(&mut value))?,
            Self::Open(open) => rustix::fs::fgetxattr(open, name, spare_capacity(&mut value))?,
        };
        value.shrink_to_fit();
        Ok(value)
    }
}

/// Reads the extended attributes, in the system's order. An attribute that cannot be read is passed to `problem` and skipped.
pub(super) fn attributes(
    carrier: &AttributeSource<'_>,
    problem: impl FnMut(String),
) -> std::io::Result<Vec<Attribute>> {
    match carrier.list_length() {
        Ok(0) | Err(rustix::io::Errno::NOTSUP) => return Ok(Vec::new()),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let mut list = Vec::with_capacity(64 * 1024);
    carrier.list(&mut list)?;
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(read_each(names, |name| carrier.get(name), problem))
}

fn read_each<'n>(
    names: impl Iterator<Item = &'n [u8]>,
    read: impl Fn(&[u8]) -> rustix::io::Result<Vec<u8>>,
    mut problem: impl FnMut(String),
) -> Vec<Attribute> {
    let mut attributes = Vec::new();
    for name in names {
        match read(name) {
            Ok(value) => attributes.push(Attribute { name: name.to_vec(), value }),
            // Removed since it was listed.
            Err(rustix::io::Errno::NODATA) => {}
            Err(error) => {
                let error = std::io::Error::from(error);
                problem(format!("failed to read attribute {}: {error}", String::from_utf8_lossy(name)));
            }
        }
    }
    attributes
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn attributes_of_an_open_file_do_not_depend_on_its_path() {
        let folder = tempfile::tempdir().expect("a directory");
        let (path, other) = (folder.path().join("file"), folder.path().join("other"));
        for path in [&path, &other] {
            std::fs::write(path, "x").expect("writes");
            let value = path.file_name().expect("a name").as_encoded_bytes();
            let set = rustix::fs::setxattr(path, "user.owner", value, rustix::fs::XattrFlags::empty());
            if set == Err(rustix::io::Errno::NOTSUP) {
                return;
            }
        }
        let file = std::fs::File::open(&path).expect("opens");
        let read_values = || {
            let found = attributes(&AttributeSource::Open(file.as_fd()), |problem| panic!("{problem}")).expect("reads");
            found.into_iter().map(|attribute| attribute.value).collect::<Vec<_>>()
        };
        std::fs::rename(&other, &path).expect("renames");
        assert_eq!(read_values(), [b"file"], "not those of the new file");
        std::fs::remove_file(&path).expect("removes");
        assert_eq!(read_values(), [b"file"], "also without a path");
    }

    #[test]
    fn an_unreadable_attribute_is_a_problem_and_the_others_are_read() {
        let read = |name: &[u8]| match name {
            b"user.secret" => Err(rustix::io::Errno::ACCESS),
            b"user.removed" => Err(rustix::io::Errno::NODATA),
            name => Ok(name.to_vec()),
        };
        let (names, mut problems) = ([&b"user.a"[..], b"user.secret", b"user.removed", b"user.z"], Vec::new());
        let found = read_each(names.into_iter(), read, |problem| problems.push(problem));
        let found: Vec<_> = found.iter().map(|attribute| attribute.name.as_slice()).collect();
        assert_eq!(found, [b"user.a", b"user.z"]);
        assert_eq!(problems, ["failed to read attribute user.secret: Permission denied (os error 13)"]);
    }
}
