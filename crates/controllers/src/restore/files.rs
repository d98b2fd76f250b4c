//! Restores that are being deleted: their files in the location go first, held by a finalizer.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use plimsoll_api::labels::RESTORE_FINALIZER;
use plimsoll_api::velero::v1::{Backup, BackupStorageLocation, LocationPhase, Restore};
use plimsoll_archive::layout;
use plimsoll_engine::{Error, kill};
use plimsoll_operations::EventType;
use plimsoll_operations::controller::run_controller;
use plimsoll_volumes::storage_location::is_read_only;
use serde_json::json;

use crate::context::Context;

/// A location that cannot be used now is looked at again after so long.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// Runs the controller until the future is dropped.
pub async fn control(context: Arc<Context>) {
    run_controller::<Restore, _, _, _>(&context.leader, Arc::clone(&context), reconcile).await;
}

async fn reconcile(restore: Arc<Restore>, context: Arc<Context>) -> Result<Action, Error> {
    let held = restore.finalizers().iter().any(|finalizer| finalizer == RESTORE_FINALIZER);
    if restore.metadata.deletion_timestamp.is_none() || !held {
        return Ok(Action::await_change());
    }
    // Its operation is stopping, and may still write.
    if context.runtime.active.contains(&restore.uid().unwrap_or_default()) {
        return Ok(Action::requeue(Duration::from_millis(200)));
    }
    match standing(find_location(&restore, &context).await?.as_ref()) {
        Standing::Usable(location) => remove_files(&restore, location, &context).await?,
        Standing::Gone(why) => {
            tell(&restore, "FilesLeft", &format!("its files are not deleted: {why}"), &context).await;
        }
        Standing::Later(why) => {
            tell(&restore, "FilesNotDeleted", &format!("its files cannot be deleted now: {why}"), &context).await;
            return Ok(Action::requeue(TRY_AGAIN));
        }
    }
    release(&restore, &context).await?;
    Ok(Action::await_change())
}

async fn tell(restore: &Restore, reason: &str, message: &str, context: &Context) {
    context.leader.events.record(&restore.object_ref(&()), EventType::Warning, reason, message).await;
}

#[derive(Debug)]
enum Standing<'a> {
    Usable(&'a BackupStorageLocation),
    /// They can never be deleted through it.
    Gone(String),
    /// Waiting may help.
    Later(String),
}

fn standing(location: Option<&BackupStorageLocation>) -> Standing<'_> {
    let Some(location) = location else { return Standing::Gone("its backup or its location no longer exists".into()) };
    let name = location.name_any();
    match location.status.as_ref().and_then(|status| status.phase.clone()) {
        _ if is_read_only(location) => Standing::Gone(format!("location {name} is read-only")),
        Some(LocationPhase::Available) => Standing::Usable(location),
        _ => Standing::Later(format!("location {name} is not available")),
    }
}

async fn find_location(restore: &Restore, context: &Context) -> Result<Option<BackupStorageLocation>, Error> {
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

async fn remove_files(restore: &Restore, location: &BackupStorageLocation, context: &Context) -> Result<(), Error> {
    let store = context.storage.open(location).await?;
    context.leader.fence.check()?;
    kill::point("restore.files.before");
    store.delete_prefix(&layout::restore_directory(&restore.name_any())).await?;
    kill::point("restore.files.after");
    Ok(())
}

async fn release(restore: &Restore, context: &Context) -> Result<(), Error> {
    context.leader.fence.check()?;
    let kept: Vec<_> = restore.finalizers().iter().filter(|finalizer| *finalizer != RESTORE_FINALIZER).collect();
    let patch = json!({ "metadata": { "finalizers": kept, "resourceVersion": restore.resource_version() } });
    let name = restore.name_any();
    match context.leader.api::<Restore>().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        // What has changed meanwhile is looked at anew.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(error) => Err(Error::api(format!("release restore {name}"), error)),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_api::velero::v1::{AccessMode, BackupStorageLocationStatus};

    use super::*;

    #[test]
    fn files_are_deleted_only_where_that_is_possible_and_what_never_comes_is_not_waited_for() {
        let mut location = BackupStorageLocation::fixture();
        assert!(matches!(standing(None), Standing::Gone(_)));
        assert!(matches!(standing(Some(&location)), Standing::Later(_)));
        let status = BackupStorageLocationStatus {
            phase: Some(LocationPhase::Available),
            ..BackupStorageLocationStatus::default()
        };
        location.status = Some(status);
        assert!(matches!(standing(Some(&location)), Standing::Usable(_)));
        location.spec.access_mode = Some(AccessMode::ReadOnly);
        assert!(matches!(standing(Some(&location)), Standing::Gone(_)));
    }
}
