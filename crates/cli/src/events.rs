//! `--events json`: what a script can follow. The shape is an interface: `docs/reference/events.md`.

use jiff::Timestamp;
use plimsoll_observe::{Explanation, Object, Verdict};
use plimsoll_progress::{Counts, Percent, Snapshot, State, Unit};
use serde::Serialize;
use serde_json::{Value, json};

use crate::subjects::{Subject, operation_name};
use crate::{observation, output};

/// Raised when a field changes its meaning or goes. New fields may come at any time.
const VERSION: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    version: u32,
    time: String,
    operation: String,
    phase: String,
    state: &'static str,
    source: Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<String>,
    done: u64,
    skipped: u64,
    failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<Unit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_left: Option<[u64; 2]>,
    /// Which numbers these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// Where the seconds left come from: `pace`, `history` or `plan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stalled: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    validation_errors: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
}

/// The source of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The memory of the server that works on it.
    Server,
    /// The objects of the cluster, which are a little older.
    Cluster,
}

/// Prints an event for everything that is new.
#[derive(Default)]
pub struct Events {
    last: Option<Event>,
}

impl Events {
    /// Prints what is new in this, if anything is. With the tree in the server's memory, where that can be had.
    pub fn emit(&mut self, subject: &Subject, tree: Option<&Snapshot>, explanation: Option<&Explanation>) {
        let now = Timestamp::now();
        let mut event = event(subject, now);
        if let Some(tree) = tree.filter(|_| subject.outcome().is_none()) {
            refresh(&mut event, tree, now);
        }
        if let (Some(stalled), Some(cause)) = (&mut event.stalled, explanation.and_then(observation::main_cause)) {
            stalled["next"] = json!(cause.next);
        }
        self.emit_event(event);
    }

    /// The same for something that is looked at from outside.
    pub fn emit_observed(&mut self, object: &Object, explanation: &Explanation, source: Source) {
        self.emit_event(Event { source, ..observed(object, explanation, Timestamp::now()) });
    }

    fn emit_event(&mut self, mut event: Event) {
        if let Some(last) = &self.last {
            event.hold(last);
        }
        let known = self.last.as_ref().is_some_and(|last| Event { time: event.time.clone(), ..last.clone() } == event);
        if !known && let Ok(text) = serde_json::to_string(&event) {
            output::line(text);
            self.last = Some(event);
        }
    }
}

fn event(subject: &Subject, now: Timestamp) -> Event {
    let (items, outcome) = (subject.items(), subject.outcome());
    let live = |pointer: &str| subject.object.pointer(pointer).filter(|value| outcome.is_none() && !value.is_null());
    let waits = subject.tree().filter(|_| outcome.is_none()).map(|tree| waits(&tree)).unwrap_or_default();
    let stalled = live("/status/plimsoll/stalled").cloned();
    Event {
        version: VERSION,
        time: format!("{now:.3}"),
        operation: operation_name(&subject.reference()),
        phase: subject.phase().to_owned(),
        state: match outcome {
            Some(outcome) => outcome.word(),
            None if stalled.is_some() => "Stalled",
            None if ["New", "Queued", "ReadyToStart"].contains(&subject.phase()) => "Waiting",
            None => "Running",
        },
        source: Source::Cluster,
        percent: subject.text("/status/plimsoll/percent").map(str::to_owned),
        done: items.done,
        skipped: items.skipped,
        failed: items.failed,
        total: items.total.value(),
        rate: live("/status/plimsoll/rate").and_then(Value::as_u64),
        unit: live("/status/plimsoll/unit").and_then(|unit| serde_json::from_value(unit.clone()).ok()),
        seconds_left: live("/status/plimsoll/secondsLeft").and_then(|left| serde_json::from_value(left.clone()).ok()),
        token: subject.text("/status/plimsoll/token").map(str::to_owned),
        from: live("/status/plimsoll/from").and_then(Value::as_str).map(str::to_owned),
        estimate: live("/status/plimsoll/estimate").and_then(Value::as_str).map(str::to_owned),
        waits_for: live("/status/plimsoll/waitsFor").and_then(Value::as_str).map(str::to_owned),
        waits,
        current: live("/status/plimsoll/task").and_then(Value::as_str).map(str::to_owned),
        verdict: live("/status/plimsoll/verdict").and_then(Value::as_str).map(str::to_owned),
        stalled,
        failure_reason: subject.failure().map(str::to_owned),
        validation_errors: subject.texts("/status/validationErrors"),
        errors: outcome.map(|_| subject.number("/status/errors")),
        warnings: outcome.map(|_| subject.number("/status/warnings")),
        exit_code: outcome.map(crate::exit::Outcome::code),
    }
}

