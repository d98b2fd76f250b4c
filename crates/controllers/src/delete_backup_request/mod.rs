//! DeleteBackupRequest: a backup and all that belongs to it goes.
//!
//! Every step can be done again. What is in the location goes before the custom resources, so that a deletion that is killed is
//! found again and goes on, and nothing is synced back.

pub mod cleanup;

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Resource, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::plimsoll::v1alpha1::OperationState;
use plimsoll_api::velero::v1::{
    Backup, BackupPhase, BackupStorageLocation, DeleteBackupRequest, DeleteBackupRequestPhase, LocationPhase,
    PodVolumeBackup, Restore,
};
use plimsoll_archive::{codec, layout, volume_info::VolumeSnapshot};
use plimsoll_engine::ports::Guard;
use plimsoll_engine::{Error, Patience, delete, kill, show_waits};
use plimsoll_operations::{Completion, EventType, ItemCounters, Job, Lifecycle, Requirements, Stages, SubjectState};
use plimsoll_progress::Task;
use plimsoll_store::Store;
use plimsoll_volumes::csi::MovedSnapshots;
use plimsoll_volumes::storage_location::is_read_only;
use plimsoll_volumes::{repositories, snapshotter};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::backup::BackupController;
use crate::context::Context;
use crate::plugins;

/// The stages, and about how long they take: their weights in the percentage.
const STAGES: [(&str, Duration); 5] = [
    ("actions", Duration::from_secs(1)),
    ("volumes", Duration::from_secs(2)),
    ("objects", Duration::from_secs(2)),
    ("restores", Duration::from_secs(1)),
    ("record", Duration::from_millis(200)),
];
/// How many deletions run at a time.
const AT_ONCE: usize = 4;
/// How long the files of restores may take to go.
const RESTORES_LIMIT: Duration = Duration::from_mins(1);

/// The lifecycle of a DeleteBackupRequest.
pub struct DeleteBackupRequestController;

impl Lifecycle for DeleteBackupRequestController {
    type Resource = DeleteBackupRequest;
    type Context = Context;
    type LiveState = ();
    const VERB: &'static str = "delete";
    const ITEM_COUNTERS: ItemCounters = ItemCounters::NONE;

    fn state(phase: &str) -> SubjectState {
        match DeleteBackupRequestPhase::from(phase) {
            DeleteBackupRequestPhase::New => SubjectState::New,
            DeleteBackupRequestPhase::InProgress => SubjectState::InProgress,
            DeleteBackupRequestPhase::Processed => SubjectState::Ended,
            DeleteBackupRequestPhase::Other(text) if text.is_empty() => SubjectState::New,
            DeleteBackupRequestPhase::Other(_) => SubjectState::Unmanaged,
        }
    }

    fn validate(raw: &Value) -> Vec<String> {
        let named = raw.pointer("/spec/backupName").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
        if named { Vec::new() } else { vec!["spec.backupName is required".into()] }
    }

    async fn check_requirements(subject: &DeleteBackupRequest, context: &Context) -> Result<Requirements, Error> {
        if let Some(earlier) = earlier_request(subject, context).await? {
            return Ok(Requirements { faults: Vec::new(), missing: Some(format!("deletion request {earlier}")) });
        }
        let name = subject.spec.backup_name.clone().unwrap_or_default();
        let found = context.leader.api::<Backup>().get_opt(&name).await;
        let backup = found.map_err(|e| Error::api(format!("read backup {name}"), e))?;
        let location = match backup.as_ref().and_then(|backup| backup.spec.storage_location.as_deref()) {
            Some(name) => {
                let found = context.leader.api::<BackupStorageLocation>().get_opt(name).await;
                found.map_err(|e| Error::api(format!("read location {name}"), e))?
            }
            None => None,
        };
        let running = context.runtime.active.names(BackupController::VERB).contains(&name);
        Ok(refuse(backup.as_ref(), location.as_ref(), running))
    }

    fn queued_status(_: usize) -> Option<Value> {
        None
    }

    fn rejected_status(faults: &[String]) -> Value {
        json!({ "phase": "Processed", "errors": faults })
    }

    fn failed_status(reason: &str) -> Value {
        json!({ "phase": "Processed", "errors": [reason] })
    }

    fn concurrency(_: &Context) -> usize {
        AT_ONCE
    }

