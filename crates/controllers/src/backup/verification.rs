//! Verification of backups: `plimsoll backup verify` sends a request in an annotation of the Backup, and the leader answers in another.
//!
//! ```text
//!  request ──▶ Operation verify-<backup>: files of the backup ──▶ volume data in the repositories ──▶ result, Event
//! ```
//!
//! One backup at a time. After a crash of the leader, the next one does the whole verification: the request is still there.

use std::sync::Arc;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use plimsoll_api::velero::v1::{Backup, BackupStorageLocation};
use plimsoll_engine::{Error, RetryPolicy, kill, verify_backup_files};
use plimsoll_operations::controller::run_controller;
use plimsoll_operations::{EventType, LeaderClient, OperationRuntime, Subject, run_recorded};
use plimsoll_progress::Task;
use plimsoll_volumes::repositories::{Problem, Repositories, snapshots_of, verify_snapshots};
use plimsoll_volumes::storage_location::StorageLocations;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// Annotation on a Backup: the request.
pub const REQUEST: &str = "plimsoll.dev/verification-request";
/// Annotation on a Backup: the last result.
pub const RESULT: &str = "plimsoll.dev/verification";
/// The verb of its Operations.
pub const VERIFY: &str = "verify";
/// The largest number of problems in a result: an object has room for a quarter of a mebibyte of annotations.
const MAX_PROBLEMS: usize = 50;
/// The largest number of warnings.
const MAX_WARNINGS: usize = 20;
/// The largest number of bytes of a text.
const MAX_TEXT: usize = 300;
/// The largest number of other backups that a problem names.
const MAX_BACKUPS: usize = 10;

/// A request to verify a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VerificationRequest {
    /// Identifies the result of this request.
    pub id: String,
    /// How much of the volume data is read, in percent.
    pub read_percent: u8,
}

/// The result of the last verification of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Verification {
    /// ID of the request.
    pub id: String,
    /// When it ended.
    pub time: Timestamp,
    /// How much of the volume data was read, in percent.
    pub read_percent: u8,
    /// Items in the tarball.
    pub items: u64,
    /// Snapshots of volume data.
    pub snapshots: u64,
    /// Bytes of volume data that were read, as far as it is known.
    pub bytes_read: u64,
    /// Why the verification itself failed; then nothing is known about the backup.
    pub error: Option<String>,
    /// What is missing or damaged, the first of it.
    pub problems: Vec<Problem>,
    /// The number of all problems.
    pub problem_count: u64,
    /// Damage that affects no restore.
    pub warnings: Vec<String>,
}

impl Verification {
    /// Whether the backup was verified and nothing is missing or damaged.
    pub fn is_good(&self) -> bool {
        self.error.is_none() && self.problem_count == 0
    }

    /// The result in one line.
    pub fn summary(&self) -> String {
        match (&self.error, self.problem_count) {
            (Some(error), _) => format!("verification failed: {error}"),
            (None, 0) => format!("intact: {} items, {} snapshots of volume data", self.items, self.snapshots),
            (None, 1) => "damaged: 1 problem".into(),
            (None, count) => format!("damaged: {count} problems"),
        }
    }

    /// Cuts it to the size of an annotation.
    fn limit(&mut self) {
        self.problems.truncate(MAX_PROBLEMS);
        for problem in &mut self.problems {
            problem.text.truncate(problem.text.floor_char_boundary(MAX_TEXT));
            problem.also_affects.truncate(MAX_BACKUPS);
        }
        self.warnings.truncate(MAX_WARNINGS);
        self.warnings.iter_mut().for_each(|text| text.truncate(text.floor_char_boundary(MAX_TEXT)));
    }
}

/// What a verification needs.
pub struct VerificationContext {
    /// The connection of the leader.
    pub leader: LeaderClient,
    /// Records verifications as Operations.
    pub runtime: Arc<OperationRuntime>,
    /// Opens backup storage locations.
    pub storage: Arc<StorageLocations>,
    /// The repositories of volume data.
    pub repositories: Arc<Repositories>,
    /// Held by the verification that runs.
    pub turn: Mutex<()>,
}

/// Answers requests until the future is dropped.
pub async fn control(context: Arc<VerificationContext>) {
    let leader = context.leader.clone();
    run_controller::<Backup, _, _, _>(&leader, context, reconcile).await;
}

async fn reconcile(backup: Arc<Backup>, context: Arc<VerificationContext>) -> Result<Action, Error> {
    if backup.annotations().contains_key(REQUEST) {
        let _turn = context.turn.lock().await;
        // The watch may be older than the answer to this request.
        let name = backup.name_any();
        let current = context.leader.api::<Backup>().get_opt(&name).await;
        if let Some(current) = current.map_err(|e| Error::api(format!("read backup {name}"), e))?
            && let Some(request) = current.annotations().get(REQUEST)
        {
            answer(&current, request, &context).await?;
        }
    }
    Ok(Action::await_change())
}