/// Puts in what the server knows and has not written yet.
fn refresh(event: &mut Event, tree: &Snapshot, now: Timestamp) {
    event.source = Source::Server;
    event.token = tree.token.map(|token| token.to_string());
    event.percent = tree.percent().map(|percent| percent.to_string()).or_else(|| event.percent.take());
    if let Some(counts) = tree.sum(Unit::Items) {
        (event.done, event.skipped, event.failed) = (counts.done, counts.skipped, counts.failed);
        event.total = counts.total.value();
    }
    let speed = tree.speed();
    event.rate = speed.rate;
    event.unit = speed.rate.map(|_| speed.unit);
    event.seconds_left = speed.left.map(|left| [left.low, left.high]);
    event.explain(tree);
    event.waits = waits(tree);
    event.current = tree.current().map(|node| node.label().to_string());
    event.verdict = tree.verdict().map(|verdict| verdict.name().to_owned());
    event.stalled = tree.stall.as_ref().map(|stall| {
        json!({ "task": &*stall.task, "since": format!("{:.0}", now - stall.age), "reason": stall.reason.reason(),
            "message": &*stall.message })
    });
    if event.state == "Running" || event.state == "Stalled" {
        event.state = if event.stalled.is_some() { "Stalled" } else { "Running" };
    }
}

impl Event {
    /// Shows nothing less than `last` did: another source may be a little older. Then these are not the numbers of its token.
    fn hold(&mut self, last: &Self) {
        let percent = |event: &Self| event.percent.as_deref().and_then(|text| text.parse::<Percent>().ok());
        let numbers = |event: &Self| (event.percent.clone(), event.done, event.skipped, event.failed, event.total);
        let given = numbers(self);
        if percent(self).map(Percent::hundredths) < percent(last).map(Percent::hundredths) {
            self.percent.clone_from(&last.percent);
        }
        self.done = self.done.max(last.done);
        self.skipped = self.skipped.max(last.skipped);
        self.failed = self.failed.max(last.failed);
        self.total = self.total.map(|total| total.max(self.done + self.skipped + self.failed));
        if numbers(self) != given {
            self.token = None;
        }
    }

    /// Why the time left is what it is.
    fn explain(&mut self, tree: &Snapshot) {
        let why = tree.explanation();
        self.from = why.as_ref().map(|why| why.from.name().to_owned());
        self.waits_for = why.as_ref().and_then(|why| why.waits_for.as_ref()).map(|path| path.to_string());
        self.estimate = why.map(|why| why.text).filter(|text| !text.is_empty());
    }
}

fn waits(tree: &Snapshot) -> Vec<String> {
    let waiting = tree.nodes.iter().filter(|node| node.state == State::Waiting);
    waiting.map(|node| format!("{}: {}", node.name, node.reason.as_deref().unwrap_or_default())).collect()
}

fn observed(object: &Object, explanation: &Explanation, now: Timestamp) -> Event {
    let ended = explanation.verdict.is_ended();
    let (root, speed) = (explanation.tree.root(), explanation.tree.speed());
    let items = explanation.tree.sum(Unit::Items).unwrap_or_else(|| Counts::zero(Unit::Items));
    let cause = explanation.causes.first();
    let stalled = (explanation.verdict == Verdict::Stuck).then(|| {
        let stall = explanation.tree.stall.as_ref();
        json!({ "task": stall.map_or("", |stall| &*stall.task), "since": stall.map(|stall| format!("{:.0}", now - stall.age)),
            "reason": cause.map_or("NoAdvance", |cause| cause.reason),
            "message": cause.map(|cause| cause.text.as_str()).or_else(|| stall.map(|stall| &*stall.message)),
            "next": cause.map(|cause| cause.next.clone()).unwrap_or_default() })
    });
    let outcome = ended.then(|| crate::commands::why::outcome(explanation.verdict));
    Event {
        version: VERSION,
        time: format!("{now:.3}"),
        operation: format!("{}-{}", explanation.subject.kind.word(), explanation.subject.name),
        phase: explanation.phase.clone(),
        state: match (outcome, explanation.verdict) {
            (Some(outcome), _) => outcome.word(),
            (None, Verdict::Stuck) => "Stalled",
            (None, Verdict::Waiting) => "Waiting",
            (None, _) => "Running",
        },
        source: Source::Cluster,
        percent: root.and_then(|root| root.percent).map(|percent| percent.to_string()),
        done: items.done,
        skipped: items.skipped,
        failed: items.failed,
        total: items.total.value(),
        rate: speed.rate.filter(|_| !ended),
        unit: speed.rate.filter(|_| !ended).map(|_| speed.unit),
        seconds_left: speed.left.filter(|_| !ended).map(|left| [left.low, left.high]),
        token: explanation.tree.token.map(|token| token.to_string()),
        from: None,
        estimate: None,
        waits_for: None,
        waits: if ended { Vec::new() } else { waits(&explanation.tree) },
        current: explanation.tree.current().filter(|_| !ended).map(|node| node.label().to_string()),
        verdict: explanation.tree.verdict().filter(|_| !ended).map(|verdict| verdict.name().to_owned()),
        stalled,
        failure_reason: object.some_text("/status/failureReason").map(str::to_owned),
        validation_errors: object.texts("/status/validationErrors").into_iter().map(str::to_owned).collect(),
        errors: outcome.map(|_| object.number("/status/errors").unwrap_or(0)),
        warnings: outcome.map(|_| object.number("/status/warnings").unwrap_or(0)),
        exit_code: outcome.map(crate::exit::Outcome::code),
    }
}

