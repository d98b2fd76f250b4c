//! Follows the transfers of a backup or restore: shows each as a task, and detects obstacles.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt, future};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::{WatchStreamExt, watcher};
use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_mover::transfer_progress;
use plimsoll_operations::WatchBackoff;
use plimsoll_progress::{Meter, Percent, Snapshot, Task, Total, Trees, Unit, Wait};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{debug, warn};

use super::agent_heartbeat::AgentHeartbeats;
use super::obstacle::{BlockableTransfer, Obstacle, ObstacleDuration};
use super::services::TransferServices;
use crate::transfer::Transfer;
use crate::transfer::TransferRecord;
use crate::transfer::progress;

/// The agent reports a stall and its cause earlier, if it can. Later the leader detects the stall itself.
const STALL_FLOOR: Duration = Duration::from_secs(34);
/// How often the progress trees of agents are read.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);
/// How often obstacles are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A shorter obstacle is not written: every pod takes a moment to start.
const REPORT_AFTER: Duration = Duration::from_secs(5);

/// The result of a transfer, once it has ended.
pub type TransferResult<T> = future::Shared<future::BoxFuture<'static, Result<Arc<T>, TransferLost>>>;

/// Why the result of a transfer is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferLost {
    /// It was deleted.
    Deleted,
    /// It could not be read until its timeout.
    Unread,
}

impl fmt::Display for TransferLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleted => "was deleted",
            Self::Unread => "could not be read until its timeout",
        })
    }
}

/// Follows transfers until it is dropped.
pub struct Follower<T> {
    entries: Entries<T>,
    driver: tokio::task::JoinHandle<()>,
    /// Timeout of a transfer.
    limit: Duration,
}

type Entries<T> = Arc<Mutex<HashMap<String, Entry<T>>>>;

struct Entry<T> {
    /// `None` while it is unknown whether it exists.
    latest: Option<Arc<T>>,
    followed: Option<FollowedTransfer<T>>,
}

struct FollowedTransfer<T> {
    task: Task,
    bytes: Meter,
    wait: Option<Wait>,
    obstacle: Option<(&'static str, Instant)>,
    deadline: Instant,
    /// Timeout, until the creation time is known.
    undated: Option<Duration>,
    ended: Option<oneshot::Sender<Result<Arc<T>, TransferLost>>>,
}

impl<T> Default for Entry<T> {
    fn default() -> Self {
        Self { latest: None, followed: None }
    }
}

impl<T> Entry<T> {
    /// The followed transfer, until it has ended.
    fn active(&mut self) -> Option<&mut FollowedTransfer<T>> {
        self.followed.as_mut().filter(|followed| followed.ended.is_some())
    }
}

impl<T> Drop for Follower<T> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn lock<T>(entries: &Entries<T>) -> MutexGuard<'_, HashMap<String, Entry<T>>> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: BlockableTransfer> Follower<T> {
    /// Follows the transfers with a label.
    pub fn start(services: &Arc<TransferServices>, selector: String, limit: Duration) -> Self {
        let entries: Entries<T> = Arc::default();
        let driver = tokio::spawn(drive(Arc::clone(services), selector, Arc::clone(&entries)));
        Self { entries, driver, limit }
    }

    /// Shows a transfer as a task, which ends with it.
    pub fn follow(&self, name: &str, task: Task) -> TransferResult<T> {
        let (sender, receiver) = oneshot::channel();
        let mut entries = lock(&self.entries);
        let entry = entries.entry(name.to_owned()).or_default();
        task.stall_floor(STALL_FLOOR);
        let mut followed = FollowedTransfer {
            bytes: task.meter(Unit::Bytes),
            task,
            wait: None,
            obstacle: None,
            deadline: Instant::now() + self.limit,
            undated: Some(self.limit),
            ended: Some(sender),
        };
        if let Some(latest) = entry.latest.clone() {
            followed.show(&latest);
        }
        entry.followed = Some(followed);
        receiver.map(|ended| ended.unwrap_or(Err(TransferLost::Unread))).boxed().shared()
    }
}

