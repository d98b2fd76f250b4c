//! The backup a Restore is made from: the one it names, or the latest good one of a schedule.

use kube::api::ListParams;
use kube::{Api, ResourceExt};
use plimsoll_api::labels::{SCHEDULE_NAME, valid_name};
use plimsoll_api::velero::v1::{Backup, BackupPhase, Restore};
use plimsoll_engine::Error;

use crate::context::Context;

/// The backup to restore from; the inner error is the user's. Once the server has written its name into the Restore, that one
/// counts, however many backups its schedule makes meanwhile.
pub async fn find_backup(context: &Context, restore: &Restore) -> Result<Result<Backup, String>, Error> {
    let spec = &restore.spec;
    let named = spec.backup_name.as_deref().filter(|name| !name.is_empty());
    match (named, spec.schedule_name.as_deref()) {
        (Some(name), _) => by_name(context, name).await,
        (None, Some(schedule)) => latest_of(context, schedule).await,
        (None, None) => Ok(Err("spec.backupName: neither a backup nor a schedule is named".into())),
    }
}

/// Checks that a backup can still be restored from. A deletion marks the backup and then looks for Restores that have begun; a Restore
/// begins and then calls this. One of them sees the other.
pub async fn check_not_deleted(context: &Context, backup: &Backup) -> Result<Result<(), String>, Error> {
    Ok(by_name(context, &backup.name_any()).await?.map(drop))
}

fn backups(context: &Context) -> Api<Backup> {
    Api::namespaced(context.leader.client.clone(), &context.leader.namespace)
}

async fn by_name(context: &Context, name: &str) -> Result<Result<Backup, String>, Error> {
    let found = backups(context).get_opt(name).await.map_err(|e| Error::api(format!("read backup {name}"), e))?;
    Ok(match found {
        None => Err(format!("spec.backupName: backup {name} not found")),
        Some(backup) => match backup.phase() {
            BackupPhase::Completed | BackupPhase::PartiallyFailed => Ok(backup),
            phase => Err(format!("spec.backupName: backup {name} is {phase}, it cannot be restored from")),
        },
    })
}

async fn latest_of(context: &Context, schedule: &str) -> Result<Result<Backup, String>, Error> {
    let made_by = ListParams::default().labels(&format!("{SCHEDULE_NAME}={}", valid_name(schedule)));
    let found = backups(context).list(&made_by).await;
    let found = found.map_err(|e| Error::api(format!("list backups of schedule {schedule}"), e))?.items;
    let none = if found.is_empty() { "no backups" } else { "no completed backup" };
    Ok(latest(found).ok_or_else(|| format!("spec.scheduleName: schedule {schedule} has {none}")))
}

/// The one that began last among those that ended well.
fn latest(backups: Vec<Backup>) -> Option<Backup> {
    let began = |backup: &Backup| {
        let started = backup.status.as_ref().and_then(|status| status.start_timestamp.clone());
        started.or_else(|| backup.creation_timestamp()).map(|time| time.0)
    };
    backups
        .into_iter()
        .filter(|backup| backup.phase() == BackupPhase::Completed)
        .max_by_key(|backup| (began(backup), backup.name_any()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn backup(name: &str, phase: &str, started: &str) -> Backup {
        serde_json::from_value(json!({"apiVersion": "velero.io/v1", "kind": "Backup", "metadata": {"name": name},
            "spec": {}, "status": {"phase": phase, "startTimestamp": started}}))
        .unwrap()
    }

    #[test]
    fn the_latest_backup_that_ended_well_is_taken() {
        let backups = vec![
            backup("old", "Completed", "2026-01-01T00:00:00Z"),
            backup("good", "Completed", "2026-01-02T00:00:00Z"),
            backup("half", "PartiallyFailed", "2026-01-03T00:00:00Z"),
            backup("running", "InProgress", "2026-01-04T00:00:00Z"),
        ];
        assert_eq!(latest(backups).unwrap().name_any(), "good");
        assert!(latest(vec![backup("half", "PartiallyFailed", "2026-01-03T00:00:00Z")]).is_none());
    }
}
