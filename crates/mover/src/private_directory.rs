//! Private directories for secrets, which are removed with their process or soon after it.
//!
//! restic and kopia need the password and the keys. Arguments are readable by all users of the machine. An environment
//! (`/proc/<pid>/environ`) is readable by the same user and by root, is inherited by child processes, and is printed by
//! process listings and crash reports. A file of mode 0600 in a directory of mode 0700 is readable by the same user and by root
//! too, but it is not printed and not inherited; in `/dev/shm` it never reaches a disk.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use plimsoll_repository::{HolderLiveness, LockHolder};
use tempfile::TempDir;

use crate::lifecycle::own_pod_uid;
use crate::{MoverError, Result};

const SHARED_MEMORY: &str = "/dev/shm";
const PREFIX: &str = "plimsoll-mover-";

/// A directory of mode 0700, removed on drop, or by [`remove_stale_directories`] if its process was killed.
#[derive(Debug)]
pub(crate) struct PrivateDirectory(TempDir);

impl PrivateDirectory {
    /// Creates a directory for secrets, in memory if possible.
    pub(crate) fn in_memory() -> Result<Self> {
        Self::within(Path::new(SHARED_MEMORY)).or_else(|_| Self::within(&std::env::temp_dir()))
    }

    /// Creates a directory for large files.
    pub(crate) fn on_disk() -> Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> Result<Self> {
        let created = tempfile::Builder::new()
            .prefix(&own_prefix())
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(parent);
        created
            .map(Self)
            .map_err(|error| MoverError::local(format!("create a directory in {}", parent.display()), &error))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file that only its owner can read.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        let path = self.path().join(name);
        let failed = |error: std::io::Error| MoverError::local(format!("write {}", path.display()), &error);
        let mut file =
            fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&path).map_err(failed)?;
        file.write_all(content).map_err(failed)?;
        Ok(path)
    }
}

/// A unique process identity: its ID, start time, PID namespace, boot and pod.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    process: LockHolder,
}

impl Owner {
    fn current() -> Option<Self> {
        Some(Self { pid: std::process::id(), process: LockHolder::current(own_pod_uid().as_deref())? })
    }

    /// The prefix of its directories' names. The machine is left out: it is this one.
    fn name(&self) -> String {
        let process = self.process.to_string();
        format!("{PREFIX}{}-{}-", self.pid, process.split_once('/').map_or("", |(_, process)| process))
    }

    fn parse(name: &str) -> Option<Self> {
        let (pid, rest) = name.strip_prefix(PREFIX)?.split_once('-')?;
        let (process, _) = rest.rsplit_once('-')?;
        Some(Self { pid: pid.parse().ok()?, process: LockHolder::parse(&format!("/{process}"))? })
    }

    /// Whether the process has ended. Known only for processes of the same PID namespace and for earlier containers of this pod,
    /// whose files in memory and in the pod's temporary directory outlive them.
    fn has_ended(&self, pod: Option<&str>) -> bool {
        self.process.liveness(self.pid, pod) == HolderLiveness::Gone
            || pod.is_some_and(|pod| self.process.is_earlier_container(pod))
    }
}

/// Removes the directories of killed movers.
pub fn remove_stale_directories() {
    let pod = own_pod_uid();
    remove_directories(|name| Owner::parse(name).is_some_and(|owner| owner.has_ended(pod.as_deref())));
}

/// Removes the directories of this process before it kills itself.
pub(crate) fn remove_own() {
    let own = own_prefix();
    remove_directories(|name| name.starts_with(&own));
}

/// The prefix of the names of this process's directories.
fn own_prefix() -> String {
    // Without an identity the directory is never considered stale.
    Owner::current().map_or_else(|| format!("{PREFIX}{}-", std::process::id()), |owner| owner.name())
}

fn remove_directories(is_unwanted: impl Fn(&str) -> bool) {
    for parent in [PathBuf::from(SHARED_MEMORY), std::env::temp_dir()] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(&is_unwanted) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_directory_is_readable_by_its_user_only_and_removed_on_drop() {
        let directory = PrivateDirectory::in_memory().expect("created");
        let file = directory.write("password", b"hush").expect("writes");
        let mode = |path: &Path| fs::metadata(path).expect("exists").permissions().mode() & 0o777;
        assert_eq!((mode(directory.path()), mode(&file)), (0o700, 0o600));
        let path = directory.path().to_owned();
        drop(directory);
        assert!(!path.exists());
    }

    /// A directory of a process with another ID, pod, boot or container.
    fn left_by(pid: u32, pod: &str, boot: Option<&str>, container: Option<&str>) -> PathBuf {
        let mine = LockHolder::current(None).expect("available on Linux").to_string();
        let parts: Vec<&str> = mine.split_once('/').expect("unique").1.split('.').collect();
        let (boot, container, started) = (boot.unwrap_or(parts[1]), container.unwrap_or(parts[2]), parts[3]);
        let path = std::env::temp_dir().join(format!("{PREFIX}{pid}-{pod}.{boot}.{container}.{started}-test"));
        fs::create_dir_all(&path).expect("created");
        path
    }

    #[test]
    fn directories_of_ended_processes_are_removed_and_those_of_running_ones_are_not() {
        let mine = PrivateDirectory::on_disk().expect("created");
        // The first process of the machine started long before this one.
        let ended = left_by(1, "-", None, None);
        let foreign = left_by(1, "-", None, Some("1"));
        remove_stale_directories();
        assert!(mine.path().exists() && !ended.exists() && foreign.exists());
        fs::remove_dir(&foreign).expect("removes");
    }

    #[test]
    fn directories_of_a_killed_container_are_stale_only_in_the_same_pod() {
        let (pod, other) = ("0c4e9a1b5d7f2e38", "1c4e9a1b5d7f2e38");
        let own = std::process::id();
        for (path, expected, case) in [
            (left_by(own, pod, None, Some("1")), true, "the container before this one"),
            (left_by(own, pod, Some("9f86d081884c7d65"), None), true, "before the node was restarted"),
            (left_by(own, pod, None, None), false, "this container"),
            (left_by(own, other, None, Some("1")), false, "another pod"),
        ] {
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            assert_eq!(Owner::parse(name).expect("ours").has_ended(Some(pod)), expected, "{case}");
            fs::remove_dir(&path).expect("removes");
        }
    }
}
