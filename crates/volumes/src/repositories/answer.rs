//! Answers the requests on a BackupRepository.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use plimsoll_api::velero::v1::BackupRepository;
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_mover::{LockInfo, Maintenance, Outcome, References, Repository, SnapshotInfo, Work, orphaned_snapshots};
use plimsoll_progress::{Clock, Operation, Task};
use plimsoll_store::Tuning;
use serde_json::json;
use tracing::info;

use super::access::{self, RepositoryKey, from_mover_error};
use super::check::find_location;
use super::check_state::RepositoryState;
use super::locks::{self, Holders};
use super::request::{ANSWER, Answer, LockReport, REQUEST, Request, RequestKind, SnapshotReport};
use super::{Repositories, references};
use crate::storage_location::is_read_only;

/// Longer lists are cut: an object has room for a quarter of a mebibyte of annotations.
const MAX_LISTED: usize = 200;
/// Younger snapshots are not deleted: their backup may not be committed yet.
const MIN_ORPHAN_AGE: SignedDuration = SignedDuration::from_hours(1);
/// Timeout of retries while a request is handled.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// The request on a repository that has not been answered yet.
fn pending(repository: &BackupRepository, known: &RepositoryState) -> Option<Result<Request, String>> {
    let text = repository.annotations().get(REQUEST)?;
    let request: Request = match serde_json::from_str(text) {
        Ok(request) => request,
        Err(error) => return Some(Err(format!("annotation {REQUEST} cannot be read: {error}"))),
    };
    (known.answered.as_ref() != Some(&request.id)).then_some(Ok(request))
}

/// Answers the request on a repository, if there is one.
pub(super) async fn answer_request(
    repository: &BackupRepository,
    known: &mut RepositoryState,
    repositories: &Repositories,
) -> Result<(), Error> {
    let Some(request) = pending(repository, known) else { return Ok(()) };
    let answer = match request {
        Err(error) => Answer { error: Some(error), ..Answer::default() },
        Ok(request) => {
            let id = request.id.clone();
            match find_answer(repository, known, &request, repositories).await {
                Err(error @ Error::Fenced(_)) => return Err(error),
                Err(error) => Answer { id, error: Some(error.to_string()), ..Answer::default() },
                Ok(answer) => Answer { id, ..answer },
            }
        }
    };
    repositories.leader.fence.check()?;
    let name = repository.name_any();
    let text = serde_json::to_string(&answer).unwrap_or_default();
    let patch = json!({ "metadata": { "annotations": { REQUEST: null, ANSWER: text } } });
    let written =
        repositories.leader.api::<BackupRepository>().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    written.map_err(|e| Error::api(format!("answer on BackupRepository {name}"), e))?;
    known.answered = Some(answer.id);
    Ok(())
}

/// A repository that can be read.
pub(super) struct OpenedRepository<'a> {
    key: RepositoryKey,
    repository: Repository,
    repositories: &'a Repositories,
    task: Task,
}

impl<'a> OpenedRepository<'a> {
    pub(super) async fn of(
        repository: &BackupRepository,
        repositories: &'a Repositories,
        task: Task,
    ) -> Result<Self, Error> {
        let key = RepositoryKey::of(repository);
        let location = find_location(repositories, &key.location).await?;
        let opened = access::open(&repositories.leader.client, &repositories.leader.namespace, &location, &key).await?;
        Ok(Self { key, repository: opened, repositories, task })
    }

