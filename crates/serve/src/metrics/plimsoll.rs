//! Our own metrics, `plimsoll_…`.

use std::collections::BTreeMap;

use plimsoll_api::labels;
use plimsoll_observe::{ClusterState, Kind, Object, OperationSummary, Verdict};
use plimsoll_progress::view::unit_word;
use plimsoll_progress::{Counts, Snapshot, Unit};

use super::exposition::{Exposition, to_sample};
use super::totals::{Totals, end, outcome_label};
use super::{MAX_NAMED_OPERATIONS, MAX_SERIES};
use crate::refresh::NextRun;
use crate::sections::scheduled_run;

/// Writes all of our metrics.
pub fn write(
    exposition: &mut Exposition,
    lines: &[&OperationSummary],
    cluster: &ClusterState,
    totals: &Totals,
    next_run: NextRun,
) {
    counts(exposition, lines);
    let mut named: Vec<&OperationSummary> =
        lines.iter().copied().filter(|line| !line.explanation.verdict.is_ended()).collect();
    named.sort_by_key(|line| (line.explanation.verdict, std::cmp::Reverse(line.age)));
    let left_out = named.len().saturating_sub(MAX_NAMED_OPERATIONS);
    named.truncate(MAX_NAMED_OPERATIONS);
    operations(exposition, &named);
    exposition
        .family("plimsoll_operations_left_out", "gauge", "Running operations without series of their own.")
        .add(&[], to_sample(left_out as u64));
    last_success(exposition, cluster);
    schedules(exposition, cluster, next_run);
    let mut durations = exposition.family(
        "plimsoll_operation_duration_seconds",
        "histogram",
        "Duration of the operations that ended since the server started.",
    );
    for ((kind, outcome), histogram) in &totals.durations {
        durations.add_histogram(&[("kind", kind), ("outcome", outcome)], histogram);
    }
}

fn counts(exposition: &mut Exposition, lines: &[&OperationSummary]) {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for kind in [Kind::Backup, Kind::Restore, Kind::ActionSet] {
        for verdict in [Verdict::Stuck, Verdict::Moving, Verdict::Waiting, Verdict::Quiet] {
            counts.insert((kind.word(), outcome_label(verdict)), 0);
        }
    }
    for line in lines {
        *counts.entry((line.reference.kind.word(), outcome_label(line.explanation.verdict))).or_default() += 1;
    }
    let mut family = exposition.family("plimsoll_operations", "gauge", "Existing operations, by kind and state.");
    for ((kind, state), count) in counts {
        family.add(&[("kind", kind), ("state", state)], to_sample(count));
    }
}

/// The meter that shows the progress of an operation: bytes if it moves any.
fn counted(tree: &Snapshot) -> Option<Counts> {
    tree.sum(Unit::Bytes).or_else(|| tree.sum(tree.speed().unit)).or_else(|| tree.sum(Unit::Items))
}

const RATE: &str = "plimsoll_operation_rate";

/// A metric of a running operation: name, help and value.
type Gauge = (&'static str, &'static str, fn(&OperationSummary) -> Option<f64>);

const GAUGES: [Gauge; 6] = [
    ("plimsoll_operation_done", "Work done, in the unit of the operation.", |line| {
        counted(&line.explanation.tree).map(|counts| to_sample(counts.settled()))
    }),
    ("plimsoll_operation_total", "Total work, once it is known.", |line| {
        counted(&line.explanation.tree).and_then(|counts| counts.total.value()).map(to_sample)
    }),
    (RATE, "Work done per second.", |line| line.explanation.tree.speed().rate.map(to_sample)),
    ("plimsoll_operation_progress_ratio", "Progress from 0 to 1.", |line| {
        line.explanation.tree.percent().map(plimsoll_progress::Percent::fraction)
    }),
    ("plimsoll_operation_stalled", "1 if the operation is stuck.", |line| {
        Some(f64::from(u8::from(line.explanation.verdict == Verdict::Stuck)))
    }),
    ("plimsoll_operation_age_seconds", "Time since the operation was created.", |line| Some(line.age.as_secs_f64())),
];

