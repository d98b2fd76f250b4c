//! `velero.io/v2alpha1`: movement of CSI snapshot data to and from a repository.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;

use super::v1::{TransferPhase, TransferProgress};
use crate::go::GoDuration;
use crate::macros::{open_enum, wire_struct};
use crate::summary::ProgressSummary;

wire_struct! {
    /// Which snapshot to upload and where to.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v2alpha1", kind = "DataUpload", plural = "datauploads", namespaced,
        status = "DataUploadStatus",
        doc = "An upload of the data of a volume snapshot to a repository.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct DataUploadSpec {
        /// Kind of the snapshot, such as `CSI`.
        pub snapshot_type: Option<String>,
        /// The snapshot, when it is a CSI one.
        pub csi_snapshot: Option<CsiSnapshotSpec>,
        /// Claim the snapshot was taken of.
        #[serde(rename = "sourcePVC")]
        pub source_pvc: Option<String>,
        /// Data mover to use; empty or `velero` is the built-in one.
        #[serde(rename = "datamover")]
        pub data_mover: Option<String>,
        /// Name of the BackupStorageLocation that holds the repository.
        pub backup_storage_location: Option<String>,
        /// Namespace of the claim.
        pub source_namespace: Option<String>,
        /// Settings of the data mover.
        pub data_mover_config: BTreeMap<String, String>,
        /// Whether the transfer is to be cancelled.
        pub cancel: Option<bool>,
        /// How long preparing the volume may take.
        pub operation_timeout: Option<GoDuration>,
    }

    /// A CSI snapshot.
    pub struct CsiSnapshotSpec {
        /// Name of the VolumeSnapshot.
        pub volume_snapshot: Option<String>,
        /// Storage class of the volume made from it.
        pub storage_class: Option<String>,
        /// Class of the snapshot.
        pub snapshot_class: Option<String>,
        /// Driver that made it.
        pub driver: Option<String>,
    }

    /// Status of a data upload.
    pub struct DataUploadStatus {
        /// State of the transfer.
        pub phase: Option<TransferPhase>,
        /// Path of the volume on its node.
        pub path: Option<String>,
        /// Snapshot in the repository.
        #[serde(rename = "snapshotID")]
        pub snapshot_id: Option<String>,
        /// What the data mover wants to find again at restore.
        pub data_mover_result: BTreeMap<String, String>,
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
        /// Node that does the work.
        pub node: Option<String>,
        /// Operating system of that node.
        #[serde(rename = "nodeOS")]
        pub node_os: Option<NodeOs>,
        /// Node that accepted it.
        pub accepted_by_node: Option<String>,
        /// When a node accepted it.
        pub accepted_timestamp: Option<Time>,
        /// Plimsoll: rate, time left, stalls.
        pub plimsoll: Option<ProgressSummary>,
    }

    /// Which snapshot to download and into which volume.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v2alpha1", kind = "DataDownload", plural = "datadownloads", namespaced,
        status = "DataDownloadStatus",
        doc = "A download of the data of a volume snapshot from a repository.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct DataDownloadSpec {
        /// The volume to fill.
        pub target_volume: Option<TargetVolumeSpec>,
        /// Name of the BackupStorageLocation that holds the repository.
        pub backup_storage_location: Option<String>,
        /// Data mover to use; empty or `velero` is the built-in one.
        #[serde(rename = "datamover")]
        pub data_mover: Option<String>,
        /// Snapshot in the repository.
        #[serde(rename = "snapshotID")]
        pub snapshot_id: Option<String>,
        /// Bytes in the snapshot.
        pub snapshot_size: Option<i64>,
        /// Namespace the volume was backed up from.
        pub source_namespace: Option<String>,
        /// Settings of the data mover.
        pub data_mover_config: BTreeMap<String, String>,
        /// Whether the transfer is to be cancelled.
        pub cancel: Option<bool>,
        /// How long preparing the volume may take.
        pub operation_timeout: Option<GoDuration>,
        /// Operating system of the node the volume was backed up on.
        #[serde(rename = "nodeOS")]
        pub node_os: Option<NodeOs>,
    }

    /// A volume to fill.
    pub struct TargetVolumeSpec {
        /// Name of the claim.
        pub pvc: Option<String>,
        /// Name of the persistent volume.
        pub pv: Option<String>,
        /// Namespace of the claim.
        pub namespace: Option<String>,
    }

    /// Status of a data download.
    pub struct DataDownloadStatus {
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
        /// Node that does the work.
        pub node: Option<String>,
        /// Node that accepted it.
        pub accepted_by_node: Option<String>,
        /// When a node accepted it.
        pub accepted_timestamp: Option<Time>,
        /// Plimsoll: rate, time left, stalls.
        pub plimsoll: Option<ProgressSummary>,
    }
}

open_enum! {
    /// Operating system of a node.
    pub enum NodeOs {
        Auto = "auto",
        Linux = "linux",
        Windows = "windows",
    }
}
