//! The latest maintenances in the status of a BackupRepository, as Velero writes them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plimsoll_api::velero::v1::{BackupRepositoryStatus, MaintenanceResult, RepositoryMaintenance};
use serde_json::{Value, json};

/// The number of runs that are kept, as in Velero.
const MAX_RUNS: usize = 3;

/// One maintenance that has ended.
pub(super) struct MaintenanceRun {
    pub start: Timestamp,
    pub end: Timestamp,
    pub is_successful: bool,
    pub message: String,
}

/// The change of a status for a maintenance that has ended. Only a successful one moves the time of the next.
pub(super) fn status_patch(status: &BackupRepositoryStatus, run: MaintenanceRun) -> Value {
    let mut runs = status.recent_maintenance.clone();
    let result = if run.is_successful { MaintenanceResult::Succeeded } else { MaintenanceResult::Failed };
    runs.push(RepositoryMaintenance {
        result: Some(result),
        start_timestamp: Some(Time(run.start)),
        complete_timestamp: Some(Time(run.end)),
        message: Some(run.message),
        ..RepositoryMaintenance::default()
    });
    let oldest = runs.len().saturating_sub(MAX_RUNS);
    let mut changed = json!({ "recentMaintenance": runs.split_off(oldest) });
    if run.is_successful {
        changed["lastMaintenanceTime"] = json!(Time(run.end));
    }
    json!({ "status": changed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(second: i64, is_successful: bool) -> MaintenanceRun {
        let at = |second| Timestamp::from_second(1_800_000_000 + second).unwrap();
        MaintenanceRun { start: at(second), end: at(second + 1), is_successful, message: format!("run {second}") }
    }

    fn after(status: &BackupRepositoryStatus, run: MaintenanceRun) -> BackupRepositoryStatus {
        serde_json::from_value(status_patch(status, run)["status"].clone()).unwrap()
    }

    #[test]
    fn the_last_three_runs_are_kept() {
        let mut status = BackupRepositoryStatus::default();
        for second in 0..5 {
            status = after(&status, run(second, true));
        }
        let messages: Vec<_> = status.recent_maintenance.iter().filter_map(|run| run.message.as_deref()).collect();
        assert_eq!(messages, ["run 2", "run 3", "run 4"]);
    }

    #[test]
    fn a_failed_run_is_recorded_and_is_not_the_last_maintenance() {
        let changed = status_patch(&BackupRepositoryStatus::default(), run(0, false));
        assert_eq!(changed["status"]["recentMaintenance"][0]["result"], "Failed");
        assert!(changed["status"].get("lastMaintenanceTime").is_none());
        let changed = status_patch(&BackupRepositoryStatus::default(), run(0, true));
        assert_eq!(
            changed["status"]["lastMaintenanceTime"],
            changed["status"]["recentMaintenance"][0]["completeTimestamp"]
        );
    }
}
