//! A running operation of a plugin, its task and its record.
//!
//! ```text
//!  begin ─▶ the call, polled each second ─▶ set_snapshot_name ─▶ polled until it has ended ─▶ end
//!             │ the plugin's own record, if it creates one: it replaces ours
//!             └ else the plugin's answer to a progress query, written into ours
//! ```

mod ownership;
mod record;
mod status;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use plimsoll_engine::item_operations::ItemOperationProgress;
use plimsoll_engine::{Error, RetryPolicy};
use plimsoll_plugin::{
    Error as PluginError, ObserverGuard, ProgressTracker, SnapshotProgressQuery, VolumeSnapshotterClient,
};
use plimsoll_progress::{Clock, Operation, Task};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};

use super::records::{RecordKind, Records, text};

/// How often the operation is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The subject of a record.
#[derive(Clone, Debug)]
pub struct RecordSubject {
    /// The Backup or Restore.
    pub parent: String,
    pub parent_uid: String,
    pub owner: OwnerReference,
    /// When the Backup was created or the plugin was called. No record of the operation is older.
    pub since: Timestamp,
    /// The backup that the snapshot belongs to.
    pub backup: String,
    /// The PersistentVolume.
    pub volume: String,
    /// The VolumeSnapshotLocation.
    pub location: String,
    /// The snapshot a volume is made from; empty while it is being taken.
    pub snapshot: String,
}

/// The result of a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginState {
    /// Its progress is not known.
    Unknown,
    /// It is in progress.
    InProgress(ItemOperationProgress),
    /// It has ended, with this result.
    Ended(Result<(), String>),
    /// The plugin does not answer.
    Silent(String),
}

/// The owner of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RecordOwner {
    None,
    Server(String),
    Plugin(String),
}

/// An operation of a plugin.
pub struct PluginOperation {
    records: Arc<Records>,
    pub record_subject: RecordSubject,
    pub snapshotter: Arc<VolumeSnapshotterClient>,
    pub subject: SnapshotProgressQuery,
    task: Task,
    /// A tree of its own: the rate and the time left of this work alone.
    own: Operation,
    watch: ProgressTracker,
    record_owner: RecordOwner,
    written: Value,
    ended: bool,
    _observing: [ObserverGuard; 2],
}

fn now() -> String {
    format!("{:.0}", Timestamp::now())
}

impl PluginOperation {
    pub fn new(
        records: Arc<Records>,
        record_subject: RecordSubject,
        snapshotter: Arc<VolumeSnapshotterClient>,
        subject: SnapshotProgressQuery,
        task: Task,
    ) -> Self {
        let own = Operation::new(&record_subject.volume, Clock::system());
        let observing = [&task, &own.root()].map(|task| snapshotter.session().observe(task));
        Self {
            own,
            records,
            record_subject,
            snapshotter,
            subject,
            task,
            watch: ProgressTracker::default(),
            record_owner: RecordOwner::None,
            written: Value::Null,
            ended: false,
            _observing: observing,
        }
    }

    /// Creates the record before the plugin is called, or takes over the one of an earlier server.
    pub async fn begin(&mut self) -> Result<(), Error> {
        let all = RetryPolicy::default().run(&self.task, || self.records.list()).await?;
        if let Some(left) = all.iter().find(|record| self.is_ours(record)) {
            self.record_owner = RecordOwner::Server(text(left, "/metadata/name").to_owned());
            self.set_start(left);
            self.write(&json!({ "phase": "InProgress", "completionTimestamp": null })).await;
            return Ok(());
        }
        loop {
            let name = self.new_name();
            let record = self.record(&name, &json!({ "phase": "InProgress", "startTimestamp": now() }));
            let create = || self.records.create(&record);
            if let Some(made) = RetryPolicy::default().run(&self.task, create).await? {
                self.record_owner = RecordOwner::Server(name);
                self.set_start(&made);
                return Ok(());
            }
        }
    }

    /// A record that names no restore can belong to this one only if it is no older than the call, by the clock of the API
    /// server.
    fn set_start(&mut self, own: &Value) {
        if let (RecordKind::Restore, Ok(made)) =
            (self.records.record_kind, text(own, "/metadata/creationTimestamp").parse())
        {
            self.record_subject.since = made;
        }
    }

    /// Polls while the call is running.
    pub async fn follow(&mut self) -> Infallible {
        let mut ticks = tokio::time::interval_at(Instant::now() + POLL_INTERVAL / 4, POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.poll().await;
        }
    }

    /// Polls the progress once and shows it.
    pub async fn poll(&mut self) -> PluginState {
        if let Some(record) = self.find_plugin_record().await {
            let state = self.show_plugin_record(&record);
            if matches!(state, PluginState::InProgress(_)) {
                self.write(&json!({ "plimsoll": self.summary() })).await;
            }
            return state;
        }
        match self.snapshotter.progress(&self.subject).await {
            Ok(Some(report)) => {
                let (progress, fault) = self.watch.read(&report);
                if let Some(fault) = fault {
                    self.task.hint(fault.to_string());
                }
                self.update_task(&progress);
                self.write(&self.status(&progress)).await;
                match (progress.completed, progress.error.is_empty()) {
                    (false, _) => PluginState::InProgress(progress),
                    (true, true) => PluginState::Ended(Ok(())),
                    (true, false) => PluginState::Ended(Err(progress.error)),
                }
            }
            Ok(None) => PluginState::Unknown,
            // The plugin reports progress, but does not know this operation.
            Err(PluginError::CallFailed { message, .. }) => {
                self.task.hint(message);
                PluginState::Unknown
            }
            Err(error) => {
                self.task.hint(error.to_string());
                PluginState::Silent(error.to_string())
            }
        }
    }

    /// Polls the progress once, and ends the operation unless the plugin still works on it. Returns the result; `None` while it
    /// is in progress.
    pub async fn end_if_ended(&mut self) -> Result<Option<Result<(), String>>, Error> {
        let ended = match self.poll().await {
            PluginState::InProgress(_) | PluginState::Silent(_) => return Ok(None),
            PluginState::Unknown => Ok(()),
            PluginState::Ended(how) => how,
        };
        self.end(&ended).await?;
        Ok(Some(ended))
    }

    /// The record, as it is now.
    pub async fn current(&self) -> Result<Option<Value>, Error> {
        match &self.record_owner {
            RecordOwner::None => Ok(None),
            RecordOwner::Server(name) | RecordOwner::Plugin(name) => {
                RetryPolicy::default().run(&self.task, || self.records.get(name)).await
            }
        }
    }
}
