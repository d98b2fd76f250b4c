//! BackupStorageLocation: whether it can be used.

pub mod sync;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Resource, ResourceExt};
use plimsoll_api::go::GoDuration;
use plimsoll_api::velero::v1::{BackupStorageLocation, LocationPhase};
use plimsoll_archive::layout;
use plimsoll_engine::{Error, kill};
use plimsoll_operations::{EventType, LeaderClient, WatchBackoff, catch_panic};
use plimsoll_volumes::storage_location::StorageLocations;
use serde_json::json;
use tracing::warn;

use crate::sync_warnings::SyncWarnings;

/// Context of the check and the sync of locations.
pub struct StorageLocationContext {
    pub leader: LeaderClient,
    /// Opens them.
    pub storage: Arc<StorageLocations>,
    /// Warnings of the sync, by location.
    pub sync_warnings: SyncWarnings,
    /// The default of `backupSyncPeriod`.
    pub sync_period: Duration,
    /// The default of `validationFrequency`.
    pub check_interval: Duration,
}

/// Runs the controller until the future is dropped.
pub async fn control(context: Arc<StorageLocationContext>) {
    let api: Api<BackupStorageLocation> = Api::namespaced(context.leader.client.clone(), &context.leader.namespace);
    Controller::new(api, watcher::Config::default())
        .trigger_backoff(WatchBackoff::default())
        .run(
            reconcile,
            |_, error, _| {
                warn!("failed to check a location: {error}");
                Action::requeue(Duration::from_secs(5))
            },
            context,
        )
        .for_each(|_| async {})
        .await;
}

async fn reconcile(
    location: Arc<BackupStorageLocation>,
    context: Arc<StorageLocationContext>,
) -> Result<Action, Error> {
    let every =
        location.spec.validation_frequency.as_ref().and_then(GoDuration::as_std).unwrap_or(context.check_interval);
    let status = location.status.clone().unwrap_or_default();
    let due = status.last_validation_time.as_ref().is_none_or(|last| is_due(last.0, every));
    // The status write of a check triggers this again: a recent check is not repeated.
    if due || status.phase.is_none() {
        let name = location.name_any();
        let verdict = catch_panic(&format!("location {name}"), check(&location, &context)).await?;
        write_verdict(&location, &context, verdict).await?;
    }
    Ok(if every.is_zero() { Action::await_change() } else { Action::requeue(every) })
}

fn is_due(last: Timestamp, every: Duration) -> bool {
    let age = Timestamp::now().duration_since(last);
    !every.is_zero() && Duration::try_from(age).is_ok_and(|age| age + Duration::from_secs(1) >= every)
}

/// Opens the location and lists it; the inner error is the reason why it cannot be used. An API server that does not answer says
/// nothing about the location: its status stays as it is.
async fn check(
    location: &BackupStorageLocation,
    context: &StorageLocationContext,
) -> Result<Result<(), String>, Error> {
    let store = match context.storage.open_quickly(location).await {
        Err(error @ Error::Api { .. }) if error.is_retryable() => return Err(error),
        Err(error) => return Ok(Err(error.to_string())),
        Ok(store) => store,
    };
    let directories = store.list_directories("").await.map_err(|e| e.to_string());
    Ok(directories
        .and_then(|found| layout::validate_top_level(found.iter().map(String::as_str)).map_err(|e| e.to_string())))
}

async fn write_verdict(
    location: &BackupStorageLocation,
    context: &StorageLocationContext,
    verdict: Result<(), String>,
) -> Result<(), Error> {
    context.leader.fence.check()?;
    record_transition(location, context, &verdict).await;
    let name = location.name_any();
    let api: Api<BackupStorageLocation> = Api::namespaced(context.leader.client.clone(), &context.leader.namespace);
    let phase = if verdict.is_ok() { LocationPhase::Available } else { LocationPhase::Unavailable };
    let status = json!({
        "phase": phase.as_str(),
        "message": verdict.err().or_else(|| context.sync_warnings.of(&name)),
        "lastValidationTime": format!("{:.0}", Timestamp::now()),
    });
    kill::point("location.status.before");
    api.patch(&name, &PatchParams::default(), &Patch::Merge(json!({ "status": status })))
        .await
        .map_err(|e| Error::api(format!("write status of location {name}"), e))?;
    Ok(())
}

/// An Event whenever a location becomes usable or unusable.
async fn record_transition(
    location: &BackupStorageLocation,
    context: &StorageLocationContext,
    verdict: &Result<(), String>,
) {
    let known = location.status.as_ref().and_then(|status| status.phase.clone());
    let about = location.object_ref(&());
    match verdict {
        Ok(()) if known != Some(LocationPhase::Available) => {
            context.leader.events.record(&about, EventType::Normal, "Available", "the location can be used").await;
        }
        Err(why) if known != Some(LocationPhase::Unavailable) => {
            context.leader.events.record(&about, EventType::Warning, "Unavailable", why).await;
        }
        _ => {}
    }
}
