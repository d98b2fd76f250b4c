//! The markers that a restored pod waits for: a file in each of its volumes. Its first container removes them once all of them exist.
//!
//! ```text
//!  moved (durable, in the custom resource) ─▶ put ─▶ the container sees it ─▶ the container removes it and ends ─▶ containers start
//! ```
//!
//! Once the data is in the volume nothing is moved again: the application may be at work on it. An agent that
//! resumes a transfer after that cannot know whether the file was created, so it creates it, and removes it if no container is left
//! to do so.

use std::fs::File;
use std::io::{Error as IoError, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_mover::{Outcome, RestoreOutcome};
use plimsoll_volumes::transfer::TransferError;
use rustix::fs::{Mode, OFlags};

use crate::volume_io::on_volume;

/// The directory of the markers, below each volume.
const FOLDER: &str = ".velero";
/// How long a container that has seen the file may take to end, by its status.
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_mins(1);

/// The file of one restore in one volume.
#[derive(Clone)]
pub(crate) struct RestoreMarker {
    folder: PathBuf,
    file: PathBuf,
}

impl RestoreMarker {
    pub fn new(directory: &Path, restore: &str) -> Self {
        let folder = directory.join(FOLDER);
        Self { file: folder.join(Path::new(restore).file_name().unwrap_or_default()), folder }
    }

    /// Whether it is there.
    pub async fn exists(&self) -> Result<bool, TransferError> {
        let marker = self.clone();
        on_volume(move || marker.is_present()).await
    }

    /// Lets the pod's containers start.
    pub async fn create(&self) -> Result<Result<(), IoError>, TransferError> {
        let marker = self.clone();
        on_volume(move || marker.write()).await
    }

    /// Removes it, with its directory.
    pub async fn remove(&self) -> Result<Result<(), IoError>, TransferError> {
        let marker = self.clone();
        on_volume(move || marker.clear()).await
    }

    fn is_present(&self) -> bool {
        self.file.symlink_metadata().is_ok()
    }

    /// Writes the file. What an earlier restore of the same volume left goes first; the volume's content is
    /// its owner's, so no link in it is followed.
    fn write(&self) -> Result<(), IoError> {
        self.clear()?;
        let volume = File::open(self.folder.parent().unwrap_or(Path::new("/")))?;
        rustix::fs::mkdirat(&volume, FOLDER, Mode::from_raw_mode(0o755))?;
        // After a crash a file is there only if the directories above it say so. The container removes it as soon as it is
        // there, with its directory: that is opened before.
        volume.sync_all()?;
        let folder = open_no_follow(&volume, FOLDER, OFlags::DIRECTORY | OFlags::RDONLY)?;
        give_to_owner(&volume, &folder);
        let name = self.file.file_name().unwrap_or_default();
        open_no_follow(&folder, name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?.sync_all()?;
        match folder.sync_all() {
            Err(_) if !self.is_present() => Ok(()),
            flushed => flushed,
        }
    }

    fn clear(&self) -> Result<(), IoError> {
        match self.folder.symlink_metadata() {
            Ok(found) if found.is_dir() => std::fs::remove_dir_all(&self.folder),
            Ok(_) => std::fs::remove_file(&self.folder),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// An entry of a directory that is open. Others that share the volume may put a link in its place at any moment: it is not followed.
fn open_no_follow(folder: &File, name: impl rustix::path::Arg, how: OFlags) -> Result<File, IoError> {
    let opened =
        rustix::fs::openat(folder, name, how | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))?;
    Ok(opened.into())
}

/// A process that may delete files of the volume may delete this directory too, with its content. Best effort: otherwise it
/// stays until the next restore.
fn give_to_owner(volume: &File, folder: &File) {
    let Ok(volume) = volume.metadata() else { return };
    let _ = std::os::unix::fs::fchown(folder, Some(volume.uid()), Some(volume.gid()));
    let _ = folder.set_permissions(PermissionsExt::from_mode((volume.mode() & 0o777) | 0o700));
}

/// The record of a completed transfer: the part of the outcome that the last status needs.
pub(crate) fn serialize_outcome(outcome: &Outcome) -> Option<String> {
    let Outcome::Restore(done) = outcome else { return None };
    let mut done = done.clone();
    done.problems.named.truncate(1);
    serde_json::to_string(&done).ok()
}

/// The recorded outcome.
pub(crate) fn parse_outcome(text: &str) -> Outcome {
    Outcome::Restore(serde_json::from_str::<RestoreOutcome>(text).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use plimsoll_mover::{Problem, Problems};

    use super::*;

    #[test]
    fn the_marker_replaces_what_earlier_restores_left_and_follows_no_link() {
        let volume = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), volume.path().join(FOLDER)).unwrap();
        RestoreMarker::new(volume.path(), "one").write().unwrap();
        assert_eq!(outside.path().read_dir().unwrap().count(), 0);
        let second = RestoreMarker::new(volume.path(), "../two");
        second.write().unwrap();
        let left: Vec<_> = volume.path().join(FOLDER).read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["two"]);
        assert!(second.is_present());
        second.clear().unwrap();
        assert_eq!(volume.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn the_owner_of_the_volume_may_remove_the_marker() {
        let volume = tempfile::tempdir().unwrap();
        let may_give_away = std::os::unix::fs::chown(volume.path(), Some(999), Some(998)).is_ok();
        std::fs::set_permissions(volume.path(), PermissionsExt::from_mode(0o2770)).unwrap();
        RestoreMarker::new(volume.path(), "uid").write().unwrap();
        let folder = volume.path().join(FOLDER).metadata().unwrap();
        assert_eq!(folder.mode() & 0o777, 0o770);
        assert!(!may_give_away || (folder.uid(), folder.gid()) == (999, 998));
    }

    #[test]
    fn what_is_written_down_is_what_the_last_status_needs() {
        let problem = |path: &str| Problem { path: path.into(), cause: "denied".into() };
        let problems = Problems { named: vec![problem("a"), problem("b")], count: 2 };
        let done = RestoreOutcome { bytes: 7, files: 3, problems, ..Default::default() };
        let Outcome::Restore(read) = parse_outcome(&serialize_outcome(&Outcome::Restore(done)).unwrap()) else {
            panic!()
        };
        assert_eq!((read.bytes, read.files, read.problems.count), (7, 3, 2));
        assert_eq!(read.problems.named, [problem("a")]);
    }
}
