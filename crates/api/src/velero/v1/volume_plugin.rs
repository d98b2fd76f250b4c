//! `VolumePluginBackup` and `VolumePluginRestore`: progress that a volume-snapshotter plugin reports itself.
//!
//! A plugin creates object and status in one call, and one of them may write any phase: nothing is required, `phase` is a
//! free string.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;

use super::TransferProgress;
use crate::macros::wire_struct;
use crate::summary::ProgressSummary;

wire_struct! {
    /// Which volume a plugin backs up.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "VolumePluginBackup", plural = "volumepluginbackups", namespaced,
        status = "VolumePluginBackupStatus",
        doc = "A volume snapshot that a plugin creates, and its progress.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct VolumePluginBackupSpec {
        /// Name of the persistent volume.
        pub volume: Option<String>,
        /// Name of the backup.
        pub backup: Option<String>,
        /// Name of the plugin.
        pub plugin: Option<String>,
        /// What the plugin wants users to know.
        pub plugin_specific: BTreeMap<String, String>,
    }

    /// Status of a plugin's snapshot.
    pub struct VolumePluginBackupStatus {
        /// State, as the plugin reports it.
        pub phase: Option<String>,
        /// Identifier of the snapshot.
        #[serde(rename = "snapshotID")]
        pub snapshot_id: Option<String>,
        /// Human-readable detail of the phase.
        pub message: Option<String>,
        /// When the work started.
        pub start_timestamp: Option<Time>,
        /// When the work ended, successfully or not.
        pub completion_timestamp: Option<Time>,
        /// Bytes of the volume and how many are done.
        pub progress: Option<TransferProgress>,
        /// Plimsoll: rate, time left, stalls.
        pub plimsoll: Option<ProgressSummary>,
    }

    /// Which snapshot a plugin restores.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "VolumePluginRestore", plural = "volumepluginrestores", namespaced,
        status = "VolumePluginRestoreStatus",
        doc = "A volume that a plugin restores from a snapshot, and its progress.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct VolumePluginRestoreSpec {
        /// Identifier of the snapshot.
        #[serde(rename = "snapshotID")]
        pub snapshot_id: Option<String>,
        /// Name of the backup.
        pub backup: Option<String>,
        /// Name of the plugin.
        pub plugin: Option<String>,
        /// What the plugin wants users to know.
        pub plugin_specific: BTreeMap<String, String>,
    }

    /// Status of a plugin's restore.
    pub struct VolumePluginRestoreStatus {
        /// State, as the plugin reports it.
        pub phase: Option<String>,
        /// Name of the persistent volume restored to.
        #[serde(rename = "volumeID")]
        pub volume_id: Option<String>,
        /// Human-readable detail of the phase.
        pub message: Option<String>,
        /// When the work started.
        pub start_timestamp: Option<Time>,
        /// When the work ended, successfully or not.
        pub completion_timestamp: Option<Time>,
        /// Bytes of the snapshot and how many are done.
        pub progress: Option<TransferProgress>,
        /// Plimsoll: rate, time left, stalls.
        pub plimsoll: Option<ProgressSummary>,
    }
}
