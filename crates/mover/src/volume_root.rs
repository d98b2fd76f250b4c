//! Owner and mode of a volume's root. A snapshot of restic's format holds what is in a directory and nothing about the
//! directory itself: without them an application that is not root could not write into the volume that comes back. So they
//! are a tag of the snapshot, which whoever knows it heeds and nobody else is bothered by.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;

use crate::job::Backup;
use crate::outcome::Problems;
use crate::{MoverError, Result};

/// The tag, `volume-root=0750:1000:1000`.
const TAG: &str = "volume-root";
/// How a problem with it is named.
const ROOT: &str = ".";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Root {
    fn of(directory: &Path) -> Result<Self> {
        let path = || directory.display().to_string();
        let found = std::fs::metadata(directory)
            .map_err(|error| MoverError::Volume { path: path(), cause: error.to_string() })?;
        Ok(Self { mode: found.mode() & 0o7777, uid: found.uid(), gid: found.gid() })
    }

    /// What the tags of a snapshot say. Nothing for one of somebody else's, or from before there was such a tag.
    pub(crate) fn in_tags(tags: &BTreeMap<String, String>) -> Option<Self> {
        let mut parts = tags.get(TAG)?.split(':');
        let (mode, uid, gid) = (parts.next()?, parts.next()?, parts.next()?);
        let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777)?;
        // The last number is nobody's: to the system it means "as it is".
        let id = |text: &str| text.parse().ok().filter(|id| *id != u32::MAX);
        let root = Self { mode, uid: id(uid)?, gid: id(gid)? };
        parts.next().is_none().then_some(root)
    }

    /// The last thing of a restore, so that nobody is kept out before it.
    pub(crate) fn restore(self, directory: &Path, problems: &mut Problems) {
        if let Err(error) = self.apply(directory) {
            problems.add(ROOT, format!("owner and mode {self} of the volume's root cannot be set: {error}"));
        }
    }

    fn apply(self, directory: &Path) -> std::io::Result<()> {
        let opened = File::open(directory)?;
        match rustix::fs::fchown(&opened, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid))) {
            // Only root may give directories away; for anybody else they stay their own, as files do.
            Err(Errno::PERM | Errno::ACCESS) if !rustix::process::geteuid().is_root() => {}
            result => result?,
        }
        // After the owner: giving a directory away may take bits off its mode.
        Ok(rustix::fs::fchmod(&opened, Mode::from_raw_mode(self.mode))?)
    }
}

impl fmt::Display for Root {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04o}:{}:{}", self.mode, self.uid, self.gid)
    }
}

/// The tags of a backup's snapshot. One that lies elsewhere in its snapshot is an entry there like any other.
pub(crate) fn tags(backup: &Backup) -> Result<BTreeMap<String, String>> {
    let mut tags = backup.tags.clone();
    if backup.at.is_none() {
        tags.insert(TAG.into(), Root::of(&backup.directory)?.to_string());
    }
    Ok(tags)
}

/// That the snapshot may know more than could be asked for is no reason to restore nothing.
pub(crate) fn unknown(problems: &mut Problems, error: &MoverError) {
    problems.add(ROOT, format!("owner and mode of the volume's root are not known: {error}"));
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn said(text: &str) -> Option<Root> {
        Root::in_tags(&[(TAG.to_owned(), text.to_owned())].into())
    }

    #[test]
    fn what_is_written_down_is_read_again_and_nothing_else_is() {
        let root = Root { mode: 0o2750, uid: 1000, gid: 0 };
        assert_eq!(root.to_string(), "2750:1000:0");
        assert_eq!(said("2750:1000:0"), Some(root));
        assert_eq!(Root { mode: 0o50, ..root }.to_string(), "0050:1000:0");
        for nonsense in ["", "0750", "0750:1", "0750:1:1:1", "0790:1:1", "10750:1:1", "0750:-1:1", "0750:1:4294967295"]
        {
            assert_eq!(said(nonsense), None, "{nonsense}");
        }
        assert_eq!(Root::in_tags(&[("pvc-uid".to_owned(), "0750:1:1".to_owned())].into()), None);
    }

    #[test]
    fn a_backup_with_a_place_of_its_own_has_no_such_tag() {
        let folder = tempfile::tempdir().expect("a directory");
        let mut backup = Backup::new(folder.path(), "ns/pod/data", [("pvc-uid".to_owned(), "1".to_owned())].into());
        let found = tags(&backup).expect("is there");
        assert_eq!((found.len(), Root::in_tags(&found)), (2, Some(Root::of(folder.path()).expect("is there"))));
        backup.at = Some("/srv/data".into());
        assert_eq!(tags(&backup).expect("is there"), backup.tags);
    }

    #[test]
    fn a_root_gets_its_mode_and_what_cannot_be_set_is_named() {
        let folder = tempfile::tempdir().expect("a directory");
        let root = Root { mode: 0o2711, ..Root::of(folder.path()).expect("is there") };
        let mut problems = Problems::default();
        root.restore(folder.path(), &mut problems);
        assert_eq!(problems.count, 0, "{problems:?}");
        assert_eq!(folder.path().metadata().expect("is there").permissions().mode() & 0o7777, 0o2711);
        root.restore(&folder.path().join("gone"), &mut problems);
        assert_eq!(problems.named.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["."]);
    }
}
