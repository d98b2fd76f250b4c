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

use tempfile::TempDir;

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
            .prefix(&format!("{PREFIX}{}-", Owner::me().name()))
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

/// A process by a name that is never used again: its number, when it started, and where that number counts.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    started: u64,
    namespace: String,
}

impl Owner {
    fn me() -> Self {
        let pid = std::process::id();
        Self { pid, started: started(pid).unwrap_or_default(), namespace: namespace() }
    }

    fn name(&self) -> String {
        format!("{}-{}-{}", self.namespace, self.pid, self.started)
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let namespace = parts.next()?.to_owned();
        Some(Self { pid: parts.next()?.parse().ok()?, started: parts.next()?.parse().ok()?, namespace })
    }

    /// Only a process that counts in our own namespace can be known to be gone.
    fn is_gone(&self) -> bool {
        self.namespace == namespace() && started(self.pid) != Some(self.started)
    }
}

fn namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().chars().filter(char::is_ascii_digit).collect()
}

/// When a process started, in ticks since boot.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Removes what killed movers left behind.
pub(crate) fn sweep() {
    for parent in [PathBuf::from(MEMORY), std::env::temp_dir()] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().and_then(Owner::parse).is_some_and(|owner| owner.is_gone()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Removes this process's own directories, for a process that is about to kill itself.
pub(crate) fn remove_own() {
    let own = format!("{PREFIX}{}-", Owner::me().name());
    for parent in [PathBuf::from(MEMORY), std::env::temp_dir()] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&own)) {
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

    #[test]
    fn what_a_killed_process_left_is_swept_and_what_a_living_one_uses_is_not() {
        let mine = PrivateDirectory::on_disk().expect("makes");
        let gone = Owner { pid: 1, started: u64::MAX, namespace: namespace() };
        let foreign = Owner { pid: 1, started: u64::MAX, namespace: "1".into() };
        let made: Vec<_> = [gone, foreign]
            .map(|owner| std::env::temp_dir().join(format!("{PREFIX}{}-test", owner.name())))
            .into_iter()
            .inspect(|path| fs::create_dir_all(path).expect("makes"))
            .collect();
        sweep();
        assert!(mine.path().exists() && !made[0].exists() && made[1].exists());
        fs::remove_dir(&made[1]).expect("removes");
    }
}
