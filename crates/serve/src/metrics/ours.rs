//! `plimsoll_…`.

use std::collections::BTreeMap;

use plimsoll_api::labels;
use plimsoll_observe::{Kind, Line, Object, Verdict, World};
use plimsoll_progress::view::unit_word;
use plimsoll_progress::{Counts, Snapshot, Unit};

use super::format::{Page, number};
use super::tally::{Tally, end, outcome};
use super::{MOST_NAMED, MOST_SERIES};
use crate::feed::Due;
use crate::sections::turn;

/// Everything of ours.
pub fn write(page: &mut Page, lines: &[&Line], world: &World, tally: &Tally, due: Due) {
    counts(page, lines);
    let mut named: Vec<&Line> = lines.iter().copied().filter(|line| !line.told.verdict.is_ended()).collect();
    named.sort_by_key(|line| (line.told.verdict, std::cmp::Reverse(line.age)));
    let left_out = named.len().saturating_sub(MOST_NAMED);
    named.truncate(MOST_NAMED);
    operations(page, &named);
    page.family("plimsoll_operations_left_out", "gauge", "Running operations beyond those that are named one by one.")
        .add(&[], number(left_out as u64));
    last_success(page, world);
    schedules(page, world, due);
    let mut durations = page.family(
        "plimsoll_operation_duration_seconds",
        "histogram",
        "How long operations took that ended, since the server began.",
    );
    for ((kind, outcome), histogram) in &tally.durations {
        durations.histogram(&[("kind", kind), ("outcome", outcome)], histogram);
    }
}

fn counts(page: &mut Page, lines: &[&Line]) {
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
        page.family("plimsoll_operations", "gauge", "Operations there are, by kind and how they are doing.");
    for ((kind, state), count) in counts {
        family.add(&[("kind", kind), ("state", state)], number(count));
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
        counted(&line.told.tree).map(|counts| number(counts.settled()))
    }),
    ("plimsoll_operation_total", "What there is to do, once that is known.", |line| {
        counted(&line.told.tree).and_then(|counts| counts.total.value()).map(number)
    }),
    (RATE, "What is done in a second.", |line| line.told.tree.speed().rate.map(number)),
    ("plimsoll_operation_progress_ratio", "How far it is, from 0 to 1, as it is shown everywhere.", |line| {
        line.told.tree.percent().map(plimsoll_progress::Percent::fraction)
    }),
    ("plimsoll_operation_stalled", "1 if it should go on and does not.", |line| {
        Some(f64::from(u8::from(line.told.verdict == Verdict::Stuck)))
    }),
    ("plimsoll_operation_age_seconds", "How long ago it was asked for.", |line| Some(line.age.as_secs_f64())),
];

fn operations(page: &mut Page, named: &[&Line]) {
    for (name, help, pick) in GAUGES {
        let mut family = page.family(name, "gauge", help);
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
        page.family("plimsoll_operation_seconds_left", "gauge", "How long it will take, at least and at most.");
    for line in named {
        let Some(known) = line.told.tree.speed().left else { continue };
        for (bound, seconds) in [("low", known.low), ("high", known.high)] {
            left.add(&[identity(line).as_slice(), &[("bound", bound)]].concat(), number(seconds));
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

fn last_success(page: &mut Page, world: &World) {
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
    let mut family = page.family("plimsoll_last_success_age_seconds", "gauge", help);
    for ((kind, name), end) in latest.iter().take(MOST_SERIES) {
        family.add(&[("kind", kind), ("name", name)], world.age(*end).as_secs_f64());
    }
}

fn schedules(page: &mut Page, world: &World, due: Due) {
    let known: Vec<_> = world.all(Kind::Schedule).iter().take(MOST_SERIES).collect();
    let mut family = page.family(
        "plimsoll_schedule_overdue_seconds",
        "gauge",
        "How long ago a schedule should have made a backup that it has not made; 0 if all is well or it is paused.",
    );
    for schedule in &known {
        let missed = turn(schedule, world.now, due).and_then(|turn| turn.missed);
        family.add(&[("schedule", schedule.name())], missed.map_or(0.0, |missed| world.age(missed).as_secs_f64()));
    }
    let help = "How long ago a schedule was made; none for one that is paused.";
    let mut family = page.family("plimsoll_schedule_age_seconds", "gauge", help);
    for schedule in known.into_iter().filter(|schedule| !schedule.flag("/spec/paused")) {
        let age = schedule.created().map(|then| world.age(then)).unwrap_or_default();
        family.add(&[("schedule", schedule.name())], age.as_secs_f64());
    }
}