fn operations(exposition: &mut Exposition, named: &[&OperationSummary]) {
    for (name, help, pick) in GAUGES {
        let mut family = exposition.family(name, "gauge", help);
        for line in named {
            let Some(value) = pick(line) else { continue };
            let tree = &line.explanation.tree;
            let counted = || counted(tree).map_or(Unit::Items, |counts| counts.unit);
            let unit = if name == RATE { tree.speed().unit } else { counted() };
            let unit = unit_word(unit, 0);
            family.add(&[identity(line).as_slice(), &[("unit", unit)]].concat(), value);
        }
    }
    let help = "1 for what is said of a running operation: Stalled, Spinning, Crawling or Quiet.";
    let mut verdicts = exposition.family("plimsoll_operation_verdict", "gauge", help);
    for line in named {
        let Some(verdict) = line.explanation.tree.verdict() else { continue };
        verdicts.add(&[identity(line).as_slice(), &[("verdict", verdict.name())]].concat(), 1.0);
    }
    let help = "Which numbers these are: the sequence of the token that all surfaces show, with its epoch as a label.";
    let mut tokens = exposition.family("plimsoll_operation_sequence", "gauge", help);
    for line in named {
        let Some(token) = line.explanation.tree.token else { continue };
        let epoch = token.epoch.to_string();
        tokens.add(&[identity(line).as_slice(), &[("epoch", &epoch)]].concat(), to_sample(token.sequence));
    }
    let mut left =
        exposition.family("plimsoll_operation_seconds_left", "gauge", "Estimated time left, lower and upper bound.");
    for line in named {
        let Some(known) = line.explanation.tree.speed().left else { continue };
        for (bound, seconds) in [("low", known.low), ("high", known.high)] {
            left.add(&[identity(line).as_slice(), &[("bound", bound)]].concat(), to_sample(seconds));
        }
    }
}

