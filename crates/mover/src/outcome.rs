//! How jobs end when they end well, with everything that went wrong on the way.

use std::collections::BTreeMap;

use jiff::Timestamp;
use plimsoll_repository::{LockHolder, Standing};
use serde::{Deserialize, Serialize};

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// A backup.
    Backup(BackupOutcome),
    /// A restore.
    Restore(RestoreOutcome),
    /// The repository is there.
    Ensured(Ensured),
    /// Its snapshots.
    Snapshots(Vec<SnapshotInfo>),
    /// How many snapshots are gone now: those that were gone before count too.
    Forgotten(usize),
    /// Its locks.
    Locks(Vec<LockInfo>),
    /// How many locks were removed.
    Unlocked(usize),
}

/// A file that is not in the snapshot, or was not restored, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Its path below the volume.
    pub path: String,
    /// What the program or the system said.
    pub cause: String,
}

/// Problems kept in words; the rest is only counted.
pub(crate) const MOST_PROBLEMS: usize = 1000;

/// A list of problems that does not grow without end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problems {
    /// The first thousand.
    pub named: Vec<Problem>,
    /// How many there were in all.
    pub count: u64,
}

impl Problems {
    pub(crate) fn add(&mut self, path: impl Into<String>, cause: impl Into<String>) {
        let (path, cause) = (path.into(), cause.into());
        if self.named.iter().any(|known| known.path == path) {
            return;
        }
        self.count += 1;
        if self.named.len() < MOST_PROBLEMS {
            self.named.push(Problem { path, cause });
        }
    }
}

/// How a backup ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupOutcome {
    /// The snapshot. Nothing where the volume is empty and the mover makes no snapshots of nothing, as restic does not:
    /// there is nothing to restore either.
    pub snapshot: Option<String>,
    /// The snapshot it was compared with.
    pub parent: Option<String>,
    /// Bytes in the snapshot.
    pub bytes: u64,
    /// Files in the snapshot.
    pub files: u64,
    /// Bytes that were new to the repository.
    pub added: Option<u64>,
    /// What is not in the snapshot, or not as it was.
    pub problems: Problems,
    /// What the repository's owner should know.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// How a restore ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreOutcome {
    /// Bytes of the snapshot.
    pub bytes: u64,
    /// Files of the snapshot.
    pub files: u64,
    /// What was not restored.
    pub problems: Problems,
    /// What the repository's owner should know.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// A repository that is there and opens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ensured {
    /// Whether it was made just now.
    pub created: bool,
    /// Its own random name.
    pub id: String,
    /// What its owner should know.
    pub warnings: Vec<String>,
}

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotInfo {
    /// Its ID.
    pub id: String,
    /// What it calls its time: when whoever made it began.
    pub time: Timestamp,
    /// When whoever made it was done, where that is written down.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// What it is a snapshot of, as the program wrote it down.
    pub source: String,
    /// Bytes in it, where that is known without reading it.
    pub bytes: Option<u64>,
}

impl SnapshotInfo {
    /// Since when it has been there, as far as that is known: making one may take hours.
    pub fn made(&self) -> Timestamp {
        self.ended.map_or(self.time, |ended| ended.max(self.time))
    }
}

/// One lock of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockInfo {
    /// Its ID. A holder that lives writes a new one every few minutes.
    pub id: String,
    /// When it was written, by its holder's clock.
    pub time: Timestamp,
    /// The holder's machine or pod, as the lock has it.
    pub hostname: String,
    /// The holder's process.
    pub pid: u32,
    /// Whether it excludes everybody else.
    pub exclusive: bool,
}

impl LockInfo {
    /// The machine or pod in short, for people.
    pub fn machine(&self) -> &str {
        plimsoll_repository::machine(&self.hostname)
    }

    /// What this process, in the pod with this UID, knows about the holder.
    pub fn standing(&self, pod: Option<&str>) -> Standing {
        LockHolder::parse(&self.hostname).map_or(Standing::Unknown, |holder| holder.standing(self.pid, pod))
    }

    /// Whether the holder is or was in the pod with this UID, on a node that has run since this boot ID was made.
    pub fn is_in(&self, pod: &str, boot: &str) -> bool {
        LockHolder::parse(&self.hostname).is_some_and(|holder| holder.is_in(pod, boot))
    }
}
