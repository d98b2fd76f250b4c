//! The result of a check in the status and the Events of a BackupRepository.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Resource, ResourceExt};
use plimsoll_api::velero::v1::{BackupRepository, RepositoryPhase};
use plimsoll_engine::{Error, kill};
use plimsoll_mover::{EnsureOutcome, MoverKind, restic_identifier};
use plimsoll_operations::EventType;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::Repositories;
use super::access::{self, RepositoryKey};
use super::check::find_location;

/// The status after a check.
fn status_of(result: &Result<EnsureOutcome, Error>, next: Duration) -> Value {
    match result {
        Ok(ensured) => {
            let warning = (!ensured.warnings.is_empty()).then(|| ensured.warnings.join("; "));
            json!({ "phase": "Ready", "message": warning })
        }
        Err(error) => {
            let again =
                if error.is_retryable() { format!(" (tried again in {} s)", next.as_secs()) } else { String::new() };
            json!({ "phase": "NotReady", "message": format!("{}: {error}{again}", error.reason()) })
        }
    }
}

/// Writes the status and the restic address where they have changed, and records Events.
pub(super) async fn write_status(
    repository: &BackupRepository,
    repositories: &Repositories,
    result: &Result<EnsureOutcome, Error>,
    next: Duration,
) -> Result<BackupRepository, Error> {
    record_event(repository, repositories, result).await;
    let status = status_of(result, next);
    let was = serde_json::to_value(&repository.status).unwrap_or_default();
    let mut patch = json!({});
    if was.get("phase") != status.get("phase") || was.get("message").unwrap_or(&Value::Null) != &status["message"] {
        patch["status"] = status;
    }
    if let Some(identifier) = identifier(repository, repositories).await {
        patch["spec"] = json!({ "resticIdentifier": identifier });
    }
    if patch == json!({}) {
        return Ok(repository.clone());
    }
    repositories.leader.fence.check()?;
    let name = repository.name_any();
    kill::point("repository.status.before");
    let written = repositories
        .leader
        .api::<BackupRepository>()
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    written.map_err(|e| Error::api(format!("write status of BackupRepository {name}"), e))
}

/// The restic address of a repository whose custom resource has none or an outdated one.
async fn identifier(repository: &BackupRepository, repositories: &Repositories) -> Option<String> {
    let key = RepositoryKey::of(repository);
    if key.kind() == MoverKind::Kopia {
        return None;
    }
    let location = find_location(repositories, &key.location).await.ok()?;
    let place =
        access::repository_location(&repositories.leader.client, &repositories.leader.namespace, &location, &key)
            .await
            .ok()?;
    restic_identifier(&place).filter(|address| repository.spec.restic_identifier.as_ref() != Some(address))
}

/// Records an Event when a repository becomes usable or unusable, and for each warning.
async fn record_event(
    repository: &BackupRepository,
    repositories: &Repositories,
    result: &Result<EnsureOutcome, Error>,
) {
    let known = repository.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let about = repository.object_ref(&());
    let name = repository.name_any();
    match result {
        Ok(ensured) => {
            for warning in &ensured.warnings {
                warn!("BackupRepository {name}: {warning}");
                repositories.leader.events.record(&about, EventType::Warning, "RepositoryWarning", warning).await;
            }
            if known != RepositoryPhase::Ready {
                let what = if ensured.created { "the repository was created" } else { "the repository can be opened" };
                info!("BackupRepository {name}: {what}");
                repositories.leader.events.record(&about, EventType::Normal, "Ready", what).await;
            }
        }
        Err(error) => {
            warn!("BackupRepository {name}: {error}");
            repositories.leader.events.record(&about, EventType::Warning, error.reason(), &error.to_string()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(retryable: bool) -> Result<EnsureOutcome, Error> {
        Err(Error::Volumes { reason: "WrongRepositoryPassword", message: "it does not open".into(), retryable })
    }

    #[test]
    fn the_status_names_the_reason_and_a_warning_does_not_make_a_repository_unready() {
        let warned = EnsureOutcome { warnings: vec!["the password is the default".into()], ..EnsureOutcome::default() };
        assert_eq!(
            status_of(&Ok(warned), Duration::from_hours(1)),
            json!({ "phase": "Ready", "message": "the password is the default" })
        );
        assert_eq!(
            status_of(&Ok(EnsureOutcome::default()), Duration::from_hours(1)),
            json!({ "phase": "Ready", "message": null })
        );
        let waiting = status_of(&failed(true), Duration::from_secs(2));
        assert_eq!(waiting["message"], "WrongRepositoryPassword: it does not open (tried again in 2 s)");
        assert_eq!(
            status_of(&failed(false), Duration::from_mins(1))["message"],
            "WrongRepositoryPassword: it does not open"
        );
    }
}
