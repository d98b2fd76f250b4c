//! The only writer of an operation's progress: a task of its own, so that a slow API server costs freshness, never throughput.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_engine::ports::LeadershipGuard;
use plimsoll_engine::{kill, log};
use plimsoll_progress::{Observer, Snapshot, Stall, StallVerdict, State};
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
    /// The status of the subject.
    pub status: Arc<SubjectStatus>,
    pub record: Arc<OperationRecord>,
    pub subject: Subject,
    /// The log file of the operation.
    pub scratch: PathBuf,
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
            settings.write_budget.acquire_when(|| last.is_urgent(&settings.tree.snapshot())).await;
        };
        tokio::select! {
            () = permit => {}
            () = stop.cancelled() => return last.record_recovery(&settings).await,
        }
        if settings.record.check_effect().is_err() {
            return;
        }
        let snapshot = settings.tree.snapshot();
        settings.record.add_sample(&snapshot);
        settings.status.refresh(&snapshot).await;
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
    stalled: Option<KnownStall>,
    task: Option<String>,
}

/// A stall that was written.
#[derive(Clone, Debug, PartialEq)]
struct KnownStall {
    task: String,
    verdict: StallVerdict,
}

impl KnownStall {
    fn of(stall: &Stall) -> Self {
        Self { task: stall.task.to_string(), verdict: stall.verdict() }
    }
}

impl LastWritten {
    /// A stall that begins, changes or ends.
    fn is_urgent(&self, snapshot: &Snapshot) -> bool {
        let known = self.verdict.as_ref().and_then(|verdict| verdict.stalled.as_ref());
        known != snapshot.stall.as_ref().map(KnownStall::of).as_ref()
    }

    async fn write_operation(&mut self, settings: &StatusWriterSettings, snapshot: &Snapshot) {
        let verdict = SignificantState {
            state: snapshot.state(),
            stalled: snapshot.stall.as_ref().map(KnownStall::of),
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
        let known = self.verdict.as_ref().and_then(|verdict| verdict.stalled.as_ref());
        if let Some((event_type, reason, message)) = stall_event(known, snapshot.stall.as_ref()) {
            let about = settings.subject.reference();
            settings.events.record_at(&about, event_type, reason, &message, snapshot.token).await;
        }
    }

    /// Records the recovery of a task that stalled and recovered just before the end.
    async fn record_recovery(&self, settings: &StatusWriterSettings) {
        let snapshot = settings.tree.snapshot();
        let known = self.verdict.as_ref().and_then(|verdict| verdict.stalled.as_ref());
        let recovered = known.and_then(|known| snapshot.node(&known.task)).is_some_and(|node| {
            node.stall.is_none() && matches!(node.state, State::Done | State::Running | State::Waiting)
        });
        if recovered {
            self.record_stall(settings, &snapshot).await;
        }
    }
}

/// The Event to record, given the task that was stalled before.
fn stall_event(known: Option<&KnownStall>, stall: Option<&Stall>) -> Option<(EventType, &'static str, String)> {
    match (known, stall) {
        (known, Some(stall)) if known != Some(&KnownStall::of(stall)) => {
            Some((EventType::Warning, stall.verdict().name(), format!("{}: {}", stall.task, stall.message)))
        }
        (Some(known), None) => Some((EventType::Normal, "Recovered", format!("{} advances again", known.task))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_progress::{Operation, StallReason, VirtualClock};

    use super::*;

    #[test]
    fn a_stall_its_change_and_its_end_are_recorded_once_each() {
        let stall = |task: &str, reason| Stall {
            task: Arc::from(task),
            age: Duration::from_mins(1),
            reason,
            message: Arc::from("silence"),
        };
        let silent = stall("data", StallReason::NoReport);
        let known = KnownStall::of(&silent);
        let reason = |known: Option<&KnownStall>, stall: Option<Stall>| {
            stall_event(known, stall.as_ref()).map(|(_, reason, _)| reason)
        };
        assert_eq!(reason(None, None), None);
        assert_eq!(reason(None, Some(silent.clone())), Some("Stalled"));
        assert_eq!(reason(Some(&known), Some(silent)), None);
        assert_eq!(reason(Some(&known), Some(stall("other", StallReason::NoReport))), Some("Stalled"));
        assert_eq!(reason(Some(&known), Some(stall("data", StallReason::NoGain))), Some("Spinning"));
        assert_eq!(reason(Some(&known), Some(stall("data", StallReason::BelowUsualRate))), Some("Crawling"));
        assert_eq!(reason(Some(&known), None), Some("Recovered"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_is_written_at_once_whatever_else_waits() {
        let clock = VirtualClock::new();
        let tree = Operation::new("backup-b", clock.clock());
        let last = LastWritten { verdict: None, operation: None };
        let write_budget = WriteBudget::start(|| Duration::from_secs(1));
        for _ in 0..1000 {
            let write_budget = write_budget.clone();
            tokio::spawn(async move { write_budget.acquire(false).await });
        }
        tokio::task::yield_now().await;
        let started = Instant::now();
        let is_urgent = || {
            clock.advance(started.elapsed().saturating_sub(clock.now()));
            last.is_urgent(&tree.snapshot())
        };
        write_budget.acquire_when(is_urgent).await;
        assert!(tree.snapshot().stall.is_some(), "only a stall is urgent");
        assert!(started.elapsed() <= Duration::from_secs(31), "it waits for one permit: {:?}", started.elapsed());
    }
}
