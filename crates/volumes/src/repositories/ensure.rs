//! Sees that a repository is there and opens, and says so on its custom resource.

use std::time::Duration;

use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use plimsoll_api::go::GoDuration;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{
    BackupRepository, BackupRepositorySpec, BackupStorageLocation, BackupStorageLocationSpec, RepositoryPhase,
    UploaderType,
};
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_mover::{
    EnsureOutcome, Job, MoverCommand, MoverError, MoverKind, Outcome, Repository, StaleLockDetector, Work,
    restic_identifier, spawn,
};
use plimsoll_operations::EventType;
use plimsoll_progress::{Clock, Operation, Task};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;
use tracing::{info, warn};

use super::access::{self, RepositoryKey, from_mover_error, repository_name};
use super::{Repositories, locks, password};
use crate::storage_location::is_read_only;

/// The interval after a successful check.
const READY_CHECK_INTERVAL: Duration = Duration::from_hours(1);
/// The interval after an error that does not pass by itself.
const FAILED_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// The first pause after a failure that may pass by itself, and the longest.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(2);
const MAX_RETRY_INTERVAL: Duration = Duration::from_mins(5);
/// No job of the server takes longer, unless what the repository lies on hangs.
const JOB_TIMEOUT: Duration = Duration::from_mins(15);
/// Timeout of the wait for a repository.
const WAIT_TIMEOUT: Duration = Duration::from_mins(10);

/// State of a repository in this leader.
#[derive(Default)]
pub(super) struct RepositoryState {
    looked: Option<LastCheck>,
    failures: u32,
    pub(super) locks: StaleLockDetector,
    /// Time of the next check of its locks.
    pub(super) locks_due: Option<Instant>,
    /// The last request that was answered: its answer is not read back in time for the next look.
    pub(super) answered: Option<String>,
}

/// Time of the next check, and the input of the last one.
struct LastCheck {
    next: Instant,
    seen: CheckInputs,
}

/// All that decides how a look ends. When one of them is another the last look says nothing any more.
#[derive(Clone, Debug, PartialEq)]
struct CheckInputs {
    /// The version of the password's Secret.
    password: Option<String>,
    spec: BackupRepositorySpec,
    location: Option<BackupStorageLocationSpec>,
}

impl RepositoryState {
    /// Whether this leader has looked for the repository where it is looked for now.
    fn has_checked(&self, location: Option<&BackupStorageLocationSpec>) -> bool {
        self.looked.as_ref().is_some_and(|look| look.seen.location.as_ref() == location)
    }

    fn record_check(&mut self, look: LastCheck) {
        if !self.has_checked(look.seen.location.as_ref()) {
            // They were found in another place.
            (self.locks, self.locks_due) = (StaleLockDetector::default(), None);
        }
        self.looked = Some(look);
    }
}

/// Time until the next check of a repository; `None` means now.
fn due(known: &RepositoryState, seen: &CheckInputs, now: Instant) -> Option<Duration> {
    let look = known.looked.as_ref()?;
    Some(look.next.saturating_duration_since(now)).filter(|left| look.seen == *seen && !left.is_zero())
}

/// As much of a location as says where its repositories are, and what opens them.
pub(super) fn location_identity(location: BackupStorageLocation) -> BackupStorageLocationSpec {
    BackupStorageLocationSpec { default: None, backup_sync_period: None, validation_frequency: None, ..location.spec }
}

/// Time until the next check after this result.
fn pause(result: &Result<EnsureOutcome, Error>, failures: u32) -> Duration {
    match result {
        Ok(_) => READY_CHECK_INTERVAL,
        Err(error) if error.is_retryable() => {
            (MIN_RETRY_INTERVAL * 2_u32.saturating_pow(failures.min(16))).min(MAX_RETRY_INTERVAL)
        }
        Err(_) => FAILED_CHECK_INTERVAL,
    }
}

