//! From the tree to what custom resources show: pure functions.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use plimsoll_api::plimsoll::v1alpha1::{
    COMPLETE, LogTail, OperationState, PROGRESS_STALLED, PROGRESSING, RECONCILING, Sample as WrittenSample, Stage,
};
use plimsoll_api::summary::{ProgressSummary, Stall};
use plimsoll_engine::log::Tail;
use plimsoll_progress::view::unit_word;
use plimsoll_progress::{Chart, Counts, Sample, Snapshot, State, Unit};
use serde_json::{Value, json};

use crate::progress_floor::ItemCounters;

/// `status.plimsoll` of a subject and of its Operation.
pub fn summary(snapshot: &Snapshot, now: Timestamp) -> ProgressSummary {
    let root = snapshot.root();
    let current = snapshot.current();
    let (speed, explanation) = (snapshot.speed(), snapshot.explanation());
    ProgressSummary {
        percent: snapshot.percent().map(|percent| percent.to_string()),
        rate: speed.rate.and_then(|rate| i64::try_from(rate).ok()),
        unit: speed.rate.map(|_| unit_word(speed.unit, 0).to_owned()),
        seconds_left: speed.left.map(|left| [seconds(left.low), seconds(left.high)]),
        from: explanation.as_ref().map(|why| why.from.name().to_owned()),
        estimate: explanation.as_ref().map(|why| why.text.clone()).filter(|text| !text.is_empty()),
        waits_for: explanation.and_then(|why| why.waits_for).map(|path| path.to_string()),
        token: snapshot.token.map(|token| token.to_string()),
        last_advance: root.map(|root| ago(now, root.ages.advance)),
        task: current.map(|node| node.label().to_string()),
        verdict: snapshot.verdict().filter(|_| snapshot.state().is_open()).map(|verdict| verdict.name().to_owned()),
        stalled: snapshot.stall.as_ref().map(|stall| Stall {
            task: Some(stall.task.to_string()),
            since: Some(ago(now, stall.age)),
            reason: Some(stall.reason.reason().to_owned()),
            message: Some(stall.message.to_string()),
            ..Stall::default()
        }),
        ..ProgressSummary::default()
    }
}

fn seconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

fn ago(now: Timestamp, age: std::time::Duration) -> Time {
    let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::ZERO);
    let then = now.checked_sub(age).unwrap_or(now);
    Time(then)
}

/// The progress fields of a kind, as a part of its status.
pub fn progress(snapshot: &Snapshot, counters: ItemCounters) -> Value {
    if counters.stage.is_empty() {
        return json!({});
    }
    let items = snapshot.node(counters.stage).and_then(|node| node.counts(Unit::Items));
    let field = |pick: fn(&Counts) -> Option<u64>| items.and_then(pick).and_then(|count| i64::try_from(count).ok());
    json!({ "progress": {
        "totalItems": field(|items| items.total.value()),
        counters.done: field(|items| Some(items.done)),
        "itemsSkipped": field(|items| Some(items.skipped)),
        "itemsFailed": field(|items| Some(items.failed)),
    }})
}

/// The state of an Operation.
pub fn state(snapshot: &Snapshot) -> OperationState {
    match snapshot.state() {
        State::Pending | State::Waiting => OperationState::Waiting,
        State::Done | State::Skipped => OperationState::Succeeded,
        State::Failed | State::Interrupted => OperationState::Failed,
        State::Cancelled => OperationState::Cancelled,
        State::Running | State::TakenOver | State::Unknown => OperationState::Running,
    }
}

/// Reduces the tree of an ended operation.
pub fn stages(snapshot: &Snapshot) -> Vec<Stage> {
    let is_stage = |node: &&plimsoll_progress::Node| node.parent_path() == Some("");
    snapshot
        .nodes
        .iter()
        .filter(is_stage)
        .map(|node| Stage {
            name: Some(node.name.to_string()),
            state: Some(match node.state {
                State::Failed | State::Interrupted => OperationState::Failed,
                State::Cancelled => OperationState::Cancelled,
                state if state.is_active() => OperationState::Running,
                State::Pending => OperationState::Waiting,
                _ => OperationState::Succeeded,
            }),
            milliseconds: node.ages.elapsed.and_then(|elapsed| i64::try_from(elapsed.as_millis()).ok()),
            bytes: node.counts(Unit::Bytes).and_then(|bytes| i64::try_from(bytes.settled()).ok()),
            ..Stage::default()
        })
        .collect()
}

/// The samples of a chart, as an Operation has them.
pub fn samples(chart: &Chart) -> Vec<WrittenSample> {
    let sample = |sample: &Sample| WrittenSample {
        at: Some(sample.at),
        rate: i64::try_from(sample.rate).ok(),
        percent: sample.percent.map(i64::from),
        ..WrittenSample::default()
    };
    chart.samples().iter().map(sample).collect()
}

/// The chart that an earlier process wrote.
pub fn chart(samples: &[WrittenSample], most: usize) -> Chart {
    let mut chart = Chart::new(most);
    for sample in samples {
        chart.add(Sample {
            at: sample.at.unwrap_or(0),
            rate: sample.rate.and_then(|rate| u64::try_from(rate).ok()).unwrap_or(0),
            percent: sample.percent.and_then(|percent| u16::try_from(percent).ok()),
            ..Sample::default()
        });
    }
    chart
}