impl<T: BlockableTransfer> FollowedTransfer<T> {
    fn show(&mut self, object: &Arc<T>) {
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

    fn update_meters(&self, object: &T) {
        let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        let shown = object.shown().unwrap_or_default();
        let summary = object.summary().unwrap_or_default();
        if !object.phase().is_ended() {
            self.show_activity(summary.doing.as_deref(), number(summary.files_done), number(summary.total_files));
        }
        let stalled = summary.stalled.map(|stall| stall.message.unwrap_or_default());
        let (Some(total), Some(done)) = (number(shown.total_bytes), number(shown.bytes_done)) else {
            return self.set_liveness(stalled.as_deref());
        };
        let grows = summary.percent.as_deref().is_none_or(|percent| percent.starts_with('~'));
        let ended = object.phase() == TransferPhase::Completed;
        self.bytes.set_total(if grows && !ended { Total::Growing(total) } else { Total::Final(total) });
        self.bytes.set_done(done);
        self.set_liveness(stalled.as_deref());
    }

    /// Updates the meters from the progress tree of the agent.
    fn update_from_tree(&self, tree: &Snapshot) {
        let shown = tree.nodes.iter().skip(1).find_map(transfer_progress);
        // 0 of 0 would look complete.
        if let Some(shown) = shown.filter(|shown| shown.total_bytes > 0) {
            let grows = tree.percent().is_none_or(Percent::is_approximate);
            let total = shown.total_bytes;
            self.bytes.set_total(if grows { Total::Growing(total) } else { Total::Final(total) });
            self.bytes.set_done(shown.bytes_done);
        }
        let (files, all) = progress::files(tree);
        let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        self.show_activity(progress::doing(tree), number(files), number(all));
        self.set_liveness(tree.stall.as_ref().map(|stall| &*stall.message));
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

    fn set_liveness(&self, stalled: Option<&str>) {
        match stalled {
            Some(message) => self.task.liveness_failed(message),
            None => self.task.liveness_ok(),
        }
    }

    fn end(&mut self, how: Result<Arc<T>, TransferLost>) {
        self.wait = None;
        if let Some(ended) = self.ended.take() {
            // The receiver may be gone.
            let _ = ended.send(how);
        }
    }

    fn mark_lost(&mut self, lost: TransferLost) {
        self.task.fail(format!("it {lost}"));
        self.end(Err(lost));
    }

    fn is_overdue(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Shows the obstacle. Returns how long it has lasted.
    fn set_obstacle(&mut self, obstacle: Option<&Obstacle>) -> Duration {
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

/// Runs the three loops in parallel, so that a slow request of one does not delay the others.
async fn drive<T: BlockableTransfer>(services: Arc<TransferServices>, selector: String, entries: Entries<T>) {
    tokio::join!(
        watch(&services, &selector, &entries),
        poll_obstacles(&services, &entries),
        poll_agent_trees(&services.agent_trees, &entries),
    );
}

async fn watch<T: BlockableTransfer>(services: &TransferServices, selector: &str, entries: &Entries<T>) {
    let config = watcher::Config::default().labels(selector);
    let mut events = watcher(services.leader.api::<T>(), config).backoff(WatchBackoff::default()).boxed();
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => handle_event(event, &mut listed, entries),
            Err(error) => debug!("watching transfers: {error}"),
        }
    }
}

async fn poll_obstacles<T: BlockableTransfer>(services: &TransferServices, entries: &Entries<T>) {
    let mut agents = AgentHeartbeats::new(
        services.leader.client.clone(),
        &services.leader.namespace,
        services.agent_heartbeat_timeout,
    );
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        check_obstacles(services, entries, &mut agents).await;
    }
}

async fn poll_agent_trees<T: BlockableTransfer>(trees: &Trees, entries: &Entries<T>) {
    let mut ticks = tokio::time::interval(REFRESH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        refresh(trees, entries);
    }
}

/// Handles a watch event; `listed` has the names of an incomplete list.
fn handle_event<T: BlockableTransfer>(event: watcher::Event<T>, listed: &mut HashSet<String>, entries: &Entries<T>) {
    match event {
        watcher::Event::Init => listed.clear(),
        watcher::Event::InitApply(object) => {
            listed.insert(object.name_any());
            update_entry(object, entries);
        }
        watcher::Event::InitDone => clear_unlisted(listed, entries),
        watcher::Event::Apply(object) => update_entry(object, entries),
        watcher::Event::Delete(object) => mark_lost(&object.name_any(), TransferLost::Deleted, entries),
    }
}

fn update_entry<T: BlockableTransfer>(object: T, entries: &Entries<T>) {
    let object = Arc::new(object);
    let mut entries = lock(entries);
    let entry = entries.entry(object.name_any()).or_default();
    if let Some(followed) = &mut entry.followed {
        followed.show(&object);
    }
    entry.latest = Some(object);
}

/// Clears transfers that are absent from a list: deleted while the watch was down, or created after the list. The next poll
/// reads them.
fn clear_unlisted<T>(listed: &HashSet<String>, entries: &Entries<T>) {
    for (_, entry) in lock(entries).iter_mut().filter(|(name, _)| !listed.contains(*name)) {
        entry.latest = None;
    }
}

fn mark_lost<T: BlockableTransfer>(name: &str, lost: TransferLost, entries: &Entries<T>) {
    let mut entries = lock(entries);
    let Some(entry) = entries.get_mut(name) else { return };
    // Later followers find out too.
    entry.latest = None;
    if let Some(followed) = entry.active() {
        followed.mark_lost(lost);
    }
}

/// Shows progress that agents have not written yet.
fn refresh<T: BlockableTransfer>(trees: &Trees, entries: &Entries<T>) {
    if trees.is_empty() {
        return;
    }
    for entry in lock(entries).values() {
        let followed = entry.followed.as_ref().filter(|followed| followed.ended.is_some());
        let uid = entry.latest.as_ref().and_then(|object| object.uid());
        if let (Some(followed), Some(tree)) = (followed, uid.and_then(|uid| trees.snapshot(&uid))) {
            followed.update_from_tree(&tree);
        }
    }
}

/// Checks transfers for obstacles, and fails those that cannot continue.
async fn check_obstacles<T: BlockableTransfer>(
    services: &TransferServices,
    entries: &Entries<T>,
    agents: &mut AgentHeartbeats,
) {
    for (name, latest) in active_transfers(entries) {
        let Some(object) = latest else {
            read_transfer(services, entries, &name).await;
            continue;
        };
        let action = match object.obstacle(&services.leader.client, agents).await {
            Ok(obstacle) => decide(services, entries, &name, obstacle.as_ref()),
            Err(error) => {
                debug!("checking transfer {name}: {error}");
                overdue(entries, &name)
            }
        };
        match action {
            Some(ObstacleAction::Fail(message))
                if fail_transfer(services, object.as_ref(), &message).await == FailResult::TooLate =>
            {
                read_transfer(services, entries, &name).await;
            }
            Some(ObstacleAction::Report(obstacle)) => write_obstacle(services, object.as_ref(), &obstacle).await,
            Some(ObstacleAction::Fail(_)) | None => {}
        }
    }
}

/// The transfers that have not ended, as last observed.
fn active_transfers<T>(entries: &Entries<T>) -> Vec<(String, Option<Arc<T>>)> {
    let mut entries = lock(entries);
    let open = entries.iter_mut().filter_map(|(name, entry)| entry.active().is_some().then_some((name, &entry.latest)));
    open.map(|(name, latest)| (name.clone(), latest.clone())).collect()
}

/// Reads a transfer that the watch has not reported.
async fn read_transfer<T: BlockableTransfer>(services: &TransferServices, entries: &Entries<T>, name: &str) {
    match services.leader.api::<T>().get_opt(name).await {
        Ok(Some(object)) => update_entry(object, entries),
        Ok(None) => mark_lost(name, TransferLost::Deleted, entries),
        Err(error) => {
            debug!("reading transfer {name}: {error}");
            if overdue(entries, name).is_some() {
                mark_lost(name, TransferLost::Unread, entries);
            }
        }
    }
}

/// The action on an obstacle.
enum ObstacleAction {
    /// Write it into the status of the transfer.
    Report(Obstacle),
    /// Fail the transfer with this message.
    Fail(String),
}

/// Shows an obstacle and decides by its duration.
fn decide<T: BlockableTransfer>(
    services: &TransferServices,
    entries: &Entries<T>,
    name: &str,
    obstacle: Option<&Obstacle>,
) -> Option<ObstacleAction> {
    let mut entries = lock(entries);
    let followed = entries.get_mut(name)?.active()?;
    let lasted = followed.set_obstacle(obstacle);
    let report = match obstacle.map(|obstacle| (obstacle, obstacle.lasts)) {
        Some((obstacle, ObstacleDuration::Over)) => return Some(ObstacleAction::Fail(obstacle.to_string())),
        Some((obstacle, ObstacleDuration::AWhile)) if lasted >= services.resource_timeout => {
            return Some(ObstacleAction::Fail(obstacle.to_string()));
        }
        Some((obstacle, ObstacleDuration::AWhile)) if lasted >= REPORT_AFTER => {
            Some(ObstacleAction::Report(obstacle.clone()))
        }
        _ => None,
    };
    if followed.is_overdue() { Some(timed_out()) } else { report }
}

/// Decides by the timeout alone.
fn overdue<T: BlockableTransfer>(entries: &Entries<T>, name: &str) -> Option<ObstacleAction> {
    let mut entries = lock(entries);
    let followed = entries.get_mut(name)?.active()?;
    followed.is_overdue().then(timed_out)
}

fn timed_out() -> ObstacleAction {
    ObstacleAction::Fail("TimedOut: the timeout of the transfer has passed".to_owned())
}

/// Writes an obstacle into the status of its transfer, once, for readers of the status alone.
async fn write_obstacle<T: Transfer>(services: &TransferServices, object: &T, obstacle: &Obstacle) {
    let is_reported = |object: &T| object.message().is_some_and(|message| message.starts_with(obstacle.reason));
    if is_reported(object) || services.leader.fence.check().is_err() {
        return;
    }
    let record = TransferRecord::new(services.leader.client.clone(), &services.leader.namespace, object);
    let operation = plimsoll_progress::Operation::new(object.name_any(), plimsoll_progress::Clock::system());
    let message = json!({ "status": { "message": obstacle.to_string() } });
    if let Err(error) = record.change(&operation.root(), |_| message.clone()).await {
        debug!("writing the obstacle of transfer {}: {error}", object.name_any());
    }
}

/// The result of failing a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailResult {
    /// The transfer failed, or the next poll tries again.
    Requested,
    /// It had ended before, or was deleted.
    TooLate,
}

/// Fails a transfer that its agent does not end. A running agent stops when it sees this.
pub(super) async fn fail_transfer<T: Transfer>(services: &TransferServices, object: &T, message: &str) -> FailResult {
    if services.leader.fence.check().is_err() {
        return FailResult::Requested;
    }
    let record = TransferRecord::new(services.leader.client.clone(), &services.leader.namespace, object);
    let operation = plimsoll_progress::Operation::new(object.name_any(), plimsoll_progress::Clock::system());
    let now = format!("{:.0}", Timestamp::now());
    let failed = |_: &T| {
        json!({ "spec": { "cancel": true },
            "status": { "phase": TransferPhase::Failed.as_str(), "message": message, "completionTimestamp": now } })
    };
    match record.change(&operation.root(), failed).await {
        Ok(Some(_)) => warn!("{} {}: {message}", T::kind(&()), object.name_any()),
        Ok(None) => return FailResult::TooLate,
        Err(error) => debug!("ending transfer {}: {error}", object.name_any()),
    }
    FailResult::Requested
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use plimsoll_api::velero::v1::PodVolumeBackup;
    use plimsoll_progress::{Clock, Operation};

    use super::*;

    const CANCEL_TIMEOUT: Duration = Duration::from_mins(1);

    fn transfer(name: &str) -> PodVolumeBackup {
        let object = json!({ "metadata": { "name": name }, "spec": { "volume": "data" } });
        serde_json::from_value(object).unwrap()
    }

    /// One that hears nothing by itself.
    fn follower() -> Follower<PodVolumeBackup> {
        Follower { entries: Arc::default(), driver: tokio::spawn(async {}), limit: CANCEL_TIMEOUT }
    }

    fn follow(follower: &Follower<PodVolumeBackup>, name: &str) -> TransferResult<PodVolumeBackup> {
        follower.follow(name, Operation::new(name, Clock::system()).root())
    }

    fn hear_all(follower: &Follower<PodVolumeBackup>, events: Vec<watcher::Event<PodVolumeBackup>>) {
        let mut listed = HashSet::new();
        for event in events {
            handle_event(event, &mut listed, &follower.entries);
        }
    }

    /// Those that have not ended and are not known to be there.
    fn in_doubt(follower: &Follower<PodVolumeBackup>) -> Vec<String> {
        let unseen = active_transfers(&follower.entries).into_iter().filter(|(_, latest)| latest.is_none());
        unseen.map(|(name, _)| name).collect()
    }

    #[tokio::test]
    async fn one_that_a_new_list_no_longer_has_is_in_doubt_and_the_others_are_not() {
        use watcher::Event::{Apply, Init, InitApply, InitDone};
        let follower = follower();
        let _ended = [follow(&follower, "stays"), follow(&follower, "goes")];
        hear_all(&follower, vec![Init, InitApply(transfer("stays")), InitDone, Apply(transfer("goes"))]);
        assert!(in_doubt(&follower).is_empty());
        hear_all(&follower, vec![Init, InitApply(transfer("stays")), InitDone]);
        assert_eq!(in_doubt(&follower), ["goes"]);
    }

    #[tokio::test]
    async fn one_that_is_deleted_has_ended_and_one_that_was_before_it_was_followed_is_in_doubt() {
        use watcher::Event::{Apply, Delete};
        let follower = follower();
        let ended = follow(&follower, "followed");
        for name in ["followed", "early"] {
            hear_all(&follower, vec![Apply(transfer(name)), Delete(transfer(name))]);
        }
        assert_eq!(ended.now_or_never().unwrap().err(), Some(TransferLost::Deleted));
        let _ended = follow(&follower, "early");
        assert_eq!(in_doubt(&follower), ["early"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_one_that_a_predecessor_made_runs_from_when_it_was_made() {
        use watcher::Event::Apply;
        let aged = |name: &str, seconds: i64| {
            let mut made = transfer(name);
            let created = Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
            made.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
            made
        };
        let follower = follower();
        let is_overdue = |name: &str| overdue(&follower.entries, name).is_some();
        hear_all(&follower, vec![Apply(aged("before", 50))]);
        let _ended = [follow(&follower, "before"), follow(&follower, "after"), follow(&follower, "ahead")];
        hear_all(&follower, vec![Apply(aged("after", 50)), Apply(aged("ahead", -50))]);
        assert!(!["before", "after", "ahead"].into_iter().any(is_overdue));
        tokio::time::advance(Duration::from_secs(11)).await;
        // Later updates do not count again.
        hear_all(&follower, vec![Apply(aged("after", 50))]);
        assert_eq!(["before", "after", "ahead"].map(is_overdue), [true, true, false]);
        tokio::time::advance(CANCEL_TIMEOUT).await;
        assert!(is_overdue("ahead"));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_never_seen_may_take_no_longer_than_others() {
        let follower = follower();
        let ended = follow(&follower, "unseen");
        assert!(overdue(&follower.entries, "unseen").is_none());
        tokio::time::advance(CANCEL_TIMEOUT).await;
        assert!(
            matches!(overdue(&follower.entries, "unseen"), Some(ObstacleAction::Fail(why)) if why.starts_with("TimedOut"))
        );
        mark_lost("unseen", TransferLost::Unread, &follower.entries);
        assert_eq!(ended.now_or_never().unwrap().err(), Some(TransferLost::Unread));
        assert!(overdue(&follower.entries, "unseen").is_none(), "it has ended");
    }
}
