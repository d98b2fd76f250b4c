//! The end of a Restore: operations of plugins, hooks, and its files in the location.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::go::GoDuration;
use plimsoll_api::velero::v1::{RestorePhase, RestoreSpec};
use plimsoll_archive::layout;
use plimsoll_archive::volume_info::RestoreVolumeInfo;
use plimsoll_engine::item_operations::{ItemOperationOwner, ItemOperations};
use plimsoll_engine::outcome::Recorder;
use plimsoll_engine::ports::LeadershipGuard;
use plimsoll_engine::restore::hooks::HookCounts;
use plimsoll_engine::restore::{self, RestoreRun};
use plimsoll_engine::{Error, kill};
use plimsoll_operations::{Completion, Job, Lifecycle};
use plimsoll_progress::Task;
use plimsoll_store::Store;
use serde_json::{Value, json};

use super::RestoreController;
use crate::{completion, item_operations};

/// Default timeout of item operations.
const DEFAULT_OPERATION_TIMEOUT: Duration = Duration::from_hours(4);

/// Work that item actions began in the background ends before the restore does.
pub(super) async fn wait_for_operations(
    job: &Job<RestoreController>,
    store: &Store,
    begun: &Value,
    operations: &ItemOperations,
    failed: bool,
) -> Result<(), Error> {
    if operations.is_empty() {
        return Ok(());
    }
    let key = layout::restore_item_operations(&job.id.name);
    let phase = if failed { "WaitingForPluginOperationsPartiallyFailed" } else { "WaitingForPluginOperations" };
    item_operations::wait_for_operations(job, store, &key, begun, operations, phase, operation_limit(&job.subject.spec))
        .await
}

pub(super) fn operation_limit(spec: &RestoreSpec) -> Duration {
    let limit = spec.item_operation_timeout.as_ref().and_then(GoDuration::as_std);
    limit.filter(|limit| !limit.is_zero()).unwrap_or(DEFAULT_OPERATION_TIMEOUT)
}

/// Everything is there; what runs in restored pods has yet to end.
pub(super) async fn finalize(
    job: &Job<RestoreController>,
    run: &RestoreRun,
    recorder: &Recorder,
    finalizing: &Task,
) -> Result<HookCounts, Error> {
    let phase = match recorder.counts().0 {
        0 => RestorePhase::Finalizing,
        _ => RestorePhase::FinalizingPartiallyFailed,
    };
    kill::point("status.finalizing.before");
    job.patch_subject(&json!({ "status": { "phase": phase.as_str() } })).await?;
    kill::point("status.finalizing.after");
    let counts = run.rules.hooks.finish().await?;
    finalizing.finish();
    Ok(counts)
}

pub(super) async fn save(
    job: &Job<RestoreController>,
    store: &Store,
    recorder: Arc<Recorder>,
    (hooks, volumes): (HookCounts, &[RestoreVolumeInfo]),
    operations: &ItemOperations,
    saving: &Task,
) -> Result<Completion, Error> {
    let recorder = Arc::into_inner(recorder).ok_or_else(|| {
        Error::scratch(job.scratch.path(), std::io::Error::other("the recorder is still in use after restoring"))
    })?;
    let recorded = recorder.finish()?;
    restore::save(store, &job.id.name, &recorded, volumes, saving, job.record.as_ref()).await?;
    if !operations.is_empty() {
        let owner = ItemOperationOwner { verb: RestoreController::VERB, name: &job.id.name, uid: &job.id.uid };
        let key = layout::restore_item_operations(&job.id.name);
        item_operations::save_operations(store, &key, operations, owner, saving).await?;
    }
    saving.finish();
    job.record.check_commit().await?;
    let mut completion = completion::of(&recorded.results);
    if hooks.attempted > 0 {
        completion.status["hookStatus"] = json!({ "hooksAttempted": hooks.attempted, "hooksFailed": hooks.failed });
    }
    Ok(completion)
}
