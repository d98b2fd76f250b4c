//! From what is known of an operation to what a page shows: plain data, pure functions.

use jiff::Timestamp;
use plimsoll_api::labels;
use plimsoll_observe::{Cause, Certainty, Kind, Line, Object, Verdict};
use plimsoll_progress::view::{self, Look};
use plimsoll_progress::{Snapshot, Unit};
use serde::Serialize;

use crate::trail::Point;

/// So many rows of a tree are shown; the rest is counted in them.
const MOST_ROWS: usize = 300;

/// One operation in the list. Moments, not ages: a row changes only when something happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// `backup/velero/nightly`.
    pub key: String,
    /// Its own, whatever else had its name before.
    #[serde(skip)]
    pub uid: String,
    /// Its kind, as we call it.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How it is doing.
    pub verdict: Verdict,
    /// How it looks.
    pub look: Look,
    /// Its own phase.
    pub phase: String,
    /// The one thing to know.
    pub doing: String,
    /// When it was asked for, in milliseconds since 1970.
    pub created: i64,
    /// When it began.
    pub started: Option<i64>,
    /// When it ended.
    pub ended: Option<i64>,
    /// `43.33 %`.
    pub percent: String,
    /// How full the bar is.
    pub bar: Option<f64>,
    /// `412/1024 items`.
    pub counts: String,
    /// `1.2 GiB of 4.5 GiB`.
    pub bytes: String,
    /// `35.1 MiB/s`.
    pub rate: String,
    /// `2m to 4m`.
    pub left: String,
    /// Bytes a second, as a number.
    pub bytes_rate: u64,
    /// Since when nothing moves.
    pub since: Option<i64>,
    /// Why it is stuck or failed.
    pub cause: Option<Cause>,
    /// The schedule that made it.
    pub schedule: String,
    /// It can be asked to end.
    pub can_cancel: bool,
    /// It can be done again.
    pub can_retry: bool,
}

/// Everything about one operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    /// The same as in the list.
    pub row: Row,
    /// One sentence.
    pub headline: String,
    /// Why, the surest first.
    pub causes: Vec<Cause>,
    /// The tree.
    pub tree: Vec<view::Row>,
    /// What the points' rate counts a second: `bytes`, `items`, `files` or `steps`.
    pub unit: &'static str,
    /// What its numbers were.
    pub trail: Vec<Point>,
    /// What could not be looked at.
    pub unseen: Vec<plimsoll_observe::Unseen>,
}

/// Milliseconds since 1970, whole seconds: two looks at the same moment must agree.
pub fn seconds(time: Timestamp) -> i64 {
    time.as_second() * 1000
}

/// The key of an operation.
pub fn key(line: &Line) -> String {
    let reference = &line.reference;
    format!("{}/{}/{}", reference.kind.word(), reference.namespace, reference.name)
}

/// The row of an operation, whose object this is.
pub fn row(line: &Line, object: Option<&Object>, now: Timestamp) -> Row {
    let tree = &line.told.tree;
    let drawn = view::rows(tree);
    let root = drawn.first();
    let text = |pick: fn(&view::Row) -> &String| {
        drawn.iter().map(pick).find(|text| !text.is_empty()).cloned().unwrap_or_default()
    };
    let speed = tree.speed();
    let ended = line.told.verdict.is_ended();
    let past = |ago: std::time::Duration| now.checked_sub(ago).map_or(0, seconds);
    Row {
        key: key(line),
        uid: object.and_then(|object| object.some_text("/metadata/uid")).map_or_else(|| key(line), str::to_owned),
        kind: line.reference.kind.word(),
        namespace: line.reference.namespace.clone(),
        name: line.reference.name.clone(),
        verdict: line.told.verdict,
        look: line.look,
        phase: line.told.phase.clone(),
        doing: line.doing.clone(),
        created: past(line.age),
        started: object.and_then(|object| object.time("/status/startTimestamp")).map(seconds),
        ended: line.ended.map(|ended| past(ended.ago)),
        percent: root.map(|root| root.percent.clone()).unwrap_or_default(),
        bar: root.and_then(|root| root.bar),
        counts: text(|row| &row.counts),
        bytes: text(|row| &row.bytes),
        rate: if ended { String::new() } else { speed.rate_text() },
        left: if ended { String::new() } else { speed.left_text() },
        bytes_rate: speed.rate.filter(|_| !ended && speed.unit == Unit::Bytes).unwrap_or(0),
        since: tree.stall.as_ref().filter(|_| !ended).map(|stall| past(stall.age)),
        cause: main_cause(line).cloned(),
        schedule: object.map(|object| object.label(labels::SCHEDULE_NAME).to_owned()).unwrap_or_default(),
        can_cancel: !ended && (line.ours || line.reference.kind.is_transfer()),
        can_retry: matches!(line.told.verdict, Verdict::Failed | Verdict::PartiallyFailed | Verdict::Cancelled)
            && matches!(line.reference.kind, Kind::Backup | Kind::Restore | Kind::ActionSet),
    }
}

