//! The only writer of an operation's progress: a task of its own, so that a slow API server costs freshness, never throughput.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use plimsoll_engine::cluster::Cluster;
use plimsoll_engine::ports::LeadershipGuard;
use plimsoll_engine::{kill, log};
use plimsoll_progress::{Observer, Snapshot, Stall, State};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::event_recorder::{EventRecorder, EventType};
use crate::operation_record::OperationRecord;
use crate::progress_floor::ItemCounters;
use crate::projection;
use crate::subject::Subject;
use crate::write_budget::WriteBudget;

const SUBJECT_INTERVAL: Duration = Duration::from_secs(1);
const OPERATION_INTERVAL: Duration = Duration::from_secs(5);
/// Five operations are written once a second, which is at most two writes each; with more of them all intervals stretch alike.
pub const WRITE_INTERVAL: Duration = Duration::from_millis(200);
/// The part of the end of the log that is shown while it grows.
const LOG_TAIL_BYTES: u64 = 16 << 10;

/// Writes progress until it is stopped.
pub struct StatusWriter {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

/// What to write, and where to.
pub struct StatusWriterSettings {
    pub tree: Observer,
    pub cluster: Cluster,
    pub record: Arc<OperationRecord>,
    pub subject: Subject,
    /// The path of the subject's custom resource.
    pub path: String,
    /// What its own progress fields show.
    pub counters: ItemCounters,
    /// Where its log grows.
    pub scratch: PathBuf,
    /// Where stalls are recorded.
    pub events: EventRecorder,
    /// Shared by all operations of this server.
    pub write_budget: WriteBudget,
    /// Writes the subject, if the tree alone does not say how far it is.
    pub projection: Option<Arc<dyn Projection>>,
}

/// Writes a subject whose status is more than its tree.
pub trait Projection: Send + Sync {
    /// Writes it if it has changed. `more` belongs into the status too.
    fn write<'a>(&'a self, snapshot: &'a Snapshot, more: Value) -> BoxFuture<'a, ()>;
}

impl StatusWriter {
    /// Starts writing.
    pub fn start(settings: StatusWriterSettings) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(settings, stop.clone()));
        Self { stop, task }
    }

    /// Stops, after a write that is under way: nothing older can follow the last write of the operation.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

