//! `--events json`: what a script can follow. The shape is an interface: `docs/events.md`.

use jiff::Timestamp;
use plimsoll_progress::view::Look;
use serde::Serialize;
use serde_json::Value;

use crate::output;
use crate::subjects::{Seen, operation_name};
use crate::wait;

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
    seconds_left: Option<[u64; 2]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<String>,
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

/// Prints an event for everything that is new.
#[derive(Default)]
pub struct Events {
    last: Option<Event>,
}

impl Events {
    /// Prints what is new in this, if anything is.
    pub fn tell(&mut self, seen: &Seen) {
        let event = event(seen, Timestamp::now());
        let known = self.last.as_ref().is_some_and(|last| Event { time: event.time.clone(), ..last.clone() } == event);
        if !known && let Ok(text) = serde_json::to_string(&event) {
            output::line(text);
            self.last = Some(event);
        }
    }
}

fn event(seen: &Seen, now: Timestamp) -> Event {
    let (items, outcome) = (seen.items(), seen.outcome());
    let live = |pointer: &str| seen.object.pointer(pointer).filter(|value| outcome.is_none() && !value.is_null());
    let rows = if outcome.is_none() && seen.tree().is_some() { wait::rows(seen) } else { Vec::new() };
    let waits: Vec<_> = rows
        .iter()
        .filter(|row| row.look == Look::Waiting)
        .map(|row| format!("{}: {}", row.label, row.detail))
        .collect();
    let stalled = live("/status/plimsoll/stalled").cloned();
    Event {
        version: VERSION,
        time: format!("{now:.3}"),
        operation: operation_name(&seen.reference()),
        phase: seen.phase().to_owned(),
        state: match outcome {
            Some(outcome) => outcome.word(),
            None if stalled.is_some() => "Stalled",
            None if ["New", "Queued", "ReadyToStart"].contains(&seen.phase()) => "Waiting",
            None => "Running",
        },
        percent: seen.text("/status/plimsoll/percent").map(str::to_owned),
        done: items.done,
        skipped: items.skipped,
        failed: items.failed,
        total: items.total.value(),
        rate: live("/status/plimsoll/rate").and_then(Value::as_u64),
        seconds_left: live("/status/plimsoll/secondsLeft").and_then(|left| serde_json::from_value(left.clone()).ok()),
        waits,
        current: live("/status/plimsoll/task").and_then(Value::as_str).map(str::to_owned),
        stalled,
        failure_reason: seen.failure().map(str::to_owned),
        validation_errors: seen.texts("/status/validationErrors"),
        errors: outcome.map(|_| seen.number("/status/errors")),
        warnings: outcome.map(|_| seen.number("/status/warnings")),
        exit_code: outcome.map(crate::exit::Outcome::code),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::args::names::Kind;

    fn told(status: &Value) -> Value {
        let object = json!({ "metadata": { "name": "x" }, "status": status });
        let seen = Seen { kind: Kind::Backup, object, operation: None };
        serde_json::to_value(event(&seen, Timestamp::UNIX_EPOCH)).unwrap()
    }

    #[test]
    fn an_event_has_the_documented_shape_while_it_runs_and_at_its_end() {
        let running = told(&json!({ "phase": "InProgress", "progress": { "totalItems": 9, "itemsBackedUp": 3 },
            "plimsoll": { "percent": "~33.33", "rate": 2, "secondsLeft": [3, 5], "task": "reading" } }));
        assert_eq!(
            running,
            json!({ "version": 1, "time": "1970-01-01T00:00:00.000Z", "operation": "backup-x", "phase": "InProgress",
                "state": "Running", "percent": "~33.33", "done": 3, "skipped": 0, "failed": 0, "total": 9, "rate": 2,
                "secondsLeft": [3, 5], "current": "reading" })
        );
        let ended =
            told(&json!({ "phase": "PartiallyFailed", "errors": 1, "plimsoll": { "percent": "99.00", "rate": 2 } }));
        assert_eq!(
            ended,
            json!({ "version": 1, "time": "1970-01-01T00:00:00.000Z", "operation": "backup-x",
                "phase": "PartiallyFailed", "state": "PartiallyFailed", "percent": "99.00", "done": 0, "skipped": 0,
                "failed": 0, "errors": 1, "warnings": 0, "exitCode": 3 })
        );
    }

    #[test]
    fn a_queued_one_waits() {
        assert_eq!(told(&json!({ "phase": "Queued" }))["state"], "Waiting");
        assert_eq!(told(&json!({}))["state"], "Waiting");
    }
}
