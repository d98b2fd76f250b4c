//! What the engine needs of whoever runs it: durable intents, and leave to act.

use std::any::Any;
use std::fmt;

use futures::future::BoxFuture;
use plimsoll_archive::volume_info::{BackupVolumeInfo, RestoreVolumeInfo, VolumeSnapshot};
use plimsoll_progress::Task;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;
use crate::exec::Command;

/// Keeps a task informed about a process until it is dropped.
pub type Attention = Box<dyn Any + Send>;

/// Whoever answers from a process of its own.
pub trait Supervised: Send + Sync {
    /// Shows on a task how the process is: silence alone is no stall, a failed health check is one.
    fn observe(&self, task: &Task) -> Attention;
}

/// Something that cannot be repeated or must be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
#[non_exhaustive]
pub enum Effect {
    /// The first write into the location: what lies there afterwards without a commit is ours to remove.
    Begin {
        /// Where it writes, e.g. `backups/x/`.
        prefix: String,
    },
    /// The write that makes the operation's result visible to others.
    Commit {
        /// The object that is written last.
        key: String,
    },
    /// Commands in a pod that come in pairs: what is opened must be closed.
    Hooks {
        /// `namespace/name`.
        pod: String,
        /// Its uid.
        uid: String,
        /// What closes the pair.
        post: Vec<Command>,
    },
    /// A phase of an action; its result is what it returned.
    Phase {
        /// The action's place in its set.
        action: usize,
        /// The phase.
        phase: String,
    },
    /// Something that a phase has to know when it is taken up again; of an empty phase, something of the whole action.
    Note {
        /// The action's place in its set.
        action: usize,
        /// The phase.
        phase: String,
        /// What it is.
        key: String,
        /// What it says.
        value: String,
    },
    /// Work that an item action began and that goes on in the background.
    Operation {
        /// The action.
        action: String,
        /// The action's own name for it.
        id: String,
        /// The item it began with.
        item: String,
    },
    /// A snapshot that a volume-snapshotter plugin is asked for; its result says whether it was taken, and its name.
    Snapshot {
        /// The VolumeSnapshotLocation.
        location: String,
        /// The PersistentVolume.
        volume: String,
        /// The provider's name of the volume.
        handle: String,
        /// The provider's type of the volume.
        volume_type: String,
        /// The availability zone.
        zone: String,
        /// Provisioned operations a second.
        iops: Option<i64>,
    },
    /// A volume that a plugin is asked to make from a snapshot; its result says whether it was made, and its name.
    Volume {
        /// The VolumeSnapshotLocation.
        location: String,
        /// The PersistentVolume of the backup.
        volume: String,
        /// The snapshot.
        snapshot: String,
    },
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin { prefix } => write!(f, "begin {prefix}"),
            Self::Commit { key } => write!(f, "commit {key}"),
            Self::Hooks { pod, .. } => write!(f, "hooks of pod {pod}"),
            Self::Phase { action, phase } => write!(f, "phase {phase} of action {action}"),
            Self::Note { action, phase, key, .. } => write!(f, "{key} of phase {phase} of action {action}"),
            Self::Operation { action, id, .. } => write!(f, "operation {id} of {action}"),
            Self::Snapshot { volume, .. } => write!(f, "snapshot of volume {volume}"),
            Self::Volume { volume, snapshot, .. } => write!(f, "volume {volume} from snapshot {snapshot}"),
        }
    }
}

/// The journal: effects, never items.
///
/// # Guarantees
/// When [`Journal::intend`] returns, the intent is durable and survives this process. When [`Journal::settle`] returns, so
/// does the result. Both may be called at the same time; commits are grouped.
pub trait Journal: Send + Sync {
    /// Makes an intent durable, before its effect.
    fn intend(&self, effect: Effect) -> BoxFuture<'_, Result<IntentId, Error>>;
    /// Makes the result of an effect durable, before anything relies on it.
    fn settle(&self, intent: IntentId, result: String) -> BoxFuture<'_, Result<(), Error>>;
}

/// Names an intent within its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IntentId(pub u64);

/// Leave to act: held by whoever leads.
pub trait Guard: Send + Sync {
    /// Asked before every effect. Cheap; an error means that this process must stop.
    fn effect(&self) -> Result<(), Error>;
    /// Asked before a commit. Proves, against the API server, that nobody has taken over.
    fn commit(&self) -> BoxFuture<'_, Result<(), Error>>;
}

/// What became of the volumes of a backup.
#[derive(Clone, Debug, Default)]
pub struct VolumeResults {
    /// The PodVolumeBackups, as they lie in the cluster.
    pub pod_volume_backups: Vec<Value>,
    /// The snapshots that plugins were asked for.
    pub snapshots: Vec<VolumeSnapshot>,
    /// The VolumePluginBackups, as they lie in the cluster.
    pub volume_plugin_backups: Vec<Value>,
    /// How each volume was backed up, or why not.
    pub infos: Vec<BackupVolumeInfo>,
    /// What went wrong, with the namespace it is about.
    pub errors: Vec<(String, String)>,
    /// What somebody should know.
    pub warnings: Vec<(String, String)>,
}

/// Backs up what volumes hold: those of pods, and those that are a part of the backup themselves.
pub trait Volumes: Send + Sync {
    /// Whether a pod has volumes to back up.
    fn wants(&self, pod: &Value) -> bool;
    /// Begins to back them up; called between the pod's pre-hooks and post-hooks. Returns when the pod no longer needs to
    /// stand still: at once, unless it is one that does. What goes wrong with a volume is a part of the results.
    fn back_up<'a>(&'a self, pod: &'a Value, still: bool, task: &'a Task) -> BoxFuture<'a, Result<(), Error>>;
    /// No pod comes any more whose volumes must be dealt with while it stands still.
    fn pods_are_read(&self) {}
    /// A PersistentVolume is a part of the backup. Never blocks: its data is backed up at the latest in [`Volumes::finish`].
    fn persistent(&self, volume: &Value) {
        let _ = volume;
    }
    /// Backs up what no pod has brought, and waits until all of them have ended.
    fn finish(&self) -> BoxFuture<'_, Result<VolumeResults, Error>>;
}

/// What became of the volumes of a restore.
#[derive(Clone, Debug, Default)]
pub struct RestoredVolumes {
    /// How each volume was restored, or not.
    pub infos: Vec<RestoreVolumeInfo>,
    /// What went wrong, with the namespace it is about.
    pub errors: Vec<(String, String)>,
    /// What is as asked for, but not as somebody might think.
    pub warnings: Vec<(String, String)>,
}

/// Restores what the volumes of pods held.
pub trait VolumeData: Send + Sync {
    /// A pod of this restore is there, and may wait for its data. Never blocks; asked again about the same pod it does nothing.
    fn begin(&self, pod: &Value);
    /// Waits until all data is there.
    fn finish(&self) -> BoxFuture<'_, Result<RestoredVolumes, Error>>;
}

/// Makes volumes from the snapshots of plugins.
pub trait SnapshotVolumes: Send + Sync {
    /// Makes the volume that a PersistentVolume of the backup stands for, as it will be called from now on. Returns the
    /// PersistentVolume that stands for the new one. An inner error is that volume's own.
    fn make<'a>(
        &'a self,
        volume: &'a Value,
        called: &'a str,
        task: &'a Task,
    ) -> BoxFuture<'a, Result<Result<Value, String>, Error>>;
}
