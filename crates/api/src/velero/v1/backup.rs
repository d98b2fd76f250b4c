//! `Backup`: a copy of cluster state at one point in time.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;

use super::BackupHooks;
use crate::go::GoDuration;
use crate::macros::{open_enum, wire_struct};
use crate::summary::ProgressSummary;

wire_struct! {
    /// What to back up, how and where to.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "Backup", plural = "backups", namespaced, status = "BackupStatus",
        doc = "A copy of cluster state at one point in time: objects and, if requested, the data of their volumes.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct BackupSpec {
        /// Metadata of the Backup that a Schedule creates from this template.
        pub metadata: Option<BackupMetadata>,
        /// Namespaces whose objects are backed up; empty or `*` is all of them.
        pub included_namespaces: Vec<String>,
        /// Namespaces excluded.
        pub excluded_namespaces: Vec<String>,
        /// Resource types backed up; empty or `*` is all of them. Not to be mixed with the scoped lists.
        pub included_resources: Vec<String>,
        /// Resource types excluded. Not to be mixed with the scoped lists.
        pub excluded_resources: Vec<String>,
        /// Cluster-scoped resource types backed up.
        pub included_cluster_scoped_resources: Vec<String>,
        /// Cluster-scoped resource types excluded.
        pub excluded_cluster_scoped_resources: Vec<String>,
        /// Namespaced resource types backed up.
        pub included_namespace_scoped_resources: Vec<String>,
        /// Namespaced resource types excluded.
        pub excluded_namespace_scoped_resources: Vec<String>,
        /// Only objects with these labels. Not together with `orLabelSelectors`.
        pub label_selector: Option<LabelSelector>,
        /// Only objects that any of these selectors chooses. Not together with `labelSelector`.
        pub or_label_selectors: Vec<LabelSelector>,
        /// Whether volumes are snapshotted; unset means where a snapshot location exists.
        pub snapshot_volumes: Option<bool>,
        /// How long the backup is kept (`720h0m0s`); zero or unset means the server's default.
        #[serde(rename = "ttl")]
        pub ttl: Option<GoDuration>,
        /// Whether cluster-scoped objects are included; unset means those that namespaced ones need.
        pub include_cluster_resources: Option<bool>,
        /// Commands to run in containers before and after their pods are backed up.
        pub hooks: Option<BackupHooks>,
        /// Name of the BackupStorageLocation to store to; unset means the default one.
        pub storage_location: Option<String>,
        /// Names of the VolumeSnapshotLocations to use, one for each provider.
        pub volume_snapshot_locations: Vec<String>,
        /// No longer used: see `defaultVolumesToFsBackup`.
        pub default_volumes_to_restic: Option<bool>,
        /// Whether the files of every pod volume are copied unless its pod opts out.
        pub default_volumes_to_fs_backup: Option<bool>,
        /// For each resource type, names of objects to back up first, separated by commas.
        pub ordered_resources: BTreeMap<String, String>,
        /// How long to wait for a CSI snapshot to be ready.
        pub csi_snapshot_timeout: Option<GoDuration>,
        /// How long to wait for asynchronous plugin operations.
        pub item_operation_timeout: Option<GoDuration>,
        /// ConfigMap with resource policies.
        pub resource_policy: Option<TypedLocalObjectReference>,
        /// Whether the data of snapshots is moved to the storage location.
        pub snapshot_move_data: Option<bool>,
        /// Data mover to use; empty or `velero` is the built-in one.
        #[serde(rename = "datamover")]
        pub data_mover: Option<String>,
        /// Settings of the uploader.
        pub uploader_config: Option<UploaderConfigForBackup>,
        /// Label that groups claims whose volumes are snapshotted together.
        pub volume_group_snapshot_label_key: Option<String>,
    }

    /// Metadata of a backup created from a template.
    pub struct BackupMetadata {
        /// Labels to set.
        pub labels: BTreeMap<String, String>,
    }

    /// Settings of the uploader for a backup.
    pub struct UploaderConfigForBackup {
        /// How many files are uploaded at a time.
        pub parallel_files_upload: Option<i64>,
    }

    /// Status of a backup.
    pub struct BackupStatus {
        /// Major version of the backup format; superseded by `formatVersion`.
        pub version: Option<i64>,
        /// Version of the backup format.
        pub format_version: Option<String>,
        /// When the backup may be deleted.
        pub expiration: Option<Time>,
        /// State of the backup.
        pub phase: Option<BackupPhase>,
        /// Position in the queue while `Queued`.
        pub queue_position: Option<i64>,
        /// Validation errors of the spec.
        pub validation_errors: Vec<String>,
        /// When the work started.
        pub start_timestamp: Option<Time>,
        /// When the work ended, successfully or not.
        pub completion_timestamp: Option<Time>,
        /// Native volume snapshots started.
        pub volume_snapshots_attempted: Option<i64>,
        /// Native volume snapshots completed.
        pub volume_snapshots_completed: Option<i64>,
        /// Why the whole backup failed.
        pub failure_reason: Option<String>,
        /// Number of warnings.
        pub warnings: Option<i64>,
        /// Number of errors.
        pub errors: Option<i64>,
        /// Item progress.
        pub progress: Option<BackupProgress>,
        /// CSI snapshots started.
        pub csi_volume_snapshots_attempted: Option<i64>,
        /// CSI snapshots completed.
        pub csi_volume_snapshots_completed: Option<i64>,
        /// Asynchronous plugin operations started.
        pub backup_item_operations_attempted: Option<i64>,
        /// Asynchronous plugin operations completed.
        pub backup_item_operations_completed: Option<i64>,
        /// Asynchronous plugin operations that failed.
        pub backup_item_operations_failed: Option<i64>,
        /// Hooks run.
        pub hook_status: Option<HookStatus>,
        /// Plimsoll: conditions of the backup.
        pub conditions: Vec<Condition>,
        /// Plimsoll: the generation whose work has ended, set together with the last phase.
        pub observed_generation: Option<i64>,
        /// Plimsoll: rate, time left, stalls.
        pub plimsoll: Option<ProgressSummary>,
    }

    /// Items of a backup.
    pub struct BackupProgress {
        /// Items the plan selected; may be corrected while the backup runs.
        pub total_items: Option<i64>,
        /// Items written to the backup.
        pub items_backed_up: Option<i64>,
        /// Plimsoll: items skipped.
        pub items_skipped: Option<i64>,
        /// Plimsoll: items that failed.
        pub items_failed: Option<i64>,
    }

    /// Hooks of a backup or restore.
    pub struct HookStatus {
        /// Hooks run, successfully or not.
        pub hooks_attempted: Option<i64>,
        /// Hooks that failed.
        pub hooks_failed: Option<i64>,
    }
}

open_enum! {
    /// State of a backup.
    pub enum BackupPhase {
        New = "New",
        Queued = "Queued",
        ReadyToStart = "ReadyToStart",
        FailedValidation = "FailedValidation",
        InProgress = "InProgress",
        WaitingForPluginOperations = "WaitingForPluginOperations",
        WaitingForPluginOperationsPartiallyFailed = "WaitingForPluginOperationsPartiallyFailed",
        Finalizing = "Finalizing",
        FinalizingPartiallyFailed = "FinalizingPartiallyFailed",
        Completed = "Completed",
        PartiallyFailed = "PartiallyFailed",
        Failed = "Failed",
        Deleting = "Deleting",
    }
}

impl BackupPhase {
    /// Whether the phase is final, except for deletion.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::FailedValidation | Self::Completed | Self::PartiallyFailed | Self::Failed)
    }
}

impl Backup {
    /// The phase; `New` if the object has no status yet.
    pub fn phase(&self) -> BackupPhase {
        self.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default()
    }
}
