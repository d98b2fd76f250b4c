//! `BackupRepository`: stores the volume data of one namespace.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;

use super::UploaderType;
use crate::go::GoDuration;
use crate::macros::{open_enum, wire_struct};

wire_struct! {
    /// The namespace and location of a repository.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "BackupRepository", plural = "backuprepositories", namespaced,
        status = "BackupRepositoryStatus",
        doc = "A repository for the volume data of one namespace.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct BackupRepositorySpec {
        /// Namespace whose volumes it holds.
        pub volume_namespace: Option<String>,
        /// Name of the BackupStorageLocation it is in.
        pub backup_storage_location: Option<String>,
        /// Format of the repository.
        pub repository_type: Option<UploaderType>,
        /// Address of a restic repository.
        pub restic_identifier: Option<String>,
        /// How often maintenance runs.
        pub maintenance_frequency: Option<GoDuration>,
        /// Settings of the repository.
        pub repository_config: BTreeMap<String, String>,
    }

    /// Whether a repository can be used.
    pub struct BackupRepositoryStatus {
        /// State of the repository.
        pub phase: Option<RepositoryPhase>,
        /// What is wrong with it.
        pub message: Option<String>,
        /// When maintenance last ran.
        pub last_maintenance_time: Option<Time>,
        /// The latest runs of maintenance.
        pub recent_maintenance: Vec<RepositoryMaintenance>,
    }

    /// One run of maintenance.
    pub struct RepositoryMaintenance {
        /// Result.
        pub result: Option<MaintenanceResult>,
        /// When it started.
        pub start_timestamp: Option<Time>,
        /// When it ended.
        pub complete_timestamp: Option<Time>,
        /// Why it failed.
        pub message: Option<String>,
    }
}

open_enum! {
    /// Whether a repository can be used.
    pub enum RepositoryPhase {
        New = "New",
        Ready = "Ready",
        NotReady = "NotReady",
    }

    /// Result of maintenance.
    pub enum MaintenanceResult {
        Succeeded = "Succeeded",
        Failed = "Failed",
    }
}
