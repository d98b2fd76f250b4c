//! Whether a deletion may run: the backup, its location, and other requests for the same backup.

use kube::ResourceExt;
use kube::api::ListParams;
use plimsoll_api::velero::v1::{
    Backup, BackupStorageLocation, DeleteBackupRequest, DeleteBackupRequestPhase, LocationPhase,
};
use plimsoll_engine::{Error, kill};
use plimsoll_operations::{Job, Lifecycle, Requirements, SubjectState};
use plimsoll_volumes::storage_location::is_read_only;

use super::DeleteBackupRequestController;
use crate::backup::BackupController;
use crate::context::Context;

/// What prevents a deletion, in the words that Velero's users know.
pub(super) fn check_backup(
    backup: Option<&Backup>,
    location: Option<&BackupStorageLocation>,
    running: bool,
) -> Requirements {
    let refuse = |fault: String| Requirements { faults: vec![fault], missing: None };
    let wait_for = |missing: String| Requirements { faults: Vec::new(), missing: Some(missing) };
    let Some(backup) = backup else { return refuse("backup not found".into()) };
    match BackupController::state(backup.phase().as_str()) {
        // Its last status is written before its operation is closed.
        SubjectState::Ended if running => return wait_for("the operation of the backup to be closed".into()),
        state if running || state == SubjectState::InProgress => return refuse("backup is still in progress".into()),
        _ => {}
    }
    let name = backup.spec.storage_location.clone().unwrap_or_default();
    let Some(location) = location else {
        // Nothing was ever written by a backup that has no location.
        return if name.is_empty() {
            Requirements::default()
        } else {
            refuse(format!("backup storage location {name} not found"))
        };
    };
    let cannot = |state: &str| {
        refuse(format!("cannot delete backup because backup storage location {name} is currently in {state}"))
    };
    match location.status.as_ref().and_then(|status| status.phase.clone()) {
        _ if is_read_only(location) => cannot("read-only mode"),
        Some(LocationPhase::Available) => Requirements::default(),
        Some(_) => cannot("Unavailable state"),
        None => wait_for(format!("location {name} to be checked")),
    }
}

/// Requests about the same backup that have not ended.
async fn requests_for_backup(job: &DeleteBackupRequest, context: &Context) -> Result<Vec<DeleteBackupRequest>, Error> {
    let all = context.leader.api::<DeleteBackupRequest>().list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api("list deletion requests", e))?;
    let same = |other: &DeleteBackupRequest| other.spec.backup_name == job.spec.backup_name && other.uid() != job.uid();
    Ok(all.items.into_iter().filter(same).collect())
}

/// One request about a backup at a time: the earliest one goes first, and drops the others.
pub(super) async fn earlier_request(request: &DeleteBackupRequest, context: &Context) -> Result<Option<String>, Error> {
    let age = |r: &DeleteBackupRequest| (r.creation_timestamp().map(|time| time.0), r.name_any());
    let open = |r: &DeleteBackupRequest| {
        let phase = r.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        phase != DeleteBackupRequestPhase::Processed && r.metadata.deletion_timestamp.is_none()
    };
    let mine = age(request);
    let others = requests_for_backup(request, context).await?;
    Ok(others.into_iter().find(|other| open(other) && age(other) < mine).map(|other| other.name_any()))
}

pub(super) async fn delete_other_requests(job: &Job<DeleteBackupRequestController>) -> Result<(), Error> {
    for other in job.read(|| requests_for_backup(&job.subject, &job.context)).await? {
        kill::point("deletion.other.before");
        let name = other.name_any();
        job.read(|| job.context.leader.delete::<DeleteBackupRequest>(&name)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use plimsoll_api::velero::v1::{AccessMode, BackupStorageLocationStatus};

    use super::*;

    fn location(phase: Option<LocationPhase>, mode: Option<AccessMode>) -> BackupStorageLocation {
        let mut location = BackupStorageLocation::fixture();
        location.spec.access_mode = mode;
        location.status = Some(BackupStorageLocationStatus { phase, ..BackupStorageLocationStatus::default() });
        location
    }

    #[test]
    fn what_prevents_a_deletion() {
        let mut backup = Backup::fixture();
        backup.spec.storage_location = Some("default".into());
        let available = location(Some(LocationPhase::Available), None);
        let read_only = location(Some(LocationPhase::Available), Some(AccessMode::ReadOnly));
        let unavailable = location(Some(LocationPhase::Unavailable), None);
        let running = backup.clone().in_progress();
        let cannot = "cannot delete backup because backup storage location default is currently in";
        let cases = [
            (None, Some(&available), false, "backup not found".to_owned()),
            (Some(&running), Some(&available), false, "backup is still in progress".to_owned()),
            (Some(&backup), Some(&available), true, "backup is still in progress".to_owned()),
            (Some(&backup), None, false, "backup storage location default not found".to_owned()),
            (Some(&backup), Some(&read_only), false, format!("{cannot} read-only mode")),
            (Some(&backup), Some(&unavailable), false, format!("{cannot} Unavailable state")),
        ];
        for (backup, location, running, expected) in cases {
            assert_eq!(check_backup(backup, location, running).faults, [expected]);
        }
        let ended = backup.clone().completed();
        let waiting = check_backup(Some(&ended), Some(&available), true);
        assert!(waiting.faults.is_empty(), "a backup that has just ended can be deleted: {:?}", waiting.faults);
        assert!(waiting.missing.is_some());
        let free = check_backup(Some(&backup), Some(&available), false);
        assert!(free.faults.is_empty() && free.missing.is_none());
        assert!(
            check_backup(Some(&backup), Some(&location(None, None)), false).missing.is_some(),
            "it waits for the check"
        );
    }
}
