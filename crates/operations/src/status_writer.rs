//! The only writer of an operation's progress: a task of its own, so that a slow API server costs freshness, never throughput.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_engine::ports::LeadershipGuard;
use plimsoll_engine::{kill, log};
use plimsoll_progress::{Observer, Snapshot, Stall, State};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::event_recorder::{EventRecorder, EventType};
use crate::operation_record::OperationRecord;
use crate::subject::Subject;
use crate::subject_status::SubjectStatus;
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

/// The settings of a writer.
pub struct StatusWriterSettings {
    pub tree: Observer,
    /// The status of the subject, if it shows the progress.
    pub status: Option<Arc<SubjectStatus>>,
    pub record: Arc<OperationRecord>,
    pub subject: Subject,
    /// The directory of the log file, if there is one.
    pub scratch: Option<PathBuf>,
    /// Records stalls.
    pub events: EventRecorder,
    /// Shared by all operations of this server.
    pub write_budget: WriteBudget,
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
    let mut last = LastWritten { verdict: None, operation: None };
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
        if let Some(status) = &settings.status {
            status.refresh(&snapshot).await;
        }
        last.write_operation(&settings, &snapshot).await;
    }
}

/// The state of the Operation that was written last.
struct LastWritten {
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
        let log = settings.scratch.as_ref().and_then(|scratch| log::tail(scratch, LOG_TAIL_BYTES));
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