/// The end of the log, as an Operation has it.
pub fn log_tail(tail: &Tail) -> LogTail {
    LogTail { offset: i64::try_from(tail.offset).ok(), text: Some(tail.text.clone()), ..LogTail::default() }
}

/// `Reconciling`, `Progressing`, `ProgressStalled` and `Complete`; a condition's time changes only with its status.
///
/// None of them is `Stalled`: to tools that follow kstatus that one means failed, and what is stalled may go on by itself.
pub fn conditions(snapshot: &Snapshot, previous: &[Condition], now: Timestamp) -> Vec<Condition> {
    let ended = snapshot.state().is_ended();
    let root_reason = snapshot.root().and_then(|root| root.reason.as_deref()).unwrap_or_default();
    let current = snapshot.current().map(|node| node.label().to_string()).unwrap_or_default();
    let stall = snapshot.stall.as_ref().filter(|_| !ended);
    let working = if ended { "Ended" } else { "Working" };
    let facts = [
        (RECONCILING, !ended, working.to_owned(), current.clone()),
        (PROGRESSING, !ended && stall.is_none(), working.to_owned(), current),
        (
            PROGRESS_STALLED,
            stall.is_some(),
            stall.map_or_else(|| "Advancing".to_owned(), |stall| stall.reason.reason().to_owned()),
            stall.map(|stall| format!("{}: {}", stall.task, stall.message)).unwrap_or_default(),
        ),
        (COMPLETE, ended, state(snapshot).to_string(), root_reason.to_owned()),
    ];
    facts
        .into_iter()
        .map(|(kind, holds, reason, message)| condition(previous, now, kind, holds, reason, message))
        .collect()
}

/// The same for an operation that ended before it started, so that `kubectl wait` returns.
pub fn conditions_before_start(reason: &str, message: &str, now: Timestamp) -> Vec<Condition> {
    let fact = |kind, holds, reason: &str, message: &str| {
        condition(&[], now, kind, holds, reason.to_owned(), message.to_owned())
    };
    vec![
        fact(RECONCILING, false, "Ended", ""),
        fact(PROGRESSING, false, "Ended", ""),
        fact(PROGRESS_STALLED, false, "Advancing", ""),
        fact(COMPLETE, true, reason, message),
    ]
}

/// The same for an operation that has not started and waits.
pub fn conditions_while_waiting(message: &str, now: Timestamp) -> Vec<Condition> {
    let fact = |kind, holds, reason: &str, message: &str| {
        condition(&[], now, kind, holds, reason.to_owned(), message.to_owned())
    };
    vec![
        fact(RECONCILING, true, "Waiting", message),
        fact(PROGRESSING, false, "Waiting", message),
        fact(PROGRESS_STALLED, false, "Advancing", ""),
        fact(COMPLETE, false, "Waiting", ""),
    ]
}

fn condition(
    previous: &[Condition],
    now: Timestamp,
    kind: &str,
    holds: bool,
    reason: String,
    message: String,
) -> Condition {
    let status = if holds { "True" } else { "False" };
    let unchanged = previous.iter().find(|condition| condition.type_ == kind && condition.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason,
        message,
        last_transition_time: unchanged.map_or(Time(now), |condition| condition.last_transition_time.clone()),
        observed_generation: None,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_progress::{Clock, Operation};

    use super::*;

    const BACKUP: ItemCounters = ItemCounters { stage: "reading", done: "itemsBackedUp" };

    /// Numbers as another process may have written them, whether or not they make sense.
    fn numbers(mut seed: u64) -> [u64; 5] {
        std::array::from_fn(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Small numbers, large ones, and none.
            [(seed >> 33) % 50, seed >> 24, 0, seed][(seed >> 60) as usize % 4]
        })
    }

    #[test]
    fn in_ten_thousand_cases_no_resource_shows_more_done_than_there_is() {
        for seed in 0..10_000 {
            let [done, skipped, failed, total, counted] = numbers(seed);
            let kind = ["growing", "final"][usize::from(seed % 2 == 0)];
            let meter = json!({ "unit": "items", "done": done, "skipped": skipped, "failed": failed, "total": { kind: total } });
            let nodes =
                json!([{ "path": "", "name": "b" }, { "path": "reading", "name": "reading", "meters": [meter] }]);
            let saved: Snapshot = serde_json::from_value(json!({ "operation": "b", "nodes": nodes })).unwrap();
            let (operation, gap) = Operation::resume(&saved, "pod-a", Clock::system());
            drop(gap);
            let items = operation.root().child("reading").meter(Unit::Items);
            items.add(counted >> 3);
            for tree in [saved, operation.snapshot()] {
                let written = progress(&tree, BACKUP);
                let field = |name: &str| written["progress"][name].as_u64().unwrap_or(0);
                let all = field("itemsBackedUp") + field("itemsSkipped") + field("itemsFailed");
                assert!(written["progress"]["totalItems"].is_null() || all <= field("totalItems"), "{written}");
            }
        }
    }

    #[test]
    fn the_samples_of_an_operation_are_read_as_they_were_written() {
        let mut chart = Chart::new(60);
        for second in 0..500 {
            chart.add(Sample { at: second * 1000, rate: 7, percent: Some(3), left: None });
        }
        let written = samples(&chart);
        assert!(written.len() >= 15 && written.len() < 60);
        assert_eq!(super::chart(&written, 60).samples(), chart.samples());
    }
}
