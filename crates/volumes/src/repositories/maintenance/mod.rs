//! Maintenance of repositories: frees the space of deleted backups, one repository at a time.
//!
//! ```text
//!  every minute: BackupRepositories ── schedule: the most overdue one ──▶ Operation: mover process (prune, or kopia maintenance)
//!  plimsoll repo prune ── request ──▶ queue ──▶ before all others          └─▶ status.recentMaintenance, Events
//! ```
//!
//! Only the leader runs this. A second maintenance at the same time is excluded by the lock of the repository, or by its owner with
//! kopia. A process that is killed leaves a valid repository, and the next maintenance does the rest.

mod history;
mod report;
mod schedule;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use plimsoll_api::plimsoll::v1alpha1::{Operation, OperationState};
use plimsoll_api::velero::v1::{BackupRepository, RepositoryPhase};
use plimsoll_engine::{Error, kill};
use plimsoll_mover::{Maintenance, MaintenanceOutcome, Outcome, Work};
use plimsoll_operations::{CancellationToken, EventType, Subject, run_recorded};
use plimsoll_progress::Task;
use tokio::sync::Notify;
use tracing::{info, warn};

use self::history::MaintenanceRun;
pub use self::report::maintenance_text;
pub(super) use self::schedule::default_frequency;
use super::Repositories;
use super::access::{self, RepositoryKey, from_mover_error};
use super::check::find_location;
use crate::storage_location::is_read_only;

/// The interval of looks for a repository whose maintenance is due.
const POLL_INTERVAL: Duration = Duration::from_mins(1);
/// The verb of its Operations.
pub const MAINTAIN: &str = "maintain";
/// How long a maintenance waits for the locks of transfers.
const LOCK_TIMEOUT: Duration = Duration::from_hours(1);

/// Repositories whose maintenance a user asked for, in this order.
#[derive(Debug, Default)]
pub(super) struct MaintenanceQueue {
    names: Mutex<VecDeque<String>>,
    added: Notify,
}

impl MaintenanceQueue {
    /// Adds a repository, unless it is there already.
    pub(super) fn add(&self, name: String) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if !names.contains(&name) {
            names.push_back(name);
        }
        drop(names);
        self.added.notify_one();
    }

    fn next(&self) -> Option<String> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Maintains repositories one after the other until the future is dropped.
pub(super) async fn run(repositories: &Repositories) {
    if let Err(error) = queue_unfinished(repositories).await {
        warn!("looking for unfinished maintenances: {error}");
    }
    loop {
        match next(repositories).await {
            Ok(Some(repository)) => maintain(&repository, repositories).await,
            Ok(None) => wait(repositories).await,
            Err(error) => {
                warn!("looking for repositories to maintain: {error}");
                wait(repositories).await;
            }
        }
    }
}

/// Queues the repositories whose maintenance an earlier leader began and did not end. A request of a user is not known otherwise.
async fn queue_unfinished(repositories: &Repositories) -> Result<(), Error> {
    let all = repositories.leader.api::<Operation>().list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api("list operations", e))?.items;
    let is_open = |operation: &Operation| {
        let state = operation.status.as_ref().and_then(|status| status.state.as_ref());
        !state.is_some_and(OperationState::is_ended)
    };
    let maintenances = all.into_iter().filter(|one| one.spec.verb.as_deref() == Some(MAINTAIN) && is_open(one));
    maintenances.filter_map(|one| one.spec.subject?.name).for_each(|name| repositories.maintenance.add(name));
    Ok(())
}

async fn wait(repositories: &Repositories) {
    tokio::select! {
        () = tokio::time::sleep(POLL_INTERVAL) => {}
        () = repositories.maintenance.added.notified() => {}
    }
}

/// The repository to maintain next: one that a user asked for, or the most overdue one.
async fn next(repositories: &Repositories) -> Result<Option<BackupRepository>, Error> {
    let api = repositories.leader.api::<BackupRepository>();
    while let Some(name) = repositories.maintenance.next() {
        let found = api.get_opt(&name).await.map_err(|e| Error::api(format!("read BackupRepository {name}"), e))?;
        if found.is_some() {
            return Ok(found);
        }
    }
    let all = api.list(&ListParams::default()).await.map_err(|e| Error::api("list BackupRepositories", e))?;
    let now = Timestamp::now();
    let due = all.items.into_iter().filter(is_ready).map(|repository| (schedule::due_at(&repository), repository));
    Ok(due.filter(|(at, _)| *at <= now).min_by_key(|(at, _)| *at).map(|(_, repository)| repository))
}

