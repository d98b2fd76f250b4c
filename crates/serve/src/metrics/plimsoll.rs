//! `plimsoll_…`.

use std::collections::BTreeMap;

use plimsoll_api::labels;
use plimsoll_observe::{Kind, Line, Object, Verdict, World};
use plimsoll_progress::view::unit_word;
use plimsoll_progress::{Counts, Snapshot, Unit};

use super::exposition::{Exposition, to_sample};
use super::totals::{Totals, end, outcome};
use super::{MAX_NAMED_OPERATIONS, MAX_SERIES};
use crate::feed::Due;
use crate::sections::turn;

/// Everything of ours.
pub fn write(exposition: &mut Exposition, lines: &[&Line], world: &World, totals: &Totals, due: Due) {
    counts(exposition, lines);
    let mut named: Vec<&Line> = lines.iter().copied().filter(|line| !line.told.verdict.is_ended()).collect();
    named.sort_by_key(|line| (line.told.verdict, std::cmp::Reverse(line.age)));
    let left_out = named.len().saturating_sub(MAX_NAMED_OPERATIONS);
    named.truncate(MAX_NAMED_OPERATIONS);
    operations(exposition, &named);
    exposition
        .family("plimsoll_operations_left_out", "gauge", "Running operations beyond those that are named one by one.")
        .add(&[], to_sample(left_out as u64));
    last_success(exposition, world);
    schedules(exposition, world, due);
    let mut durations = exposition.family(
        "plimsoll_operation_duration_seconds",
        "histogram",
        "How long operations took that ended, since the server began.",
    );
    for ((kind, outcome), histogram) in &totals.durations {
        durations.add_histogram(&[("kind", kind), ("outcome", outcome)], histogram);
    }
}

fn counts(exposition: &mut Exposition, lines: &[&Line]) {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for kind in [Kind::Backup, Kind::Restore, Kind::ActionSet] {
        for verdict in [Verdict::Stuck, Verdict::Moving, Verdict::Waiting, Verdict::Quiet] {
            counts.insert((kind.word(), outcome(verdict)), 0);
        }
    }
    for line in lines {
        *counts.entry((line.reference.kind.word(), outcome(line.told.verdict))).or_default() += 1;
    }
    let mut family =
        exposition.family("plimsoll_operations", "gauge", "Operations there are, by kind and how they are doing.");
    for ((kind, state), count) in counts {
        family.add(&[("kind", kind), ("state", state)], to_sample(count));
    }
}

/// The meter that tells how far an operation is: bytes if it moves any.
fn counted(tree: &Snapshot) -> Option<Counts> {
    tree.sum(Unit::Bytes).or_else(|| tree.sum(tree.speed().unit)).or_else(|| tree.sum(Unit::Items))
}

const RATE: &str = "plimsoll_operation_rate";

/// Something to say about a running operation.
type Gauge = (&'static str, &'static str, fn(&Line) -> Option<f64>);

const GAUGES: [Gauge; 6] = [
    ("plimsoll_operation_done", "What is done, in bytes or whatever else the operation counts.", |line| {
        counted(&line.told.tree).map(|counts| to_sample(counts.settled()))
    }),
    ("plimsoll_operation_total", "What there is to do, once that is known.", |line| {
        counted(&line.told.tree).and_then(|counts| counts.total.value()).map(to_sample)
    }),
    (RATE, "What is done in a second.", |line| line.told.tree.speed().rate.map(to_sample)),
    ("plimsoll_operation_progress_ratio", "How far it is, from 0 to 1, as it is shown everywhere.", |line| {
        line.told.tree.percent().map(plimsoll_progress::Percent::fraction)
    }),
    ("plimsoll_operation_stalled", "1 if it should go on and does not.", |line| {
        Some(f64::from(u8::from(line.told.verdict == Verdict::Stuck)))
    }),
    ("plimsoll_operation_age_seconds", "How long ago it was asked for.", |line| Some(line.age.as_secs_f64())),
];

