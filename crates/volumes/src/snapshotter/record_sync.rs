//! Synchronises a running operation of a plugin with a task and a record.
//!
//! ```text
//!  begin ─▶ the call, looked at each second ─▶ named ─▶ looked at until it has ended ─▶ end
//!             │ the plugin's own record, if it makes one: ours gives way to it
//!             └ else what the plugin answers when asked, written into ours
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use plimsoll_api::labels;
use plimsoll_engine::{Error, RetryPolicy};
use plimsoll_operations::{projection, summary_patch};
use plimsoll_plugin::{
    Error as PluginError, ObserverGuard, ProgressTracker, Reading, SnapshotProgressQuery, VolumeSnapshotterClient,
    sanitize,
};
use plimsoll_progress::{Clock, Operation, Task, Total, Unit};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::debug;

use super::records::{RecordKind, Records, has_ended, has_failed, is_kept, is_object_name, text};

/// How often the operation is polled.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The subject of a record.
#[derive(Clone, Debug)]
pub struct RecordSubject {
    /// The Backup or Restore.
    pub parent: String,
    pub parent_uid: String,
    pub owner: OwnerReference,
    /// When the Backup was made, or the call for a volume: no record of it is older.
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
    /// It goes on.
    InProgress(Reading),
    /// It has ended; the error says how badly.
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
    _observing: ObserverGuard,
}

