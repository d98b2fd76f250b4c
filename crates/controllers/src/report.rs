//! The one writer of an operation's progress: a task of its own, so that a slow API server costs freshness, never throughput.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use plimsoll_engine::cluster::Cluster;
use plimsoll_engine::ports::Guard;
use plimsoll_engine::{kill, log};
use plimsoll_progress::{Observer, Snapshot, Stall, State};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::events::{Events, Gravity};
use crate::floor::Shown;
use crate::operation::{Record, Subject};
use crate::project;
use crate::writes::Writes;

const SUBJECT_EVERY: Duration = Duration::from_secs(1);
const OPERATION_EVERY: Duration = Duration::from_secs(5);
/// Five operations are written once a second, which is at most two writes each; with more of them all intervals stretch alike.
pub const DISTANCE: Duration = Duration::from_millis(200);
/// So much of the end of the log is shown while it grows.
const LOG_TAIL: u64 = 16 << 10;

/// Writes progress until it is stopped.
pub struct Reporter {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

/// What to write, and where to.
pub struct Reporting {
    pub tree: Observer,
    pub cluster: Cluster,
    pub record: Arc<Record>,
    pub subject: Subject,
    /// The path of the subject's custom resource.
    pub path: String,
    /// What its own progress fields show.
    pub shown: Shown,
    /// Where its log grows.
    pub scratch: PathBuf,
    /// Where a stall is told.
    pub events: Events,
    /// Turns to write, which all operations of this server share.
    pub writes: Writes,
    /// Writes the subject, if the tree alone does not say how far it is.
    pub projection: Option<Arc<dyn Projection>>,
}

/// Writes a subject whose status is more than its tree.
pub trait Projection: Send + Sync {
    /// Writes it if it has changed. `more` belongs into the status too.
    fn write<'a>(&'a self, snapshot: &'a Snapshot, more: Value) -> BoxFuture<'a, ()>;
}

impl Reporter {
    /// Starts writing.
    pub fn start(reporting: Reporting) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(reporting, stop.clone()));
        Self { stop, task }
    }

    /// Stops, after a write that is under way: nothing older can follow the last write of the operation.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

