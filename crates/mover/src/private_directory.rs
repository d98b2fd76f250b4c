//! Directories that only this process's user can look into, and that do not outlive their process for long.
//!
//! Password and keys must reach restic and kopia somehow. Arguments are readable by everybody on the machine. An environment
//! (`/proc/<pid>/environ`) is readable by the same user and by root, is inherited by whatever a program starts, and is
//! what listings and crash reports print. A file of mode 0600 in a directory of mode 0700 is readable by the same user
//! and by root too, but it is printed by nothing and inherited by nobody; in `/dev/shm` it never reaches a disk.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use plimsoll_repository::{LockHolder, Standing};
use tempfile::TempDir;

use crate::lifecycle::own_pod;
use crate::{MoverError, Result};

const MEMORY: &str = "/dev/shm";
const PREFIX: &str = "plimsoll-mover-";

/// A directory of mode 0700, removed when this is dropped, or by [`sweep`] if its process was killed.
#[derive(Debug)]
pub(crate) struct PrivateDirectory(TempDir);

impl PrivateDirectory {
    /// One for secrets: in memory, where the system has such a place.
    pub(crate) fn in_memory() -> Result<Self> {
        Self::within(Path::new(MEMORY)).or_else(|_| Self::within(&std::env::temp_dir()))
    }

    /// One for things that may be large.
    pub(crate) fn on_disk() -> Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> Result<Self> {
        let made = tempfile::Builder::new()
            .prefix(&own_name())
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(parent);
        made.map(Self).map_err(|error| MoverError::local(format!("make a directory in {}", parent.display()), &error))
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

/// A process by a name that is never used again: its number, when it started, where that number counts, and in which pod.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    process: LockHolder,
}

impl Owner {
    fn me() -> Option<Self> {
        Some(Self { pid: std::process::id(), process: LockHolder::me(own_pod().as_deref())? })
    }

    /// The beginning of the names of its directories. The machine is no part of it: it is this one.
    fn name(&self) -> String {
        let process = self.process.to_string();
        format!("{PREFIX}{}-{}-", self.pid, process.split_once('/').map_or("", |(_, process)| process))
    }

    fn parse(name: &str) -> Option<Self> {
        let (pid, rest) = name.strip_prefix(PREFIX)?.split_once('-')?;
        let (process, _) = rest.rsplit_once('-')?;
        Some(Self { pid: pid.parse().ok()?, process: LockHolder::parse(&format!("/{process}"))? })
    }

    /// Only a process that counts where we count can be known to be gone, and one of a container of this pod before ours: what it
    /// left outlives it, in memory and in the pod's temporary directory.
    fn is_gone(&self, pod: Option<&str>) -> bool {
        self.process.standing(self.pid, pod) == Standing::Gone || pod.is_some_and(|pod| self.process.was_before(pod))
    }
}

/// Removes what killed movers left behind.
pub fn sweep() {
    let pod = own_pod();
    remove(|name| Owner::parse(name).is_some_and(|owner| owner.is_gone(pod.as_deref())));
}

/// Removes this process's own directories, for a process that is about to kill itself.
pub(crate) fn remove_own() {
    let own = own_name();
    remove(|name| name.starts_with(&own));
}

/// The beginning of the names of this process's directories.
fn own_name() -> String {
    // Where the system does not tell enough, nobody can know whether this process is gone either.
    Owner::me().map_or_else(|| format!("{PREFIX}{}-", std::process::id()), |me| me.name())
}

fn remove(unwanted: impl Fn(&str) -> bool) {
    for parent in [PathBuf::from(MEMORY), std::env::temp_dir()] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(&unwanted) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_can_look_into_it_and_it_is_gone_afterwards() {
        let directory = PrivateDirectory::in_memory().expect("makes");
        let file = directory.write("password", b"hush").expect("writes");
        let mode = |path: &Path| fs::metadata(path).expect("is there").permissions().mode() & 0o777;
        assert_eq!((mode(directory.path()), mode(&file)), (0o700, 0o600));
        let path = directory.path().to_owned();
        drop(directory);
        assert!(!path.exists());
    }

    /// A directory of a process like this one, with another number, pod, boot or container.
    fn left_by(pid: u32, pod: &str, boot: Option<&str>, container: Option<&str>) -> PathBuf {
        let mine = LockHolder::me(None).expect("Linux tells").to_string();
        let parts: Vec<&str> = mine.split_once('/').expect("unique").1.split('.').collect();
        let (boot, container, started) = (boot.unwrap_or(parts[1]), container.unwrap_or(parts[2]), parts[3]);
        let path = std::env::temp_dir().join(format!("{PREFIX}{pid}-{pod}.{boot}.{container}.{started}-test"));
        fs::create_dir_all(&path).expect("makes");
        path
    }

    #[test]
    fn what_a_killed_process_left_is_swept_and_what_a_living_one_uses_is_not() {
        let mine = PrivateDirectory::on_disk().expect("makes");
        // The first process of the machine started long before this one.
        let gone = left_by(1, "-", None, None);
        let foreign = left_by(1, "-", None, Some("1"));
        sweep();
        assert!(mine.path().exists() && !gone.exists() && foreign.exists());
        fs::remove_dir(&foreign).expect("removes");
    }

    #[test]
    fn what_a_killed_container_left_is_swept_by_the_next_one_of_its_pod_and_by_no_other() {
        let (pod, other) = ("0c4e9a1b5d7f2e38", "1c4e9a1b5d7f2e38");
        let own = std::process::id();
        for (path, expected, why) in [
            (left_by(own, pod, None, Some("1")), true, "the container before this one"),
            (left_by(own, pod, Some("9f86d081884c7d65"), None), true, "before the node was started anew"),
            (left_by(own, pod, None, None), false, "it is at work"),
            (left_by(own, other, None, Some("1")), false, "another pod that shares the directory"),
        ] {
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            assert_eq!(Owner::parse(name).expect("ours").is_gone(Some(pod)), expected, "{why}");
            fs::remove_dir(&path).expect("removes");
        }
    }
}
