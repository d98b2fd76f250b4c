//! From what the system says about a file to a node.

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
    pub(super) fn make(&self, name: &[u8], stat: &Stat) -> Node {
        let (kind, fields) = (kind_of(stat), stat.fields());
        let mtime = time(&fields.stx_mtime);
        let linked =
            matches!(kind, NodeKind::File | NodeKind::Symlink | NodeKind::BlockDevice | NodeKind::CharacterDevice);
        let links = if linked { u64::from(fields.stx_nlink) } else { 0 };
        let keep_device = self.device_ids == DeviceIds::All || (kind == NodeKind::File && links > 1);
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
            device_id: if keep_device { stat.on_device() } else { 0 },
            links,
            device: if is_device { stat.is_device() } else { 0 },
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

/// What has attributes.
pub(super) enum Carrier<'a> {
    /// What is at a path, links not followed.
    Path(&'a Path),
    /// What is open, whatever its path has become.
    Open(BorrowedFd<'a>),
}

impl Carrier<'_> {
    /// How long the list of names is.
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

/// The attributes of something, in the system's order. File systems without attributes have none. One that cannot be read is
/// named to `problem` and left out.
pub(super) fn attributes(carrier: &Carrier<'_>, problem: impl FnMut(String)) -> std::io::Result<Vec<Attribute>> {
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn an_open_file_keeps_its_attributes_whatever_becomes_of_its_path() {
        let folder = tempfile::tempdir().expect("a directory");
        let (path, other) = (folder.path().join("file"), folder.path().join("other"));
        for path in [&path, &other] {
            std::fs::write(path, "x").expect("writes");
            let value = path.file_name().expect("a name").as_encoded_bytes();
            let set = rustix::fs::setxattr(path, "user.whose", value, rustix::fs::XattrFlags::empty());
            if set == Err(rustix::io::Errno::NOTSUP) {
                return;
            }
        }
        let file = std::fs::File::open(&path).expect("opens");
        let whose = || {
            let found = attributes(&Carrier::Open(file.as_fd()), |problem| panic!("{problem}")).expect("reads");
            found.into_iter().map(|attribute| attribute.value).collect::<Vec<_>>()
        };
        std::fs::rename(&other, &path).expect("renames");
        assert_eq!(whose(), [b"file"], "not those of the one that took its place");
        std::fs::remove_file(&path).expect("removes");
        assert_eq!(whose(), [b"file"], "also without a path");
    }

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
