//! `Schedule`: backups made again and again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;

use super::BackupSpec;
use crate::macros::{open_enum, wire_struct};

wire_struct! {
    /// When to back up and what.
    #[derive(CustomResource)]
    #[kube(
        group = "velero.io", version = "v1", kind = "Schedule", plural = "schedules", namespaced, status = "ScheduleStatus",
        doc = "Backups made again and again, as a cron expression says.",
        derive = "Default", derive = "PartialEq"
    )]
    pub struct ScheduleSpec {
        /// The backup to make.
        pub template: Option<BackupSpec>,
        /// Cron expression.
        pub schedule: Option<String>,
        /// Whether backups belong to the schedule and are deleted with it.
        pub use_owner_references_in_backup: Option<bool>,
        /// Whether the schedule makes no backups for now.
        pub paused: Option<bool>,
        /// Whether a backup that is due when the schedule is created or unpaused is left out.
        pub skip_immediately: Option<bool>,
    }

    /// What a schedule did last.
    pub struct ScheduleStatus {
        /// State of the schedule.
        pub phase: Option<SchedulePhase>,
        /// When it last made a backup.
        pub last_backup: Option<Time>,
        /// When it last left one out.
        pub last_skipped: Option<Time>,
        /// What is wrong with the spec, one line for each fault.
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