    async fn execute(job: &Job<Self>) -> Result<Completion, Error> {
        let stages = job.plan_stages(&STAGES);
        drop_other_requests(job).await?;
        let name = job.subject.spec.backup_name.clone().unwrap_or_default();
        let find = || async {
            let found = job.context.leader.api::<Backup>().get_opt(&name).await;
            found.map_err(|e| Error::api(format!("read backup {name}"), e))
        };
        let Some(backup) = job.read(find).await? else {
            // An earlier attempt came that far: the backup is the last thing to go.
            return Ok(done());
        };
        begin(job, &backup).await?;
        let errors = job.unless_cancelled(remove_all(job, &backup, &stages)).await?;
        if !errors.is_empty() {
            tell(job, &backup, EventType::Warning, "DeletionFailed", &errors.join("; ")).await;
            return Err(Error::Selection(errors.join("; ")));
        }
        remove_record(job, &backup, &stages.start("record")).await?;
        tell(job, &backup, EventType::Normal, "Deleted", "the backup and all that belongs to it is deleted").await;
        drop_other_requests(job).await?;
        Ok(done())
    }

    /// What is gone is gone; what is not is named in the request.
    async fn abort(_: &Job<Self>, _: &Error) {}
}

fn done() -> Completion {
    Completion {
        status: json!({ "phase": "Processed", "errors": null }),
        state: OperationState::Succeeded,
        reasons: Vec::new(),
        ending: None,
    }
}

async fn tell(
    job: &Job<DeleteBackupRequestController>,
    backup: &Backup,
    event_type: EventType,
    reason: &str,
    message: &str,
) {
    let about: ObjectReference = backup.object_ref(&());
    job.context.leader.events.record(&about, event_type, reason, message).await;
}

/// What stands against a deletion, in the words that Velero's users know.
fn refuse(backup: Option<&Backup>, location: Option<&BackupStorageLocation>, running: bool) -> Requirements {
    let refuse = |fault: String| Requirements { faults: vec![fault], missing: None };
    let Some(backup) = backup else { return refuse("backup not found".into()) };
    if running || BackupController::state(backup.phase().as_str()) == SubjectState::InProgress {
        return refuse("backup is still in progress".into());
    }
    let name = backup.spec.storage_location.clone().unwrap_or_default();
    let Some(location) = location else {
        // Nothing was ever written by a backup that has no location.
        return if name.is_empty() {
            Requirements::default()
        } else {
            refuse(format!("backup storage location {name} not found"))
        };
    };
    let cannot = |state: &str| {
        refuse(format!("cannot delete backup because backup storage location {name} is currently in {state}"))
    };
    match location.status.as_ref().and_then(|status| status.phase.clone()) {
        _ if is_read_only(location) => cannot("read-only mode"),
        Some(LocationPhase::Available) => Requirements::default(),
        Some(_) => cannot("Unavailable state"),
        None => Requirements { faults: Vec::new(), missing: Some(format!("location {name} to be checked")) },
    }
}

/// Requests about the same backup that have not ended.
async fn requests(job: &DeleteBackupRequest, context: &Context) -> Result<Vec<DeleteBackupRequest>, Error> {
    let all = context.leader.api::<DeleteBackupRequest>().list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api("list deletion requests", e))?;
    let same = |other: &DeleteBackupRequest| other.spec.backup_name == job.spec.backup_name && other.uid() != job.uid();
    Ok(all.items.into_iter().filter(same).collect())
}

/// One request about a backup at a time: the earliest one goes first, and drops the others.
async fn earlier_request(request: &DeleteBackupRequest, context: &Context) -> Result<Option<String>, Error> {
    let age = |r: &DeleteBackupRequest| (r.creation_timestamp().map(|time| time.0), r.name_any());
    let open = |r: &DeleteBackupRequest| {
        let phase = r.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        phase != DeleteBackupRequestPhase::Processed && r.metadata.deletion_timestamp.is_none()
    };
    let mine = age(request);
    let others = requests(request, context).await?;
    Ok(others.into_iter().find(|other| open(other) && age(other) < mine).map(|other| other.name_any()))
}

async fn drop_other_requests(job: &Job<DeleteBackupRequestController>) -> Result<(), Error> {
    for other in job.read(|| requests(&job.subject, &job.context)).await? {
        kill::point("deletion.other.before");
        let name = other.name_any();
        job.read(|| job.context.leader.delete::<DeleteBackupRequest>(&name)).await?;
    }
    Ok(())
}

