//! Extended attributes of restored entries: exactly those of the snapshot.

use std::fs::File;

use rustix::buffer::spare_capacity;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::metadata::{FirstError, allowed};
use super::target_entry::TargetEntry;
use crate::format::tree::Attribute;

/// The default access control list of a directory, which new entries inherit.
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// An entry whose attributes are set.
#[derive(Clone, Copy)]
pub(super) enum AttributeTarget<'a> {
    File(&'a File),
    /// Links are not followed.
    Entry(&'a TargetEntry<'a>),
}

impl AttributeTarget<'_> {
    /// Sets the attributes of the snapshot.
    pub(super) fn set(self, attributes: &[Attribute], first: &mut FirstError) {
        for attribute in attributes {
            let done = ignore_unsupported(self.set_one(attribute));
            first.record(done, || format!("failed to set attribute {}", name_of(&attribute.name)));
        }
    }

    /// Removes attributes that the snapshot does not have.
    pub(super) fn remove_others(self, expected: &[Attribute], first: &mut FirstError) {
        let names = match self.names() {
            Ok(names) => names,
            Err(error) => return first.record(Err(error.into()), || "failed to list attributes".into()),
        };
        let is_expected = |name: &[u8]| expected.iter().any(|attribute| attribute.name == name);
        for name in names.split(|byte| *byte == 0).filter(|name| is_portable(name) && !is_expected(name)) {
            let done = match self.remove(name) {
                Err(Errno::NODATA) => Ok(()),
                done => ignore_unsupported(done),
            };
            first.record(done, || format!("failed to remove attribute {}", name_of(name)));
        }
    }

    /// Whether there are no attributes that [`AttributeTarget::remove_others`] could remove.
    pub(super) fn is_empty(self) -> bool {
        self.names().is_ok_and(|names| !names.split(|byte| *byte == 0).any(is_portable))
    }

    fn set_one(self, attribute: &Attribute) -> rustix::io::Result<()> {
        let Attribute { name, value } = attribute;
        match self {
            Self::File(file) => rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()),
            Self::Entry(entry) => rustix::fs::lsetxattr(entry.as_path(), name, value, XattrFlags::empty()),
        }
    }

    fn remove(self, name: &[u8]) -> rustix::io::Result<()> {
        match self {
            Self::File(file) => rustix::fs::fremovexattr(file, name),
            Self::Entry(entry) => rustix::fs::lremovexattr(entry.as_path(), name),
        }
    }

    /// The names, each with a trailing zero. Most files have none, which takes only one call.
    fn names(self) -> rustix::io::Result<Vec<u8>> {
        let length = match self {
            Self::File(file) => rustix::fs::flistxattr_query(file),
            Self::Entry(entry) => rustix::fs::llistxattr_query(entry.as_path()),
        };
        if matches!(length, Ok(0) | Err(Errno::NOTSUP)) {
            return Ok(Vec::new());
        }
        let mut names = Vec::with_capacity(length?);
        match self {
            Self::File(file) => rustix::fs::flistxattr(file, spare_capacity(&mut names)),
            Self::Entry(entry) => rustix::fs::llistxattr(entry.as_path(), spare_capacity(&mut names)),
        }?;
        Ok(names)
    }
}

/// Whether new entries of this directory inherit an access control list, or that is unknown.
pub(super) fn has_default_acl(directory: &TargetEntry<'_>) -> bool {
    !matches!(rustix::fs::lgetxattr_query(directory.as_path(), DEFAULT_ACL), Err(Errno::NODATA | Errno::NOTSUP))
}

/// Whether an attribute belongs to the file and not to the machine: labels of security modules are set by the system, and so are
/// the lists of network file systems, which cannot be removed.
fn is_portable(name: &[u8]) -> bool {
    let kinds: [&[u8]; 4] = [b"user.", b"trusted.", b"system.posix_acl_", b"security.capability"];
    kinds.iter().any(|kind| name.starts_with(kind))
}

fn name_of(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Ignores attributes of a namespace that the user may not write or that the file system does not support.
fn ignore_unsupported(result: rustix::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(Errno::NOTSUP) => Ok(()),
        result => allowed(result),
    }
}
