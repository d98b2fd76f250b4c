//! Provides the repository that a backup or restore needs.

use std::time::Duration;

use kube::ResourceExt;
use plimsoll_api::velero::v1::{BackupRepository, BackupStorageLocationSpec, RepositoryPhase};
use plimsoll_engine::{Error, RetryPolicy};
use plimsoll_mover::EnsureOutcome;
use plimsoll_progress::Task;
use tokio::sync::{Mutex, MutexGuard};

use super::Repositories;
use super::access::RepositoryKey;
use super::check::{check, read_location, save_result};
use super::check_state::{RepositoryState, location_identity};
use super::create::find_or_create;

/// Timeout of the wait for a repository.
const WAIT_TIMEOUT: Duration = Duration::from_mins(10);

/// Ensures that there is a repository for the volumes of a namespace: creates the custom resource and the repository where they
/// are missing. During retries `task` shows the reason. Only the leader may call this.
///
/// A repository in phase `Ready` is not opened again if this leader has checked it in its current location.
pub async fn require(repositories: &Repositories, key: &RepositoryKey, task: &Task) -> Result<BackupRepository, Error> {
    let retry = RetryPolicy::with_timeout(WAIT_TIMEOUT);
    let repository = retry.run(task, || find_or_create(repositories, key)).await?;
    let name = repository.name_any();
    let known = repositories.of(&name);
    // Locked for one attempt only: other tasks use the repository, too.
    let open = || async {
        let mut known = lock_state(&known, &name, task).await;
        let OpenedRepository { repository, location, result } = try_open(repositories, &name, &known, task).await?;
        let Some(result) = result else { return Ok(repository) };
        let written = save_result(&repository, &mut known, repositories, location, &result).await?;
        result.map(|_| written)
    };
    retry.run(task, open).await
}

/// Waits until no other task works on a repository, and shows that.
async fn lock_state<'k>(known: &'k Mutex<RepositoryState>, name: &str, task: &Task) -> MutexGuard<'k, RepositoryState> {
    if let Ok(free) = known.try_lock() {
        return free;
    }
    let _waiting = task.wait(format!("waiting for another check of repository {name} to end"));
    known.lock().await
}

/// A repository whose state is known.
struct OpenedRepository {
    repository: BackupRepository,
    location: Option<BackupStorageLocationSpec>,
    /// The result of opening it, if it was not known to be ready.
    result: Option<Result<EnsureOutcome, Error>>,
}

/// Opens a repository. Retryable failures are errors; others are a result.
async fn try_open(
    repositories: &Repositories,
    name: &str,
    known: &RepositoryState,
    task: &Task,
) -> Result<OpenedRepository, Error> {
    let repository = repositories.leader.api::<BackupRepository>().get(name).await;
    let repository = repository.map_err(|e| Error::api(format!("read BackupRepository {name}"), e))?;
    let location = read_location(repositories, &RepositoryKey::of(&repository).location).await?.map(location_identity);
    let phase = repository.status.as_ref().and_then(|status| status.phase.as_ref());
    if phase == Some(&RepositoryPhase::Ready) && known.has_checked(location.as_ref()) {
        return Ok(OpenedRepository { repository, location, result: None });
    }
    match check(&repository, repositories, task).await {
        Err(error) if error.is_retryable() || matches!(error, Error::Fenced(_)) => Err(error),
        result => Ok(OpenedRepository { repository, location, result: Some(result) }),
    }
}
