//! DeleteBackupRequest: a backup is deleted with all that belongs to it.

mod admission;
pub mod cleanup;
mod extensions;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams};
use kube::{Resource, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::plimsoll::v1alpha1::OperationState;
use plimsoll_api::velero::v1::{
    Backup, BackupPhase, BackupStorageLocation, DeleteBackupRequest, DeleteBackupRequestPhase,
};
use plimsoll_engine::delete::{self, DeleteEnv, DeleteOutcome, DeletionCause};
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_operations::{Completion, EventType, ItemCounters, Job, Lifecycle, Requirements, SubjectState};
use serde_json::{Value, json};

use self::admission::{check_backup, delete_other_requests, earlier_request};
use self::extensions::JobExtensions;
use crate::backup::BackupController;
use crate::context::Context;
use crate::running_restores::running_restore;

/// Maximum number of deletions that run in parallel.
const MAX_CONCURRENT_DELETIONS: usize = 4;

/// The lifecycle of a DeleteBackupRequest.
pub struct DeleteBackupRequestController;

impl Lifecycle for DeleteBackupRequestController {
    type Resource = DeleteBackupRequest;
    type Context = Context;
    type LiveState = ();
    const VERB: &'static str = "delete";
    const KEEPS_HISTORY: bool = false;
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
        let mut needs = check_backup(backup.as_ref(), location.as_ref(), running);
        if needs.faults.is_empty() && needs.missing.is_none() {
            needs.missing = running_restore(&name, &context.leader).await?;
        }
        Ok(needs)
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
        MAX_CONCURRENT_DELETIONS
    }

    async fn execute(job: &Job<Self>) -> Result<Completion, Error> {
        delete_other_requests(job).await?;
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
        match delete_backup(job, &backup).await? {
            DeleteOutcome::Kept(errors) => {
                record_event(job, &backup, EventType::Warning, "DeletionFailed", &errors.join("; ")).await;
                return Err(Error::Selection(errors.join("; ")));
            }
            DeleteOutcome::Deleted(unproven) if unproven.is_empty() => {
                let message = "the backup and all that belongs to it is deleted";
                record_event(job, &backup, EventType::Normal, "Deleted", message).await;
            }
            DeleteOutcome::Deleted(unproven) => {
                record_event(job, &backup, EventType::Warning, "SnapshotsKept", &describe_unproven(&unproven)).await;
            }
        }
        delete_other_requests(job).await?;
        Ok(done())
    }
}

/// The resources of an expired backup outside of its location.
fn describe_unproven(unproven: &[String]) -> String {
    const MAX_SHOWN: usize = 10;
    let shown = unproven.iter().take(MAX_SHOWN).map(String::as_str).collect::<Vec<_>>().join("; ");
    let more = unproven.len().saturating_sub(MAX_SHOWN);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!(
        "the backup has expired and its files are deleted; what it names outside of its location is kept, because there is no \
         proof that this cluster made it: {shown}{more}. Delete it at its provider if it is yours"
    )
}

async fn delete_backup(job: &Job<DeleteBackupRequestController>, backup: &Backup) -> Result<DeleteOutcome, Error> {
    let extensions = JobExtensions::new(job, backup);
    let env = DeleteEnv {
        operation: job.engine_env(),
        namespace: job.context.leader.namespace.clone(),
        cause: if job.subject.annotations().contains_key(labels::EXPIRED) {
            DeletionCause::Expired
        } else {
            DeletionCause::Requested
        },
        extensions: &extensions,
    };
    delete::execute(backup, env).await
}

fn done() -> Completion {
    Completion {
        status: json!({ "phase": "Processed", "errors": null }),
        state: OperationState::Succeeded,
        reasons: Vec::new(),
        ending: None,
    }
}

async fn record_event(
    job: &Job<DeleteBackupRequestController>,
    backup: &Backup,
    event_type: EventType,
    reason: &str,
    message: &str,
) {
    let about: ObjectReference = backup.object_ref(&());
    job.context.leader.events.record(&about, event_type, reason, message).await;
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
    record_event(
        job,
        backup,
        EventType::Normal,
        "Deleting",
        &format!("deletion request {} is carried out", job.id.name),
    )
    .await;
    let patch = Patch::Merge(json!({ "status": { "phase": "Deleting", "queuePosition": null } }));
    let write = || async {
        job.context.leader.fence.check()?;
        let name = backup.name_any();
        let written = job.context.leader.api::<Backup>().patch(&name, &PatchParams::default(), &patch).await;
        written.map_err(|e| Error::api(format!("write status of backup {name}"), e))
    };
    kill::point("deletion.mark.before");
    RetryPolicy::default().run(&job.tree.root(), write).await?;
    kill::point("deletion.mark.after");
    Ok(())
}