/// The first writes: the request and the backup show that the deletion runs.
async fn begin(job: &Job<DeleteBackupRequestController>, backup: &Backup) -> Result<(), Error> {
    let mut marks = job.subject.metadata.labels.clone().unwrap_or_default();
    marks.entry(labels::BACKUP_NAME.into()).or_insert_with(|| labels::valid_name(&backup.name_any()));
    marks.entry(labels::BACKUP_UID.into()).or_insert_with(|| backup.uid().unwrap_or_default());
    kill::point("status.begin.before");
    job.patch_subject(&json!({ "metadata": { "labels": marks }, "status": { "phase": "InProgress" } })).await?;
    kill::point("status.begin.after");
    if backup.phase() == BackupPhase::Deleting {
        return Ok(());
    }
    tell(job, backup, EventType::Normal, "Deleting", &format!("deletion request {} is carried out", job.id.name)).await;
    let patch = Patch::Merge(json!({ "status": { "phase": "Deleting", "queuePosition": null } }));
    let write = || async {
        job.context.leader.fence.check()?;
        let name = backup.name_any();
        let written = job.context.leader.api::<Backup>().patch(&name, &PatchParams::default(), &patch).await;
        written.map_err(|e| Error::api(format!("write status of backup {name}"), e))
    };
    kill::point("deletion.mark.before");
    Patience::default().run(&job.tree.root(), write).await?;
    kill::point("deletion.mark.after");
    Ok(())
}

/// Everything but the backup's own record. Returns what could not be removed.
async fn remove_all(
    job: &Job<DeleteBackupRequestController>,
    backup: &Backup,
    stages: &Stages,
) -> Result<Vec<String>, Error> {
    let mut errors = Vec::new();
    if let Some(store) = open_store(job, backup).await? {
        let _shown = show_waits(&store, &job.tree.root());
        let moved = MovedSnapshots::default();
        errors.extend(run_actions(job, backup, &store, &moved, &stages.start("actions")).await?);
        errors.extend(native_snapshots(job, backup, &store).await?);
        errors.extend(volume_data(job, backup, &store, &moved, &stages.start("volumes")).await?);
        // What is needed to try again stays until all that depends on it is gone.
        if errors.is_empty() {
            let objects = stages.start("objects");
            let name = backup.name_any();
            let (folder, first) = (layout::backup_directory(&name), layout::backup_metadata(&name));
            delete::remove_folder(&store, &folder, Some(&first), &objects, job.record.as_ref()).await?;
            objects.finish();
        }
    }
    let restores = stages.start("restores");
    errors.extend(remove_restores(job, backup, &restores).await?);
    restores.finish();
    Ok(errors)
}

async fn open_store(job: &Job<DeleteBackupRequestController>, backup: &Backup) -> Result<Option<Store>, Error> {
    let Some(name) = backup.spec.storage_location.clone().filter(|name| !name.is_empty()) else { return Ok(None) };
    let open = || async {
        let found = job.context.leader.api::<BackupStorageLocation>().get_opt(&name).await;
        let found = found.map_err(|e| Error::api(format!("read location {name}"), e))?;
        let location = found.ok_or_else(|| Error::Selection(format!("backup storage location {name} not found")))?;
        job.context.storage.open(&location).await
    };
    Patience::default().run(&job.tree.root(), open).await.map(Some)
}

async fn run_actions(
    job: &Job<DeleteBackupRequestController>,
    backup: &Backup,
    store: &Store,
    moved: &MovedSnapshots,
    task: &Task,
) -> Result<Vec<String>, Error> {
    let raw = serde_json::to_value(backup).unwrap_or_default();
    let status = backup.status.clone().unwrap_or_default();
    let any = |count: Option<i64>| count.is_some_and(|count| count > 0);
    let moved =
        (any(status.csi_volume_snapshots_attempted) || any(status.backup_item_operations_attempted)).then_some(moved);
    let (actions, plugins, mut failures) = plugins::delete_actions(&job.context, moved, task).await?;
    if failures.is_empty() {
        failures = delete::run_actions(store, &raw, &actions, job.scratch.path(), task).await?;
    }
    plugins.close().await;
    task.finish();
    Ok(failures)
}

/// Snapshots that only their plugin can delete: without the backup they would be orphans.
async fn native_snapshots(
    job: &Job<DeleteBackupRequestController>,
    backup: &Backup,
    store: &Store,
) -> Result<Vec<String>, Error> {
    let key = layout::backup_volume_snapshots(&backup.name_any());
    let list: Vec<VolumeSnapshot> = read_list(store, &key, &job.tree.root()).await?;
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let task = job.tree.root().child("snapshots");
    let errors = snapshotter::delete_snapshots(&job.context.snapshots, &list, &task).await?;
    if errors.is_empty() {
        task.finish();
    } else {
        task.fail(errors.join("; "));
    }
    Ok(errors)
}

/// The backup's own snapshots in the repositories of volume data.
async fn volume_data(
    job: &Job<DeleteBackupRequestController>,
    backup: &Backup,
    store: &Store,
    moved: &MovedSnapshots,
    task: &Task,
) -> Result<Vec<String>, Error> {
    let key = layout::backup_pod_volume_backups(&backup.name_any());
    let mut transfers: Vec<PodVolumeBackup> = read_list(store, &key, task).await?;
    transfers.extend(moved.transfers());
    let location = backup.spec.storage_location.clone().unwrap_or_default();
    let errors = repositories::forget(&job.context.repositories, &location, &transfers, task).await?;
    if errors.is_empty() {
        task.finish();
    } else {
        task.fail(errors.join("; "));
    }
    Ok(errors)
}

