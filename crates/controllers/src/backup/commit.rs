//! The commit of a Backup: its metadata, as the last file in the location.

use plimsoll_api::plimsoll::v1alpha1::OperationState;
use plimsoll_engine::backup;
use plimsoll_engine::ports::{Effect, Journal, LeadershipGuard};
use plimsoll_engine::{Error, RetryPolicy, show_store_waits};
use plimsoll_operations::{Completion, Job, Lifecycle, Stages, SubjectState, projection};
use plimsoll_progress::Snapshot;
use plimsoll_store::Store;
use serde_json::{Value, json};

use super::BackupController;

/// Writes the metadata, as the last file: from here on it is a backup.
pub(super) async fn commit(
    job: &Job<BackupController>,
    store: &Store,
    begun: &Value,
    completion: &Completion,
    stages: &Stages,
) -> Result<(), Error> {
    let committing = stages.start("committing");
    let _waits = show_store_waits(store, &committing);
    let key = plimsoll_archive::layout::backup_metadata(&job.id.name);
    let intent = job.journal.record_intent(Effect::Commit { key }).await?;
    job.record.check_commit().await?;
    let metadata = metadata(begun, &job.tree.snapshot(), completion);
    let save = || backup::save_metadata(store, &job.id.name, &metadata);
    RetryPolicy::default().run(&committing, save).await?;
    job.journal.record_result(intent, "committed".into()).await?;
    committing.finish();
    Ok(())
}

/// The Backup as it will stand in the cluster once it has ended.
fn metadata(begun: &Value, snapshot: &Snapshot, completion: &Completion) -> Value {
    let mut metadata = begun.clone();
    metadata["apiVersion"] = json!("velero.io/v1");
    metadata["kind"] = json!("Backup");
    let mut status = metadata["status"].clone();
    if let Some(fields) = status.as_object_mut() {
        fields.remove("plimsoll");
        fields.extend(
            projection::progress(snapshot, BackupController::ITEM_COUNTERS).as_object().cloned().unwrap_or_default(),
        );
        fields.extend(completion.status.as_object().cloned().unwrap_or_default());
    }
    metadata["status"] = status;
    metadata
}

/// Another program had written it and waited for the work of plugins, which is no longer followed.
fn left_waiting() -> Completion {
    let why = "another server left it waiting for operations of plugins: whether they ended well is not known";
    Completion {
        status: BackupController::failed_status(why),
        state: OperationState::Failed,
        reasons: Vec::new(),
        ending: None,
    }
}

/// A dead leader had committed already: what it wrote is how the backup ended.
pub(super) fn adopt(metadata: &Value) -> Completion {
    let status = metadata.get("status").cloned().unwrap_or_default();
    if status["phase"].as_str().is_some_and(|phase| BackupController::state(phase) == SubjectState::InProgress) {
        return left_waiting();
    }
    let state = match status["phase"].as_str() {
        Some("PartiallyFailed") => OperationState::PartiallyFailed,
        _ => OperationState::Succeeded,
    };
    let ended = [
        "phase",
        "errors",
        "warnings",
        "completionTimestamp",
        "progress",
        "hookStatus",
        "volumeSnapshotsAttempted",
        "volumeSnapshotsCompleted",
        "csiVolumeSnapshotsAttempted",
        "csiVolumeSnapshotsCompleted",
        "backupItemOperationsAttempted",
        "backupItemOperationsCompleted",
        "backupItemOperationsFailed",
    ];
    let kept = ended.iter().filter_map(|field| Some(((*field).to_owned(), status.get(*field)?.clone())));
    Completion { status: Value::Object(kept.collect()), state, reasons: Vec::new(), ending: None }
}