fn identity(line: &OperationSummary) -> [(&'static str, &str); 3] {
    let reference = &line.reference;
    [("kind", reference.kind.word()), ("namespace", &reference.namespace), ("name", &reference.name)]
}

/// The label that groups operations: the schedule or the blueprint.
fn series(object: &Object) -> &str {
    match object.kind() {
        Kind::Backup => object.label(labels::SCHEDULE_NAME),
        Kind::Restore => object.text("/spec/scheduleName"),
        _ => object.text("/spec/actions/0/blueprint"),
    }
}

fn last_success(exposition: &mut Exposition, cluster: &ClusterState) {
    let mut latest = BTreeMap::new();
    for kind in [Kind::Backup, Kind::Restore, Kind::ActionSet] {
        let good = |object: &&Object| object.phase() == "Completed" || object.text("/status/state") == "complete";
        for object in cluster.all(kind).iter().filter(good) {
            let Some(end) = end(object) else { continue };
            let known = latest.entry((kind.word(), series(object))).or_insert(end);
            *known = end.max(*known);
        }
    }
    let help = "Time since the last success, by kind and schedule or blueprint.";
    let mut family = exposition.family("plimsoll_last_success_age_seconds", "gauge", help);
    for ((kind, name), end) in latest.iter().take(MAX_SERIES) {
        family.add(&[("kind", kind), ("name", name)], cluster.age(*end).as_secs_f64());
    }
}

fn schedules(exposition: &mut Exposition, cluster: &ClusterState, next_run: NextRun) {
    let known: Vec<_> = cluster.all(Kind::Schedule).iter().take(MAX_SERIES).collect();
    let mut family = exposition.family(
        "plimsoll_schedule_overdue_seconds",
        "gauge",
        "Time since the run that a schedule has missed; 0 if none is missed or it is paused.",
    );
    for schedule in &known {
        let missed = scheduled_run(schedule, cluster.now, next_run).and_then(|run| run.missed);
        family.add(&[("schedule", schedule.name())], missed.map_or(0.0, |missed| cluster.age(missed).as_secs_f64()));
    }
    let help = "Time since a schedule was created; none while it is paused.";
    let mut family = exposition.family("plimsoll_schedule_age_seconds", "gauge", help);
    for schedule in known.into_iter().filter(|schedule| !schedule.flag("/spec/paused")) {
        let age = schedule.created().map(|then| cluster.age(then)).unwrap_or_default();
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

    /// The text at half past twelve.
    fn text(objects: impl IntoIterator<Item = (Kind, Value)>) -> String {
        let mut cluster = ClusterState::new("velero", "2026-01-01T12:30:00Z".parse().unwrap());
        for (kind, mut object) in objects {
            object["metadata"]["namespace"] = json!("velero");
            object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
            cluster.add(Object::new(kind, object));
        }
        let lines = Overview::default().list_operations(&cluster);
        let mut exposition = Exposition::default();
        write(&mut exposition, &lines.iter().collect::<Vec<_>>(), &cluster, &Totals::default(), hourly);
        exposition.finish()
    }

    fn schedule(name: &str, paused: bool, status: &Value) -> (Kind, Value) {
        let spec = json!({ "schedule": "@hourly", "paused": paused });
        (Kind::Schedule, json!({ "metadata": { "name": name }, "spec": spec, "status": status }))
    }

    #[test]
    fn a_schedule_is_overdue_since_the_run_that_it_missed() {
        let text = text([
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
            assert!(text.contains(&sample), "no {sample}{text}");
        }
    }

    #[test]
    fn work_is_counted_in_bytes_where_any_move_and_in_items_otherwise() {
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
        let text = text([backup("objects"), backup("volumes"), volume("a", 900, 4000), volume("b", 100, 1000)]);
        for (name, unit, done, total) in [("objects", "items", 15, 40), ("volumes", "bytes", 1000, 5000)] {
            let labels = format!("{{kind=\"backup\",namespace=\"velero\",name=\"{name}\",unit=\"{unit}\"}}");
            for sample in [
                format!("plimsoll_operation_done{labels} {done}\n"),
                format!("plimsoll_operation_total{labels} {total}\n"),
            ] {
                assert!(text.contains(&sample), "no {sample}{text}");
            }
        }
    }

    /// Numbers as another program may have written them, whether or not they make sense.
    fn numbers(mut seed: u64) -> [u64; 4] {
        std::array::from_fn(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            [(seed >> 33) % 50, seed >> 30, 0, seed >> 8][(seed >> 60) as usize % 4]
        })
    }

    #[test]
    fn in_ten_thousand_cases_no_metric_shows_more_done_than_there_is() {
        for part in 0..200_u64 {
            let objects = (0..50).map(|index| {
                let [done, total, skipped, failed] = numbers(part * 50 + index);
                let progress = json!({ "totalItems": total, "itemsBackedUp": done, "itemsSkipped": skipped, "itemsFailed": failed,
                    "bytesDone": done, "totalBytes": total });
                let status = json!({ "phase": "InProgress", "startTimestamp": "2026-01-01T12:29:00Z", "progress": progress });
                let (kind, name) = (if index % 2 == 0 { Kind::Backup } else { Kind::PodVolumeBackup }, index.to_string());
                (kind, json!({ "metadata": { "name": name, "uid": name }, "status": status }))
            });
            let text = text(objects);
            let all = |family: &str| -> BTreeMap<String, f64> {
                let lines = text.lines().filter_map(|line| line.strip_prefix(family));
                lines
                    .filter_map(|line| line.rsplit_once(' '))
                    .map(|(labels, value)| (labels.to_owned(), value.parse().unwrap()))
                    .collect()
            };
            let (done, total) = (all("plimsoll_operation_done"), all("plimsoll_operation_total"));
            assert!(!total.is_empty());
            for (labels, total) in total {
                assert!(done[&labels] <= total, "{labels}: {} of {total}", done[&labels]);
            }
        }
    }

    #[test]
    fn the_last_success_is_the_latest_of_its_schedule() {
        let ended = |name: &str, schedule: &str, phase: &str, end: &str| {
            let metadata = json!({ "name": name, "labels": { "velero.io/schedule-name": schedule } });
            (Kind::Backup, json!({ "metadata": metadata, "status": { "phase": phase, "completionTimestamp": end } }))
        };
        let text = text([
            ended("a", "daily", "Completed", "2026-01-01T11:30:00Z"),
            ended("b", "daily", "Completed", "2026-01-01T10:30:00Z"),
            ended("c", "daily", "PartiallyFailed", "2026-01-01T12:20:00Z"),
            ended("d", "weekly", "Completed", "2026-01-01T12:29:00Z"),
            ended("e", "broken", "Failed", "2026-01-01T12:29:00Z"),
        ]);
        for (name, seconds) in [("daily", 3600), ("weekly", 60)] {
            let sample = format!("plimsoll_last_success_age_seconds{{kind=\"backup\",name=\"{name}\"}} {seconds}\n");
            assert!(text.contains(&sample), "no {sample}{text}");
        }
        assert!(!text.contains("plimsoll_last_success_age_seconds{kind=\"backup\",name=\"broken\"}"), "{text}");
    }
}
