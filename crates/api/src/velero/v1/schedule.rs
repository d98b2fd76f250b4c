//! `Schedule`: recurring backups.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;

use super::BackupSpec;
use crate::macros::{open_enum, wire_struct};

wire_struct! {
    /// When to back up and what.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "Schedule", plural = "schedules", namespaced, status = "ScheduleStatus",
        doc = "Recurring backups, at the times of a cron expression.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct ScheduleSpec {
        /// Spec of the backups to create.
        pub template: Option<BackupSpec>,
        /// Cron expression.
        pub schedule: Option<String>,
        /// Whether backups belong to the schedule and are deleted with it.
        pub use_owner_references_in_backup: Option<bool>,
        /// Whether the schedule is paused.
        pub paused: Option<bool>,
        /// Whether a backup that is due when the schedule is created or unpaused is skipped.
        pub skip_immediately: Option<bool>,
    }

    /// Status of a schedule.
    pub struct ScheduleStatus {
        /// State of the schedule.
        pub phase: Option<SchedulePhase>,
        /// When it last created a backup.
        pub last_backup: Option<Time>,
        /// When it last skipped a backup.
        pub last_skipped: Option<Time>,
        /// Validation errors of the spec.
        pub validation_errors: Vec<String>,
    }
}

open_enum! {
    /// State of a schedule.
    pub enum SchedulePhase {
        New = "New",
        Enabled = "Enabled",
        FailedValidation = "FailedValidation",
    }
}