fn now() -> String {
    format!("{:.0}", Timestamp::now())
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl PluginOperation {
    pub fn new(
        records: Arc<Records>,
        record_subject: RecordSubject,
        snapshotter: Arc<VolumeSnapshotterClient>,
        subject: SnapshotProgressQuery,
        task: Task,
    ) -> Self {
        let observing = snapshotter.session().observe(&task);
        Self {
            own: Operation::new(&record_subject.volume, Clock::system()),
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

    /// There is a record before anything is asked for. One that a server left that died is taken up.
    pub async fn begin(&mut self) -> Result<(), Error> {
        let all = RetryPolicy::default().run(&self.task, || self.records.list()).await?;
        if let Some(left) = all.iter().find(|record| self.is_left(record)) {
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

    /// Of records that say nothing about a restore only those can be meant that are no older than the call, by the clock that
    /// dates them.
    fn set_start(&mut self, own: &Value) {
        if let (RecordKind::Restore, Ok(made)) =
            (self.records.record_kind, text(own, "/metadata/creationTimestamp").parse())
        {
            self.record_subject.since = made;
        }
    }

    /// Whether a record is one that this work had before.
    fn is_left(&self, record: &Value) -> bool {
        let label = match self.records.record_kind {
            RecordKind::Backup => labels::BACKUP_UID,
            RecordKind::Restore => labels::RESTORE_UID,
        };
        let note = |key: &str| record.pointer("/metadata/annotations").and_then(|notes| notes.get(key)).cloned();
        let same = record.pointer("/metadata/labels").and_then(|all| all.get(label))
            == Some(&json!(self.record_subject.parent_uid));
        is_kept(record) && same && note(labels::MANAGED_BY_SERVER) == Some(json!(self.record_subject.volume))
    }

    fn spec(&self) -> Value {
        let RecordSubject { backup, volume, snapshot, .. } = &self.record_subject;
        match self.records.record_kind {
            RecordKind::Backup => json!({ "volume": volume, "backup": backup, "plugin": self.snapshotter.name() }),
            RecordKind::Restore => {
                json!({ "snapshotID": snapshot, "backup": backup, "plugin": self.snapshotter.name() })
            }
        }
    }

    fn marks(&self) -> Value {
        let RecordSubject { parent, parent_uid, backup, .. } = &self.record_subject;
        let backup_name = labels::valid_name(backup);
        match self.records.record_kind {
            RecordKind::Backup => json!({ labels::BACKUP_NAME: backup_name, labels::BACKUP_UID: parent_uid }),
            RecordKind::Restore => json!({ labels::BACKUP_NAME: backup_name, labels::RESTORE_UID: parent_uid,
                labels::RESTORE_NAME: labels::valid_name(parent) }),
        }
    }

    fn record(&self, name: &str, status: &Value) -> Value {
        let mut status = status.clone();
        if self.records.record_kind == RecordKind::Restore {
            status["volumeID"] = json!(self.record_subject.volume);
        }
        json!({
            "apiVersion": "velero.io/v1",
            "kind": self.records.record_kind.kind(),
            "metadata": { "name": name, "labels": self.marks(), "ownerReferences": [self.record_subject.owner],
                "annotations": { labels::MANAGED_BY_SERVER: self.record_subject.volume, labels::SNAPSHOT_LOCATION: self.record_subject.location } },
            "spec": self.spec(),
            "status": status,
        })
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
        if let Some(theirs) = self.theirs().await {
            let seen = self.show_theirs(&theirs);
            if matches!(seen, PluginState::InProgress(_)) {
                self.write(&json!({ "plimsoll": self.summary() })).await;
            }
            return seen;
        }
        match self.snapshotter.progress(&self.subject).await {
            Ok(Some(report)) => {
                let (reading, fault) = self.watch.read(&report);
                if let Some(fault) = fault {
                    self.task.hint(fault.to_string());
                }
                self.show(&reading);
                self.write(&self.status(&reading)).await;
                match (reading.completed, reading.error.is_empty()) {
                    (false, _) => PluginState::InProgress(reading),
                    (true, true) => PluginState::Ended(Ok(())),
                    (true, false) => PluginState::Ended(Err(reading.error)),
                }
            }
            Ok(None) => PluginState::Unknown,
            // It knows the question, and not what it is asked about.
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

    /// Shows a reading as a task.
    fn show(&self, reading: &Reading) {
        let unit = if reading.counts_bytes() { Unit::Bytes } else { Unit::Steps };
        for task in [&self.task, &self.own.root()] {
            let meter = task.meter(unit);
            if reading.total > 0 {
                meter.set_total(Total::Growing(reading.total));
            }
            meter.set_done(reading.done);
        }
        if !reading.description.is_empty() {
            self.task.say(&reading.description);
        }
    }

    fn summary(&self) -> Value {
        summary_patch(&projection::summary(&self.own.snapshot(), Timestamp::now()))
    }

    fn status(&self, reading: &Reading) -> Value {
        let mut status = json!({ "phase": "InProgress", "message": reading.description, "plimsoll": self.summary() });
        if let Some(started) = reading.started {
            status["startTimestamp"] = json!(format!("{started:.0}"));
        }
        if reading.counts_bytes() && (reading.total > 0 || reading.done > 0) {
            status["progress"] = json!({ "totalBytes": signed(reading.total), "bytesDone": signed(reading.done) });
        } else if reading.total > 0 {
            let counted = format!("{} of {} {}", reading.done, reading.total, reading.units);
            status["message"] = json!(format!("{} ({counted})", reading.description).trim_start());
        }
        status
    }

    /// Writes into the record what has changed: all of it into ours, what only we know into a plugin's own. One that does not
    /// arrive is followed by a newer one.
    async fn write(&mut self, status: &Value) {
        let (RecordOwner::Server(name) | RecordOwner::Plugin(name)) = &self.record_owner else { return };
        let plain = without_times(status);
        if self.written == plain {
            return;
        }
        match self.records.patch(name, &json!({ "status": status })).await {
            Ok(_) => self.written = plain,
            Err(error) => debug!("record {name}: {error}"),
        }
    }

    /// The plugin's own record, if there is one: ours gives way to it.
    async fn theirs(&mut self) -> Option<Value> {
        if let RecordOwner::Plugin(name) = self.record_owner.clone() {
            if let Some(found) = self.records.find(|record| text(record, "/metadata/name") == name) {
                return Some(found);
            }
            // The watch may be reading all of them anew.
            match self.records.get(&name).await {
                Ok(None) => self.take_back().await,
                Ok(found) => return found,
                Err(error) => {
                    debug!("record {name}: {error}");
                    return Some(json!({}));
                }
            }
        }
        let found = self.records.find(|record| self.is_plugins(record))?;
        self.give_way(&found).await;
        Some(found)
    }

    /// The plugin's own record was deleted, and its work may go on: ours is there again.
    async fn take_back(&mut self) {
        self.task.hint("the plugin's own record was deleted");
        let id = &self.subject.snapshot;
        let named = self.records.record_kind == RecordKind::Backup && is_object_name(id);
        let name = if named { id.clone() } else { self.new_name() };
        let mut status = json!({ "phase": "InProgress", "startTimestamp": now() });
        if self.records.record_kind == RecordKind::Backup && !id.is_empty() {
            status["snapshotID"] = json!(id);
        }
        match self.records.create(&self.record(&name, &status)).await {
            Ok(Some(_)) => (self.record_owner, self.written) = (RecordOwner::Server(name), Value::Null),
            // The plugin has made it again: it is seen next time.
            Ok(None) => {}
            Err(error) => debug!("record {name}: {error}"),
        }
    }

    fn new_name(&self) -> String {
        format!("{}-{:05x}", shortened(&self.record_subject.parent), rand::random::<u32>() & 0xf_ffff)
    }

    /// Whether a record is the plugin's own about this work.
    fn is_plugins(&self, record: &Value) -> bool {
        if is_kept(record) {
            return false;
        }
        let RecordSubject { backup, volume, snapshot, since, parent, .. } = &self.record_subject;
        let made = text(record, "/metadata/creationTimestamp").parse::<Timestamp>();
        let fresh = made.is_ok_and(|made| made >= *since);
        match self.records.record_kind {
            RecordKind::Backup => {
                let named =
                    !self.subject.snapshot.is_empty() && text(record, "/metadata/name") == self.subject.snapshot;
                let meant = text(record, "/spec/backup") == backup && text(record, "/spec/volume") == volume;
                named || (meant && fresh)
            }
            RecordKind::Restore => {
                let labelled = record.pointer("/metadata/labels").and_then(|all| all.get(labels::RESTORE_NAME));
                let ours = labelled.is_some_and(|name| *name == labels::valid_name(parent));
                text(record, "/spec/snapshotID") == snapshot && (ours || (labelled.is_none() && fresh))
            }
        }
    }

    /// The plugin's record gets what makes it a part of the backup or restore; ours goes.
    async fn give_way(&mut self, theirs: &Value) {
        let name = text(theirs, "/metadata/name").to_owned();
        let mut patch = json!({ "metadata": { "labels": self.marks(), "ownerReferences": [self.record_subject.owner],
            "annotations": { labels::SNAPSHOT_LOCATION: self.record_subject.location } } });
        if self.records.record_kind == RecordKind::Restore && text(theirs, "/spec/backup").is_empty() {
            patch["spec"] = json!({ "backup": self.record_subject.backup });
        }
        let mut status = json!({});
        if text(theirs, "/status/startTimestamp").is_empty() {
            status["startTimestamp"] = json!(now());
        }
        if self.records.record_kind == RecordKind::Restore && text(theirs, "/status/volumeID").is_empty() {
            status["volumeID"] = json!(self.record_subject.volume);
        }
        patch["status"] = status;
        if let Err(error) = self.records.patch(&name, &patch).await {
            debug!("record {name}: {error}");
            return;
        }
        if let RecordOwner::Server(own) = std::mem::replace(&mut self.record_owner, RecordOwner::Plugin(name))
            && let Err(error) = self.records.remove(&own).await
        {
            debug!("record {own}: {error}");
        }
    }

    fn show_theirs(&mut self, record: &Value) -> PluginState {
        let count = |field: &str| {
            let count = record.pointer(&format!("/status/progress/{field}")).and_then(Value::as_i64);
            count.unwrap_or(0)
        };
        let message = sanitize(text(record, "/status/message"));
        let report = plimsoll_plugin::wire::OperationProgress {
            n_completed: count("bytesDone"),
            n_total: count("totalBytes"),
            operation_units: "Bytes".to_owned(),
            description: message.clone(),
            ..Default::default()
        };
        let (reading, fault) = self.watch.read(&report);
        if let Some(fault) = fault {
            self.task.hint(fault.to_string());
        }
        self.show(&reading);
        match (has_ended(record), has_failed(record)) {
            (true, true) if message.is_empty() => PluginState::Ended(Err(sanitize(text(record, "/status/phase")))),
            (true, true) => PluginState::Ended(Err(message)),
            (true, false) => PluginState::Ended(Ok(())),
            (false, _) => PluginState::InProgress(reading),
        }
    }

    /// The snapshot has a name: its record is called like it, if objects can be called that.
    pub async fn named(&mut self, snapshot: &str) -> Result<(), Error> {
        snapshot.clone_into(&mut self.subject.snapshot);
        self.written = Value::Null;
        if self.theirs().await.is_some() {
            return Ok(());
        }
        if !is_object_name(snapshot) {
            self.write(&json!({ "snapshotID": snapshot })).await;
            return Ok(());
        }
        let read = || self.records.get(snapshot);
        let named = RetryPolicy::default().run(&self.task, read).await?;
        let named = named.filter(|_| self.record_owner != RecordOwner::Server(snapshot.to_owned()));
        match (named, self.record_owner.clone()) {
            (Some(theirs), _) if !is_kept(&theirs) => self.give_way(&theirs).await,
            (_, RecordOwner::Server(name)) if name == snapshot => self.write(&json!({ "snapshotID": snapshot })).await,
            (_, RecordOwner::Server(name)) => self.rename(&name, snapshot).await?,
            _ => {}
        }
        Ok(())
    }

    async fn rename(&mut self, from: &str, to: &str) -> Result<(), Error> {
        let before = RetryPolicy::default().run(&self.task, || self.records.get(from)).await?.unwrap_or_default();
        let mut status = before.get("status").filter(|status| status.is_object()).cloned().unwrap_or_else(|| json!({}));
        status["snapshotID"] = json!(to);
        let record = self.record(to, &status);
        if RetryPolicy::default().run(&self.task, || self.records.create(&record)).await?.is_none() {
            self.records.patch(to, &json!({ "metadata": record["metadata"], "status": status })).await?;
        }
        self.record_owner = RecordOwner::Server(to.to_owned());
        RetryPolicy::default().run(&self.task, || self.records.remove(from)).await
    }

    /// It has ended. The server's clock fills in what a plugin leaves empty.
    pub async fn end(&mut self, how: &Result<(), String>) -> Result<(), Error> {
        self.finish(how, if how.is_ok() { "Completed" } else { "Failed" }).await
    }

    /// It is no longer waited for.
    pub async fn abandon(&mut self, why: &str) -> Result<(), Error> {
        self.finish(&Err(why.to_owned()), "Canceled").await
    }

    async fn finish(&mut self, how: &Result<(), String>, phase: &str) -> Result<(), Error> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        match how {
            Ok(()) => self.task.finish(),
            Err(why) => self.task.fail(why),
        }
        let Some((name, patch)) = self.last(how, phase) else { return Ok(()) };
        RetryPolicy::default().run(&self.task, || self.records.patch(&name, &patch)).await.map(drop)
    }

    fn last(&self, how: &Result<(), String>, phase: &str) -> Option<(String, Value)> {
        match &self.record_owner {
            RecordOwner::None => None,
            RecordOwner::Plugin(name) => {
                let record = self.records.find(|record| text(record, "/metadata/name") == name).unwrap_or_default();
                let mut status = json!({ "plimsoll": self.last_summary(how).0 });
                if text(&record, "/status/completionTimestamp").is_empty() {
                    status["completionTimestamp"] = json!(now());
                }
                if how.is_err() && !has_ended(&record) {
                    status["phase"] = json!(phase);
                    status["message"] = json!(how.as_ref().err());
                }
                Some((name.clone(), json!({ "status": status })))
            }
            RecordOwner::Server(name) => {
                let (summary, total) = self.last_summary(how);
                let mut status = json!({ "phase": phase, "completionTimestamp": now(), "message": how.as_ref().err(),
                    "plimsoll": summary });
                if let Some(total) = total {
                    status["progress"] = json!({ "totalBytes": signed(total), "bytesDone": signed(total) });
                }
                Some((name.clone(), json!({ "status": status })))
            }
        }
    }

    /// What we say about it once it has ended, and how many bytes it was if it ended well.
    fn last_summary(&self, how: &Result<(), String>) -> (Value, Option<u64>) {
        let mut summary = json!({ "rate": null, "unit": null, "secondsLeft": null, "stalled": null, "task": null });
        let total = self.own.root().meter(Unit::Bytes).counts().total.value();
        let total = total.filter(|total| how.is_ok() && *total > 0);
        if total.is_some() {
            summary["percent"] = json!("100.00");
        }
        (summary, total)
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

/// What makes a status worth a write: not how old its last advance is.
fn without_times(status: &Value) -> Value {
    let mut plain = status.clone();
    if let Some(summary) = plain.get_mut("plimsoll").and_then(Value::as_object_mut) {
        summary.remove("lastAdvance");
    }
    plain
}

/// Names may have 253 characters; a parent's may have as many.
fn shortened(parent: &str) -> &str {
    parent.get(..parent.floor_char_boundary(240)).unwrap_or(parent)
}
