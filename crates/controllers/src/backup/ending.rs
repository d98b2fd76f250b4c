//! How a Backup ends: its last status, and its metadata in the location.

use jiff::Timestamp;
use plimsoll_api::plimsoll::v1alpha1::OperationState;
use plimsoll_archive::volume_info::BackupVolumeInfo;
use plimsoll_engine::backup::BackupResults;
use plimsoll_engine::hooks::HookCounts;
use plimsoll_operations::{Completion, Lifecycle, SubjectState, projection};
use plimsoll_progress::Snapshot;
use serde_json::{Value, json};

use super::BackupController;
use crate::completion;

/// The last status that the results mean. The same for the metadata and for the custom resource.
pub(super) fn completion_of(results: &BackupResults) -> Completion {
    let mut completion = completion::of(&results.results, results.completed);
    completion::add_item_operations(&mut completion, BackupController::VERB, results.operations);
    let snapshots = &results.volumes.snapshots;
    if !snapshots.is_empty() {
        let good = snapshots.iter().filter(|snapshot| snapshot.status.phase == "Completed").count();
        completion.status["volumeSnapshotsAttempted"] = json!(snapshots.len());
        completion.status["volumeSnapshotsCompleted"] = json!(good);
    }
    let HookCounts { attempted, failed } = results.hooks;
    completion.status["hookStatus"] = json!({ "hooksAttempted": attempted, "hooksFailed": failed });
    count_csi_snapshots(&results.volumes.infos, &mut completion);
    completion
}

/// Snapshots whose data was moved are counted as operations, not as snapshots: they do not stay.
fn count_csi_snapshots(infos: &[BackupVolumeInfo], completion: &mut Completion) {
    let taken = |info: &&BackupVolumeInfo| info.backup_method == "CSISnapshot" && !info.snapshot_data_moved;
    let ready = |info: &&BackupVolumeInfo| {
        info.snapshot.csi_snapshot_info.as_ref().and_then(|csi| csi.ready_to_use) == Some(true)
    };
    let attempted = infos.iter().filter(taken).count();
    if attempted > 0 {
        completion.status["csiVolumeSnapshotsAttempted"] = json!(attempted);
        completion.status["csiVolumeSnapshotsCompleted"] = json!(infos.iter().filter(taken).filter(ready).count());
    }
}

/// The Backup as it will stand in the cluster once it has ended.
pub(super) fn metadata(begun: &Value, snapshot: &Snapshot, results: &BackupResults) -> Value {
    let mut metadata = begun.clone();
    metadata["apiVersion"] = json!("velero.io/v1");
    metadata["kind"] = json!("Backup");
    let mut status = metadata["status"].clone();
    if let Some(fields) = status.as_object_mut() {
        // They describe the work in this cluster.
        for field in ["plimsoll", "conditions", "observedGeneration"] {
            fields.remove(field);
        }
        fields.extend(
            projection::progress(snapshot, BackupController::ITEM_COUNTERS).as_object().cloned().unwrap_or_default(),
        );
        fields.extend(completion_of(results).status.as_object().cloned().unwrap_or_default());
    }
    metadata["status"] = status;
    metadata
}

/// The metadata of a backup that another program left unfinished, as it is once the backup has ended.
pub(super) fn finalized(left: &Value, failed: bool, now: Timestamp) -> Value {
    let mut metadata = left.clone();
    metadata["status"]["phase"] = json!(if failed { "PartiallyFailed" } else { "Completed" });
    metadata["status"]["completionTimestamp"] = json!(format!("{now:.0}"));
    metadata
}

/// Another program had written it and waited for the work of plugins, which is no longer followed.
fn abandoned_completion() -> Completion {
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
        return abandoned_completion();
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
