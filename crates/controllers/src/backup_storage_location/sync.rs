//! Backups that lie in a location and are not in the cluster, and the other way round.

mod foreign;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt};
use plimsoll_api::go::GoDuration;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{Backup, BackupStorageLocation, LocationPhase, Schedule};
use plimsoll_archive::{codec, layout};
use plimsoll_engine::{Error, kill};
use plimsoll_operations::EventType;
use plimsoll_operations::controller::{duration_until, run_controller, time_after};
use plimsoll_store::Store;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use self::foreign::{BackupMetadata, SYNCING};
use self::plan::{ClusterBackup, plan};
use crate::context::Context;

/// Maximum size of backup metadata.
const MAX_METADATA_BYTES: u64 = 16 << 20;
/// How soon a location that cannot be synced is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Runs the controller until the future is dropped.
pub async fn control(context: Arc<Context>) {
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

async fn reconcile(location: Arc<BackupStorageLocation>, context: Arc<Context>) -> Result<Action, Error> {
    let Some(period) = period(&location, context.settings.backup_sync_period) else {
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

/// The time of the sync and what looks wrong. Told once, not each minute.
async fn report(location: &BackupStorageLocation, warning: Option<String>, context: &Context) -> Result<(), Error> {
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
async fn sync(location: &BackupStorageLocation, context: &Context) -> Result<Option<String>, Error> {
    let store = context.storage.open_quickly(location).await?;
    let listed = store.list_directories(layout::BACKUPS_DIRECTORY).await?;
    let backups = context.leader.api::<Backup>().list(&ListParams::default()).await;
    let backups = backups.map_err(|e| Error::api("list backups", e))?.items;
    let name = location.name_any();
    let plan = plan(&listed, &backups.iter().map(|backup| cluster_backup(backup, &name)).collect::<Vec<_>>());
    let mut malformed = Vec::new();
    for found in &plan.create {
        import_backup(found, &store, location, context, &mut malformed).await?;
    }
    for unfinished in backups.iter().filter(|backup| backup.annotations().contains_key(SYNCING)) {
        let uid = unfinished.uid().unwrap_or_default();
        finish(&unfinished.name_any(), &uid, &store, &name, context).await?;
    }
    for gone in &plan.remove {
        info!("backup {gone} is no longer in location {name}: its record is removed");
        kill::point("sync.remove.before");
        context.leader.delete::<Backup>(gone).await?;
        kill::point("sync.remove.after");
    }
    let mut warnings: Vec<_> = plan.warning.into_iter().collect();
    if !malformed.is_empty() {
        warnings.push(format!("not synced: {}", malformed.join("; ")));
    }
    Ok((!warnings.is_empty()).then(|| warnings.join("; ")))
}

fn cluster_backup(backup: &Backup, location: &str) -> ClusterBackup {
    let label = backup.labels().get(labels::STORAGE_LOCATION).map(String::as_str);
    let here = backup.spec.storage_location.as_deref() == Some(location)
        && label.is_none_or(|label| label == labels::valid_name(location));
    ClusterBackup { name: backup.name_any(), phase: backup.phase(), here }
}

/// Creates the Backup of a backup in the location.
async fn import_backup(
    name: &str,
    store: &Store,
    location: &BackupStorageLocation,
    context: &Context,
    malformed: &mut Vec<String>,
) -> Result<(), Error> {
    let location_name = location.name_any();
    let content = match metadata(name, store).await? {
        Some(Ok(content)) => content,
        Some(Err(why)) => {
            malformed.push(format!("{}: {why}", layout::backup_metadata(name)));
            return Ok(());
        }
        // It is being written or deleted.
        None => return Ok(()),
    };
    let mut backup = match foreign::backup(name, &content, &location_name, Timestamp::now()) {
        BackupMetadata::Backup(backup) => backup,
        BackupMetadata::Skip(why) => {
            debug!("backup {name} in location {location_name} is not synced: {why}");
            return Ok(());
        }
        BackupMetadata::Malformed(why) => {
            malformed.push(format!("{}: {why}", layout::backup_metadata(name)));
            return Ok(());
        }
    };
    backup["metadata"]["ownerReferences"] = owners(&backup, context).await?;
    match create("Backup", &backup, context).await? {
        CreateResult::Created(uid) => finish(name, &uid, store, &location_name, context).await,
        CreateResult::AlreadyExists => Ok(()),
        CreateResult::Rejected(why) => {
            malformed.push(format!("{}: {why}", layout::backup_metadata(name)));
            Ok(())
        }
    }
}

/// The metadata of a backup; the inner error is about what lies there.
async fn metadata(name: &str, store: &Store) -> Result<Option<Result<Vec<u8>, String>>, Error> {
    let key = layout::backup_metadata(name);
    let read = async {
        let reader = store.reader(&key).await?;
        if reader.info().size > MAX_METADATA_BYTES {
            return Ok(Err(format!("it is larger than {MAX_METADATA_BYTES} bytes")));
        }
        drop(reader);
        store.get(&key).await.map(|content| Ok(content.to_vec()))
    };
    match read.await {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Only schedules that are here, and the same ones, go on owning a backup.
async fn owners(backup: &Value, context: &Context) -> Result<Value, Error> {
    let mut kept = Vec::new();
    for (name, uid, reference) in foreign::owners(backup) {
        let found = context.leader.api::<Schedule>().get_opt(&name).await;
        let found = found.map_err(|e| Error::api(format!("read schedule {name}"), e))?;
        if found.and_then(|schedule| schedule.uid()).as_deref() == Some(&uid) {
            kept.push(reference);
        }
    }
    Ok(Value::Array(kept))
}

enum CreateResult {
    /// With this uid.
    Created(String),
    /// It existed already.
    AlreadyExists,
    /// The API server does not take it.
    Rejected(String),
}

async fn create(kind: &str, object: &Value, context: &Context) -> Result<CreateResult, Error> {
    context.leader.fence.check()?;
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let resource = kube::api::ApiResource::from_gvk(&GroupVersionKind::gvk("velero.io", "v1", kind));
    let all: Api<DynamicObject> =
        Api::namespaced_with(context.leader.client.clone(), &context.leader.namespace, &resource);
    let typed: DynamicObject = match serde_json::from_value(object.clone()) {
        Ok(typed) => typed,
        Err(error) => return Ok(CreateResult::Rejected(error.to_string())),
    };
    kill::point("sync.create.before");
    let answer = all.create(&PostParams::default(), &typed).await;
    kill::point("sync.create.after");
    match answer {
        Ok(created) => {
            info!("{kind} {name} is synced from its location");
            Ok(CreateResult::Created(created.uid().unwrap_or_default()))
        }
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(CreateResult::AlreadyExists),
        Err(kube::Error::Api(status)) if [400, 422].contains(&status.code) => {
            Ok(CreateResult::Rejected(status.message))
        }
        Err(error) => Err(Error::api(format!("create {kind} {name}"), error)),
    }
}

/// What belongs to a synced backup, and then the end of its sync.
async fn finish(name: &str, uid: &str, store: &Store, location: &str, context: &Context) -> Result<(), Error> {
    for transfer in listed(name, &layout::backup_pod_volume_backups(name), store).await? {
        if let Some(object) = foreign::pod_volume_backup(&transfer, (name, uid), location) {
            create("PodVolumeBackup", &object, context).await?;
        }
    }
    for record in listed(name, &layout::backup_volume_plugin_backups(name), store).await? {
        if let Some(object) = foreign::volume_plugin_backup(&record, (name, uid)) {
            create("VolumePluginBackup", &object, context).await?;
        }
    }
    context.leader.fence.check()?;
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { SYNCING: null } } }));
    kill::point("sync.finish.before");
    match context.leader.api::<Backup>().patch(name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(Error::api(format!("end the sync of backup {name}"), error)),
    }
}

/// Reads a list file of a backup; a missing file is an empty list.
async fn listed(name: &str, key: &str, store: &Store) -> Result<Vec<Value>, Error> {
    match store.get(key).await {
        // A damaged list is no reason to do without the backup.
        Ok(content) => Ok(codec::read_gzip_list(content.as_ref()).unwrap_or_else(|error| {
            warn!("{key}: {error}: the volume backups of backup {name} are not synced");
            Vec::new()
        })),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
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