/// Everything about an operation.
pub fn detail(line: &Line, row: Row, trail: &[Point]) -> Detail {
    let told = &line.told;
    Detail {
        row,
        headline: told.headline.clone(),
        causes: told.causes.clone(),
        tree: stalls_first(view::rows_within(&told.tree, MOST_ROWS)),
        unit: view::unit_word(told.tree.speed().unit, 0),
        trail: trail.to_vec(),
        unseen: told.unseen.clone(),
    }
}

/// The same rows, in which of several tasks the one comes first that stands still, or in which something does: what needs somebody must
/// not lie below a hundred volumes that go on.
fn stalls_first(rows: Vec<view::Row>) -> Vec<view::Row> {
    let Some(top) = rows.first().map(|row| row.depth) else { return rows };
    let mut tasks: Vec<Vec<view::Row>> = Vec::new();
    for row in rows {
        match tasks.last_mut() {
            Some(task) if row.depth > top => task.push(row),
            _ => tasks.push(vec![row]),
        }
    }
    tasks.sort_by_key(|task| !task.iter().any(|row| row.look == Look::Stalled));
    tasks
        .into_iter()
        .flat_map(|mut task| {
            let below = stalls_first(task.split_off(1));
            task.into_iter().chain(below)
        })
        .collect()
}

/// The numbers of an operation now, for its trail.
pub fn point(tree: &Snapshot, now: Timestamp) -> Point {
    let speed = tree.speed();
    Point {
        at: now.as_millisecond(),
        rate: speed.rate.unwrap_or(0),
        left: speed.left.map(|left| [left.low, left.high]),
        percent: tree.percent().map(plimsoll_progress::Percent::hundredths),
    }
}

fn main_cause(line: &Line) -> Option<&Cause> {
    let told =
        matches!(line.told.verdict, Verdict::Stuck | Verdict::Failed | Verdict::PartiallyFailed | Verdict::Refused);
    line.told.causes.first().filter(|cause| told && cause.certainty < Certainty::Possible)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_progress::{Operation, Total, VirtualClock};

    use super::*;

    #[test]
    fn a_task_that_stands_still_comes_before_its_like_with_all_that_belongs_to_it() {
        let clock = VirtualClock::new();
        let operation = Operation::new("backup-nightly", clock.clock());
        let (objects, volumes) = (operation.root().child("objects"), operation.root().child("volumes"));
        let [a, b, c] = ["a", "b", "c"].map(|name| volumes.child(name));
        let tasks = [objects, volumes, a, b, c];
        let step = |seconds: u64, moving: &[usize]| {
            for _ in 0..seconds {
                clock.advance(Duration::from_secs(1));
                for task in moving {
                    tasks[*task].meter(Unit::Bytes).add(1);
                }
                operation.snapshot();
            }
        };
        for task in &tasks {
            task.meter(Unit::Bytes).set_total(Total::Final(1000));
        }
        let order = |rows: Vec<view::Row>| rows.into_iter().map(|row| row.path).collect::<Vec<_>>();
        step(5, &[0, 1, 2, 3, 4]);
        let rows = stalls_first(view::rows(&operation.snapshot()));
        assert_eq!(order(rows), ["", "objects", "volumes", "volumes/a", "volumes/b", "volumes/c"]);
        step(60, &[0, 1, 2, 4]);
        let rows = stalls_first(view::rows(&operation.snapshot()));
        assert_eq!(order(rows), ["", "volumes", "volumes/b", "volumes/a", "volumes/c", "objects"]);
    }
}
