//! Restores that are being deleted: a finalizer ensures that their files in the location are deleted first.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use plimsoll_api::labels::RESTORE_FINALIZER;
use plimsoll_api::velero::v1::{Backup, BackupStorageLocation, LocationPhase, Restore};
use plimsoll_archive::layout;
use plimsoll_engine::{Error, kill};
use plimsoll_operations::controller::run_controller;
use plimsoll_operations::{EventType, LeaderClient, OperationRuntime};
use plimsoll_volumes::storage_location::{StorageLocations, is_read_only};
use serde_json::json;

/// How soon an unavailable location is checked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Context of the deletion of the files of Restores.
pub struct RestoreFilesContext {
    pub leader: LeaderClient,
    /// Knows the restores that run.
    pub runtime: Arc<OperationRuntime>,
    /// Opens locations.
    pub storage: Arc<StorageLocations>,
}

/// Runs the controller until the future is dropped.
pub async fn control(context: Arc<RestoreFilesContext>) {
    run_controller::<Restore, _, _, _>(&context.leader, Arc::clone(&context), reconcile).await;
}

async fn reconcile(restore: Arc<Restore>, context: Arc<RestoreFilesContext>) -> Result<Action, Error> {
    let held = restore.finalizers().iter().any(|finalizer| finalizer == RESTORE_FINALIZER);
    if restore.metadata.deletion_timestamp.is_none() || !held {
        return Ok(Action::await_change());
    }
    // Its operation is stopping, and may still write.
    if context.runtime.active.contains(&restore.uid().unwrap_or_default()) {
        return Ok(Action::requeue(Duration::from_millis(200)));
    }
    match location_state(find_location(&restore, &context).await?.as_ref()) {
        LocationState::Usable(location) => remove_files(&restore, location, &context).await?,
        LocationState::Unusable(cause) => {
            record_warning(&restore, "FilesLeft", &format!("files in the location are not deleted: {cause}"), &context)
                .await;
        }
        LocationState::Unavailable(cause) => {
            record_warning(
                &restore,
                "FilesNotDeleted",
                &format!("files in the location cannot be deleted yet: {cause}"),
                &context,
            )
            .await;
            return Ok(Action::requeue(RETRY_INTERVAL));
        }
    }
    release(&restore, &context).await?;
    Ok(Action::await_change())
}

async fn record_warning(restore: &Restore, reason: &str, message: &str, context: &RestoreFilesContext) {
    context.leader.events.record(&restore.object_ref(&()), EventType::Warning, reason, message).await;
}

#[derive(Debug)]
enum LocationState<'a> {
    Usable(&'a BackupStorageLocation),
    /// The files can never be deleted.
    Unusable(String),
    /// The files can be deleted later.
    Unavailable(String),
}

fn location_state(location: Option<&BackupStorageLocation>) -> LocationState<'_> {
    let Some(location) = location else {
        return LocationState::Unusable("its backup or its location no longer exists".into());
    };
    let name = location.name_any();
    match location.status.as_ref().and_then(|status| status.phase.clone()) {
        _ if is_read_only(location) => LocationState::Unusable(format!("location {name} is read-only")),
        Some(LocationPhase::Available) => LocationState::Usable(location),
        _ => LocationState::Unavailable(format!("location {name} is not available")),
    }
}

async fn find_location(
    restore: &Restore,
    context: &RestoreFilesContext,
) -> Result<Option<BackupStorageLocation>, Error> {
    let name = restore.spec.backup_name.clone().unwrap_or_default();
    let backup = match name.as_str() {
        "" => None,
        name => context
            .leader
            .api::<Backup>()
            .get_opt(name)
            .await
            .map_err(|e| Error::api(format!("read backup {name}"), e))?,
    };
    let Some(wanted) = backup.and_then(|backup| backup.spec.storage_location) else { return Ok(None) };
    let found = context.leader.api::<BackupStorageLocation>().get_opt(&wanted).await;
    found.map_err(|e| Error::api(format!("read location {wanted}"), e))
}

async fn remove_files(
    restore: &Restore,
    location: &BackupStorageLocation,
    context: &RestoreFilesContext,
) -> Result<(), Error> {
    let store = context.storage.open(location).await?;
    context.leader.fence.check()?;
    kill::point("restore.files.before");
    store.delete_prefix(&layout::restore_directory(&restore.name_any())).await?;
    kill::point("restore.files.after");
    Ok(())
}

async fn release(restore: &Restore, context: &RestoreFilesContext) -> Result<(), Error> {
    context.leader.fence.check()?;
    let kept: Vec<_> = restore.finalizers().iter().filter(|finalizer| *finalizer != RESTORE_FINALIZER).collect();
    let patch = json!({ "metadata": { "finalizers": kept, "resourceVersion": restore.resource_version() } });
    let name = restore.name_any();
    match context.leader.api::<Restore>().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        // The change triggers another reconcile.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(error) => Err(Error::api(format!("release restore {name}"), error)),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_api::velero::v1::{AccessMode, BackupStorageLocationStatus};

    use super::*;

    #[test]
    fn only_an_unavailable_location_is_waited_for() {
        let mut location = BackupStorageLocation::fixture();
        assert!(matches!(location_state(None), LocationState::Unusable(_)));
        assert!(matches!(location_state(Some(&location)), LocationState::Unavailable(_)));
        let status = BackupStorageLocationStatus {
            phase: Some(LocationPhase::Available),
            ..BackupStorageLocationStatus::default()
        };
        location.status = Some(status);
        assert!(matches!(location_state(Some(&location)), LocationState::Usable(_)));
        location.spec.access_mode = Some(AccessMode::ReadOnly);
        assert!(matches!(location_state(Some(&location)), LocationState::Unusable(_)));
    }
}
