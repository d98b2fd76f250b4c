//! Owner and mode of a volume's root directory. A restic snapshot contains the entries of a directory and nothing about the
//! directory itself: without them an application that is not root could not write to the restored volume. They are stored in a
//! tag of the snapshot, which other programs ignore.

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
/// The path of the root in problems.
const ROOT_PATH: &str = ".";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeRoot {
    mode: u32,
    uid: u32,
    gid: u32,
}

impl VolumeRoot {
    fn of(directory: &Path) -> Result<Self> {
        let path = || directory.display().to_string();
        let metadata = std::fs::metadata(directory)
            .map_err(|error| MoverError::Volume { path: path(), cause: error.to_string() })?;
        Ok(Self { mode: metadata.mode() & 0o7777, uid: metadata.uid(), gid: metadata.gid() })
    }

    /// Reads the tag of a snapshot. `None` for snapshots of other programs or of older versions.
    pub(crate) fn from_tags(tags: &BTreeMap<String, String>) -> Option<Self> {
        let mut parts = tags.get(TAG)?.split(':');
        let (mode, uid, gid) = (parts.next()?, parts.next()?, parts.next()?);
        let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777)?;
        // The system reads the last number as "unchanged".
        let id = |text: &str| text.parse().ok().filter(|id| *id != u32::MAX);
        let root = Self { mode, uid: id(uid)?, gid: id(gid)? };
        parts.next().is_none().then_some(root)
    }

    /// Sets owner and mode. The last step of a restore, because the mode may deny access.
    pub(crate) fn restore(self, directory: &Path, problems: &mut Problems) {
        if let Err(error) = self.apply(directory) {
            problems.add(ROOT_PATH, format!("failed to set owner and mode {self} of the volume root: {error}"));
        }
    }

    fn apply(self, directory: &Path) -> std::io::Result<()> {
        let opened = File::open(directory)?;
        match rustix::fs::fchown(&opened, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid))) {
            // Only root may change the owner; without root it stays unchanged, as with files.
            Err(Errno::PERM | Errno::ACCESS) if !rustix::process::geteuid().is_root() => {}
            result => result?,
        }
        // After the owner: a change of the owner may clear bits of the mode.
        Ok(rustix::fs::fchmod(&opened, Mode::from_raw_mode(self.mode))?)
    }
}

impl fmt::Display for VolumeRoot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04o}:{}:{}", self.mode, self.uid, self.gid)
    }
}

/// The tags of a backup's snapshot. A backup with a target path has its root as an entry of the snapshot.
pub(crate) fn tags(backup: &Backup) -> Result<BTreeMap<String, String>> {
    let mut tags = backup.tags.clone();
    if backup.at.is_none() {
        tags.insert(TAG.into(), VolumeRoot::of(&backup.directory)?.to_string());
    }
    Ok(tags)
}

/// Records that the tag could not be read. The restore continues.
pub(crate) fn report_unknown(problems: &mut Problems, error: &MoverError) {
    problems.add(ROOT_PATH, format!("failed to read owner and mode of the volume root: {error}"));
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn parse(text: &str) -> Option<VolumeRoot> {
        VolumeRoot::from_tags(&[(TAG.to_owned(), text.to_owned())].into())
    }

    #[test]
    fn a_tag_is_parsed_and_an_invalid_one_is_ignored() {
        let root = VolumeRoot { mode: 0o2750, uid: 1000, gid: 0 };
        assert_eq!(root.to_string(), "2750:1000:0");
        assert_eq!(parse("2750:1000:0"), Some(root));
        assert_eq!(VolumeRoot { mode: 0o50, ..root }.to_string(), "0050:1000:0");
        for invalid in ["", "0750", "0750:1", "0750:1:1:1", "0790:1:1", "10750:1:1", "0750:-1:1", "0750:1:4294967295"] {
            assert_eq!(parse(invalid), None, "{invalid}");
        }
        assert_eq!(VolumeRoot::from_tags(&[("pvc-uid".to_owned(), "0750:1:1".to_owned())].into()), None);
    }

    #[test]
    fn a_backup_with_a_target_path_has_no_such_tag() {
        let folder = tempfile::tempdir().expect("a directory");
        let mut backup = Backup::new(folder.path(), "ns/pod/data", [("pvc-uid".to_owned(), "1".to_owned())].into());
        let with_root = tags(&backup).expect("readable");
        assert_eq!(
            (with_root.len(), VolumeRoot::from_tags(&with_root)),
            (2, Some(VolumeRoot::of(folder.path()).expect("readable")))
        );
        backup.at = Some("/srv/data".into());
        assert_eq!(tags(&backup).expect("readable"), backup.tags);
    }

    #[test]
    fn the_mode_is_set_and_a_failure_is_a_problem() {
        let folder = tempfile::tempdir().expect("a directory");
        let root = VolumeRoot { mode: 0o2711, ..VolumeRoot::of(folder.path()).expect("readable") };
        let mut problems = Problems::default();
        root.restore(folder.path(), &mut problems);
        assert_eq!(problems.count, 0, "{problems:?}");
        assert_eq!(folder.path().metadata().expect("readable").permissions().mode() & 0o7777, 0o2711);
        root.restore(&folder.path().join("missing"), &mut problems);
        assert_eq!(problems.named.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["."]);
    }
}
