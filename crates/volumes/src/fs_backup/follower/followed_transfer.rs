//! A transfer that is shown as a task until it has ended.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_api::summary::ProgressSummary;
use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_mover::transfer_progress;
use plimsoll_progress::{Meter, Percent, Snapshot, StallReason, StallVerdict, Task, Total, Unit, Wait};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::TransferLost;
use crate::fs_backup::obstacle::{BlockableTransfer, Obstacle};
use crate::transfer::progress;

/// The agent reports a stall and its cause earlier, if it can. Later the leader detects the stall itself.
const STALL_FLOOR: Duration = Duration::from_secs(34);

/// A transfer that advanced this recently goes on. An agent that repeats work counts below what is shown, so the counters alone do
/// not tell. Whether it gains anything is the agent's verdict.
const JUST_NOW: Duration = Duration::from_secs(2);

/// A transfer with its task, its deadline and its obstacle.
pub(super) struct FollowedTransfer<T> {
    task: Task,
    bytes: Meter,
    wait: Option<Wait>,
    obstacle: Option<(&'static str, Instant)>,
    deadline: Instant,
    /// When it last advanced, as its status says.
    advanced: Option<Timestamp>,
    /// Timeout, until the creation time is known.
    undated: Option<Duration>,
    ended: Option<oneshot::Sender<Result<Arc<T>, TransferLost>>>,
}

impl<T> FollowedTransfer<T> {
    /// The receiver gets the result of the transfer.
    pub fn new(task: Task, limit: Duration) -> (Self, oneshot::Receiver<Result<Arc<T>, TransferLost>>) {
        let (sender, receiver) = oneshot::channel();
        task.stall_floor(STALL_FLOOR);
        let followed = Self {
            bytes: task.meter(Unit::Bytes),
            task,
            wait: None,
            obstacle: None,
            deadline: Instant::now() + limit,
            advanced: None,
            undated: Some(limit),
            ended: Some(sender),
        };
        (followed, receiver)
    }

    /// Whether it has not ended.
    pub fn is_active(&self) -> bool {
        self.ended.is_some()
    }

    pub fn is_overdue(&self) -> bool {
        Instant::now() >= self.deadline
    }
}

impl<T: BlockableTransfer> FollowedTransfer<T> {
    /// Updates the task from the latest version of the transfer.
    pub fn update(&mut self, object: &Arc<T>) {
        let phase = object.phase();
        self.set_deadline(object);
        self.update_meters(object);
        match phase {
            TransferPhase::Completed => self.task.finish(),
            TransferPhase::Canceled => self.task.cancel("cancelled"),
            TransferPhase::Failed => self.task.fail(object.message().unwrap_or("failed without a message")),
            TransferPhase::InProgress => self.wait = None,
            _ => {}
        }
        if phase.is_ended() {
            self.end(Ok(Arc::clone(object)));
        }
    }

    /// The timeout counts from the creation of the transfer, also for a new leader.
    fn set_deadline(&mut self, object: &T) {
        let Some(limit) = self.undated.take() else { return };
        let age = object.creation_timestamp().map(|created| Timestamp::now().duration_since(created.0));
        // The local clock may be behind that of the API server.
        let age = age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default();
        self.deadline = self.deadline.min(Instant::now() + limit.saturating_sub(age));
    }

    fn update_meters(&mut self, object: &T) {
        let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        let shown = object.progress().cloned().unwrap_or_default();
        let summary = object.summary().cloned().unwrap_or_default();
        if !object.phase().is_ended() {
            let advanced = summary.last_advance.as_ref().map(|time| time.0);
            if self.advanced < advanced && summary.stalled.is_none() {
                self.task.touch();
            }
            self.advanced = self.advanced.max(advanced);
            self.show_activity(summary.doing.as_deref(), number(summary.files_done), number(summary.total_files));
        }
        let (Some(total), Some(done)) = (number(shown.total_bytes), number(shown.bytes_done)) else {
            return self.take_verdict(&summary);
        };
        let grows = summary.percent.as_deref().is_none_or(|percent| percent.starts_with(['~', '≥']));
        let ended = object.phase() == TransferPhase::Completed;
        self.bytes.set_total(if grows && !ended { Total::Growing(total) } else { Total::Final(total) });
        self.bytes.set_done(done);
        self.take_verdict(&summary);
    }

    /// Updates the meters from the progress tree of the agent.
    pub fn update_from_tree(&self, tree: &Snapshot) {
        let shown = tree.nodes.iter().skip(1).find_map(transfer_progress);
        // 0 of 0 would look complete.
        if let Some(shown) = shown.filter(|shown| shown.total_bytes > 0) {
            let grows = tree.percent().is_none_or(Percent::is_approximate);
            let total = shown.total_bytes;
            self.bytes.set_total(if grows { Total::Growing(total) } else { Total::Final(total) });
            self.bytes.set_done(shown.bytes_done);
        }
        if tree.stall.is_none() && tree.root().is_some_and(|root| root.ages.advance < JUST_NOW) {
            self.task.touch();
        }
        let (files, all) = progress::files(tree);
        let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        self.show_activity(progress::current_activity(tree), number(files), number(all));
        let stall = tree.stall.as_ref().map(|stall| (stall.reason, &*stall.message));
        self.set_verdict(stall, tree.verdict() == Some(StallVerdict::Quiet));
    }

    /// Shows the current activity and the file counts.
    fn show_activity(&self, doing: Option<&str>, files: Option<u64>, all: Option<u64>) {
        if let Some(doing) = doing {
            self.task.say(doing);
        }
        if let Some(files) = files {
            let meter = self.task.meter(Unit::Files);
            meter.set_total(all.map_or(Total::Unknown, Total::Final));
            meter.set_done(files);
        }
    }

    fn take_verdict(&self, summary: &ProgressSummary) {
        let stall = summary.stalled.as_ref().map(|stall| {
            let reason = StallReason::of(stall.reason.as_deref().unwrap_or_default());
            (reason, stall.message.as_deref().unwrap_or_default())
        });
        self.set_verdict(stall, summary.verdict.as_deref() == Some(StallVerdict::Quiet.name()));
    }

    /// Shows the agent's own verdict.
    fn set_verdict(&self, stall: Option<(StallReason, &str)>, is_quiet: bool) {
        match stall {
            Some((reason, message)) => self.task.judge(reason, message),
            None => self.task.liveness_ok(),
        }
        if is_quiet { self.task.quiet() } else { self.task.loud() }
    }

    fn end(&mut self, how: Result<Arc<T>, TransferLost>) {
        self.wait = None;
        if let Some(ended) = self.ended.take() {
            // The receiver may be gone.
            let _ = ended.send(how);
        }
    }

    pub fn mark_lost(&mut self, lost: TransferLost) {
        self.task.fail(format!("it {lost}"));
        self.end(Err(lost));
    }

    /// Shows the obstacle. Returns how long it has lasted.
    pub fn set_obstacle(&mut self, obstacle: Option<&Obstacle>) -> Duration {
        let Some(obstacle) = obstacle else {
            (self.wait, self.obstacle) = (None, None);
            return Duration::ZERO;
        };
        let message = format!("waiting: {}", obstacle.message);
        match (&self.wait, self.obstacle) {
            // The same obstacle with another message.
            (Some(wait), Some((reason, _))) if reason == obstacle.reason => wait.reword(message),
            _ => {
                self.wait = Some(match obstacle.reason {
                    "Queued" => self.task.wait_in_queue(message),
                    _ => self.task.wait(message),
                });
                self.obstacle = Some((obstacle.reason, Instant::now()));
            }
        }
        self.obstacle.map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }
}
