//! The Restore object while its restore runs: backup, location, status.

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_api::velero::v1::{Backup, RestorePhase};
use plimsoll_engine::item_operations::ItemOperationCounts;
use plimsoll_engine::restore::{ResolvedSpec, RestoreObject, StartedRestore};
use plimsoll_engine::{Error, kill};
use plimsoll_operations::{Job, Lifecycle, projection};
use plimsoll_select::resource_order::NON_RESTORABLE_RESOURCES;
use plimsoll_store::Store;
use plimsoll_volumes::storage_location::LocationLookup;
use serde_json::{Value, json};

use super::RestoreController;
use super::resolved_spec::resolve_spec;
use super::source::{check_not_deleted, find_backup};
use crate::completion;

/// The Restore object of a job.
pub(super) struct JobRestore<'a>(pub(super) &'a Job<RestoreController>);

impl RestoreObject for JobRestore<'_> {
    fn begin(&self) -> BoxFuture<'_, Result<StartedRestore, Error>> {
        Box::pin(async {
            let job = self.0;
            let backup = job.read(|| find_backup(&job.context, &job.subject)).await?;
            let mut backup = backup.map_err(Error::Selection)?;
            let restore = show_begun(job, &backup).await?;
            job.read(|| check_not_deleted(&job.context, &backup)).await?.map_err(Error::Selection)?;
            let (location, store) = job.read(|| open_location(job, &backup)).await?;
            // One that is left to the default has a name from here on.
            backup.spec.storage_location = Some(location);
            Ok(StartedRestore { restore, backup, store })
        })
    }

    fn resolve_spec(&self) -> BoxFuture<'_, Result<ResolvedSpec, Error>> {
        Box::pin(async { resolve_spec(&self.0.context, &self.0.subject.spec).await?.map_err(Error::Selection) })
    }

    fn show_total(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async {
            let status = projection::progress(&self.0.tree.snapshot(), RestoreController::ITEM_COUNTERS);
            kill::point("restore.total.before");
            self.0.patch_subject(&json!({ "status": status })).await?;
            kill::point("restore.total.after");
            Ok(())
        })
    }

    fn show_waiting(&self, counts: ItemOperationCounts, failed: bool) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(completion::show_waiting(self.0, counts, failed))
    }

    fn show_finalizing(&self, failed: bool) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(completion::show_finalizing(self.0, failed))
    }
}

/// The first write: phase, start, and what was left to defaults. Done again by every attempt, with the same result.
async fn show_begun(job: &Job<RestoreController>, backup: &Backup) -> Result<Value, Error> {
    let (spec, status) = (&job.subject.spec, job.subject.status.clone().unwrap_or_default());
    let started = status.start_timestamp.map_or_else(Timestamp::now, |time| time.0);
    let phase = match status.phase {
        Some(phase @ (RestorePhase::Finalizing | RestorePhase::FinalizingPartiallyFailed)) => phase,
        _ => RestorePhase::InProgress,
    };
    let mut excluded = spec.excluded_resources.clone();
    excluded.extend(
        NON_RESTORABLE_RESOURCES
            .iter()
            .map(|name| (*name).to_owned())
            .filter(|name| !spec.excluded_resources.contains(name)),
    );
    let patch = json!({
        "spec": {
            "backupName": backup.name_any(),
            "excludedResources": excluded,
            "itemOperationTimeout": spec.item_operation_timeout,
        },
        "status": { "phase": phase.as_str(), "startTimestamp": format!("{started:.0}") },
    });
    kill::point("status.begin.before");
    let begun = job.patch_subject(&patch).await?;
    kill::point("status.begin.after");
    Ok(begun)
}

/// The backup's location: its name in this cluster, and what is in it.
async fn open_location(job: &Job<RestoreController>, backup: &Backup) -> Result<(String, Store), Error> {
    match job.context.storage.find(backup.spec.storage_location.as_deref()).await? {
        LocationLookup::Usable(found) => Ok((found.name_any(), job.context.storage.open(&found).await?)),
        LocationLookup::Unusable(why) | LocationLookup::Unchecked(why) => Err(Error::Selection(why)),
    }
}
