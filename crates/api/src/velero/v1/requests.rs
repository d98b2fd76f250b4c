//! Requests that a command-line client creates for the server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;

use crate::macros::{open_enum, wire_struct};
use crate::summary::ProgressSummary;

wire_struct! {
    /// Which backup to delete.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "DeleteBackupRequest", plural = "deletebackuprequests", namespaced,
        status = "DeleteBackupRequestStatus",
        doc = "A request to delete a backup and everything that belongs to it.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct DeleteBackupRequestSpec {
        /// Name of the backup.
        pub backup_name: Option<String>,
    }

    /// Status of a deletion.
    pub struct DeleteBackupRequestStatus {
        /// State of the request.
        pub phase: Option<DeleteBackupRequestPhase>,
        /// Errors of the deletion.
        pub errors: Vec<String>,
        /// Plimsoll: rate, time left, stalls.
        pub plimsoll: Option<ProgressSummary>,
    }

    /// Which file to download.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "DownloadRequest", plural = "downloadrequests", namespaced,
        status = "DownloadRequestStatus",
        doc = "A request for a link to a file of a backup or restore.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct DownloadRequestSpec {
        /// The file.
        pub target: Option<DownloadTarget>,
    }

    /// A file of a backup or restore.
    pub struct DownloadTarget {
        /// Which of its files.
        pub kind: Option<DownloadTargetKind>,
        /// Name of the backup or restore.
        pub name: Option<String>,
    }

    /// The link.
    pub struct DownloadRequestStatus {
        /// State of the request.
        pub phase: Option<RequestPhase>,
        /// Signed address of the file.
        #[serde(rename = "downloadURL")]
        pub download_url: Option<String>,
        /// When the link expires.
        pub expiration: Option<Time>,
        /// Plimsoll: why there is no link.
        pub message: Option<String>,
    }

    /// Empty.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "ServerStatusRequest", plural = "serverstatusrequests",
        shortname = "ssr", namespaced, status = "ServerStatusRequestStatus",
        doc = "A request for the version and plugins of the server.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct ServerStatusRequestSpec {}

    /// Version and plugins of the server.
    pub struct ServerStatusRequestStatus {
        /// State of the request.
        pub phase: Option<RequestPhase>,
        /// When it was processed.
        pub processed_timestamp: Option<Time>,
        /// Version of the server.
        pub server_version: Option<String>,
        /// Plugins the server has.
        pub plugins: Vec<PluginInfo>,
    }

    /// A plugin.
    pub struct PluginInfo {
        /// Name of the plugin.
        pub name: Option<String>,
        /// Kind of the plugin.
        pub kind: Option<String>,
    }
}

open_enum! {
    /// State of a deletion.
    pub enum DeleteBackupRequestPhase {
        New = "New",
        InProgress = "InProgress",
        Processed = "Processed",
    }

    /// State of a request.
    pub enum RequestPhase {
        New = "New",
        Processed = "Processed",
    }

    /// Which file of a backup or restore.
    pub enum DownloadTargetKind {
        BackupLog = "BackupLog",
        BackupContents = "BackupContents",
        BackupVolumeSnapshots = "BackupVolumeSnapshots",
        BackupItemOperations = "BackupItemOperations",
        BackupResourceList = "BackupResourceList",
        BackupResults = "BackupResults",
        RestoreLog = "RestoreLog",
        RestoreResults = "RestoreResults",
        RestoreResourceList = "RestoreResourceList",
        RestoreItemOperations = "RestoreItemOperations",
        CsiBackupVolumeSnapshots = "CSIBackupVolumeSnapshots",
        CsiBackupVolumeSnapshotContents = "CSIBackupVolumeSnapshotContents",
        BackupVolumeInfos = "BackupVolumeInfos",
        RestoreVolumeInfo = "RestoreVolumeInfo",
    }
}
