//! What a mover's process is asked to do: one line of JSON on its standard input.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::place::{Place, Secret};

/// Which mover does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Our own engine, on repositories of restic's format.
    BuiltIn,
    /// The program `restic`.
    Restic,
    /// The program `kopia`.
    Kopia,
}

impl Kind {
    /// What a PodVolumeBackup calls it: the built-in engine writes what restic writes.
    pub fn uploader_type(self) -> &'static str {
        match self {
            Self::BuiltIn | Self::Restic => "restic",
            Self::Kopia => "kopia",
        }
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Restic => "restic",
            Self::Kopia => "kopia",
        }
    }
}

/// A repository and what opens it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Repository {
    /// Where it is.
    pub place: Place,
    /// What opens it.
    pub password: Secret,
}

/// One job, for one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// The name of the operation in the frames, for example the name of the CR.
    pub name: String,
    /// Counts the processes that did this work, one after the other.
    #[serde(default)]
    pub epoch: u64,
    /// Which mover.
    pub kind: Kind,
    /// The program, if it is not the one in `PATH`.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// The repository.
    pub repository: Repository,
    /// A directory that outlives the job, for what is worth keeping between two jobs on the same repository.
    #[serde(default)]
    pub cache: Option<PathBuf>,
    /// How often progress is read and sent, in milliseconds.
    #[serde(default = "every_second", rename = "intervalMs")]
    pub interval: u64,
    /// What to do.
    pub work: Work,
}

fn every_second() -> u64 {
    1000
}

impl Job {
    /// A job with the usual settings.
    pub fn new(name: impl Into<String>, kind: Kind, repository: Repository, work: Work) -> Self {
        let (program, cache) = (None, None);
        Self { name: name.into(), epoch: 1, kind, program, repository, cache, interval: every_second(), work }
    }

    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval.clamp(50, 60_000))
    }
}

/// What to do with a repository.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// Back up a directory.
    Backup(Backup),
    /// Restore into a directory.
    Restore(Restore),
    /// See that the repository is there and that the password opens it; make it if there is none. Only for whoever holds
    /// the Lease: two at once lose data.
    Ensure,
    /// List the snapshots.
    Snapshots,
    /// Forget these snapshots and no others. Data that nothing refers to any more stays until maintenance.
    Forget {
        /// Their IDs.
        snapshots: Vec<String>,
    },
    /// List the locks.
    Locks,
    /// Remove these locks: see [`crate::LockWatch`] for which may be removed.
    Unlock {
        /// Their IDs.
        locks: Vec<String>,
    },
}

/// A directory to back up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// The directory as it is found on this machine. It is not recorded: below kubelet it changes with every pod.
    pub directory: PathBuf,
    /// The volume's lasting name, `<namespace>/<pod>/<claim or volume>`.
    pub source: String,
    /// Tags of the snapshot. `pvc-uid` names the volume: the parent of an incremental backup is the newest snapshot with
    /// the same one.
    pub tags: BTreeMap<String, String>,
    /// Who asks, in Velero's words: its own parent search looks for this.
    #[serde(default = "pod_volume")]
    pub requester: String,
    /// Read everything, whatever an earlier snapshot says.
    #[serde(default)]
    pub full: bool,
    /// Where it is found in the snapshot, and the path that is written down, as restic itself does it; without it the content
    /// lies in the root, and `source` is written down. Only the built-in mover can.
    #[serde(default)]
    pub at: Option<PathBuf>,
    /// The one entry of the directory that is wanted, if not all of them are; only with `at`.
    #[serde(default)]
    pub only: Option<PathBuf>,
    /// How many files are read at a time, if not as many as the mover itself thinks best.
    #[serde(default)]
    pub parallel: Option<u32>,
}

fn pod_volume() -> String {
    "snapshot-pod-volume".into()
}

impl Backup {
    /// A backup with the usual settings.
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

/// The tag that names a volume, spelled as Velero spells it.
pub(crate) const VOLUME_TAG: &str = "pvc-uid";
/// The host in every snapshot of ours: a node's name would make each node a stranger to the others' snapshots.
pub(crate) const HOST: &str = "plimsoll";

/// A snapshot to restore.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restore {
    /// Its ID, as the backup's outcome told it.
    pub snapshot: String,
    /// Where to. What is there and not in the snapshot stays.
    pub directory: PathBuf,
    /// How many files are written at a time, if not as many as the mover itself thinks best. restic has no such setting.
    #[serde(default)]
    pub parallel: Option<u32>,
    /// Whether blocks of zeros become holes. Every mover that can makes them, unless somebody says no.
    #[serde(default = "yes")]
    pub sparse: bool,
    /// Whether nothing is there but what an earlier attempt at this very restore wrote, and the machine has not lost its memory
    /// since: then a file of the right size and time is the right one. After a crash it may be full of zeros, and somebody
    /// else's file may look the same.
    #[serde(default)]
    pub resumed: bool,
}

fn yes() -> bool {
    true
}

impl Restore {
    /// A restore with the usual settings.
    pub fn new(snapshot: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self { snapshot: snapshot.into(), directory: directory.into(), parallel: None, sparse: true, resumed: false }
    }
}