/// Checks a repository if it is due. Returns the time until the next check.
pub(super) async fn check_if_due(
    repository: &BackupRepository,
    known: &mut RepositoryState,
    repositories: &Repositories,
) -> Result<Duration, Error> {
    let location = read_location(repositories, &RepositoryKey::of(repository).location).await?.map(location_identity);
    let password = password_version(repositories).await;
    let seen = CheckInputs { password, spec: repository.spec.clone(), location };
    if let Some(left) = due(known, &seen, Instant::now()) {
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
    save_result(repository, known, repositories, seen.location, &result).await?;
    let locks =
        if result.is_ok() { locks::check_if_due(repository, known, repositories).await? } else { READY_CHECK_INTERVAL };
    Ok(pause_left(known).min(locks))
}

/// Time until the next check.
fn pause_left(known: &RepositoryState) -> Duration {
    known.looked.as_ref().map_or(MIN_RETRY_INTERVAL, |look| look.next.saturating_duration_since(Instant::now()))
}

async fn password_version(repositories: &Repositories) -> Option<String> {
    let read = password::read(&repositories.leader.client, &repositories.leader.namespace).await;
    read.ok().flatten().map(|password| password.version)
}

/// Records the result of a check in memory and in the status.
async fn save_result(
    repository: &BackupRepository,
    known: &mut RepositoryState,
    repositories: &Repositories,
    location: Option<BackupStorageLocationSpec>,
    result: &Result<EnsureOutcome, Error>,
) -> Result<BackupRepository, Error> {
    let next = pause(result, known.failures);
    known.failures = if result.is_ok() { 0 } else { known.failures.saturating_add(1) };
    let password = password_version(repositories).await;
    let written = write(repository, repositories, result, next).await?;
    let seen = CheckInputs { password, spec: written.spec.clone(), location };
    known.record_check(LastCheck { next: Instant::now() + next, seen });
    Ok(written)
}

/// Opens the repository, or makes it.
async fn check(
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
    let place = access::place(&repositories.leader.client, &repositories.leader.namespace, &location, &key).await?;
    let read_only = is_read_only(&location);
    repositories.leader.fence.check()?;
    kill::point("repository.ensure.before");
    let opened = Repository { location: place, password: secret };
    let work = if read_only { Work::Snapshots } else { Work::Ensure };
    let outcome = run(&key, opened, work, task).await.map_err(|error| from_mover_error(&error))?;
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
            "the repository was gone and has been made anew: earlier backups of these volumes cannot be restored from it. See \
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
    found.ok_or_else(|| unusable(format!("there is no BackupStorageLocation {name:?}")))
}

async fn read_location(repositories: &Repositories, name: &str) -> Result<Option<BackupStorageLocation>, Error> {
    if name.is_empty() {
        return Ok(None);
    }
    let found = repositories.leader.api::<BackupStorageLocation>().get_opt(name).await;
    found.map_err(|e| Error::api(format!("read location {name}"), e))
}

/// Runs one job of a repository in a separate process.
pub(super) async fn run(
    key: &RepositoryKey,
    repository: Repository,
    work: Work,
    task: &Task,
) -> Result<Outcome, MoverError> {
    let name = repository.location.name();
    let job = Job::new(repository_name(key), key.kind(), repository, work);
    let started = spawn(&MoverCommand::this_program()?, &job, task)?;
    tokio::time::timeout(JOB_TIMEOUT, started.wait()).await.unwrap_or_else(|_| {
        let cause = format!("no answer within {} minutes", JOB_TIMEOUT.as_secs() / 60);
        Err(MoverError::Unreachable { repository: name, cause })
    })
}

/// The status of the custom resource afterwards.
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

async fn write(
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

/// The restic address of a restic repository that does not carry it: none yet, or that of where its location was before.
async fn identifier(repository: &BackupRepository, repositories: &Repositories) -> Option<String> {
    let key = RepositoryKey::of(repository);
    if key.kind() == MoverKind::Kopia {
        return None;
    }
    let location = find_location(repositories, &key.location).await.ok()?;
    let place =
        access::place(&repositories.leader.client, &repositories.leader.namespace, &location, &key).await.ok()?;
    restic_identifier(&place).filter(|address| repository.spec.restic_identifier.as_ref() != Some(address))
}

/// An Event whenever a repository becomes usable or unusable, or says something new.
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
                let what = if ensured.created { "the repository was made" } else { "the repository opens" };
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

/// Sees that there is a repository for the volumes of a namespace, before the first of them is moved: makes the custom
/// resource, and the repository, where they are missing. While it is tried again, `task` says why. Only under the Lease.
///
/// A repository that is `Ready` is taken at its word if this leader has seen it where its location is now.
pub async fn require(repositories: &Repositories, key: &RepositoryKey, task: &Task) -> Result<BackupRepository, Error> {
    let retry = RetryPolicy::with_timeout(WAIT_TIMEOUT);
    let repository = retry.run(task, || find_or_create(repositories, key)).await?;
    let name = repository.name_any();
    let known = repositories.of(&name);
    // Held for one try only: others have questions about it, too.
    let open = || async {
        let mut known = lock_state(&known, &name, task).await;
        let Opened { repository, location, result } = try_open(repositories, &name, &known, task).await?;
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
    let _waiting = task.wait(format!("waiting for another look at repository {name} to end"));
    known.lock().await
}

/// A repository whose state is known.
struct Opened {
    repository: BackupRepository,
    location: Option<BackupStorageLocationSpec>,
    /// The result of opening it, if it was not known to be ready.
    result: Option<Result<EnsureOutcome, Error>>,
}

/// Sees that a repository opens. What may pass by itself is an error.
async fn try_open(
    repositories: &Repositories,
    name: &str,
    known: &RepositoryState,
    task: &Task,
) -> Result<Opened, Error> {
    let repository = repositories.leader.api::<BackupRepository>().get(name).await;
    let repository = repository.map_err(|e| Error::api(format!("read BackupRepository {name}"), e))?;
    let location = read_location(repositories, &RepositoryKey::of(&repository).location).await?.map(location_identity);
    let phase = repository.status.as_ref().and_then(|status| status.phase.as_ref());
    if phase == Some(&RepositoryPhase::Ready) && known.has_checked(location.as_ref()) {
        return Ok(Opened { repository, location, result: None });
    }
    match check(&repository, repositories, task).await {
        Err(error) if error.is_retryable() || matches!(error, Error::Fenced(_)) => Err(error),
        result => Ok(Opened { repository, location, result: Some(result) }),
    }
}

async fn find_or_create(repositories: &Repositories, key: &RepositoryKey) -> Result<BackupRepository, Error> {
    if let Some(found) = find(repositories, key).await? {
        return Ok(found);
    }
    repositories.leader.fence.check()?;
    // Refused rather than made: it could never become ready.
    find_location(repositories, &key.location).await?;
    let name = repository_name(key);
    kill::point("repository.create.before");
    match repositories.leader.api::<BackupRepository>().create(&PostParams::default(), &new_repository(key)).await {
        Ok(made) => Ok(made),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let found = repositories.leader.api::<BackupRepository>().get(&name).await;
            let found = found.map_err(|e| Error::api(format!("read BackupRepository {name}"), e))?;
            if RepositoryKey::of(&found) == *key { Ok(found) } else { create_beside(repositories, key, &name).await }
        }
        Err(error) => Err(Error::api(format!("create BackupRepository {name}"), error)),
    }
}

/// Namespace `shop-eu` in location `default` and namespace `shop` in location `eu-default` make the same name. The
/// second one gets a generated name; it is found by its spec.
async fn create_beside(
    repositories: &Repositories,
    key: &RepositoryKey,
    name: &str,
) -> Result<BackupRepository, Error> {
    let mut repository = new_repository(key);
    (repository.metadata.name, repository.metadata.generate_name) = (None, Some(format!("{name}-")));
    let made = repositories.leader.api::<BackupRepository>().create(&PostParams::default(), &repository).await;
    made.map_err(|e| Error::api(format!("create a BackupRepository beside {name}"), e))
}

/// By what it says, not by its name: older Veleros gave them random ones.
async fn find(repositories: &Repositories, key: &RepositoryKey) -> Result<Option<BackupRepository>, Error> {
    let all = repositories.leader.api::<BackupRepository>().list(&ListParams::default()).await;
    let all = all.map_err(|e| Error::api("list BackupRepositories", e))?;
    Ok(all.items.into_iter().find(|repository| RepositoryKey::of(repository) == *key))
}

fn new_repository(key: &RepositoryKey) -> BackupRepository {
    let kopia = key.kind() == MoverKind::Kopia;
    let marks = [
        (labels::VOLUME_NAMESPACE, labels::valid_name(&key.namespace)),
        (labels::STORAGE_LOCATION, labels::valid_name(&key.location)),
        (labels::REPOSITORY_TYPE, key.format.to_owned()),
    ];
    let marks = marks.map(|(key, value)| (key.to_owned(), value)).into();
    BackupRepository {
        metadata: ObjectMeta { name: Some(repository_name(key)), labels: Some(marks), ..ObjectMeta::default() },
        spec: BackupRepositorySpec {
            volume_namespace: Some(key.namespace.clone()),
            backup_storage_location: Some(key.location.clone()),
            repository_type: Some(if kopia { UploaderType::Kopia } else { UploaderType::Restic }),
            maintenance_frequency: Some(GoDuration::from(Duration::from_hours(if kopia { 1 } else { 168 }))),
            ..BackupRepositorySpec::default()
        },
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(retryable: bool) -> Result<EnsureOutcome, Error> {
        Err(Error::Volumes { reason: "WrongRepositoryPassword", message: "it does not open".into(), retryable })
    }

    #[test]
    fn a_repository_that_is_made_where_one_was_ready_is_a_loss_and_any_other_is_none() {
        let of = |phase: &str| -> BackupRepository {
            let status = if phase.is_empty() { json!({}) } else { json!({ "phase": phase }) };
            serde_json::from_value(json!({ "metadata": { "name": "r" }, "spec": {}, "status": status })).unwrap()
        };
        let warns = |created, phase| {
            let ensured = with_loss_warning(EnsureOutcome { created, ..EnsureOutcome::default() }, &of(phase));
            ensured.warnings.iter().any(|warning| warning.contains("was gone"))
        };
        assert!(warns(true, "Ready"));
        assert!(!warns(false, "Ready") && !warns(true, "") && !warns(true, "New") && !warns(true, "NotReady"));
    }

    fn location(spec: &Value) -> BackupStorageLocation {
        serde_json::from_value(json!({ "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
            "metadata": { "name": "default" }, "spec": spec }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_repository_is_due_at_its_time_or_when_its_password_its_spec_or_its_location_has_changed() {
        let stored = |bucket: &str, prefix: &str| json!({ "bucket": bucket, "prefix": prefix });
        let at = |spec: Value| Some(location_identity(location(&spec)));
        let here = json!({ "provider": "aws", "objectStorage": stored("b", "p"), "config": { "region": "eu-1" } });
        let with = |field: &str, value: Value| {
            let mut spec = here.clone();
            spec[field] = value;
            at(spec)
        };
        let seen = CheckInputs {
            password: Some("1".into()),
            spec: BackupRepositorySpec::default(),
            location: at(here.clone()),
        };
        let mut known = RepositoryState::default();
        let now = Instant::now();
        assert_eq!(due(&known, &seen, now), None, "it has not been checked");
        assert!(!known.has_checked(seen.location.as_ref()));
        known.record_check(LastCheck { next: now + READY_CHECK_INTERVAL, seen: seen.clone() });
        assert_eq!(due(&known, &seen, now), Some(READY_CHECK_INTERVAL));
        assert_eq!(due(&known, &seen, now + READY_CHECK_INTERVAL), None);
        let other = BackupRepositorySpec { volume_namespace: Some("shop".into()), ..seen.spec.clone() };
        for changed in [
            CheckInputs { password: Some("2".into()), ..seen.clone() },
            CheckInputs { password: None, ..seen.clone() },
            CheckInputs { spec: other, ..seen.clone() },
        ] {
            assert_eq!(due(&known, &changed, now), None, "{changed:?}");
            assert!(known.has_checked(changed.location.as_ref()));
        }
        for moved in [
            with("objectStorage", stored("other", "p")),
            with("objectStorage", stored("b", "other")),
            with("provider", json!("gcp")),
            with("config", json!({ "region": "eu-2" })),
            with("credential", json!({ "name": "other", "key": "cloud" })),
            with("accessMode", json!("ReadOnly")),
            None,
        ] {
            let changed = CheckInputs { location: moved, ..seen.clone() };
            assert_eq!(due(&known, &changed, now), None, "{changed:?}");
            assert!(!known.has_checked(changed.location.as_ref()), "its word is not taken: {changed:?}");
        }
        for same in [
            with("default", json!(true)),
            with("backupSyncPeriod", json!("1m")),
            with("validationFrequency", json!("1m")),
        ] {
            assert_eq!(due(&known, &CheckInputs { location: same, ..seen.clone() }, now), Some(READY_CHECK_INTERVAL));
        }
    }

    #[tokio::test]
    async fn locks_of_a_place_that_a_repository_has_left_are_forgotten() {
        let seen = |location| CheckInputs { password: None, spec: BackupRepositorySpec::default(), location };
        let here = Some(location_identity(location(&json!({ "provider": "aws" }))));
        let mut known = RepositoryState::default();
        for (location, kept) in [(here.clone(), false), (here, true), (None, false)] {
            known.locks_due = Some(Instant::now());
            known.record_check(LastCheck { next: Instant::now(), seen: seen(location) });
            assert_eq!(known.locks_due.is_some(), kept);
        }
    }

    #[test]
    fn what_may_pass_is_tried_again_soon_and_then_ever_more_rarely() {
        assert_eq!(pause(&failed(true), 0), Duration::from_secs(2));
        assert_eq!(pause(&failed(true), 3), Duration::from_secs(16));
        assert_eq!(pause(&failed(true), 40), MAX_RETRY_INTERVAL);
        assert_eq!(pause(&failed(false), 7), FAILED_CHECK_INTERVAL);
        assert_eq!(pause(&Ok(EnsureOutcome::default()), 7), READY_CHECK_INTERVAL);
    }

    #[test]
    fn the_status_names_the_reason_and_a_warning_does_not_make_a_repository_unready() {
        let warned = EnsureOutcome { warnings: vec!["the password is the default".into()], ..EnsureOutcome::default() };
        assert_eq!(
            status_of(&Ok(warned), READY_CHECK_INTERVAL),
            json!({ "phase": "Ready", "message": "the password is the default" })
        );
        assert_eq!(
            status_of(&Ok(EnsureOutcome::default()), READY_CHECK_INTERVAL),
            json!({ "phase": "Ready", "message": null })
        );
        let waiting = status_of(&failed(true), MIN_RETRY_INTERVAL);
        assert_eq!(waiting["message"], "WrongRepositoryPassword: it does not open (tried again in 2 s)");
        assert_eq!(
            status_of(&failed(false), FAILED_CHECK_INTERVAL)["message"],
            "WrongRepositoryPassword: it does not open"
        );
    }

    #[test]
    fn a_new_repository_is_found_by_veleros_labels() {
        let made = new_repository(&RepositoryKey::new("shop", "default", MoverKind::Kopia));
        let label = |key: &str| made.labels()[key].clone();
        assert_eq!(made.name_any(), "shop-default-kopia");
        assert_eq!(
            [label(labels::VOLUME_NAMESPACE), label(labels::STORAGE_LOCATION), label(labels::REPOSITORY_TYPE)],
            ["shop", "default", "kopia"]
        );
        assert_eq!(RepositoryKey::of(&made), RepositoryKey::new("shop", "default", MoverKind::Kopia));
    }
}
