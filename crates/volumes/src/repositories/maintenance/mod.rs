//! Maintenance of repositories: frees the space of deleted backups, one repository at a time.
//!
//! ```text
//!  every minute: BackupRepositories ── schedule: the most overdue one ──▶ mover process (prune, or kopia maintenance)
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
use plimsoll_api::velero::v1::{BackupRepository, RepositoryPhase};
use plimsoll_engine::{Error, kill};
use plimsoll_mover::{Job, Maintenance, MaintenanceOutcome, MoverCommand, Outcome, Work, spawn};
use plimsoll_operations::EventType;
use plimsoll_progress::{Clock, Operation};
use tokio::sync::Notify;
use tracing::{info, warn};

use self::history::MaintenanceRun;
pub use self::report::maintenance_text;
pub(super) use self::schedule::default_frequency;
use super::Repositories;
use super::access::{self, RepositoryKey, from_mover_error, repository_name};
use super::check::find_location;
use crate::storage_location::is_read_only;

/// The interval of looks for a repository whose maintenance is due.
const POLL_INTERVAL: Duration = Duration::from_mins(1);
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
    let result = run_job(repository, repositories).await;
    if let Err(Error::Fenced(_)) = result {
        return;
    }
    let (event, reason, text) = match &result {
        Ok(outcome) => (EventType::Normal, "MaintenanceSucceeded", maintenance_text(outcome)),
        Err(error) => (EventType::Warning, "MaintenanceFailed", format!("{}: {error}", error.reason())),
    };
    info!("maintenance of repository {name}: {text}");
    repositories.leader.events.record(&repository.object_ref(&()), event, reason, &text).await;
    let run = MaintenanceRun { start, end: Timestamp::now(), is_successful: result.is_ok(), message: text };
    if let Err(error) = write_status(&name, run, repositories).await {
        warn!("status of BackupRepository {name}: {error}");
    }
}

async fn run_job(repository: &BackupRepository, repositories: &Repositories) -> Result<MaintenanceOutcome, Error> {
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
    let operation = Operation::new(format!("maintenance {}", repository.name_any()), Clock::system());
    let job = Job::new(repository_name(&key), key.kind(), opened, work);
    let started = MoverCommand::this_program().and_then(|program| spawn(&program, &job, &operation.root()));
    let outcome = started.map_err(|error| from_mover_error(&error))?.wait().await;
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
        ["a", "b", "a"].into_iter().for_each(|name| queue.add(name.into()));
        assert_eq!([queue.next(), queue.next(), queue.next()], [Some("a".into()), Some("b".into()), None]);
    }
}