async fn run(settings: StatusWriterSettings, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(SUBJECT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last =
        LastWritten { shown: Value::Null, signature: None, conditions: Vec::new(), verdict: None, operation: None };
    loop {
        let permit = async {
            ticks.tick().await;
            settings.write_budget.acquire(false).await;
        };
        tokio::select! {
            () = permit => {}
            () = stop.cancelled() => return last.record_recovery(&settings).await,
        }
        if settings.record.check_effect().is_err() {
            return;
        }
        let snapshot = settings.tree.snapshot();
        last.write_subject(&settings, &snapshot).await;
        last.write_operation(&settings, &snapshot).await;
    }
}

/// What was written last.
struct LastWritten {
    shown: Value,
    signature: Option<(State, Option<String>)>,
    conditions: Vec<Condition>,
    verdict: Option<SignificantState>,
    operation: Option<Instant>,
}

/// State whose change is written to the Operation at once.
#[derive(PartialEq)]
struct SignificantState {
    state: State,
    stalled: Option<String>,
    task: Option<String>,
}

impl LastWritten {
    async fn write_subject(&mut self, settings: &StatusWriterSettings, snapshot: &Snapshot) {
        let mut status = projection::progress(snapshot, settings.counters);
        let summary = projection::summary(snapshot, Timestamp::now());
        status["plimsoll"] = summary_patch(&summary);
        // The message of a condition changes with every task: only a change of its status is worth a write.
        let signature = (snapshot.state(), snapshot.stall.as_ref().map(|stall| stall.task.to_string()));
        if self.signature.as_ref() != Some(&signature) {
            self.conditions = projection::conditions(snapshot, &self.conditions, Timestamp::now());
            self.signature = Some(signature);
        }
        status["conditions"] = json!(self.conditions);
        if let Some(projection) = &settings.projection {
            return projection.write(snapshot, status).await;
        }
        if is_same_except_times(&status, &self.shown) {
            return;
        }
        let patch = json!({ "status": status }).to_string().into_bytes();
        kill::point("status.progress.before");
        match settings.cluster.merge(&settings.path, patch).await {
            Ok(_) => self.shown = status,
            Err(error) => debug!("progress of {}: {error}", settings.record.name()),
        }
        kill::point("status.progress.after");
    }

    async fn write_operation(&mut self, settings: &StatusWriterSettings, snapshot: &Snapshot) {
        let verdict = SignificantState {
            state: snapshot.state(),
            stalled: snapshot.stall.as_ref().map(|stall| stall.task.to_string()),
            task: snapshot.current().map(|node| node.path.to_string()),
        };
        let due = self.operation.is_none_or(|at| at.elapsed() >= OPERATION_INTERVAL);
        if !due && self.verdict.as_ref() == Some(&verdict) {
            return;
        }
        self.record_stall(settings, snapshot).await;
        kill::point("operation.write.before");
        let log = log::tail(&settings.scratch, LOG_TAIL_BYTES);
        match settings.record.write(snapshot, log.as_ref()).await {
            Ok(()) => {}
            Err(error) if error.code() == Some(404) => {
                let _ = settings.record.recreate(&settings.subject).await;
            }
            Err(error) => debug!("record of {}: {error}", settings.record.name()),
        }
        kill::point("operation.write.after");
        self.operation = Some(Instant::now());
        self.verdict = Some(verdict);
    }
}

impl LastWritten {
    /// Records an Event when a task stalls or recovers, not at each write.
    async fn record_stall(&self, settings: &StatusWriterSettings, snapshot: &Snapshot) {
        let known = self.verdict.as_ref().and_then(|verdict| verdict.stalled.as_deref());
        if let Some((event_type, reason, message)) = stall_event(known, snapshot.stall.as_ref()) {
            settings.events.record(&settings.subject.reference(), event_type, reason, &message).await;
        }
    }

    /// Records the recovery of a task that stalled and recovered just before the end.
    async fn record_recovery(&self, settings: &StatusWriterSettings) {
        let snapshot = settings.tree.snapshot();
        let known = self.verdict.as_ref().and_then(|verdict| verdict.stalled.as_deref());
        let recovered = known.and_then(|task| snapshot.node(task)).is_some_and(|node| {
            node.stall.is_none() && matches!(node.state, State::Done | State::Running | State::Waiting)
        });
        if recovered {
            self.record_stall(settings, &snapshot).await;
        }
    }
}

/// The Event to record, given the task that was stalled before.
fn stall_event(known: Option<&str>, stall: Option<&Stall>) -> Option<(EventType, &'static str, String)> {
    match (known, stall) {
        (known, Some(stall)) if known != Some(&*stall.task) => {
            Some((EventType::Warning, "Stalled", format!("{}: {}", stall.task, stall.message)))
        }
        (Some(task), None) => Some((EventType::Normal, "Recovered", format!("{task} advances again"))),
        _ => None,
    }
}

/// A merge patch leaves alone what it does not name: a stall that is over, a time left that is no longer known, must be
/// named as null.
pub fn summary_patch(summary: &plimsoll_api::summary::ProgressSummary) -> Value {
    let mut value = json!({ "percent": null, "rate": null, "unit": null, "secondsLeft": null, "lastAdvance": null, "task": null, "stalled": null });
    let shown = serde_json::to_value(summary).unwrap_or_default();
    if let (Some(value), Value::Object(shown)) = (value.as_object_mut(), shown) {
        value.extend(shown);
    }
    value
}

/// Whether two statuses differ in nothing but the time of the last advance.
pub fn is_same_except_times(a: &Value, b: &Value) -> bool {
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
    fn a_stall_and_its_end_are_recorded_once_each() {
        let stall = |task: &str| Stall {
            task: Arc::from(task),
            age: Duration::from_mins(1),
            reason: StallReason::NoReport,
            message: Arc::from("silence"),
        };
        let reason =
            |known: Option<&str>, stall: Option<Stall>| stall_event(known, stall.as_ref()).map(|(_, reason, _)| reason);
        assert_eq!(reason(None, None), None);
        assert_eq!(reason(None, Some(stall("data"))), Some("Stalled"));
        assert_eq!(reason(Some("data"), Some(stall("data"))), None);
        assert_eq!(reason(Some("data"), Some(stall("other"))), Some("Stalled"));
        assert_eq!(reason(Some("data"), None), Some("Recovered"));
    }
}