async fn read_list<T: DeserializeOwned>(store: &Store, key: &str, task: &Task) -> Result<Vec<T>, Error> {
    match Patience::default().run(task, || async { Ok(store.get(key).await?) }).await {
        Ok(bytes) => {
            codec::read_gzip_list(bytes.as_ref()).map_err(|source| Error::Archive { name: key.into(), source })
        }
        Err(Error::Store(error)) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn restores_of(job: &Job<DeleteBackupRequestController>, backup: &Backup) -> Result<Vec<String>, Error> {
    let all = job.context.leader.api::<Restore>().list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api("list restores", e))?;
    let name = backup.name_any();
    let of_backup = |restore: &Restore| restore.spec.backup_name.as_deref() == Some(&name);
    Ok(all.items.into_iter().filter(of_backup).map(|restore| restore.name_any()).collect())
}

/// Their files go with them: see the finalizer. Returns those that do not go in time.
async fn remove_restores(
    job: &Job<DeleteBackupRequestController>,
    backup: &Backup,
    task: &Task,
) -> Result<Vec<String>, Error> {
    let list = || restores_of(job, backup);
    for restore in Patience::default().run(task, list).await? {
        kill::point("deletion.restore.before");
        Patience::default().run(task, || job.context.leader.delete::<Restore>(&restore)).await?;
        kill::point("deletion.restore.after");
    }
    let deadline = tokio::time::Instant::now() + RESTORES_LIMIT;
    loop {
        let left = Patience::default().run(task, list).await?;
        if left.is_empty() {
            return Ok(Vec::new());
        }
        if tokio::time::Instant::now() >= deadline {
            return Ok(left.iter().map(|name| format!("error deleting restore {name}: it does not go")).collect());
        }
        let waiting = task.wait(format!("waiting for the files of restore {} to be deleted", left.join(", ")));
        tokio::time::sleep(Duration::from_millis(250)).await;
        drop(waiting);
    }
}

async fn remove_record(job: &Job<DeleteBackupRequestController>, backup: &Backup, task: &Task) -> Result<(), Error> {
    job.record.commit().await?;
    let name = backup.name_any();
    let preconditions = Preconditions { uid: backup.uid(), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let delete = || async {
        match job.context.leader.api::<Backup>().delete(&name, &parameters).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            Err(error) => Err(Error::api(format!("delete backup {name}"), error)),
        }
    };
    kill::point("deletion.record.before");
    Patience::default().run(task, delete).await?;
    kill::point("deletion.record.after");
    task.finish();
    Ok(())
}

#[cfg(test)]
mod tests {
    use plimsoll_api::velero::v1::{AccessMode, BackupStorageLocationStatus};

    use super::*;

    fn location(phase: Option<LocationPhase>, mode: Option<AccessMode>) -> BackupStorageLocation {
        let mut location = BackupStorageLocation::fixture();
        location.spec.access_mode = mode;
        location.status = Some(BackupStorageLocationStatus { phase, ..BackupStorageLocationStatus::default() });
        location
    }

    #[test]
    fn what_stands_against_a_deletion() {
        let mut backup = Backup::fixture();
        backup.spec.storage_location = Some("default".into());
        let available = location(Some(LocationPhase::Available), None);
        let read_only = location(Some(LocationPhase::Available), Some(AccessMode::ReadOnly));
        let unavailable = location(Some(LocationPhase::Unavailable), None);
        let running = backup.clone().in_progress();
        let cannot = "cannot delete backup because backup storage location default is currently in";
        let cases = [
            (None, Some(&available), false, "backup not found".to_owned()),
            (Some(&running), Some(&available), false, "backup is still in progress".to_owned()),
            (Some(&backup), Some(&available), true, "backup is still in progress".to_owned()),
            (Some(&backup), None, false, "backup storage location default not found".to_owned()),
            (Some(&backup), Some(&read_only), false, format!("{cannot} read-only mode")),
            (Some(&backup), Some(&unavailable), false, format!("{cannot} Unavailable state")),
        ];
        for (backup, location, running, expected) in cases {
            assert_eq!(refuse(backup, location, running).faults, [expected]);
        }
        let free = refuse(Some(&backup), Some(&available), false);
        assert!(free.faults.is_empty() && free.missing.is_none());
        assert!(refuse(Some(&backup), Some(&location(None, None)), false).missing.is_some(), "it waits for the check");
    }
}
