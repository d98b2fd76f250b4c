//! Extended attributes of what is restored: those of the snapshot, and no others.

use std::fs::File;

use rustix::buffer::spare_capacity;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::metadata::{FirstError, allowed};
use super::place::Place;
use crate::format::tree::Attribute;

/// The access control list that whatever is made in a directory inherits.
const INHERITED: &str = "system.posix_acl_default";

/// Something that has attributes.
#[derive(Clone, Copy)]
pub(super) enum Bearer<'a> {
    File(&'a File),
    /// Links are not followed.
    Place(&'a Place<'a>),
}

impl Bearer<'_> {
    /// Gives it the attributes of the snapshot, as far as that can be done.
    pub(super) fn set(self, attributes: &[Attribute], first: &mut FirstError) {
        for attribute in attributes {
            let done = tolerated(self.set_one(attribute));
            first.note(done, || format!("its attribute {} cannot be set", name_of(&attribute.name)));
        }
    }

    /// Takes away what it has and the snapshot does not: what it inherited, or somebody gave it.
    pub(super) fn remove_others(self, wanted: &[Attribute], first: &mut FirstError) {
        let found = match self.names() {
            Ok(found) => found,
            Err(error) => return first.note(Err(error.into()), || "its attributes cannot be listed".into()),
        };
        let is_wanted = |name: &[u8]| wanted.iter().any(|attribute| attribute.name == name);
        for name in found.split(|byte| *byte == 0).filter(|name| is_its_own(name) && !is_wanted(name)) {
            let done = match self.remove(name) {
                Err(Errno::NODATA) => Ok(()),
                done => tolerated(done),
            };
            first.note(done, || format!("its attribute {} cannot be removed", name_of(name)));
        }
    }

    /// Whether there is nothing that [`Bearer::remove_others`] could take away.
    pub(super) fn has_none(self) -> bool {
        self.names().is_ok_and(|names| !names.split(|byte| *byte == 0).any(is_its_own))
    }

    fn set_one(self, attribute: &Attribute) -> rustix::io::Result<()> {
        let Attribute { name, value } = attribute;
        match self {
            Self::File(file) => rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()),
            Self::Place(place) => rustix::fs::lsetxattr(place.as_path(), name, value, XattrFlags::empty()),
        }
    }

    fn remove(self, name: &[u8]) -> rustix::io::Result<()> {
        match self {
            Self::File(file) => rustix::fs::fremovexattr(file, name),
            Self::Place(place) => rustix::fs::lremovexattr(place.as_path(), name),
        }
    }

    /// The names, each with a zero behind it. Most files have none, and for those one call is enough.
    fn names(self) -> rustix::io::Result<Vec<u8>> {
        let length = match self {
            Self::File(file) => rustix::fs::flistxattr_query(file),
            Self::Place(place) => rustix::fs::llistxattr_query(place.as_path()),
        };
        if matches!(length, Ok(0) | Err(Errno::NOTSUP)) {
            return Ok(Vec::new());
        }
        let mut names = Vec::with_capacity(length?);
        match self {
            Self::File(file) => rustix::fs::flistxattr(file, spare_capacity(&mut names)),
            Self::Place(place) => rustix::fs::llistxattr(place.as_path(), spare_capacity(&mut names)),
        }?;
        Ok(names)
    }
}

/// Whether what is made in this directory inherits an access control list. If that is not known, it may.
pub(super) fn is_inherited_from(directory: &Place<'_>) -> bool {
    !matches!(rustix::fs::lgetxattr_query(directory.as_path(), INHERITED), Err(Errno::NODATA | Errno::NOTSUP))
}

/// Whether an attribute belongs to the file, and not to the machine it lies on: labels of security modules are given by
/// the system, and so are the lists of network file systems, which cannot be removed at all.
fn is_its_own(name: &[u8]) -> bool {
    let kinds: [&[u8]; 4] = [b"user.", b"trusted.", b"system.posix_acl_", b"security.capability"];
    kinds.iter().any(|kind| name.starts_with(kind))
}

fn name_of(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Attributes of a namespace this user may not write, or that this file system does not have, are left out.
fn tolerated(result: rustix::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(Errno::NOTSUP) => Ok(()),
        result => allowed(result),
    }
}
