//! From what is known of an operation to what a page shows: plain data, pure functions.

use jiff::Timestamp;
use plimsoll_api::labels;
use plimsoll_observe::{Cause, Certainty, Kind, Line, Object, Verdict};
use plimsoll_progress::Unit;
use plimsoll_progress::view::{self, Look};
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
        tree: view::rows_within(&told.tree, MOST_ROWS),
        unit: view::unit_word(told.tree.speed().unit, 0),
        trail: trail.to_vec(),
        unseen: told.unseen.clone(),
    }
}

/// The numbers of an operation now, for its trail.
pub fn point(line: &Line, now: Timestamp) -> Point {
    let tree = &line.told.tree;
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
