//! The volume-info and volume-snapshots files: native snapshots, and how each volume was backed up or restored.
//!
//! Some field names are capitalized: the Go types have no JSON tags there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::codec::null_as_default;
use crate::item_operations::is_zero;

/// A snapshot taken by a volume-snapshotter plugin: an entry of the volume-snapshots file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeSnapshot {
    /// The request.
    pub spec: VolumeSnapshotSpec,
    /// The result.
    pub status: VolumeSnapshotStatus,
}

/// See [`VolumeSnapshot`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotSpec {
    /// The backup's name.
    pub backup_name: String,
    /// The backup's uid.
    #[serde(rename = "backupUID")]
    pub backup_uid: String,
    /// The VolumeSnapshotLocation.
    pub location: String,
    /// The PersistentVolume.
    pub persistent_volume_name: String,
    /// The provider's id of the volume.
    #[serde(rename = "providerVolumeID")]
    pub provider_volume_id: String,
    /// The provider's type of volume.
    pub volume_type: String,
    /// The availability zone.
    #[serde(rename = "volumeAZ", skip_serializing_if = "String::is_empty")]
    pub volume_az: String,
    /// The provisioned I/O operations per second.
    #[serde(rename = "volumeIOPS", skip_serializing_if = "Option::is_none")]
    pub volume_iops: Option<i64>,
}

/// See [`VolumeSnapshot`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotStatus {
    /// The provider's id of the snapshot.
    #[serde(rename = "providerSnapshotID", skip_serializing_if = "String::is_empty")]
    pub provider_snapshot_id: String,
    /// `New`, `Completed` or `Failed`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
}

/// The names of a volume: fields of every entry of a volume-info file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeNames {
    /// The claim's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pvc_name: String,
    /// The claim's namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pvc_namespace: String,
    /// The volume's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pv_name: String,
}

/// The snapshot of a volume, by method: fields of every entry of a volume-info file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotInfo {
    /// For `CSISnapshot`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi_snapshot_info: Option<CsiSnapshotInfo>,
    /// For moved snapshot data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_data_movement_info: Option<SnapshotDataMovementInfo>,
    /// For `NativeSnapshot`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_snapshot_info: Option<NativeSnapshotInfo>,
}

/// How a volume was backed up: an entry of a backup's volume-info file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupVolumeInfo {
    /// The volume.
    #[serde(flatten)]
    pub volume: VolumeNames,
    /// `NativeSnapshot`, `PodVolumeBackup` or `CSISnapshot`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub backup_method: String,
    /// Whether a snapshot's data was moved into the backup repository.
    pub snapshot_data_moved: bool,
    /// Whether the snapshot itself is kept.
    pub preserve_local_snapshot: bool,
    /// Whether the volume was skipped.
    pub skipped: bool,
    /// Why the volume was skipped.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub skipped_reason: String,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_timestamp: Option<String>,
    /// `succeeded` or `failed`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub result: String,
    /// The snapshot, by method.
    #[serde(flatten)]
    pub snapshot: SnapshotInfo,
    /// For `PodVolumeBackup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvb_info: Option<PodVolumeInfo>,
    /// Properties that a restore sets on the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pv_info: Option<PersistentVolumeInfo>,
}

/// How a volume was restored: an entry of a restore's volume-info file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestoreVolumeInfo {
    /// The volume.
    #[serde(flatten)]
    pub volume: VolumeNames,
    /// `NativeSnapshot`, `PodVolumeRestore` or `CSISnapshot`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub restore_method: String,
    /// Whether the data was restored from the backup repository.
    pub snapshot_data_moved: bool,
    /// The snapshot, by method.
    #[serde(flatten)]
    pub snapshot: SnapshotInfo,
    /// For `PodVolumeRestore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvr_info: Option<PodVolumeInfo>,
}

/// A snapshot of a CSI driver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSnapshotInfo {
    /// The driver's id of the snapshot.
    pub snapshot_handle: String,
    /// Bytes.
    pub size: i64,
    /// The driver.
    pub driver: String,
    /// The VolumeSnapshotContent.
    pub vsc_name: String,
    /// The asynchronous operation.
    #[serde(rename = "operationID", skip_serializing_if = "String::is_empty")]
    pub operation_id: String,
    /// Whether the snapshot is ready to use.
    #[serde(rename = "ReadyToUse")]
    pub ready_to_use: Option<bool>,
    /// The id of its volume group snapshot.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume_group_snapshot_handle: String,
}

/// A snapshot whose data was moved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotDataMovementInfo {
    /// The mover; empty is `velero`.
    pub data_mover: String,
    /// `kopia` or `restic`.
    pub uploader_type: String,
    /// The snapshot that is kept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub retained_snapshot: String,
    /// The snapshot id in the repository.
    pub snapshot_handle: String,
    /// The asynchronous operation.
    #[serde(rename = "operationID")]
    pub operation_id: String,
    /// Bytes.
    pub size: i64,
    /// Bytes that were not in the repository before.
    #[serde(skip_serializing_if = "is_zero")]
    pub incremental_size: i64,
    /// The phase of the DataUpload.
    #[serde(rename = "Phase")]
    pub phase: String,
}

/// A snapshot of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NativeSnapshotInfo {
    /// The provider's id of the snapshot.
    pub snapshot_handle: String,
    /// The provider's type of volume.
    pub volume_type: String,
    /// The availability zone.
    #[serde(rename = "volumeAZ")]
    pub volume_az: String,
    /// I/O operations per second, as text.
    pub iops: String,
    /// `New`, `Completed` or `Failed`.
    #[serde(rename = "Phase")]
    pub phase: String,
}

impl From<&VolumeSnapshot> for NativeSnapshotInfo {
    fn from(snapshot: &VolumeSnapshot) -> Self {
        let VolumeSnapshot { spec, status } = snapshot;
        Self {
            snapshot_handle: status.provider_snapshot_id.clone(),
            volume_type: spec.volume_type.clone(),
            volume_az: spec.volume_az.clone(),
            iops: spec.volume_iops.map(|iops| iops.to_string()).unwrap_or_default(),
            phase: status.phase.clone(),
        }
    }
}

/// A file-system backup of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodVolumeInfo {
    /// The snapshot id in the repository.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub snapshot_handle: String,
    /// Bytes.
    #[serde(skip_serializing_if = "is_zero")]
    pub size: i64,
    /// Bytes that were not in the repository before.
    #[serde(skip_serializing_if = "is_zero")]
    pub incremental_size: i64,
    /// `kopia` or `restic`.
    pub uploader_type: String,
    /// The volume's name in the pod.
    pub volume_name: String,
    /// The pod.
    pub pod_name: String,
    /// The pod's namespace.
    pub pod_namespace: String,
    /// The pod's node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// The phase of the PodVolumeBackup or PodVolumeRestore.
    #[serde(rename = "Phase")]
    pub phase: String,
}

/// Properties that a restore sets on a newly provisioned volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeInfo {
    /// `Delete` or `Retain`.
    pub reclaim_policy: String,
    /// The labels.
    #[serde(deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
}
