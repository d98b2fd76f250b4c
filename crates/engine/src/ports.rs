//! Interfaces that the caller of the engine implements: journal, leadership check, volume data.

use std::any::Any;
use std::fmt;

use futures::future::BoxFuture;
use plimsoll_archive::volume_info::{BackupVolumeInfo, RestoreVolumeInfo, VolumeSnapshot};
use plimsoll_progress::Task;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;
use crate::exec::Command;

/// Reports the health of a process on a task until it is dropped.
pub type ObservationGuard = Box<dyn Any + Send>;

/// A plugin process under supervision.
pub trait SupervisedProcess: Send + Sync {
    /// Shows the health of the process on a task. A missing response alone is no stall; a failed health check is.
    fn observe(&self, task: &Task) -> ObservationGuard;
}

/// An effect that cannot be repeated or must be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
#[non_exhaustive]
pub enum Effect {
    /// The first write into the location. Files without a commit may be removed after it.
    Begin {
        /// The prefix of the keys, e.g. `backups/x/`.
        prefix: String,
    },
    /// The write that makes the result of the operation visible.
    Commit {
        /// The object that is written last.
        key: String,
    },
    /// Pre-hooks of a pod; its post-hooks must run.
    Hooks {
        /// `namespace/name`.
        pod: String,
        /// Its uid.
        uid: String,
        /// The post-hooks.
        post: Vec<Command>,
    },
    /// A phase of an action; its result is what it returned.
    Phase {
        /// Index of the action in its ActionSet.
        action: usize,
        /// The phase.
        phase: String,
    },
    /// A value that a phase needs when it is resumed; with an empty phase, a value of the whole action.
    Note {
        /// Index of the action in its ActionSet.
        action: usize,
        /// The phase.
        phase: String,
        /// Key.
        key: String,
        /// Value.
        value: String,
    },
    /// An item operation.
    Operation {
        /// The action.
        action: String,
        /// The ID that the action chose.
        id: String,
        /// The item.
        item: String,
    },
    /// A snapshot by a volume snapshotter; the result is its ID or the error.
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
        /// Provisioned IOPS.
        iops: Option<i64>,
    },
    /// A volume that a volume snapshotter creates from a snapshot; the result is its ID or the error.
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
/// When [`Journal::record_intent`] returns, the intent is durable and survives this process. When [`Journal::record_result`] returns, so
/// does the result. Both may be called at the same time; commits are grouped.
pub trait Journal: Send + Sync {
    /// Makes an intent durable, before its effect.
    fn record_intent(&self, effect: Effect) -> BoxFuture<'_, Result<IntentId, Error>>;
    /// Makes the result of an effect durable, before anything relies on it.
    fn record_result(&self, intent: IntentId, result: String) -> BoxFuture<'_, Result<(), Error>>;
}

/// Names an intent within its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IntentId(pub u64);

/// An effect that an earlier attempt recorded, with its result if that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalEntry {
    /// Its number in the journal.
    pub id: IntentId,
    /// The effect.
    pub effect: Effect,
    /// The result; `None` if the process died in between.
    pub result: Option<String>,
}

/// Checks that this process is still the leader.
pub trait LeadershipGuard: Send + Sync {
    /// Called before every effect. Cheap; on an error the process must stop.
    fn check_effect(&self) -> Result<(), Error>;
    /// Called before a commit. Verifies with the API server that there is no other leader.
    fn check_commit(&self) -> BoxFuture<'_, Result<(), Error>>;
}

/// Results of the volumes of a backup.
#[derive(Clone, Debug, Default)]
pub struct VolumeBackupResults {
    /// The PodVolumeBackups of the cluster.
    pub pod_volume_backups: Vec<Value>,
    /// The snapshots of volume snapshotters.
    pub snapshots: Vec<VolumeSnapshot>,
    /// The VolumePluginBackups of the cluster.
    pub volume_plugin_backups: Vec<Value>,
    /// Method and result for each volume.
    pub infos: Vec<BackupVolumeInfo>,
    /// Errors, each with its namespace.
    pub errors: Vec<(String, String)>,
    /// Warnings, each with its namespace.
    pub warnings: Vec<(String, String)>,
}

/// Backs up the data of pod volumes and of PersistentVolumes.
pub trait VolumeBackupper: Send + Sync {
    /// Whether a pod has volumes to back up.
    fn has_volumes(&self, pod: &Value) -> bool;
    /// Starts the backup of the volumes of a pod, between its pre-hooks and post-hooks. If `frozen`, returns when the
    /// post-hooks may run, otherwise at once. Errors of volumes are part of the results.
    fn back_up<'a>(&'a self, pod: &'a Value, frozen: bool, task: &'a Task) -> BoxFuture<'a, Result<(), Error>>;
    /// Called after the last pod.
    fn all_pods_read(&self) {}
    /// Adds a PersistentVolume of the backup. Never blocks: its data is backed up at the latest in [`VolumeBackupper::finish`].
    fn add_persistent_volume(&self, volume: &Value) {
        let _ = volume;
    }
    /// Backs up the remaining volumes, and waits until all have ended.
    fn finish(&self) -> BoxFuture<'_, Result<VolumeBackupResults, Error>>;
    /// The results after all item operations have ended; `None` if these cannot have changed them.
    fn final_results<'a>(
        &'a self,
        results: &'a VolumeBackupResults,
    ) -> BoxFuture<'a, Result<Option<VolumeBackupResults>, Error>> {
        let _ = results;
        Box::pin(async { Ok(None) })
    }
}

/// Results of the volumes of a restore.
#[derive(Clone, Debug, Default)]
pub struct VolumeRestoreResults {
    /// Method and result for each volume.
    pub infos: Vec<RestoreVolumeInfo>,
    /// Errors, each with its namespace.
    pub errors: Vec<(String, String)>,
    /// Warnings, each with its namespace.
    pub warnings: Vec<(String, String)>,
}

/// Restores the data of pod volumes.
pub trait VolumeRestorer: Send + Sync {
    /// Starts to restore the volumes of a pod that was created. Never blocks; a second call for the same pod does nothing.
    fn start_pod(&self, pod: &Value);
    /// Waits until all data is restored.
    fn finish(&self) -> BoxFuture<'_, Result<VolumeRestoreResults, Error>>;
}

/// Creates volumes from the snapshots of volume snapshotters.
pub trait SnapshotRestorer: Send + Sync {
    /// Creates the volume of a PersistentVolume of the backup. `name` is the name of the new PersistentVolume, which is
    /// returned. An inner error concerns this volume only.
    fn create_volume<'a>(
        &'a self,
        volume: &'a Value,
        name: &'a str,
        task: &'a Task,
    ) -> BoxFuture<'a, Result<Result<Value, String>, Error>>;
}
