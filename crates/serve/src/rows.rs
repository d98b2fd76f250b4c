//! What the page shows of an operation, as plain data and pure functions.

use jiff::Timestamp;
use plimsoll_api::labels;
use plimsoll_observe::{Cause, Certainty, Kind, Object, OperationSummary, Verdict};
use plimsoll_progress::view::{self, Look};
use plimsoll_progress::{Sample, Snapshot, Token, Unit};
use serde::Serialize;

/// Rows of a tree on the page; further ones are folded into counts.
const MAX_TREE_ROWS: usize = 300;

/// One operation in the list. It has times, not ages, so that it changes only when something happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// `backup/velero/nightly`.
    pub key: String,
    /// Distinguishes it from an earlier object of the same name.
    #[serde(skip)]
    pub uid: String,
    /// `backup`, `restore`, …
    pub kind: &'static str,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The icon and colour.
    pub look: Look,
    /// The object's phase.
    pub phase: String,
    /// Its activity, its wait or its failure.
    pub doing: String,
    /// When it was created, in milliseconds since 1970.
    pub created: i64,
    /// When it started.
    pub started: Option<i64>,
    /// When it ended.
    pub ended: Option<i64>,
    /// `43.33 %`.
    pub percent: String,
    /// The fraction of the bar.
    pub bar: Option<f64>,
    /// `412/1024 items`.
    pub counts: String,
    /// `1.2 GiB of 4.5 GiB`.
    pub bytes: String,
    /// `35.1 MiB/s`.
    pub rate: String,
    /// `2m to 4m`.
    pub left: String,
    /// Bytes per second, as a number.
    pub bytes_rate: u64,
    /// Since when it is stalled, spinning or crawling.
    pub since: Option<i64>,
    /// Which of these it is.
    pub stall: Option<&'static str>,
    /// Why it is stuck or has failed.
    pub cause: Option<Cause>,
    /// The schedule that created it.
    pub schedule: String,
    /// Which numbers these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// Whether it can be cancelled.
    pub can_cancel: bool,
    /// Whether it can be retried.
    pub can_retry: bool,
}

/// Everything about one operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Detail {
    /// The row in the list.
    pub row: Row,
    /// One sentence.
    pub headline: String,
    /// Causes, the most certain first.
    pub causes: Vec<Cause>,
    /// The task tree.
    pub tree: Vec<view::Row>,
    /// The unit of the samples' rate: `bytes`, `items`, `files` or `steps`.
    pub unit: &'static str,
    /// Samples for charts.
    #[serde(rename = "trail")]
    pub history: Vec<Sample>,
    /// Resources that could not be read.
    pub unseen: Vec<plimsoll_observe::UnreadResource>,
}

/// Milliseconds since 1970, rounded to seconds: two reads of the same time must agree.
pub fn seconds(time: Timestamp) -> i64 {
    time.as_second() * 1000
}

/// The key of an operation.
pub fn key(line: &OperationSummary) -> String {
    let reference = &line.reference;
    format!("{}/{}/{}", reference.kind.word(), reference.namespace, reference.name)
}

/// The row of an operation, whose object this is.
pub fn row(line: &OperationSummary, object: Option<&Object>, now: Timestamp) -> Row {
    let tree = &line.explanation.tree;
    let drawn = view::rows(tree);
    let root = drawn.first();
    let text = |pick: fn(&view::Row) -> &String| {
        drawn.iter().map(pick).find(|text| !text.is_empty()).cloned().unwrap_or_default()
    };
    let speed = tree.speed();
    let ended = line.explanation.verdict.is_ended();
    let past = |ago: std::time::Duration| now.checked_sub(ago).map_or(0, seconds);
    Row {
        key: key(line),
        uid: object.and_then(|object| object.some_text("/metadata/uid")).map_or_else(|| key(line), str::to_owned),
        kind: line.reference.kind.word(),
        namespace: line.reference.namespace.clone(),
        name: line.reference.name.clone(),
        verdict: line.explanation.verdict,
        look: line.look,
        phase: line.explanation.phase.clone(),
        doing: line.doing.clone(),
        created: past(line.age),
        started: object.and_then(|object| object.time("/status/startTimestamp")).map(seconds),
        ended: line.ended_ago.map(past),
        percent: root.map(|root| root.percent.clone()).unwrap_or_default(),
        bar: root.and_then(|root| root.bar),
        counts: text(|row| &row.counts),
        bytes: text(|row| &row.bytes),
        rate: if ended { String::new() } else { speed.rate_text() },
        left: if ended { String::new() } else { speed.left_text() },
        bytes_rate: speed.rate.filter(|_| !ended && speed.unit == Unit::Bytes).unwrap_or(0),
        since: tree.stall.as_ref().filter(|_| !ended).map(|stall| past(stall.age)),
        stall: tree.stall.as_ref().filter(|_| !ended).map(|stall| stall.verdict().word()),
        cause: main_cause(line).cloned(),
        schedule: object.map(|object| object.label(labels::SCHEDULE_NAME).to_owned()).unwrap_or_default(),
        token: tree.token,
        can_cancel: !ended && (line.has_operation || line.reference.kind.is_transfer()),
        can_retry: matches!(line.explanation.verdict, Verdict::Failed | Verdict::PartiallyFailed | Verdict::Cancelled)
            && matches!(line.reference.kind, Kind::Backup | Kind::Restore | Kind::ActionSet),
    }
}

/// Everything about an operation.
pub fn detail(line: &OperationSummary, row: Row, history: Vec<Sample>) -> Detail {
    let explanation = &line.explanation;
    Detail {
        row,
        headline: explanation.headline.clone(),
        causes: explanation.causes.clone(),
        tree: stalls_first(view::rows_within(&explanation.tree, MAX_TREE_ROWS)),
        unit: view::unit_word(explanation.tree.speed().unit, 0),
        history,
        unseen: explanation.unseen.clone(),
    }
}

/// The same rows, with stalled tasks and their parents before their siblings: a stalled volume must not be listed below a hundred
/// volumes that advance.
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

/// The current sample of an operation.
pub fn sample(tree: &Snapshot, now: Timestamp) -> Sample {
    Sample::of(tree, now.as_millisecond())
}

/// The samples that the server which worked on an operation has written, up to those of this process.
pub fn samples(operation: Option<&Object>, own: &[Sample]) -> Vec<Sample> {
    let written = operation.map(|operation| operation.list("/status/samples")).unwrap_or_default();
    let written = written.iter().filter_map(|sample| serde_json::from_value::<Sample>(sample.clone()).ok());
    let before = |sample: &Sample| own.first().is_none_or(|first| sample.at < first.at);
    written.take_while(before).chain(own.iter().copied()).collect()
}

fn main_cause(line: &OperationSummary) -> Option<&Cause> {
    let explanation = matches!(
        line.explanation.verdict,
        Verdict::Stuck | Verdict::Failed | Verdict::PartiallyFailed | Verdict::Refused
    );
    line.explanation.causes.first().filter(|cause| explanation && cause.certainty < Certainty::Possible)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_progress::{Operation, Total, VirtualClock};

    use super::*;

    #[test]
    fn a_stalled_task_comes_before_its_siblings_with_all_its_children() {
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
