//! What is beside the operations and their volumes: schedules, locations.

use jiff::{SignedDuration, Timestamp};
use plimsoll_api::labels;
use plimsoll_observe::{Kind, Object, World};
use serde_json::{Value, json};

use crate::feed::Due;
use crate::model::seconds;

/// A schedule whose turn came this long ago and that made no backup has missed it.
const GRACE: SignedDuration = SignedDuration::from_mins(5);

/// Every section, by name.
pub fn sections(world: &World, due: Due) -> [(&'static str, Value); 3] {
    [
        ("schedules", world.all(Kind::Schedule).iter().map(|object| schedule(object, world, due)).collect()),
        ("locations", world.all(Kind::Location).iter().map(location).collect()),
        ("unseen", json!(world.unseen)),
    ]
}

fn schedule(object: &Object, world: &World, due: Due) -> Value {
    let turn = turn(object, world.now, due);
    json!({
        "name": object.name(), "namespace": object.namespace(), "cron": object.text("/spec/schedule"),
        "paused": object.flag("/spec/paused"), "phase": object.phase(),
        "last": object.time("/status/lastBackup").map(seconds), "lastGood": last_good(object, world).map(seconds),
        "next": turn.and_then(|turn| turn.next).map(seconds), "missed": turn.and_then(|turn| turn.missed).map(seconds),
        "errors": object.texts("/status/validationErrors"),
    })
}

/// When a schedule's turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The next time it is due.
    pub next: Option<Timestamp>,
    /// The time at which it was due and made nothing.
    pub missed: Option<Timestamp>,
}

/// When it is a schedule's turn; nothing for one that is paused or that nobody understands.
pub fn turn(object: &Object, now: Timestamp, due: Due) -> Option<Turn> {
    let cron = object.some_text("/spec/schedule").filter(|_| !object.flag("/spec/paused"))?;
    let heard = ["/status/lastBackup", "/status/lastSkipped", "/metadata/creationTimestamp"];
    let last = heard.iter().filter_map(|place| object.time(place)).max()?;
    let expected = due(cron, last)?;
    let missed = (now.duration_since(expected) > GRACE).then_some(expected);
    Some(Turn { next: if expected > now { Some(expected) } else { due(cron, now) }, missed })
}

/// When the last good backup of a schedule ended.
pub fn last_good(schedule: &Object, world: &World) -> Option<Timestamp> {
    let mine =
        |backup: &&Object| backup.phase() == "Completed" && backup.label(labels::SCHEDULE_NAME) == schedule.name();
    world.all(Kind::Backup).iter().filter(mine).filter_map(|backup| backup.time("/status/completionTimestamp")).max()
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
    fn a_schedule_has_missed_its_turn_some_minutes_after_it_not_at_once() {
        let object = |paused: bool| {
            Object::new(
                Kind::Schedule,
                json!({ "metadata": { "name": "s", "creationTimestamp": "2026-01-01T00:00:00Z" },
                    "spec": { "schedule": "0 * * * *", "paused": paused }, "status": { "lastBackup": "2026-01-01T10:00:07Z" } }),
            )
        };
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let missed = |now: &str| turn(&object(false), at(now), hourly).unwrap().missed;
        assert_eq!(missed("2026-01-01T10:59:00Z"), None);
        assert_eq!(missed("2026-01-01T11:04:00Z"), None);
        assert_eq!(missed("2026-01-01T11:06:00Z"), Some(at("2026-01-01T11:00:00Z")));
        let next = turn(&object(false), at("2026-01-01T11:06:00Z"), hourly).unwrap().next;
        assert_eq!(next, Some(at("2026-01-01T12:00:00Z")));
        assert_eq!(turn(&object(true), at("2026-01-01T11:06:00Z"), hourly), None);
    }
}
