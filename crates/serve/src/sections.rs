//! Schedules, locations and unreadable resources.

use jiff::{SignedDuration, Timestamp};
use plimsoll_api::labels;
use plimsoll_observe::{ClusterState, Kind, Object};
use serde_json::{Value, json};

use crate::refresh::NextRun;
use crate::rows::seconds;

/// A schedule that has created no backup this long after its time has missed the run.
const MISSED_RUN_GRACE_PERIOD: SignedDuration = SignedDuration::from_mins(5);

/// Every section, by name.
pub fn sections(cluster: &ClusterState, next_run: NextRun) -> [(&'static str, Value); 3] {
    [
        ("schedules", cluster.all(Kind::Schedule).iter().map(|object| schedule(object, cluster, next_run)).collect()),
        ("locations", cluster.all(Kind::Location).iter().map(location).collect()),
        ("unseen", json!(cluster.unseen)),
    ]
}

fn schedule(object: &Object, cluster: &ClusterState, next_run: NextRun) -> Value {
    let run = scheduled_run(object, cluster.now, next_run);
    json!({
        "name": object.name(), "namespace": object.namespace(), "cron": object.text("/spec/schedule"),
        "paused": object.flag("/spec/paused"), "phase": object.phase(),
        "last": object.time("/status/lastBackup").map(seconds), "lastGood": last_success(object, cluster).map(seconds),
        "next": run.and_then(|run| run.next).map(seconds), "missed": run.and_then(|run| run.missed).map(seconds),
        "errors": object.texts("/status/validationErrors"),
    })
}

/// The next and the missed run of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledRun {
    /// The next run.
    pub next: Option<Timestamp>,
    /// The run that created no backup.
    pub missed: Option<Timestamp>,
}

/// The runs of a schedule; nothing if it is paused or its expression is invalid.
pub fn scheduled_run(object: &Object, now: Timestamp, next_run: NextRun) -> Option<ScheduledRun> {
    let cron = object.some_text("/spec/schedule").filter(|_| !object.flag("/spec/paused"))?;
    let times = ["/status/lastBackup", "/status/lastSkipped", "/metadata/creationTimestamp"];
    let last = times.iter().filter_map(|pointer| object.time(pointer)).max()?;
    let expected = next_run(cron, last)?;
    let missed = (now.duration_since(expected) > MISSED_RUN_GRACE_PERIOD).then_some(expected);
    Some(ScheduledRun { next: if expected > now { Some(expected) } else { next_run(cron, now) }, missed })
}

/// When the last successful backup of a schedule ended.
pub fn last_success(schedule: &Object, cluster: &ClusterState) -> Option<Timestamp> {
    let mine =
        |backup: &&Object| backup.phase() == "Completed" && backup.label(labels::SCHEDULE_NAME) == schedule.name();
    cluster.all(Kind::Backup).iter().filter(mine).filter_map(|backup| backup.time("/status/completionTimestamp")).max()
}

fn location(object: &Object) -> Value {
    json!({
        "name": object.name(), "namespace": object.namespace(), "provider": object.text("/spec/provider"),
        "bucket": object.text("/spec/objectStorage/bucket"), "prefix": object.text("/spec/objectStorage/prefix"),
        "default": object.flag("/spec/default"), "readOnly": object.text("/spec/accessMode") == "ReadOnly",
        "phase": object.some_text("/status/phase").unwrap_or("Unknown"), "message": object.text("/status/message"),
        "checked": object.time("/status/lastValidationTime").map(seconds),
        "synced": object.time("/status/lastSyncedTime").map(seconds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hourly(_: &str, after: Timestamp) -> Option<Timestamp> {
        let second = after.as_second();
        Timestamp::from_second(second - second.rem_euclid(3600) + 3600).ok()
    }

    #[test]
    fn a_schedule_has_missed_a_run_after_the_grace_period_not_at_once() {
        let object = |paused: bool| {
            Object::new(
                Kind::Schedule,
                json!({ "metadata": { "name": "s", "creationTimestamp": "2026-01-01T00:00:00Z" },
                    "spec": { "schedule": "0 * * * *", "paused": paused }, "status": { "lastBackup": "2026-01-01T10:00:07Z" } }),
            )
        };
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let missed = |now: &str| scheduled_run(&object(false), at(now), hourly).unwrap().missed;
        assert_eq!(missed("2026-01-01T10:59:00Z"), None);
        assert_eq!(missed("2026-01-01T11:04:00Z"), None);
        assert_eq!(missed("2026-01-01T11:06:00Z"), Some(at("2026-01-01T11:00:00Z")));
        let next = scheduled_run(&object(false), at("2026-01-01T11:06:00Z"), hourly).unwrap().next;
        assert_eq!(next, Some(at("2026-01-01T12:00:00Z")));
        assert_eq!(scheduled_run(&object(true), at("2026-01-01T11:06:00Z"), hourly), None);
    }
}
