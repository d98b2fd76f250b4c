//! When the maintenance of a repository is due.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use plimsoll_api::go::GoDuration;
use plimsoll_api::velero::v1::{BackupRepository, MaintenanceResult};
use plimsoll_mover::MoverKind;

use crate::repositories::access::RepositoryKey;

/// A failed maintenance is repeated after this time, or after its frequency if that is shorter.
const RETRY_INTERVAL: Duration = Duration::from_hours(1);
/// The longest jitter.
const MAX_JITTER: Duration = Duration::from_hours(1);

/// How often a repository is maintained that does not say so itself: the defaults of Velero.
pub(in crate::repositories) fn default_frequency(kind: MoverKind) -> Duration {
    Duration::from_hours(if kind == MoverKind::Kopia { 1 } else { 7 * 24 })
}

fn frequency(repository: &BackupRepository) -> Duration {
    let set = repository.spec.maintenance_frequency.as_ref().and_then(GoDuration::as_std);
    set.filter(|frequency| !frequency.is_zero())
        .unwrap_or_else(|| default_frequency(RepositoryKey::of(repository).kind()))
}

/// When the maintenance of a repository is due: one frequency after the last one, or after the creation, and a jitter that keeps
/// repositories apart which were created together.
pub(super) fn due_at(repository: &BackupRepository) -> Timestamp {
    let frequency = frequency(repository);
    let status = repository.status.clone().unwrap_or_default();
    let created = repository.creation_timestamp().map(|time| time.0);
    let last = status.last_maintenance_time.map(|time| time.0).or(created).unwrap_or(Timestamp::UNIX_EPOCH);
    let due = add(last, frequency + jitter(repository, last, frequency));
    let failed = status.recent_maintenance.last().filter(|run| run.result == Some(MaintenanceResult::Failed));
    match failed.and_then(|run| run.complete_timestamp.as_ref()) {
        Some(failed) => due.max(add(failed.0, frequency.min(RETRY_INTERVAL))),
        None => due,
    }
}

fn add(time: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// Up to a tenth of the frequency, always the same for the same run, so that a new leader comes to the same time.
fn jitter(repository: &BackupRepository, last: Timestamp, frequency: Duration) -> Duration {
    let most = (frequency / 10).min(MAX_JITTER).as_secs();
    let mut hasher = DefaultHasher::new();
    (repository.name_any(), last.as_second()).hash(&mut hasher);
    Duration::from_secs(if most == 0 { 0 } else { hasher.finish() % most })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn repository(name: &str, kind: &str, frequency: &str, status: &Value) -> BackupRepository {
        serde_json::from_value(json!({
            "metadata": { "name": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "repositoryType": kind, "maintenanceFrequency": frequency },
            "status": status,
        }))
        .unwrap()
    }

    fn hours_after_creation(repository: &BackupRepository) -> i64 {
        let created: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        due_at(repository).duration_since(created).as_hours()
    }

    #[test]
    fn maintenance_is_due_after_its_frequency_and_at_most_a_tenth_more() {
        for (kind, frequency, least, most) in
            [("restic", "24h0m0s", 24, 25), ("restic", "0s", 168, 169), ("kopia", "0s", 1, 1), ("kopia", "10h", 10, 11)]
        {
            let hours = hours_after_creation(&repository("r", kind, frequency, &json!({})));
            assert!((least..=most).contains(&hours), "{kind} {frequency}: {hours}");
        }
        let last = json!({ "lastMaintenanceTime": "2026-01-11T00:00:00Z" });
        assert!((264..=265).contains(&hours_after_creation(&repository("r", "restic", "24h", &last))));
    }

    #[test]
    fn repositories_that_were_created_together_are_not_due_together() {
        let times: std::collections::BTreeSet<_> =
            (0..20).map(|number| due_at(&repository(&format!("r{number}"), "restic", "24h", &json!({})))).collect();
        assert!(times.len() > 15, "{times:?}");
    }

    #[test]
    fn a_failed_maintenance_is_repeated_after_an_hour() {
        let failed = json!({ "recentMaintenance": [
            { "result": "Failed", "startTimestamp": "2026-01-03T00:00:00Z", "completeTimestamp": "2026-01-03T01:00:00Z" },
        ] });
        assert_eq!(hours_after_creation(&repository("r", "restic", "24h", &failed)), 50);
    }
}
