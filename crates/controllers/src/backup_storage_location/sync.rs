//! Syncs the Backups of the cluster with the backups in a location.

mod import;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use plimsoll_api::go::GoDuration;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{Backup, BackupStorageLocation, LocationPhase};
use plimsoll_archive::layout;
use plimsoll_archive::synced_backup::SYNCING;
use plimsoll_engine::{Error, kill};
use plimsoll_operations::EventType;
use plimsoll_operations::controller::{duration_until, run_controller, time_after};
use plimsoll_store::Store;
use serde_json::json;
use tracing::{info, warn};

use self::import::{finish_import, import_backup};
use self::plan::{ClusterBackup, plan};
use super::StorageLocationContext;

/// How soon a location that cannot be synced is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Runs the controller until the future is dropped.
pub async fn control(context: Arc<StorageLocationContext>) {
    run_controller::<BackupStorageLocation, _, _, _>(&context.leader, Arc::clone(&context), reconcile).await;
}

/// How often a location is synced; never is `None`.
fn period(location: &BackupStorageLocation, default: Duration) -> Option<Duration> {
    let wanted = match location.spec.backup_sync_period.as_ref().map(GoDuration::nanos) {
        Some(Some(0)) => return None,
        Some(Some(nanoseconds)) => u64::try_from(nanoseconds).ok().map(Duration::from_nanos),
        _ => None,
    };
    Some(wanted.unwrap_or(default)).filter(|period| !period.is_zero())
}

async fn reconcile(
    location: Arc<BackupStorageLocation>,
    context: Arc<StorageLocationContext>,
) -> Result<Action, Error> {
    let Some(period) = period(&location, context.sync_period) else {
        return Ok(Action::await_change());
    };
    let status = location.status.clone().unwrap_or_default();
    if status.phase != Some(LocationPhase::Available) {
        return Ok(Action::requeue(RETRY_INTERVAL));
    }
    let now = Timestamp::now();
    let due = time_after(status.last_synced_time.map_or(Timestamp::MIN, |last| last.0), period);
    if due > now {
        return Ok(Action::requeue(duration_until(due, now).max(Duration::from_millis(100))));
    }
    let warning = match sync(&location, &context).await {
        Ok(warning) => warning,
        Err(error @ Error::Fenced(_)) => return Err(error),
        Err(error) => Some(format!("backups cannot be synced: {error}")),
    };
    report(&location, warning, &context).await?;
    Ok(Action::requeue(period))
}

/// Writes the time of the sync, and a warning. The same warning is written once.
async fn report(
    location: &BackupStorageLocation,
    warning: Option<String>,
    context: &StorageLocationContext,
) -> Result<(), Error> {
    context.leader.fence.check()?;
    let name = location.name_any();
    let mut status = json!({ "lastSyncedTime": format!("{:.0}", Timestamp::now()) });
    if context.sync_warnings.set(&name, warning.as_deref()) {
        status["message"] = json!(warning);
        if let Some(text) = &warning {
            warn!("location {name}: {text}");
            context.leader.events.record(&location.object_ref(&()), EventType::Warning, "SyncWarning", text).await;
        }
    }
    let patch = Patch::Merge(json!({ "status": status }));
    match context.leader.api::<BackupStorageLocation>().patch(&name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Error::api(format!("write status of location {name}"), error)),
    }
}

/// Runs one sync. Returns warnings.
async fn sync(location: &BackupStorageLocation, context: &StorageLocationContext) -> Result<Option<String>, Error> {
    let store = context.storage.open_quickly(location).await?;
    // Before the bucket: a backup that completes in between is in the listing, not missing in it.
    let backups = context.leader.api::<Backup>().list(&ListParams::default()).await;
    let backups = backups.map_err(|e| Error::api("list backups", e))?.items;
    let listed = store.list_directories(layout::BACKUPS_DIRECTORY).await?;
    let name = location.name_any();
    let plan = plan(&listed, &backups.iter().map(|backup| cluster_backup(backup, &name)).collect::<Vec<_>>());
    let mut quarantine = Vec::new();
    for found in &plan.create {
        quarantine.extend(import_backup(found, &store, &name, context).await?);
    }
    let unfinished = |backup: &&Backup| backup.annotations().contains_key(SYNCING) && is_in_location(backup, &name);
    for backup in backups.iter().filter(unfinished) {
        let uid = backup.uid().unwrap_or_default();
        quarantine.extend(finish_import(&backup.name_any(), &uid, &store, &name, context).await?);
    }
    for gone in backups.iter().filter(|backup| plan.remove.contains(&backup.name_any())) {
        remove_record(gone, &store, &name, context).await?;
    }
    let warnings: Vec<_> = plan.warning.into_iter().chain(describe_quarantine(&quarantine)).collect();
    Ok((!warnings.is_empty()).then(|| warnings.join("; ")))
}

/// Removes the Backup of a backup whose files are gone. The listing alone does not prove that.
async fn remove_record(
    backup: &Backup,
    store: &Store,
    location: &str,
    context: &StorageLocationContext,
) -> Result<(), Error> {
    let name = backup.name_any();
    if store.exists(&layout::backup_metadata(&name)).await? {
        return Ok(());
    }
    info!("backup {name} is no longer in location {location}: its record is removed");
    kill::point("sync.remove.before");
    context.leader.delete_same::<Backup>(&name, &backup.uid().unwrap_or_default()).await?;
    kill::point("sync.remove.after");
    Ok(())
}

/// The backups that are not synced because they cannot be read, each with its reason.
fn describe_quarantine(quarantine: &[String]) -> Option<String> {
    const MAX_SHOWN: usize = 20;
    const MAX_REASON_LENGTH: usize = 300;
    // A reason may quote the file.
    let shorten = |reason: &String| reason.chars().take(MAX_REASON_LENGTH).collect::<String>();
    let shown = quarantine.iter().take(MAX_SHOWN).map(shorten).collect::<Vec<_>>().join("; ");
    match quarantine.len().saturating_sub(MAX_SHOWN) {
        _ if quarantine.is_empty() => None,
        0 => Some(format!("not synced: {shown}")),
        more => Some(format!("not synced: {shown}; and {more} more")),
    }
}

fn cluster_backup(backup: &Backup, location: &str) -> ClusterBackup {
    ClusterBackup { name: backup.name_any(), phase: backup.phase(), here: is_in_location(backup, location) }
}

fn is_in_location(backup: &Backup, location: &str) -> bool {
    let label = backup.labels().get(labels::STORAGE_LOCATION).map(String::as_str);
    backup.spec.storage_location.as_deref() == Some(location)
        && label.is_none_or(|label| label == labels::valid_name(location))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_says_how_often_it_is_synced() {
        let default = Duration::from_mins(1);
        let every = |text: Option<&str>| {
            let mut location = BackupStorageLocation::fixture();
            location.spec.backup_sync_period = text.map(|text| text.parse().unwrap());
            period(&location, default)
        };
        assert_eq!(every(None), Some(default));
        assert_eq!(every(Some("2s")), Some(Duration::from_secs(2)));
        assert_eq!(every(Some("0s")), None, "never");
        assert_eq!(every(Some("-1s")), Some(default));
    }
}
