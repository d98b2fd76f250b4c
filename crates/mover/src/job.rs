//! The job of a mover process: one line of JSON on its standard input.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::repository_location::{RepositoryLocation, Secret};

/// The kind of a mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MoverKind {
    /// The built-in engine, on repositories in restic's format.
    BuiltIn,
    /// The program `restic`.
    Restic,
    /// The program `kopia`.
    Kopia,
}

impl MoverKind {
    /// The `uploaderType` of a PodVolumeBackup. The built-in engine writes restic's format.
    pub fn uploader_type(self) -> &'static str {
        match self {
            Self::BuiltIn | Self::Restic => "restic",
            Self::Kopia => "kopia",
        }
    }

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Restic => "restic",
            Self::Kopia => "kopia",
        }
    }
}

/// A repository and its password.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Repository {
    /// Its location.
    pub location: RepositoryLocation,
    /// Its password.
    pub password: Secret,
}

/// One job, for one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// The name of the operation in the frames, for example the name of the CR.
    pub name: String,
    /// The number of the attempt: each process of this job has a higher one.
    #[serde(default)]
    pub epoch: u64,
    /// The mover.
    pub kind: MoverKind,
    /// The path of the program, if it is not in `PATH`.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// The repository.
    pub repository: Repository,
    /// A cache directory that outlives the job.
    #[serde(default)]
    pub cache: Option<PathBuf>,
    /// How often progress is read and sent, in milliseconds.
    #[serde(default = "default_interval", rename = "intervalMs")]
    pub interval: u64,
    /// The memory of the jobs that run at the same time, in bytes; `None` to derive it from the container or the machine. Only
    /// the built-in mover has such a limit.
    #[serde(default)]
    pub memory: Option<u64>,
    /// The number of jobs that run at the same time and share the memory.
    #[serde(default)]
    pub sharing: usize,
    /// The work.
    pub work: Work,
}

fn default_interval() -> u64 {
    1000
}

impl Job {
    /// A job with the default settings.
    pub fn new(name: impl Into<String>, kind: MoverKind, repository: Repository, work: Work) -> Self {
        let (program, cache, memory, sharing) = (None, None, None, 1);
        let (name, interval) = (name.into(), default_interval());
        Self { name, epoch: 1, kind, program, repository, cache, interval, memory, sharing, work }
    }

    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval.clamp(50, 60_000))
    }
}

/// The operation of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// Back up a directory.
    Backup(Backup),
    /// Restore into a directory.
    Restore(Restore),
    /// Open the repository, or initialize it if there is none. Requires the Lease: two at once lose data.
    Ensure,
    /// List the snapshots.
    Snapshots,
    /// Forget these snapshots and no others. Unreferenced data stays until a prune.
    Forget {
        /// Their IDs.
        snapshots: Vec<String>,
    },
    /// Free the space that no snapshot uses.
    Maintain(Maintenance),
    /// Verify snapshots.
    Verify(Verify),
    /// List the locks.
    Locks,
    /// Remove these locks. [`crate::StaleLockDetector`] decides which may be removed.
    Unlock {
        /// Their IDs.
        locks: Vec<String>,
    },
}

/// How a repository is maintained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Maintenance {
    /// Only report what would be done.
    pub dry_run: bool,
    /// How long to wait for the exclusive lock, in seconds.
    pub lock_timeout: u64,
}

/// The snapshots to verify.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Verify {
    /// Their IDs.
    pub snapshots: Vec<String>,
    /// How much of their data is read, in percent, chosen at random. Without data, it is checked that all of it is stored.
    pub percent: u8,
}

/// A directory to back up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// The local path of the directory. It is not recorded, because kubelet uses another path for every pod.
    pub directory: PathBuf,
    /// The stable name of the volume, `<namespace>/<pod>/<claim or volume>`.
    pub source: String,
    /// The tags of the snapshot. `pvc-uid` identifies the volume: the parent of an incremental backup is the newest snapshot
    /// with the same UID.
    pub tags: BTreeMap<String, String>,
    /// Velero's snapshot requester. Velero's search for a parent compares it.
    #[serde(default = "pod_volume")]
    pub requester: String,
    /// Read all files, also unchanged ones.
    #[serde(default)]
    pub full: bool,
    /// The path in the snapshot, which is also recorded as its path, as in restic. Without it the content is in the root, and
    /// `source` is recorded. Only the built-in mover supports it.
    #[serde(default)]
    pub at: Option<PathBuf>,
    /// The only entry of the directory to back up; `None` for all. Requires `at`.
    #[serde(default)]
    pub only: Option<PathBuf>,
    /// The number of files to read in parallel; `None` for the mover's default.
    #[serde(default)]
    pub parallel: Option<u32>,
}

fn pod_volume() -> String {
    "snapshot-pod-volume".into()
}

impl Backup {
    /// A backup with the default settings.
    pub fn new(directory: impl Into<PathBuf>, source: impl Into<String>, tags: BTreeMap<String, String>) -> Self {
        Self {
            directory: directory.into(),
            source: source.into(),
            tags,
            requester: pod_volume(),
            full: false,
            at: None,
            only: None,
            parallel: None,
        }
    }

    pub(crate) fn volume(&self) -> Option<&str> {
        self.tags.get(VOLUME_TAG).map(String::as_str).filter(|uid| !uid.is_empty())
    }
}

/// Velero's tag with the UID of the volume.
pub(crate) const VOLUME_TAG: &str = "pvc-uid";
/// The host name in all our snapshots. With the node's name, a node would not find parents from other nodes.
pub(crate) const HOST: &str = "plimsoll";

/// A snapshot to restore.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restore {
    /// Its ID, from the backup's outcome.
    pub snapshot: String,
    /// The target directory. Files that are not in the snapshot stay.
    pub directory: PathBuf,
    /// The number of files to write in parallel; `None` for the mover's default. restic has no such setting.
    #[serde(default)]
    pub parallel: Option<u32>,
    /// Whether blocks of zeros become holes, if the mover supports it.
    #[serde(default = "default_sparse")]
    pub sparse: bool,
    /// Whether the directory contains only files of an earlier attempt of this restore and the machine was not restarted since:
    /// then a file with the right size and time is complete. After a crash it may be full of zeros, and an unrelated file may
    /// have the same size and time.
    #[serde(default)]
    pub resumed: bool,
}

fn default_sparse() -> bool {
    true
}

impl Restore {
    /// A restore with the default settings.
    pub fn new(snapshot: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self { snapshot: snapshot.into(), directory: directory.into(), parallel: None, sparse: true, resumed: false }
    }
}
