//! `PodVolumeBackup` and `PodVolumeRestore`: file-system backup and restore of one pod volume.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;

use crate::macros::{open_enum, wire_struct};
use crate::summary::ProgressSummary;

wire_struct! {
    /// Which volume to back up and where to.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "PodVolumeBackup", plural = "podvolumebackups", namespaced,
        status = "PodVolumeBackupStatus",
        doc = "A file-system backup of one pod volume.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct PodVolumeBackupSpec {
        /// Node the pod runs on.
        pub node: Option<String>,
        /// The pod.
        pub pod: Option<ObjectReference>,
        /// Name of the volume in the pod's spec.
        pub volume: Option<String>,
        /// Name of the BackupStorageLocation that holds the repository.
        pub backup_storage_location: Option<String>,
        /// Address of the repository.
        pub repo_identifier: Option<String>,
        /// What moves the data.
        pub uploader_type: Option<UploaderType>,
        /// Tags of the snapshot.
        pub tags: BTreeMap<String, String>,
        /// Settings of the uploader.
        pub uploader_settings: BTreeMap<String, String>,
        /// Whether the transfer is to be cancelled.
        pub cancel: Option<bool>,
    }

    /// Status of a pod volume backup.
    pub struct PodVolumeBackupStatus {
        /// State of the transfer.
        pub phase: Option<TransferPhase>,
        /// Path of the volume on its node.
        pub path: Option<String>,
        /// Snapshot in the repository.
        #[serde(rename = "snapshotID")]
        pub snapshot_id: Option<String>,
        /// Human-readable detail of the phase.
        pub message: Option<String>,
        /// When the work started.
        pub start_timestamp: Option<Time>,
        /// When the work ended, successfully or not.
        pub completion_timestamp: Option<Time>,
        /// Byte progress.
        pub progress: Option<TransferProgress>,
        /// Bytes that were not in the repository before.
        pub incremental_bytes: Option<i64>,
        /// When a node accepted it.
        pub accepted_timestamp: Option<Time>,
        /// Plimsoll: rate, time left, stalls.
        pub plimsoll: Option<ProgressSummary>,
    }

    /// Which volume to restore and from what.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "PodVolumeRestore", plural = "podvolumerestores", namespaced,
        status = "PodVolumeRestoreStatus",
        doc = "A file-system restore of one pod volume.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct PodVolumeRestoreSpec {
        /// The pod.
        pub pod: Option<ObjectReference>,
        /// Name of the volume in the pod's spec.
        pub volume: Option<String>,
        /// Name of the BackupStorageLocation that holds the repository.
        pub backup_storage_location: Option<String>,
        /// Address of the repository.
        pub repo_identifier: Option<String>,
        /// What moves the data.
        pub uploader_type: Option<UploaderType>,
        /// Snapshot in the repository.
        #[serde(rename = "snapshotID")]
        pub snapshot_id: Option<String>,
        /// Bytes in the snapshot.
        pub snapshot_size: Option<i64>,
        /// Namespace the volume was backed up from.
        pub source_namespace: Option<String>,
        /// Settings of the uploader.
        pub uploader_settings: BTreeMap<String, String>,
        /// Whether the transfer is to be cancelled.
        pub cancel: Option<bool>,
    }

    /// Status of a pod volume restore.
    pub struct PodVolumeRestoreStatus {
        /// State of the transfer.
        pub phase: Option<TransferPhase>,
        /// Human-readable detail of the phase.
        pub message: Option<String>,
        /// When the work started.
        pub start_timestamp: Option<Time>,
        /// When the work ended, successfully or not.
        pub completion_timestamp: Option<Time>,
        /// Byte progress.
        pub progress: Option<TransferProgress>,
        /// When a node accepted it.
        pub accepted_timestamp: Option<Time>,
        /// Node that does the work.
        pub node: Option<String>,
        /// Plimsoll: rate, time left, stalls.
        pub plimsoll: Option<ProgressSummary>,
    }

    /// Bytes of a transfer. `bytesDone` stays below `totalBytes` until the transfer has succeeded.
    pub struct TransferProgress {
        /// Bytes planned.
        pub total_bytes: Option<i64>,
        /// Bytes moved.
        pub bytes_done: Option<i64>,
    }
}

open_enum! {
    /// State of a volume transfer.
    pub enum TransferPhase {
        New = "New",
        Accepted = "Accepted",
        Prepared = "Prepared",
        InProgress = "InProgress",
        Canceling = "Canceling",
        Canceled = "Canceled",
        Completed = "Completed",
        Failed = "Failed",
    }

    /// What moves the data of a volume.
    pub enum UploaderType {
        Unset = "",
        Kopia = "kopia",
        Restic = "restic",
    }
}

impl TransferPhase {
    /// Whether the phase is final.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Canceled | Self::Completed | Self::Failed)
    }
}