fn is_ready(repository: &BackupRepository) -> bool {
    repository.status.as_ref().and_then(|status| status.phase.as_ref()) == Some(&RepositoryPhase::Ready)
}

/// Maintains a repository, and records the result in its status and in an Event.
async fn maintain(repository: &BackupRepository, repositories: &Repositories) {
    let name = repository.name_any();
    let start = Timestamp::now();
    info!("maintenance of repository {name} begins");
    let subject = subject_of(repository, repositories);
    let work = |task, cancel| async move { run_job(repository, repositories, &task, &cancel).await };
    let result = run_recorded(&repositories.runtime, subject, work).await;
    if let Err(Error::Fenced(_)) = result {
        return;
    }
    let (event, reason, text) = match &result {
        Ok(outcome) => (EventType::Normal, "MaintenanceSucceeded", maintenance_text(outcome)),
        Err(Error::Cancelled) => (EventType::Warning, "MaintenanceCancelled", "cancelled by a user".to_owned()),
        Err(error) => (EventType::Warning, "MaintenanceFailed", format!("{}: {error}", error.reason())),
    };
    info!("maintenance of repository {name}: {text}");
    repositories.leader.events.record(&repository.object_ref(&()), event, reason, &text).await;
    let run = MaintenanceRun { start, end: Timestamp::now(), is_successful: result.is_ok(), message: text };
    if let Err(error) = write_status(&name, run, repositories).await {
        warn!("status of BackupRepository {name}: {error}");
    }
}

fn subject_of(repository: &BackupRepository, repositories: &Repositories) -> Subject {
    Subject {
        api_version: BackupRepository::api_version(&()).into_owned(),
        kind: BackupRepository::kind(&()).into_owned(),
        namespace: repositories.leader.namespace.clone(),
        name: repository.name_any(),
        uid: repository.uid().unwrap_or_default(),
        verb: MAINTAIN,
    }
}

async fn run_job(
    repository: &BackupRepository,
    repositories: &Repositories,
    task: &Task,
    cancel: &CancellationToken,
) -> Result<MaintenanceOutcome, Error> {
    let key = RepositoryKey::of(repository);
    let location = find_location(repositories, &key.location).await?;
    if is_read_only(&location) {
        let location = &key.location;
        return Err(Error::Selection(format!("location {location} is read-only (accessMode: ReadOnly)")));
    }
    let leader = &repositories.leader;
    let opened = access::open(&leader.client, &leader.namespace, &location, &key).await?;
    leader.fence.check()?;
    kill::point("repository.maintenance.before");
    let work = Work::Maintain(Maintenance { dry_run: false, lock_timeout: LOCK_TIMEOUT.as_secs() });
    let outcome = repositories.run_long_mover(&key, opened, work, task, cancel).await;
    kill::point("repository.maintenance.after");
    match outcome.map_err(|error| from_mover_error(&error))? {
        Outcome::Maintained(outcome) => Ok(outcome),
        _ => Ok(MaintenanceOutcome::default()),
    }
}

async fn write_status(name: &str, run: MaintenanceRun, repositories: &Repositories) -> Result<(), Error> {
    let api = repositories.leader.api::<BackupRepository>();
    let current = api.get_opt(name).await.map_err(|e| Error::api(format!("read BackupRepository {name}"), e))?;
    let Some(current) = current else { return Ok(()) };
    repositories.leader.fence.check()?;
    let patch = history::status_patch(&current.status.unwrap_or_default(), run);
    let written = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    written.map(drop).map_err(|e| Error::api(format!("write status of BackupRepository {name}"), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_queued_once_and_in_order() {
        let queue = MaintenanceQueue::default();
        for name in ["a", "b", "a"] {
            queue.add(name.into());
        }
        assert_eq!([queue.next(), queue.next(), queue.next()], [Some("a".into()), Some("b".into()), None]);
    }
}