async fn answer(backup: &Backup, request: &str, context: &VerificationContext) -> Result<(), Error> {
    let mut result = match serde_json::from_str::<VerificationRequest>(request) {
        Err(error) => Verification {
            error: Some(format!("annotation {REQUEST} cannot be read: {error}")),
            ..Verification::default()
        },
        Ok(request) => {
            let verified = verify(backup, &request, context).await;
            let mut result = match verified {
                Err(error @ Error::Fenced(_)) => return Err(error),
                Err(Error::Cancelled) => {
                    Verification { error: Some("cancelled by a user".into()), ..Verification::default() }
                }
                Err(error) => Verification { error: Some(error.to_string()), ..Verification::default() },
                Ok(result) => result,
            };
            (result.id, result.read_percent) = (request.id, request.read_percent);
            result
        }
    };
    result.time = Timestamp::now();
    result.limit();
    write(backup, &result, context).await
}

async fn write(backup: &Backup, result: &Verification, context: &VerificationContext) -> Result<(), Error> {
    context.leader.fence.check()?;
    let (name, text) = (backup.name_any(), serde_json::to_string(result).unwrap_or_default());
    let patch = json!({ "metadata": { "annotations": { REQUEST: null, RESULT: text } } });
    kill::point("verification.result.before");
    match context.leader.api::<Backup>().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(Error::api(format!("write the verification of backup {name}"), error)),
    }
    let (event, reason) = match (result.is_good(), &result.error) {
        (true, _) => (EventType::Normal, "Verified"),
        (false, Some(_)) => (EventType::Warning, "VerificationFailed"),
        (false, None) => (EventType::Warning, "BackupDamaged"),
    };
    context.leader.events.record(&backup.object_ref(&()), event, reason, &result.summary()).await;
    Ok(())
}

async fn verify(
    backup: &Backup,
    request: &VerificationRequest,
    context: &VerificationContext,
) -> Result<Verification, Error> {
    if !backup.phase().is_ended() {
        return Err(Error::Selection(format!("backup {} has not ended", backup.name_any())));
    }
    let subject = Subject {
        api_version: Backup::api_version(&()).into_owned(),
        kind: Backup::kind(&()).into_owned(),
        namespace: context.leader.namespace.clone(),
        name: backup.name_any(),
        uid: backup.uid().unwrap_or_default(),
        verb: VERIFY,
    };
    let percent = request.read_percent;
    let work = |task, cancel| async move { run(backup, percent, context, &task, &cancel).await };
    run_recorded(&context.runtime, subject, work).await
}

async fn run(
    backup: &Backup,
    percent: u8,
    context: &VerificationContext,
    task: &Task,
    cancel: &CancellationToken,
) -> Result<Verification, Error> {
    let (name, location) = (backup.name_any(), find_location(backup, context).await?);
    let store = context.storage.open(&location).await?;
    let retry = RetryPolicy::default();
    let step = task.child("files");
    let files = retry.run(&step, || verify_backup_files(&store, &name, &step));
    let files = tokio::select! {
        files = files => files?,
        () = cancel.cancelled() => return Err(Error::Cancelled),
    };
    step.finish();
    let mut result = Verification { items: files.items, ..Verification::default() };
    result.problem_count = files.problems.len() as u64;
    result.problems = files.problems.into_iter().map(|text| Problem { text, ..Problem::default() }).collect();
    let (step, location) = (task.child("volumes"), location.name_any());
    match retry.run(&step, || snapshots_of(&store, &location, &name)).await {
        // The damaged list is a problem already.
        Err(Error::Archive { .. }) => {}
        Err(error) => return Err(error),
        Ok(snapshots) => {
            let volumes = verify_snapshots(&context.repositories, &name, snapshots, percent, &step, cancel).await?;
            (result.snapshots, result.bytes_read) = (volumes.snapshots, volumes.bytes_read);
            result.problem_count += volumes.problem_count;
            result.problems.extend(volumes.problems);
            result.warnings = volumes.warnings;
        }
    }
    step.finish();
    Ok(result)
}

async fn find_location(backup: &Backup, context: &VerificationContext) -> Result<BackupStorageLocation, Error> {
    let name = backup.spec.storage_location.clone().unwrap_or_default();
    let found = context.leader.api::<BackupStorageLocation>().get_opt(&name).await;
    let found = found.map_err(|e| Error::api(format!("read location {name}"), e))?;
    found.ok_or_else(|| Error::Selection(format!("BackupStorageLocation {name:?} not found")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_fits_into_an_annotation() {
        let problem = Problem { text: "é".repeat(5000), also_affects: vec!["backup".repeat(40); 1000] };
        let mut result = Verification {
            problems: vec![problem; 1000],
            problem_count: 1000,
            warnings: vec!["w".repeat(9000); 1000],
            ..Verification::default()
        };
        result.limit();
        let size = serde_json::to_string(&result).unwrap().len();
        assert!(size < 180_000, "{size}");
        assert_eq!(result.summary(), "damaged: 1000 problems");
    }
}
