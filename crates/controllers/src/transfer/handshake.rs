//! What a restored pod waits for: a file in each of its volumes, which its first container takes away when all of them are there.
//!
//! ```text
//!  moved (durable, in the custom resource) ─▶ put ─▶ the container sees it ─▶ the container removes it and ends ─▶ containers start
//! ```
//!
//! Once the data is in the volume nothing is moved again: the application may be at work on it. Whoever takes a transfer up
//! after that cannot know whether the file was put, so he puts it, and takes it away again if nobody is left to do so.

use std::fs::File;
use std::io::{Error as IoError, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use plimsoll_mover::{Outcome, RestoreOutcome};
use rustix::fs::{Mode, OFlags};

use super::kind::RESTORE_WAIT;

/// Where the files lie, below each volume.
const FOLDER: &str = ".velero";
/// How long a container that has seen the file may take to end, as far as the API server tells.
pub(super) const TAKEN_WITHIN: Duration = Duration::from_mins(1);
/// A container that crashed before and was started again less than this ago may be about to crash again.
const STEADY: SignedDuration = SignedDuration::from_secs(5);

/// The file of one restore in one volume.
pub(super) struct Mark {
    folder: PathBuf,
    file: PathBuf,
}

impl Mark {
    pub fn new(directory: &Path, restore: &str) -> Self {
        let folder = directory.join(FOLDER);
        Self { file: folder.join(Path::new(restore).file_name().unwrap_or_default()), folder }
    }

    pub fn is_there(&self) -> bool {
        self.file.symlink_metadata().is_ok()
    }

    /// Lets the pod's containers start. What an earlier restore of the same volume left goes first; the volume's content is
    /// its owner's, so no link in it is followed.
    pub fn put(&self) -> Result<(), IoError> {
        self.take_away()?;
        let volume = File::open(self.folder.parent().unwrap_or(Path::new("/")))?;
        rustix::fs::mkdirat(&volume, FOLDER, Mode::from_raw_mode(0o755))?;
        // After a crash a file is there only if the directories above it say so. Whoever waits takes it away as soon as it is
        // there, with its directory: that is opened before.
        volume.sync_all()?;
        let folder = open_below(&volume, FOLDER, OFlags::DIRECTORY | OFlags::RDONLY)?;
        open_to_the_owner(&volume, &folder);
        let name = self.file.file_name().unwrap_or_default();
        open_below(&folder, name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?.sync_all()?;
        match folder.sync_all() {
            Err(_) if !self.is_there() => Ok(()),
            flushed => flushed,
        }
    }
    /// Nothing is left of it.
    pub fn take_away(&self) -> Result<(), IoError> {
        match self.folder.symlink_metadata() {
            Ok(found) if found.is_dir() => std::fs::remove_dir_all(&self.folder),
            Ok(_) => std::fs::remove_file(&self.folder),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// An entry of a directory that is open. Whoever shares the volume may put a link in its place at any moment: it is not followed.
fn open_below(folder: &File, name: impl rustix::path::Arg, how: OFlags) -> Result<File, IoError> {
    let opened =
        rustix::fs::openat(folder, name, how | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))?;
    Ok(opened.into())
}

/// Whoever may take something out of the volume may take this out of it, with what is inside. Best effort: otherwise it
/// stays until the next restore.
fn open_to_the_owner(volume: &File, folder: &File) {
    let Ok(volume) = volume.metadata() else { return };
    let _ = std::os::unix::fs::fchown(folder, Some(volume.uid()), Some(volume.gid()));
    let _ = folder.set_permissions(PermissionsExt::from_mode((volume.mode() & 0o777) | 0o700));
}

fn first_container(pod: &Pod) -> Option<&ContainerStatus> {
    let statuses = pod.status.as_ref()?.init_container_statuses.iter().flatten();
    statuses.into_iter().find(|status| status.name == RESTORE_WAIT)
}

/// Whether a pod's first container has seen all of its files and ended.
pub(super) fn has_waited(pod: &Pod) -> bool {
    let ended = first_container(pod).and_then(|status| status.state.as_ref()?.terminated.as_ref());
    ended.is_some_and(|ended| ended.exit_code == 0)
}

/// Whether a pod waits no longer: its containers start, or it will never have any.
pub(crate) fn has_gone_on(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    has_waited(pod) || matches!(phase, Some("Running" | "Succeeded" | "Failed"))
}

/// Why a pod's first container does not do its waiting, if that does not pass by itself.
pub(crate) fn cannot_wait(pod: &Pod) -> Option<String> {
    let first = first_container(pod)?;
    let words = |reason: &Option<String>, message: &Option<String>| {
        let said = [reason, message].into_iter().flatten().filter(|text| !text.is_empty());
        said.cloned().collect::<Vec<_>>().join(": ")
    };
    let failed = |state: &Option<ContainerState>| {
        let ended = state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
        // The end of its log: the last line says why.
        let last = ended.message.as_deref().and_then(|message| message.trim_end().lines().last()).map(str::to_owned);
        Some(format!("exit code {}: {}", ended.exit_code, words(&ended.reason, &last)))
    };
    let state = first.state.as_ref();
    if let Some(running) = state.and_then(|state| state.running.as_ref()) {
        let since = running.started_at.as_ref().map(|started| Timestamp::now().duration_since(started.0));
        return failed(&first.last_state).filter(|_| since.is_some_and(|since| since < STEADY));
    }
    let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) else {
        return failed(&first.state);
    };
    let passes = matches!(waiting.reason.as_deref(), None | Some("" | "PodInitializing" | "ContainerCreating"));
    let before = failed(&first.last_state).map(|before| format!(" ({before})")).unwrap_or_default();
    (!passes).then(|| words(&waiting.reason, &waiting.message) + &before)
}

/// What is written down once the data is there: as much of the outcome as its last status needs.
pub(super) fn note(outcome: &Outcome) -> Option<String> {
    let Outcome::Restore(done) = outcome else { return None };
    let mut done = done.clone();
    done.problems.named.truncate(1);
    serde_json::to_string(&done).ok()
}

/// The outcome that was written down.
pub(super) fn noted(text: &str) -> Outcome {
    Outcome::Restore(serde_json::from_str::<RestoreOutcome>(text).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use plimsoll_mover::{Problem, Problems};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_handshake_replaces_what_earlier_restores_left_and_follows_no_link() {
        let volume = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), volume.path().join(FOLDER)).unwrap();
        Mark::new(volume.path(), "one").put().unwrap();
        assert_eq!(outside.path().read_dir().unwrap().count(), 0);
        let second = Mark::new(volume.path(), "../two");
        second.put().unwrap();
        let left: Vec<_> = volume.path().join(FOLDER).read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["two"]);
        assert!(second.is_there());
        second.take_away().unwrap();
        assert_eq!(volume.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn whoever_owns_the_volume_may_take_the_mark_away() {
        let volume = tempfile::tempdir().unwrap();
        let may_give_away = std::os::unix::fs::chown(volume.path(), Some(999), Some(998)).is_ok();
        std::fs::set_permissions(volume.path(), PermissionsExt::from_mode(0o2770)).unwrap();
        Mark::new(volume.path(), "uid").put().unwrap();
        let folder = volume.path().join(FOLDER).metadata().unwrap();
        assert_eq!(folder.mode() & 0o777, 0o770);
        assert!(!may_give_away || (folder.uid(), folder.gid()) == (999, 998));
    }

    #[test]
    fn a_pod_has_waited_once_its_first_container_has_ended_well() {
        let waited = |state: Value| {
            let status = json!({"initContainerStatuses": [{"name": "restore-wait", "state": state, "ready": false, "image": "",
                "imageID": "", "restartCount": 0}]});
            has_waited(&serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap())
        };
        assert!(waited(json!({"terminated": {"exitCode": 0}})));
        assert!(!waited(json!({"terminated": {"exitCode": 137}})) && !waited(json!({"running": {}})));
        assert!(!has_waited(&Pod::default()));
    }

    #[test]
    fn a_container_that_was_only_just_started_again_may_not_wait_for_long() {
        let crashed = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        let running = |ago: i64| json!({"running": {"startedAt": Timestamp::now() - SignedDuration::from_secs(ago)}});
        let why = |state: Value, last: Value| {
            let status = json!({"initContainerStatuses": [{"name": "restore-wait", "state": state, "lastState": last,
                "ready": false, "image": "", "imageID": "", "restartCount": 1}]});
            cannot_wait(&serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap())
        };
        assert_eq!(why(running(1), crashed.clone()).as_deref(), Some("exit code 1: Error"));
        assert_eq!(why(running(10), crashed.clone()), None);
        assert_eq!(why(running(1), json!({})), None);
        assert_eq!(why(crashed, json!({})).as_deref(), Some("exit code 1: Error"));
        let talkative = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "waiting\nit is closed\n"}});
        assert_eq!(why(talkative, json!({})).as_deref(), Some("exit code 1: Error: it is closed"));
    }

    #[test]
    fn what_is_written_down_is_what_the_last_status_needs() {
        let problem = |path: &str| Problem { path: path.into(), cause: "denied".into() };
        let problems = Problems { named: vec![problem("a"), problem("b")], count: 2 };
        let done = RestoreOutcome { bytes: 7, files: 3, problems, ..Default::default() };
        let Outcome::Restore(read) = noted(&note(&Outcome::Restore(done)).unwrap()) else { panic!() };
        assert_eq!((read.bytes, read.files, read.problems.count), (7, 3, 2));
        assert_eq!(read.problems.named, [problem("a")]);
    }
}