    async fn run_mover(&self, work: Work) -> Result<Outcome, Error> {
        let answer = self.repositories.run_mover(&self.key, self.repository.clone(), work, &self.task).await;
        answer.map_err(|error| from_mover_error(&error))
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotInfo>, Error> {
        match self.run_mover(Work::Snapshots).await? {
            Outcome::Snapshots(snapshots) => Ok(snapshots),
            _ => Ok(Vec::new()),
        }
    }

    async fn locks(&self) -> Result<Vec<LockInfo>, Error> {
        match self.run_mover(Work::Locks).await? {
            Outcome::Locks(locks) => Ok(locks),
            _ => Ok(Vec::new()),
        }
    }
}

async fn find_answer(
    repository: &BackupRepository,
    known: &mut RepositoryState,
    request: &Request,
    repositories: &Repositories,
) -> Result<Answer, Error> {
    let operation = Operation::new(format!("repository {}", repository.name_any()), Clock::system());
    let opened = OpenedRepository::of(repository, repositories, operation.root()).await?;
    let location = find_location(repositories, &opened.key.location).await?;
    if request.asked.removes() && is_read_only(&location) {
        let name = &opened.key.location;
        return Err(Error::Selection(format!(
            "location {name} is read-only (accessMode: ReadOnly): nothing is removed from it"
        )));
    }
    let store = || repositories.storage.open_with(&location, Tuning::default());
    // A busy API server or store is retried for a while.
    let (root, retry) = (operation.root(), RetryPolicy::with_timeout(RETRY_TIMEOUT));
    let references = retry.run(&root, || async { references::find(repositories, &store().await?).await });
    match &request.asked {
        RequestKind::Describe => {
            let mut answer = find_orphans(&opened, references, SignedDuration::ZERO, false).await?;
            answer.locks = report_locks(&opened, known, false).await?;
            Ok(answer)
        }
        RequestKind::Orphans { older_than, delete } => {
            let age = SignedDuration::from_secs((*older_than).max(0));
            if *delete && age < MIN_ORPHAN_AGE {
                return Err(Error::Selection("snapshots younger than one hour are never deleted".into()));
            }
            find_orphans(&opened, references, age, *delete).await
        }
        RequestKind::PlanMaintenance => plan_maintenance(&opened).await,
        RequestKind::Maintain => {
            repositories.maintenance.add(repository.name_any());
            Ok(Answer::default())
        }
        RequestKind::Unlock => Ok(Answer { locks: report_locks(&opened, known, true).await?, ..Answer::default() }),
    }
}

/// Finds orphans. The references are read after the snapshots: a snapshot that appears later is not listed, and one that is
/// referred to later belongs to a backup that had not ended.
async fn find_orphans(
    opened: &OpenedRepository<'_>,
    references: impl Future<Output = Result<References, Error>>,
    age: SignedDuration,
    delete: bool,
) -> Result<Answer, Error> {
    let snapshots = opened.snapshots().await?;
    let references = references.await?;
    let found = orphaned_snapshots(&snapshots, &references, age, Timestamp::now());
    if delete && !found.is_empty() {
        opened.repositories.leader.fence.check()?;
        let ids: Vec<String> = found.iter().map(|snapshot| snapshot.id.clone()).collect();
        info!(
            "forgetting {} orphans of repository {}: {}",
            ids.len(),
            access::repository_name(&opened.key),
            ids.join(", ")
        );
        kill::point("repository.orphans.before");
        opened.run_mover(Work::Forget { snapshots: ids }).await?;
        kill::point("repository.orphans.after");
    }
    Ok(Answer {
        snapshots: snapshots.len() as u64,
        orphan_count: found.len() as u64,
        orphans: found.iter().take(MAX_LISTED).map(|snapshot| SnapshotReport::from(*snapshot)).collect(),
        deleted: delete,
        ..Answer::default()
    })
}

async fn plan_maintenance(opened: &OpenedRepository<'_>) -> Result<Answer, Error> {
    let work = Work::Maintain(Maintenance { dry_run: true, lock_timeout: 0 });
    let maintenance = match opened.run_mover(work).await? {
        Outcome::Maintained(outcome) => Some(outcome),
        _ => None,
    };
    Ok(Answer { maintenance, ..Answer::default() })
}

/// Reports the locks, and removes stale ones if that is requested.
pub(super) async fn report_locks(
    opened: &OpenedRepository<'_>,
    known: &mut RepositoryState,
    remove: bool,
) -> Result<Vec<LockReport>, Error> {
    let holders = Holders::read(opened.repositories).await?;
    let found = opened.locks().await?;
    let removable = known.locks.observe(&found, Timestamp::now(), |lock| holders.of(lock));
    if remove && !removable.is_empty() {
        opened.repositories.leader.fence.check()?;
        opened.run_mover(Work::Unlock { locks: removable.clone() }).await?;
    }
    let report = |lock: &LockInfo| LockReport {
        id: lock.id.clone(),
        time: lock.time,
        hostname: lock.machine().to_owned(),
        pid: lock.pid,
        exclusive: lock.exclusive,
        holder: locks::holder_text(holders.of(lock)).into(),
        removed: remove && removable.contains(&lock.id),
    };
    Ok(found.iter().take(MAX_LISTED).map(report).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_once_and_an_invalid_one_is_answered_too() {
        let mut repository = BackupRepository::default();
        let mut known = RepositoryState::default();
        assert!(pending(&repository, &known).is_none());
        let request = Request { id: "7".into(), asked: RequestKind::Orphans { older_than: 60, delete: false } };
        let text = serde_json::to_string(&request).unwrap();
        repository.annotations_mut().insert(REQUEST.into(), text);
        assert_eq!(pending(&repository, &known), Some(Ok(request)));
        known.answered = Some("7".into());
        assert!(pending(&repository, &known).is_none());
        repository.annotations_mut().insert(REQUEST.into(), "{".into());
        assert!(matches!(pending(&repository, &known), Some(Err(_))));
    }
}