fn operations(exposition: &mut Exposition, named: &[&Line]) {
    for (name, help, pick) in GAUGES {
        let mut family = exposition.family(name, "gauge", help);
        for line in named {
            let Some(value) = pick(line) else { continue };
            let tree = &line.told.tree;
            let counted = || counted(tree).map_or(Unit::Items, |counts| counts.unit);
            let unit = if name == RATE { tree.speed().unit } else { counted() };
            let unit = unit_word(unit, 0);
            family.add(&[identity(line).as_slice(), &[("unit", unit)]].concat(), value);
        }
    }
    let mut left =
        exposition.family("plimsoll_operation_seconds_left", "gauge", "How long it will take, at least and at most.");
    for line in named {
        let Some(known) = line.told.tree.speed().left else { continue };
        for (bound, seconds) in [("low", known.low), ("high", known.high)] {
            left.add(&[identity(line).as_slice(), &[("bound", bound)]].concat(), to_sample(seconds));
        }
    }
}

fn identity(line: &Line) -> [(&'static str, &str); 3] {
    let reference = &line.reference;
    [("kind", reference.kind.word()), ("namespace", &reference.namespace), ("name", &reference.name)]
}

/// What operations that belong together have in common: the schedule, the blueprint.
fn series(object: &Object) -> &str {
    match object.kind() {
        Kind::Backup => object.label(labels::SCHEDULE_NAME),
        Kind::Restore => object.text("/spec/scheduleName"),
        _ => object.text("/spec/actions/0/blueprint"),
    }
}

fn last_success(exposition: &mut Exposition, world: &World) {
    let mut latest = BTreeMap::new();
    for kind in [Kind::Backup, Kind::Restore, Kind::ActionSet] {
        let good = |object: &&Object| object.phase() == "Completed" || object.text("/status/state") == "complete";
        for object in world.all(kind).iter().filter(good) {
            let Some(end) = end(object) else { continue };
            let known = latest.entry((kind.word(), series(object))).or_insert(end);
            *known = end.max(*known);
        }
    }
    let help = "How long ago the last one ended well, by kind and schedule or blueprint.";
    let mut family = exposition.family("plimsoll_last_success_age_seconds", "gauge", help);
    for ((kind, name), end) in latest.iter().take(MAX_SERIES) {
        family.add(&[("kind", kind), ("name", name)], world.age(*end).as_secs_f64());
    }
}

fn schedules(exposition: &mut Exposition, world: &World, due: Due) {
    let known: Vec<_> = world.all(Kind::Schedule).iter().take(MAX_SERIES).collect();
    let mut family = exposition.family(
        "plimsoll_schedule_overdue_seconds",
        "gauge",
        "How long ago a schedule should have made a backup that it has not made; 0 if all is well or it is paused.",
    );
    for schedule in &known {
        let missed = turn(schedule, world.now, due).and_then(|turn| turn.missed);
        family.add(&[("schedule", schedule.name())], missed.map_or(0.0, |missed| world.age(missed).as_secs_f64()));
    }
    let help = "How long ago a schedule was made; none for one that is paused.";
    let mut family = exposition.family("plimsoll_schedule_age_seconds", "gauge", help);
    for schedule in known.into_iter().filter(|schedule| !schedule.flag("/spec/paused")) {
        let age = schedule.created().map(|then| world.age(then)).unwrap_or_default();
        family.add(&[("schedule", schedule.name())], age.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use plimsoll_observe::Overview;
    use serde_json::{Value, json};

    use super::*;

    fn hourly(_: &str, after: Timestamp) -> Option<Timestamp> {
        let second = after.as_second();
        Timestamp::from_second(second - second.rem_euclid(3600) + 3600).ok()
    }

    /// The page for a world at half past twelve.
    fn page(objects: impl IntoIterator<Item = (Kind, Value)>) -> String {
        let mut world = World::new("velero", "2026-01-01T12:30:00Z".parse().unwrap());
        for (kind, mut object) in objects {
            object["metadata"]["namespace"] = json!("velero");
            object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
            world.add(Object::new(kind, object));
        }
        let lines = Overview::default().look(&world);
        let mut exposition = Exposition::default();
        write(&mut exposition, &lines.iter().collect::<Vec<_>>(), &world, &Totals::default(), hourly);
        exposition.finish()
    }

    fn schedule(name: &str, paused: bool, status: &Value) -> (Kind, Value) {
        let spec = json!({ "schedule": "@hourly", "paused": paused });
        (Kind::Schedule, json!({ "metadata": { "name": name }, "spec": spec, "status": status }))
    }

    #[test]
    fn a_schedule_is_overdue_since_the_turn_that_it_missed() {
        let page = page([
            schedule("late", false, &json!({ "lastBackup": "2026-01-01T10:00:07Z" })),
            schedule("never", false, &json!({})),
            schedule("paused", true, &json!({ "lastBackup": "2026-01-01T10:00:07Z" })),
            schedule(
                "skipped",
                false,
                &json!({ "lastBackup": "2026-01-01T10:00:07Z", "lastSkipped": "2026-01-01T12:00:00Z" }),
            ),
            schedule("well", false, &json!({ "lastBackup": "2026-01-01T12:00:07Z" })),
        ]);
        for (name, seconds) in [("late", 5400), ("never", 41_400), ("paused", 0), ("skipped", 0), ("well", 0)] {
            let sample = format!("plimsoll_schedule_overdue_seconds{{schedule=\"{name}\"}} {seconds}\n");
            assert!(page.contains(&sample), "no {sample}{page}");
        }
    }

    #[test]
    fn what_is_done_is_told_in_bytes_where_any_move_and_in_items_otherwise() {
        let backup = |name: &str| {
            let progress = json!({ "totalItems": 40, "itemsBackedUp": 15 });
            let status =
                json!({ "phase": "InProgress", "startTimestamp": "2026-01-01T12:29:00Z", "progress": progress });
            (Kind::Backup, json!({ "metadata": { "name": name, "uid": name }, "status": status }))
        };
        let volume = |name: &str, done: u64, total: u64| {
            let metadata = json!({ "name": name, "labels": { "velero.io/backup-name": "volumes" } });
            let spec = json!({ "node": "n", "volume": name, "pod": { "namespace": "shop", "name": "db-0" } });
            let status = json!({ "phase": "InProgress", "startTimestamp": "2026-01-01T12:29:00Z",
                "progress": { "bytesDone": done, "totalBytes": total } });
            (Kind::PodVolumeBackup, json!({ "metadata": metadata, "spec": spec, "status": status }))
        };
        let page = page([backup("objects"), backup("volumes"), volume("a", 900, 4000), volume("b", 100, 1000)]);
        for (name, unit, done, total) in [("objects", "items", 15, 40), ("volumes", "bytes", 1000, 5000)] {
            let labels = format!("{{kind=\"backup\",namespace=\"velero\",name=\"{name}\",unit=\"{unit}\"}}");
            for sample in [
                format!("plimsoll_operation_done{labels} {done}\n"),
                format!("plimsoll_operation_total{labels} {total}\n"),
            ] {
                assert!(page.contains(&sample), "no {sample}{page}");
            }
        }
    }

    #[test]
    fn the_last_success_is_the_latest_of_those_that_belong_together() {
        let ended = |name: &str, schedule: &str, phase: &str, end: &str| {
            let metadata = json!({ "name": name, "labels": { "velero.io/schedule-name": schedule } });
            (Kind::Backup, json!({ "metadata": metadata, "status": { "phase": phase, "completionTimestamp": end } }))
        };
        let page = page([
            ended("a", "daily", "Completed", "2026-01-01T11:30:00Z"),
            ended("b", "daily", "Completed", "2026-01-01T10:30:00Z"),
            ended("c", "daily", "PartiallyFailed", "2026-01-01T12:20:00Z"),
            ended("d", "weekly", "Completed", "2026-01-01T12:29:00Z"),
            ended("e", "broken", "Failed", "2026-01-01T12:29:00Z"),
        ]);
        for (name, seconds) in [("daily", 3600), ("weekly", 60)] {
            let sample = format!("plimsoll_last_success_age_seconds{{kind=\"backup\",name=\"{name}\"}} {seconds}\n");
            assert!(page.contains(&sample), "no {sample}{page}");
        }
        assert!(!page.contains("plimsoll_last_success_age_seconds{kind=\"backup\",name=\"broken\"}"), "{page}");
    }
}
