//! When a repository is checked again: at its time, or when an input of the last check has changed.

use std::time::Duration;

use plimsoll_api::velero::v1::{BackupRepositorySpec, BackupStorageLocation, BackupStorageLocationSpec};
use plimsoll_engine::Error;
use plimsoll_mover::{EnsureOutcome, StaleLockDetector};
use plimsoll_store::RetryPolicy;
use tokio::time::Instant;

/// The interval after a successful check.
pub(super) const READY_CHECK_INTERVAL: Duration = Duration::from_hours(1);
/// The interval after an error that is not retryable.
const FAILED_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// The intervals after retryable errors. A repository is checked as long as it exists.
const RETRY_PAUSES: RetryPolicy =
    RetryPolicy { initial_pause: Duration::from_secs(2), max_pause: Duration::from_mins(5), timeout: Duration::MAX };

/// State of a repository in this leader.
#[derive(Default)]
pub(super) struct RepositoryState {
    last_check: Option<LastCheck>,
    pub(super) failures: usize,
    pub(super) locks: StaleLockDetector,
    /// Time of the next check of its locks.
    pub(super) locks_due: Option<Instant>,
    /// The last request that was answered. The watch may not have reported the answer before the next check.
    pub(super) answered: Option<String>,
}

/// Time of the next check, and the input of the last one.
pub(super) struct LastCheck {
    pub next: Instant,
    pub inputs: CheckInputs,
}

/// The inputs of a check. When one of them changes, the result of the last check is obsolete.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CheckInputs {
    /// The version of the password's Secret.
    pub password: Option<String>,
    pub spec: BackupRepositorySpec,
    pub location: Option<BackupStorageLocationSpec>,
}

impl RepositoryState {
    /// Whether this leader has checked the repository in this location.
    pub fn has_checked(&self, location: Option<&BackupStorageLocationSpec>) -> bool {
        self.last_check.as_ref().is_some_and(|check| check.inputs.location.as_ref() == location)
    }

    pub fn record_check(&mut self, check: LastCheck) {
        if !self.has_checked(check.inputs.location.as_ref()) {
            // They were found in another location.
            (self.locks, self.locks_due) = (StaleLockDetector::default(), None);
        }
        self.last_check = Some(check);
    }
}

/// Time until the next check of a repository; `None` means now.
pub(super) fn time_until_next_check(known: &RepositoryState, inputs: &CheckInputs, now: Instant) -> Option<Duration> {
    let check = known.last_check.as_ref()?;
    Some(check.next.saturating_duration_since(now)).filter(|left| check.inputs == *inputs && !left.is_zero())
}

/// The fields of a location that identify its repositories and their credentials.
pub(super) fn location_identity(location: BackupStorageLocation) -> BackupStorageLocationSpec {
    BackupStorageLocationSpec { default: None, backup_sync_period: None, validation_frequency: None, ..location.spec }
}

/// Time until the next check after this result.
pub(super) fn pause(result: &Result<EnsureOutcome, Error>, failures: usize) -> Duration {
    match result {
        Ok(_) => READY_CHECK_INTERVAL,
        Err(error) if error.is_retryable() => RETRY_PAUSES.pause_after(failures.saturating_add(1)),
        Err(_) => FAILED_CHECK_INTERVAL,
    }
}

/// Time until the next check.
pub(super) fn pause_left(known: &RepositoryState) -> Duration {
    known
        .last_check
        .as_ref()
        .map_or(RETRY_PAUSES.initial_pause, |check| check.next.saturating_duration_since(Instant::now()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn failed(retryable: bool) -> Result<EnsureOutcome, Error> {
        Err(Error::Volumes { reason: "WrongRepositoryPassword", message: "it does not open".into(), retryable })
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
        let inputs = CheckInputs {
            password: Some("1".into()),
            spec: BackupRepositorySpec::default(),
            location: at(here.clone()),
        };
        let mut known = RepositoryState::default();
        let now = Instant::now();
        assert_eq!(time_until_next_check(&known, &inputs, now), None, "it has not been checked");
        assert!(!known.has_checked(inputs.location.as_ref()));
        known.record_check(LastCheck { next: now + READY_CHECK_INTERVAL, inputs: inputs.clone() });
        assert_eq!(time_until_next_check(&known, &inputs, now), Some(READY_CHECK_INTERVAL));
        assert_eq!(time_until_next_check(&known, &inputs, now + READY_CHECK_INTERVAL), None);
        let other = BackupRepositorySpec { volume_namespace: Some("shop".into()), ..inputs.spec.clone() };
        for changed in [
            CheckInputs { password: Some("2".into()), ..inputs.clone() },
            CheckInputs { password: None, ..inputs.clone() },
            CheckInputs { spec: other, ..inputs.clone() },
        ] {
            assert_eq!(time_until_next_check(&known, &changed, now), None, "{changed:?}");
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
            let changed = CheckInputs { location: moved, ..inputs.clone() };
            assert_eq!(time_until_next_check(&known, &changed, now), None, "{changed:?}");
            assert!(!known.has_checked(changed.location.as_ref()), "the phase is not trusted: {changed:?}");
        }
        for same in [
            with("default", json!(true)),
            with("backupSyncPeriod", json!("1m")),
            with("validationFrequency", json!("1m")),
        ] {
            assert_eq!(
                time_until_next_check(&known, &CheckInputs { location: same, ..inputs.clone() }, now),
                Some(READY_CHECK_INTERVAL)
            );
        }
    }

    #[tokio::test]
    async fn locks_of_a_place_that_a_repository_has_left_are_forgotten() {
        let inputs = |location| CheckInputs { password: None, spec: BackupRepositorySpec::default(), location };
        let here = Some(location_identity(location(&json!({ "provider": "aws" }))));
        let mut known = RepositoryState::default();
        for (location, kept) in [(here.clone(), false), (here, true), (None, false)] {
            known.locks_due = Some(Instant::now());
            known.record_check(LastCheck { next: Instant::now(), inputs: inputs(location) });
            assert_eq!(known.locks_due.is_some(), kept);
        }
    }

    #[test]
    fn what_may_pass_is_tried_again_soon_and_then_ever_more_rarely() {
        assert_eq!(pause(&failed(true), 0), Duration::from_secs(2));
        assert_eq!(pause(&failed(true), 3), Duration::from_secs(16));
        assert_eq!(pause(&failed(true), 40), RETRY_PAUSES.max_pause);
        assert_eq!(pause(&failed(false), 7), FAILED_CHECK_INTERVAL);
        assert_eq!(pause(&Ok(EnsureOutcome::default()), 7), READY_CHECK_INTERVAL);
    }
}
