//! The outcomes of successful jobs, with the problems of single files.

use std::collections::BTreeMap;

use jiff::Timestamp;
use plimsoll_repository::{HolderLiveness, LockHolder};
use serde::{Deserialize, Serialize};

/// The outcome of a successful job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// A backup.
    Backup(BackupOutcome),
    /// A restore.
    Restore(RestoreOutcome),
    /// An opened or initialized repository.
    Ensure(EnsureOutcome),
    /// Its snapshots.
    Snapshots(Vec<SnapshotInfo>),
    /// The number of forgotten snapshots, including those that did not exist.
    Forgotten(usize),
    /// The maintenance of a repository.
    Maintained(MaintenanceOutcome),
    /// Verified snapshots.
    Verified(VerifyOutcome),
    /// Its locks.
    Locks(Vec<LockInfo>),
    /// The number of removed locks.
    Unlocked(usize),
}

/// A file that was not backed up or restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Its path below the volume.
    pub path: String,
    /// The error of the program or the system.
    pub cause: String,
}

/// The maximum number of listed problems; the rest is only counted.
pub(crate) const MAX_PROBLEMS: usize = 1000;

/// A bounded list of problems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problems {
    /// The first thousand.
    pub named: Vec<Problem>,
    /// The number of all problems.
    pub count: u64,
}

impl Problems {
    pub(crate) fn add(&mut self, path: impl Into<String>, cause: impl Into<String>) {
        let (path, cause) = (path.into(), cause.into());
        if self.named.iter().any(|problem| problem.path == path) {
            return;
        }
        self.count += 1;
        if self.named.len() < MAX_PROBLEMS {
            self.named.push(Problem { path, cause });
        }
    }
}

/// The outcome of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupOutcome {
    /// The snapshot. `None` if the volume is empty and the mover makes no snapshots of empty volumes, as restic.
    pub snapshot: Option<String>,
    /// The parent snapshot.
    pub parent: Option<String>,
    /// Bytes in the snapshot.
    pub bytes: u64,
    /// Files in the snapshot.
    pub files: u64,
    /// Bytes added to the repository.
    pub added: Option<u64>,
    /// Files that are missing in the snapshot or incomplete.
    pub problems: Problems,
    /// Warnings for the owner of the repository.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The outcome of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreOutcome {
    /// Bytes of the snapshot.
    pub bytes: u64,
    /// Files of the snapshot.
    pub files: u64,
    /// Files that were not restored.
    pub problems: Problems,
    /// Warnings for the owner of the repository.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// An opened or initialized repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnsureOutcome {
    /// Whether it was initialized by this job.
    pub created: bool,
    /// Its random ID.
    pub id: String,
    /// Warnings for the owner of the repository.
    pub warnings: Vec<String>,
}

/// What a maintenance did, or would do. All sizes are stored bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MaintenanceOutcome {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// How much was used before; `None` if the program does not tell.
    pub usage: Option<RepositoryUsage>,
    /// Bytes that were freed, or would be.
    pub freed: Option<u64>,
    /// Bytes that were moved into new files for that, or would be.
    pub moved: Option<u64>,
    /// Files that the store did not allow to delete, because of retention for example.
    pub denied: u64,
    /// The size of these files.
    pub denied_bytes: u64,
    /// What kopia did: a quick or a full maintenance.
    pub mode: Option<String>,
    /// Warnings for the owner of the repository.
    pub warnings: Vec<String>,
}

/// How much of a repository is used, and why the rest is still stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RepositoryUsage {
    /// Snapshots.
    pub snapshots: u64,
    /// Bytes of all packs.
    pub stored: u64,
    /// Bytes that snapshots use.
    pub used: u64,
    /// Bytes that no snapshot uses and the next maintenance frees.
    pub freeable: u64,
    /// Bytes that no snapshot uses in packs with used data, which would cost more to move than they free.
    pub tolerated: u64,
    /// Bytes in packs that are in no index file and too young to be removed.
    pub recent: u64,
}

/// The result of verifying snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VerifyOutcome {
    /// The number of verified snapshots.
    pub snapshots: u64,
    /// The number of bytes that were read; `None` if the program does not tell.
    pub bytes_read: Option<u64>,
    /// What is missing or damaged; the first thousand.
    pub damage: Vec<Damage>,
    /// The number of all missing or damaged parts.
    pub damage_count: u64,
    /// Damage that affects no restore.
    pub warnings: Vec<String>,
}

/// Something that is missing or damaged in a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Damage {
    /// What it is.
    pub text: String,
    /// The snapshots that cannot be restored completely because of it. With kopia only those that were verified.
    pub snapshots: Vec<String>,
}

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotInfo {
    /// Its ID.
    pub id: String,
    /// Its time: the start of its backup.
    pub time: Timestamp,
    /// The end of its backup, if it is recorded.
    #[serde(default)]
    pub ended: Option<Timestamp>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Its source, as recorded by the program.
    pub source: String,
    /// Its size, if it is known without reading the snapshot.
    pub bytes: Option<u64>,
}

impl SnapshotInfo {
    /// When the snapshot became visible: the end of its backup, if it is known.
    pub fn completed_at(&self) -> Timestamp {
        self.ended.map_or(self.time, |ended| ended.max(self.time))
    }
}

/// One lock of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockInfo {
    /// Its ID. A running holder replaces its lock every few minutes.
    pub id: String,
    /// When it was created, by its holder's clock.
    pub time: Timestamp,
    /// The holder's machine or pod, from the lock file.
    pub hostname: String,
    /// The holder's process ID.
    pub pid: u32,
    /// Whether it is exclusive.
    pub exclusive: bool,
}

impl LockInfo {
    /// The short name of the machine or pod, for messages.
    pub fn machine(&self) -> &str {
        plimsoll_repository::machine(&self.hostname)
    }

    /// The state of the holder, as seen from this process in the pod with this UID.
    pub fn liveness(&self, pod: Option<&str>) -> HolderLiveness {
        LockHolder::parse(&self.hostname).map_or(HolderLiveness::Unknown, |holder| holder.liveness(self.pid, pod))
    }

    /// Whether the holder is or was in the pod with this UID, on a node with this boot ID.
    pub fn is_in(&self, pod: &str, boot: &str) -> bool {
        LockHolder::parse(&self.hostname).is_some_and(|holder| holder.is_in(pod, boot))
    }
}