/// An event about this, with the tree in the server's memory or without.
#[cfg(test)]
pub fn as_value(subject: &Subject, tree: Option<&Snapshot>) -> Value {
    let mut event = event(subject, Timestamp::UNIX_EPOCH);
    if let Some(tree) = tree {
        refresh(&mut event, tree, Timestamp::UNIX_EPOCH);
    }
    serde_json::to_value(event).unwrap_or_default()
}

/// An event about something that is looked at from outside.
#[cfg(test)]
pub fn observed_as_value(object: &Object, explanation: &Explanation) -> Value {
    serde_json::to_value(observed(object, explanation, Timestamp::UNIX_EPOCH)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::names::ResourceKind;

    fn value_of(status: &Value) -> Value {
        let object = json!({ "metadata": { "name": "x" }, "status": status });
        let subject = Subject { kind: ResourceKind::Backup, object, operation: None };
        serde_json::to_value(event(&subject, Timestamp::UNIX_EPOCH)).unwrap()
    }

    #[test]
    fn an_event_has_the_documented_shape_while_it_runs_and_at_its_end() {
        let running = value_of(&json!({ "phase": "InProgress", "progress": { "totalItems": 9, "itemsBackedUp": 3 },
            "plimsoll": { "percent": "~33.33", "rate": 2, "secondsLeft": [3, 5], "task": "reading" } }));
        assert_eq!(
            running,
            json!({ "version": 1, "time": "1970-01-01T00:00:00.000Z", "operation": "backup-x", "phase": "InProgress",
                "state": "Running", "source": "cluster", "percent": "~33.33", "done": 3, "skipped": 0, "failed": 0, "total": 9, "rate": 2,
                "secondsLeft": [3, 5], "current": "reading" })
        );
        let ended = value_of(
            &json!({ "phase": "PartiallyFailed", "errors": 1, "plimsoll": { "percent": "99.00", "rate": 2 } }),
        );
        assert_eq!(
            ended,
            json!({ "version": 1, "time": "1970-01-01T00:00:00.000Z", "operation": "backup-x",
                "phase": "PartiallyFailed", "state": "PartiallyFailed", "source": "cluster", "percent": "99.00", "done": 0, "skipped": 0,
                "failed": 0, "errors": 1, "warnings": 0, "exitCode": 3 })
        );
    }

    #[test]
    fn numbers_of_the_server_replace_written_ones_and_name_their_source() {
        let operation = plimsoll_progress::Operation::new("backup-x", plimsoll_progress::Clock::system());
        let reading = operation.root().child("reading");
        let items = reading.meter(Unit::Items);
        items.set_total(plimsoll_progress::Total::Final(10));
        items.add(7);
        let _wait = reading.wait("the API server");
        let object = json!({ "metadata": { "name": "x" },
            "status": { "phase": "InProgress", "progress": { "totalItems": 9, "itemsBackedUp": 3 } } });
        let mut event = event(&Subject { kind: ResourceKind::Backup, object, operation: None }, Timestamp::UNIX_EPOCH);
        assert_eq!(event.source, Source::Cluster);
        refresh(&mut event, &operation.snapshot(), Timestamp::UNIX_EPOCH);
        assert_eq!((event.source, event.done, event.total), (Source::Server, 7, Some(10)));
        assert_eq!(
            (event.percent.as_deref(), event.waits),
            (Some("70.00"), vec!["reading: the API server".to_owned()])
        );
    }

    #[test]
    fn an_older_source_shows_nothing_less_and_names_no_token() {
        let of = |percent: &str, done: u64, token: &str| {
            let object = json!({ "metadata": { "name": "x" }, "status": { "phase": "InProgress",
                "progress": { "totalItems": 9, "itemsBackedUp": done }, "plimsoll": { "percent": percent, "token": token } } });
            event(&Subject { kind: ResourceKind::Backup, object, operation: None }, Timestamp::UNIX_EPOCH)
        };
        let live = of("~60.00", 6, "5-9");
        let mut written = of("~40.00", 4, "5-3");
        written.hold(&live);
        assert_eq!((written.percent.as_deref(), written.done, written.token), (Some("~60.00"), 6, None));
        let mut next = of("~70.00", 7, "5-12");
        next.hold(&live);
        assert_eq!((next.percent.as_deref(), next.done, next.token.as_deref()), (Some("~70.00"), 7, Some("5-12")));
    }

    #[test]
    fn a_queued_backup_is_waiting() {
        assert_eq!(value_of(&json!({ "phase": "Queued" }))["state"], "Waiting");
        assert_eq!(value_of(&json!({}))["state"], "Waiting");
    }
}
