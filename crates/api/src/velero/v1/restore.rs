//! `Restore`: restores objects of a backup into a cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;

use super::{HookStatus, RestoreHooks};
use crate::go::GoDuration;
use crate::macros::{open_enum, wire_struct};
use crate::summary::ProgressSummary;

wire_struct! {
    /// What to restore, from which backup and how.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "Restore", plural = "restores", namespaced, status = "RestoreStatus",
        doc = "A restore of objects of a backup, and of the data of their volumes, into a cluster.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct RestoreSpec {
        /// Name of the backup. Not together with `scheduleName`, unless set by the server.
        pub backup_name: Option<String>,
        /// Name of a schedule whose latest good backup is restored.
        pub schedule_name: Option<String>,
        /// Namespaces whose objects are restored; empty or `*` is all of them.
        pub included_namespaces: Vec<String>,
        /// Namespaces excluded.
        pub excluded_namespaces: Vec<String>,
        /// Resource types restored; empty or `*` is all of them.
        pub included_resources: Vec<String>,
        /// Resource types excluded.
        pub excluded_resources: Vec<String>,
        /// From namespace in the backup to namespace in the cluster.
        pub namespace_mapping: BTreeMap<String, String>,
        /// Only objects with these labels. Not together with `orLabelSelectors`.
        pub label_selector: Option<LabelSelector>,
        /// Only objects that any of these selectors chooses. Not together with `labelSelector`.
        pub or_label_selectors: Vec<LabelSelector>,
        /// Whether volumes are restored from snapshots.
        #[serde(rename = "restorePVs")]
        pub restore_pvs: Option<bool>,
        /// Types whose status is restored too.
        pub restore_status: Option<RestoreStatusSpec>,
        /// Whether services keep their node ports.
        pub preserve_node_ports: Option<bool>,
        /// Whether cluster-scoped objects are included; unset means those that namespaced ones need.
        pub include_cluster_resources: Option<bool>,
        /// Containers and commands to run in restored pods.
        pub hooks: Option<RestoreHooks>,
        /// What happens to objects that exist already: `none` or `update`.
        pub existing_resource_policy: Option<String>,
        /// How long to wait for asynchronous plugin operations.
        pub item_operation_timeout: Option<GoDuration>,
        /// ConfigMap with resource modifiers.
        pub resource_modifier: Option<TypedLocalObjectReference>,
        /// ConfigMap with resource policies.
        pub resource_policy: Option<TypedLocalObjectReference>,
        /// Settings of the uploader.
        pub uploader_config: Option<UploaderConfigForRestore>,
    }

    /// Types whose status is restored.
    pub struct RestoreStatusSpec {
        /// Resource types included; empty or `*` is all of them.
        pub included_resources: Vec<String>,
        /// Resource types excluded.
        pub excluded_resources: Vec<String>,
    }

    /// Settings of the uploader for a restore.
    pub struct UploaderConfigForRestore {
        /// Whether blocks of zeros are written as holes.
        pub write_sparse_files: Option<bool>,
        /// How many files are downloaded at a time.
        pub parallel_files_download: Option<i64>,
    }

    /// Status of a restore.
    pub struct RestoreStatus {
        /// State of the restore.
        pub phase: Option<RestorePhase>,
        /// Validation errors of the spec.
        pub validation_errors: Vec<String>,
        /// Number of warnings.
        pub warnings: Option<i64>,
        /// Number of errors.
        pub errors: Option<i64>,
        /// Why the whole restore failed.
        pub failure_reason: Option<String>,
        /// When the work started.
        pub start_timestamp: Option<Time>,
        /// When the work ended, successfully or not.
        pub completion_timestamp: Option<Time>,
        /// Item progress.
        pub progress: Option<RestoreProgress>,
        /// Asynchronous plugin operations started.
        pub restore_item_operations_attempted: Option<i64>,
        /// Asynchronous plugin operations completed.
        pub restore_item_operations_completed: Option<i64>,
        /// Asynchronous plugin operations that failed.
        pub restore_item_operations_failed: Option<i64>,
        /// Hooks run.
        pub hook_status: Option<HookStatus>,
        /// Plimsoll: conditions of the restore.
        pub conditions: Vec<Condition>,
        /// Plimsoll: the generation whose work has ended, set together with the last phase.
        pub observed_generation: Option<i64>,
        /// Plimsoll: rate, time left, stalls.
        pub plimsoll: Option<ProgressSummary>,
    }

    /// Items of a restore.
    pub struct RestoreProgress {
        /// Items the plan selected; corrected when plugins return more.
        pub total_items: Option<i64>,
        /// Items that are in the cluster now.
        pub items_restored: Option<i64>,
        /// Plimsoll: items skipped.
        pub items_skipped: Option<i64>,
        /// Plimsoll: items that failed.
        pub items_failed: Option<i64>,
    }
}

open_enum! {
    /// State of a restore.
    pub enum RestorePhase {
        New = "New",
        FailedValidation = "FailedValidation",
        InProgress = "InProgress",
        WaitingForPluginOperations = "WaitingForPluginOperations",
        WaitingForPluginOperationsPartiallyFailed = "WaitingForPluginOperationsPartiallyFailed",
        Completed = "Completed",
        PartiallyFailed = "PartiallyFailed",
        Failed = "Failed",
        Finalizing = "Finalizing",
        FinalizingPartiallyFailed = "FinalizingPartiallyFailed",
    }
}

impl RestorePhase {
    /// Whether the phase is final.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::FailedValidation | Self::Completed | Self::PartiallyFailed | Self::Failed)
    }
}

impl Restore {
    /// The phase; `New` if the object has no status yet.
    pub fn phase(&self) -> RestorePhase {
        self.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default()
    }

    /// Whether it has begun and not ended.
    pub fn is_running(&self) -> bool {
        let phase = self.phase();
        !phase.is_ended() && phase != RestorePhase::New && !phase.as_str().is_empty()
    }
}
