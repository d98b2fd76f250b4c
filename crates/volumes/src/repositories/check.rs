//! Checks that a repository exists and can be opened, and creates it if it is missing.

use std::time::Duration;

use kube::ResourceExt;
use plimsoll_api::velero::v1::{BackupRepository, BackupStorageLocation, BackupStorageLocationSpec, RepositoryPhase};
use plimsoll_engine::{Error, kill};
use plimsoll_mover::{EnsureOutcome, Outcome, Repository, Work};
use plimsoll_progress::{Clock, Operation, Task};
use tokio::time::Instant;

use super::access::{self, RepositoryKey, from_mover_error};
use super::check_state::{
    CheckInputs, LastCheck, READY_CHECK_INTERVAL, RepositoryState, location_identity, pause, pause_left,
    time_until_next_check,
};
use super::status::write_status;
use super::{Repositories, locks, password};
use crate::storage_location::is_read_only;

/// Checks a repository if it is due. Returns the time until the next check.
pub(super) async fn check_if_due(
    repository: &BackupRepository,
    known: &mut RepositoryState,
    repositories: &Repositories,
) -> Result<Duration, Error> {
    let location = read_location(repositories, &RepositoryKey::of(repository).location).await?.map(location_identity);
    let password = password_version(repositories).await;
    let inputs = CheckInputs { password, spec: repository.spec.clone(), location };
    if let Some(left) = time_until_next_check(known, &inputs, Instant::now()) {
        // The locks of a repository that does not open are unknown.
        let locks =
            if known.failures == 0 { locks::check_if_due(repository, known, repositories).await? } else { left };
        return Ok(left.min(locks));
    }
    let operation = Operation::new(format!("repository {}", repository.name_any()), Clock::system());
    let result = check(repository, repositories, &operation.root()).await;
    if let Err(Error::Fenced(why)) = result {
        return Err(Error::Fenced(why));
    }
    save_result(repository, known, repositories, inputs.location, &result).await?;
    let locks =
        if result.is_ok() { locks::check_if_due(repository, known, repositories).await? } else { READY_CHECK_INTERVAL };
    Ok(pause_left(known).min(locks))
}

async fn password_version(repositories: &Repositories) -> Option<String> {
    let read = password::read(&repositories.leader.client, &repositories.leader.namespace).await;
    read.ok().flatten().map(|password| password.version)
}

/// Records the result of a check in memory and in the status.
pub(super) async fn save_result(
    repository: &BackupRepository,
    known: &mut RepositoryState,
    repositories: &Repositories,
    location: Option<BackupStorageLocationSpec>,
    result: &Result<EnsureOutcome, Error>,
) -> Result<BackupRepository, Error> {
    let next = pause(result, known.failures);
    known.failures = if result.is_ok() { 0 } else { known.failures.saturating_add(1) };
    let password = password_version(repositories).await;
    let written = write_status(repository, repositories, result, next).await?;
    let inputs = CheckInputs { password, spec: written.spec.clone(), location };
    known.record_check(LastCheck { next: Instant::now() + next, inputs });
    Ok(written)
}

/// Opens the repository, or creates it.
pub(super) async fn check(
    repository: &BackupRepository,
    repositories: &Repositories,
    task: &Task,
) -> Result<EnsureOutcome, Error> {
    let key = RepositoryKey::of(repository);
    let location = find_location(repositories, &key.location).await?;
    if key.namespace.is_empty() {
        return Err(unusable(format!("BackupRepository {}: spec.volumeNamespace is empty", repository.name_any())));
    }
    let secret = password::ensure(repositories, task).await?.secret;
    let place =
        access::repository_location(&repositories.leader.client, &repositories.leader.namespace, &location, &key)
            .await?;
    let read_only = is_read_only(&location);
    repositories.leader.fence.check()?;
    kill::point("repository.ensure.before");
    let opened = Repository { location: place, password: secret };
    let work = if read_only { Work::Snapshots } else { Work::Ensure };
    let outcome = repositories.run_mover(&key, opened, work, task).await.map_err(|error| from_mover_error(&error))?;
    kill::point("repository.ensure.after");
    match outcome {
        Outcome::Ensure(ensured) => Ok(with_loss_warning(ensured, repository)),
        _ => Ok(EnsureOutcome::default()),
    }
}

/// Reports that a missing repository was created again.
fn with_loss_warning(mut ensured: EnsureOutcome, repository: &BackupRepository) -> EnsureOutcome {
    let phase = repository.status.as_ref().and_then(|status| status.phase.as_ref());
    if ensured.created && phase == Some(&RepositoryPhase::Ready) {
        ensured.warnings.push(
            "the repository was missing and was created again: earlier backups of these volumes cannot be restored from it. See \
             whether the location still is the bucket or disk that it was"
                .into(),
        );
    }
    ensured
}

fn unusable(message: String) -> Error {
    Error::Volumes { reason: "InvalidRepository", message, retryable: false }
}

/// The location of a repository.
pub(super) async fn find_location(repositories: &Repositories, name: &str) -> Result<BackupStorageLocation, Error> {
    let found = read_location(repositories, name).await?;
    found.ok_or_else(|| unusable(format!("BackupStorageLocation {name:?} not found")))
}

pub(super) async fn read_location(
    repositories: &Repositories,
    name: &str,
) -> Result<Option<BackupStorageLocation>, Error> {
    if name.is_empty() {
        return Ok(None);
    }
    let found = repositories.leader.api::<BackupStorageLocation>().get_opt(name).await;
    found.map_err(|e| Error::api(format!("read location {name}"), e))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_repository_that_is_made_where_one_was_ready_is_a_loss_and_any_other_is_none() {
        let of = |phase: &str| -> BackupRepository {
            let status = if phase.is_empty() { json!({}) } else { json!({ "phase": phase }) };
            serde_json::from_value(json!({ "metadata": { "name": "r" }, "spec": {}, "status": status })).unwrap()
        };
        let warns = |created, phase| {
            let ensured = with_loss_warning(EnsureOutcome { created, ..EnsureOutcome::default() }, &of(phase));
            ensured.warnings.iter().any(|warning| warning.contains("was missing"))
        };
        assert!(warns(true, "Ready"));
        assert!(!warns(false, "Ready") && !warns(true, "") && !warns(true, "New") && !warns(true, "NotReady"));
    }
}
