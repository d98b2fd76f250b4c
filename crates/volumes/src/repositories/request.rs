//! Requests of `plimsoll repo` to the leader and their answers: two annotations on the BackupRepository.
//!
//! The leader does the work, because it has the keys, the programs and the Lease. Permission to change the BackupRepository is
//! permission to send requests.

use jiff::Timestamp;
use plimsoll_mover::{MaintenanceOutcome, SnapshotInfo};
use serde::{Deserialize, Serialize};

/// Annotation: the request.
pub const REQUEST: &str = "plimsoll.dev/repository-request";
/// Annotation: the answer.
pub const ANSWER: &str = "plimsoll.dev/repository-answer";

/// A request to the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Identifies the answer to this request.
    pub id: String,
    /// The kind of the request.
    pub asked: RequestKind,
}

/// Kinds of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RequestKind {
    /// Report snapshots and locks.
    Describe,
    /// Snapshots that no known backup refers to.
    #[serde(rename_all = "camelCase")]
    Orphans {
        /// Only those that are older than this, in seconds.
        older_than: i64,
        /// Whether they are removed.
        delete: bool,
    },
    /// Removes the locks that may be removed.
    Unlock,
    /// Reports how much is used, and what a maintenance would free.
    PlanMaintenance,
    /// Runs a maintenance as soon as possible. The answer comes at once; the result is in the status.
    Maintain,
}

impl RequestKind {
    /// Whether something may be removed from the repository.
    pub(super) fn removes(&self) -> bool {
        matches!(self, Self::Orphans { delete: true, .. } | Self::Unlock | Self::Maintain)
    }
}

/// The leader's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answer {
    /// ID of the request.
    pub id: String,
    /// Why the request failed.
    pub error: Option<String>,
    /// Snapshots in the repository.
    pub snapshots: u64,
    /// Those that no known backup refers to, the first of them.
    pub orphans: Vec<SnapshotReport>,
    /// The number of orphans.
    pub orphan_count: u64,
    /// Whether they are gone now.
    pub deleted: bool,
    /// The locks.
    pub locks: Vec<LockReport>,
    /// What a maintenance would do.
    pub maintenance: Option<MaintenanceOutcome>,
}

/// A snapshot in an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotReport {
    /// Its ID.
    pub id: String,
    /// When it was completed, or else created.
    pub time: Timestamp,
    /// The source of the snapshot.
    pub source: String,
    /// Size, if known.
    pub bytes: Option<u64>,
}

/// A lock in an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LockReport {
    /// Its ID.
    pub id: String,
    /// When it was written.
    pub time: Timestamp,
    /// The pod or machine.
    pub hostname: String,
    /// The process there.
    pub pid: u32,
    /// Whether it excludes all other processes.
    pub exclusive: bool,
    /// The status of its holder.
    pub holder: String,
    /// Whether it was removed.
    pub removed: bool,
}

impl From<&SnapshotInfo> for SnapshotReport {
    fn from(info: &SnapshotInfo) -> Self {
        Self { id: info.id.clone(), time: info.completed_at(), source: info.source.clone(), bytes: info.bytes }
    }
}