async fn run(reporting: Reporting, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(SUBJECT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Last { shown: Value::Null, truth: None, conditions: Vec::new(), verdict: None, operation: None };
    loop {
        let turn = async {
            ticks.tick().await;
            reporting.writes.turn(false).await;
        };
        tokio::select! {
            () = turn => {}
            () = stop.cancelled() => return last.tell_recovery(&reporting).await,
        }
        if reporting.record.effect().is_err() {
            return;
        }
        let snapshot = reporting.tree.snapshot();
        last.write_subject(&reporting, &snapshot).await;
        last.write_operation(&reporting, &snapshot).await;
    }
}

/// What was written last.
struct Last {
    shown: Value,
    truth: Option<(State, Option<String>)>,
    conditions: Vec<Condition>,
    verdict: Option<Verdict>,
    operation: Option<Instant>,
}

/// What makes the Operation worth writing before its time.
#[derive(PartialEq)]
struct Verdict {
    state: State,
    stalled: Option<String>,
    task: Option<String>,
}

impl Last {
    async fn write_subject(&mut self, reporting: &Reporting, snapshot: &Snapshot) {
        let mut status = project::progress(snapshot, reporting.shown);
        let summary = project::summary(snapshot, Timestamp::now());
        status["plimsoll"] = nulls_for_absent(&summary);
        // What a condition says in words changes with every task: only its truth is worth a write.
        let truth = (snapshot.state(), snapshot.stall.as_ref().map(|stall| stall.task.to_string()));
        if self.truth.as_ref() != Some(&truth) {
            self.conditions = project::conditions(snapshot, &self.conditions, Timestamp::now());
            self.truth = Some(truth);
        }
        status["conditions"] = json!(self.conditions);
        if let Some(projection) = &reporting.projection {
            return projection.write(snapshot, status).await;
        }
        if same_but_for_times(&status, &self.shown) {
            return;
        }
        let patch = json!({ "status": status }).to_string().into_bytes();
        kill::point("status.progress.before");
        match reporting.cluster.merge(&reporting.path, patch).await {
            Ok(_) => self.shown = status,
            Err(error) => debug!("progress of {}: {error}", reporting.record.name()),
        }
        kill::point("status.progress.after");
    }

    async fn write_operation(&mut self, reporting: &Reporting, snapshot: &Snapshot) {
        let verdict = Verdict {
            state: snapshot.state(),
            stalled: snapshot.stall.as_ref().map(|stall| stall.task.to_string()),
            task: snapshot.current().map(|node| node.path.to_string()),
        };
        let due = self.operation.is_none_or(|at| at.elapsed() >= OPERATION_EVERY);
        if !due && self.verdict.as_ref() == Some(&verdict) {
            return;
        }
        self.tell_stall(reporting, snapshot).await;
        kill::point("operation.write.before");
        let log = log::tail(&reporting.scratch, LOG_TAIL);
        match reporting.record.write(snapshot, log.as_ref()).await {
            Ok(()) => {}
            Err(error) if error.code() == Some(404) => {
                let _ = reporting.record.recreate(&reporting.subject).await;
            }
            Err(error) => debug!("record of {}: {error}", reporting.record.name()),
        }
        kill::point("operation.write.after");
        self.operation = Some(Instant::now());
        self.verdict = Some(verdict);
    }
}

impl Last {
    /// An Event when a task begins to stand still or goes on again, not each time somebody looks.
    async fn tell_stall(&self, reporting: &Reporting, snapshot: &Snapshot) {
        let known = self.verdict.as_ref().and_then(|verdict| verdict.stalled.as_deref());
        if let Some((gravity, reason, message)) = turn(known, snapshot.stall.as_ref()) {
            reporting.events.say(&reporting.subject.reference(), gravity, reason, &message).await;
        }
    }

    /// What stood still and went on just before the end was told of as standing still: not as going on, yet.
    async fn tell_recovery(&self, reporting: &Reporting) {
        let snapshot = reporting.tree.snapshot();
        let known = self.verdict.as_ref().and_then(|verdict| verdict.stalled.as_deref());
        let went_on = known.and_then(|task| snapshot.node(task)).is_some_and(|node| {
            node.stall.is_none() && matches!(node.state, State::Done | State::Running | State::Waiting)
        });
        if went_on {
            self.tell_stall(reporting, &snapshot).await;
        }
    }
}

/// What is worth an Event, if this task was known to stand still.
fn turn(known: Option<&str>, stall: Option<&Stall>) -> Option<(Gravity, &'static str, String)> {
    match (known, stall) {
        (known, Some(stall)) if known != Some(&*stall.task) => {
            Some((Gravity::Warning, "Stalled", format!("{}: {}", stall.task, stall.message)))
        }
        (Some(task), None) => Some((Gravity::Normal, "Recovered", format!("{task} goes on"))),
        _ => None,
    }
}

/// A merge patch leaves alone what it does not name: a stall that is over, a time left that is no longer known, must be
/// named as null.
pub fn nulls_for_absent(summary: &plimsoll_api::summary::ProgressSummary) -> Value {
    let mut value = json!({ "percent": null, "rate": null, "unit": null, "secondsLeft": null, "lastAdvance": null, "task": null, "stalled": null });
    let shown = serde_json::to_value(summary).unwrap_or_default();
    if let (Some(value), Value::Object(shown)) = (value.as_object_mut(), shown) {
        value.extend(shown);
    }
    value
}

pub fn same_but_for_times(a: &Value, b: &Value) -> bool {
    let strip = |value: &Value| {
        let mut value = value.clone();
        if let Some(summary) = value.get_mut("plimsoll").and_then(Value::as_object_mut) {
            summary.remove("lastAdvance");
        }
        value
    };
    strip(a) == strip(b)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_progress::StallReason;

    use super::*;

    #[test]
    fn a_stall_and_its_end_are_told_once_each() {
        let stall = |task: &str| Stall {
            task: Arc::from(task),
            age: Duration::from_mins(1),
            reason: StallReason::NoReport,
            message: Arc::from("silence"),
        };
        let reason =
            |known: Option<&str>, stall: Option<Stall>| turn(known, stall.as_ref()).map(|(_, reason, _)| reason);
        assert_eq!(reason(None, None), None);
        assert_eq!(reason(None, Some(stall("data"))), Some("Stalled"));
        assert_eq!(reason(Some("data"), Some(stall("data"))), None);
        assert_eq!(reason(Some("data"), Some(stall("other"))), Some("Stalled"));
        assert_eq!(reason(Some("data"), None), Some("Recovered"));
    }
}
