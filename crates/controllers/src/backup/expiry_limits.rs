//! What keeps expired backups from being deleted: limits that a wrong clock or a wrong retention must not pass.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ListParams;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{Backup, BackupPhase, Schedule};
use plimsoll_engine::Error;
use plimsoll_operations::LeaderClient;

/// How far this server's clock and the API server's may be apart.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_mins(5);

/// Compares this server's clock with the API server's. Returns what is wrong.
pub(super) async fn check_clock(leader: &LeaderClient) -> Result<Option<String>, Error> {
    let Some(theirs) = leader.cluster.server_time().await? else { return Ok(None) };
    let (ours, limit) = (Timestamp::now(), MAX_CLOCK_DIFFERENCE);
    let difference = ours.duration_since(theirs).unsigned_abs();
    Ok((difference > limit).then(|| {
        format!(
            "the clock of this server shows {ours:.0} and that of the API server {theirs:.0}; nothing expires until they are \
             less than {} minutes apart",
            limit.as_secs() / 60
        )
    }))
}

/// The limit that keeps a backup of a schedule although it has expired. Returns nothing for other backups, and when the schedule is gone.
pub(super) async fn check_schedule(
    backup: &Backup,
    now: Timestamp,
    leader: &LeaderClient,
) -> Result<Option<String>, Error> {
    let Some(schedule) = backup.labels().get(labels::SCHEDULE_NAME) else { return Ok(None) };
    let made_by = ListParams::default().labels(&format!("{}={schedule}", labels::SCHEDULE_NAME));
    let what = |verb: &str| format!("{verb} backups of schedule {schedule}");
    let all = leader.api::<Backup>().list(&made_by).await.map_err(|e| Error::api(what("list"), e))?.items;
    let Some(reason) = limit(backup, &all, schedule, now) else { return Ok(None) };
    let schedules = leader.api::<Schedule>().list_metadata(&ListParams::default()).await;
    let schedules = schedules.map_err(|e| Error::api("list schedules", e))?;
    let exists = schedules.items.iter().any(|found| labels::valid_name(&found.name_any()) == *schedule);
    Ok(exists.then_some(reason))
}

/// Refuses to let more than half of the backups of a schedule, or its last good one, expire at once.
fn limit(backup: &Backup, all: &[Backup], schedule: &str, now: Timestamp) -> Option<String> {
    let ended = |backup: &&Backup| backup.phase().is_ended() || backup.phase() == BackupPhase::Deleting;
    let all: Vec<_> = all.iter().filter(ended).collect();
    let expired = all.iter().filter(|backup| has_expired(backup, now)).count();
    if is_last_good(backup, &all, now) {
        return Some(format!(
            "it is the last good backup of schedule {schedule}: it stays until there is a newer one. Delete it yourself if that \
             is what you want"
        ));
    }
    (expired > 1 && expired * 2 > all.len()).then(|| {
        format!(
            "{expired} of {} backups of schedule {schedule} have expired at once: none of them is deleted until the schedule has \
             made as many new ones. Delete them yourself if that is what you want",
            all.len()
        )
    })
}

/// Whether no other backup is at least as good, and stays or is newer. A backup with errors can be restored too, where there is
/// nothing better.
fn is_last_good(backup: &Backup, all: &[&Backup], now: Timestamp) -> bool {
    let quality = |backup: &Backup| match backup.phase() {
        BackupPhase::Completed => 2,
        BackupPhase::PartiallyFailed => 1,
        _ => 0,
    };
    let age = |backup: &Backup| {
        let started = backup.status.as_ref().and_then(|status| status.start_timestamp.clone());
        (started.or_else(|| backup.creation_timestamp()).map(|time| time.0), backup.name_any())
    };
    let replaces = |other: &Backup| {
        other.uid() != backup.uid()
            && quality(other) >= quality(backup)
            && (!has_expired(other, now) || age(other) > age(backup))
    };
    quality(backup) > 0 && !all.iter().any(|other| replaces(other))
}

fn has_expired(backup: &Backup, now: Timestamp) -> bool {
    backup.status.as_ref().and_then(|status| status.expiration.as_ref()).is_some_and(|time| time.0 <= now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn backup(name: &str, phase: &str, expiration: &str) -> Backup {
        serde_json::from_value(json!({ "metadata": { "name": name, "uid": name }, "spec": {},
            "status": { "phase": phase, "expiration": expiration } }))
        .unwrap()
    }

    #[test]
    fn a_schedule_keeps_half_of_its_backups_and_its_last_good_one() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let old = |name| backup(name, "Completed", "2025-01-01T00:00:00Z");
        let new = |name| backup(name, "Completed", "2027-01-01T00:00:00Z");
        let failed = |name| backup(name, "Failed", "2027-01-01T00:00:00Z");
        let with_errors = |name| backup(name, "PartiallyFailed", "2025-01-01T00:00:00Z");
        let kept = |all: &[Backup]| limit(&all[0], all, "s", now);
        let is_last = |all: &[Backup]| kept(all).is_some_and(|text| text.contains("last good backup of schedule s"));
        assert_eq!(kept(&[old("a"), old("b"), new("c"), new("d")]), None, "half");
        assert!(kept(&[old("a"), old("b"), new("c")]).unwrap().starts_with("2 of 3 backups of schedule s"));
        assert_eq!(kept(&[old("a"), new("b")]), None, "one at a time");
        assert!(is_last(&[old("a")]));
        assert!(is_last(&[old("a"), failed("b"), failed("c")]));
        assert!(is_last(&[old("b"), old("a"), failed("c"), failed("d")]), "the older one goes at the same time");
        assert_eq!(kept(&[old("a"), old("b"), failed("c"), failed("d")]), None);
        assert_eq!(kept(&[backup("a", "Failed", "2025-01-01T00:00:00Z")]), None);
        assert!(is_last(&[with_errors("a"), failed("b")]), "there is nothing better");
        assert_eq!(kept(&[with_errors("a"), new("b")]), None);
    }
}
