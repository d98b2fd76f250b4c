//! What taking snapshots and restoring them have in common.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_engine::Error;
use plimsoll_engine::backup::actions::ItemId;
use plimsoll_engine::item_operations::ItemOperations;
use plimsoll_engine::ports::{IntentId, Journal, JournalEntry};
use plimsoll_plugin::{Error as PluginError, LogSink};
use plimsoll_progress::Task;

use super::SnapshotServices;
use super::earlier::{EarlierRequests, named};
use super::locations::SnapshotLocations;
use super::pending::PendingSnapshot;
use super::plugin_operation::RecordSubject;
use super::records::{RecordKind, Records};
use crate::volume_job::VolumeJob;

/// The Backup or Restore whose snapshots are taken or restored.
pub struct SnapshotJob {
    /// Services of the server.
    pub services: Arc<SnapshotServices>,
    /// The Backup or Restore.
    pub subject: VolumeJob,
    /// When it was created.
    pub created: Timestamp,
    /// The backup that the snapshots belong to.
    pub backup: String,
    /// The journal.
    pub journal: Arc<dyn Journal>,
    /// Journal entries of earlier attempts.
    pub known: Vec<JournalEntry>,
    /// Its item operations.
    pub operations: Arc<ItemOperations>,
    /// Sink for the log lines of plugins.
    pub logs: Arc<dyn LogSink>,
    /// Timeout of one operation.
    pub limit: Duration,
}

/// What the snapshots of one Backup or Restore share: its plugins, its records and the requests of earlier attempts.
pub struct SnapshotContext {
    pub(super) job: SnapshotJob,
    pub(super) locations: SnapshotLocations,
    record_kind: RecordKind,
    records: OnceLock<Arc<Records>>,
    earlier: Mutex<EarlierRequests>,
}

impl SnapshotContext {
    pub(super) fn new(job: SnapshotJob, record_kind: RecordKind) -> Self {
        Self {
            locations: SnapshotLocations::new(&job.services, Arc::clone(&job.logs)),
            earlier: Mutex::new(EarlierRequests::of(&job.known)),
            record_kind,
            records: OnceLock::new(),
            job,
        }
    }

    pub(super) fn earlier(&self) -> MutexGuard<'_, EarlierRequests> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn records(&self) -> Arc<Records> {
        let start = || Arc::new(Records::start(&self.job.services.leader, self.record_kind));
        Arc::clone(self.records.get_or_init(start))
    }

    /// Starts the stage and the task of a volume.
    pub(super) fn start_task(&self, volume: &str) -> Task {
        let stage = &self.job.subject.stage;
        stage.task.start();
        let task = stage.take(volume);
        task.start();
        task
    }

    /// The subject of the record of a volume. `snapshot` is empty while it is being taken.
    pub(super) fn record_subject(&self, volume: &str, location: &str, snapshot: &str) -> RecordSubject {
        let job = &self.job;
        RecordSubject {
            parent: job.subject.name.clone(),
            parent_uid: job.subject.uid.clone(),
            owner: job.subject.owner.clone(),
            since: job.created,
            backup: job.backup.clone(),
            volume: volume.to_owned(),
            location: location.to_owned(),
            snapshot: snapshot.to_owned(),
        }
    }

    /// Records the answer of a plugin in the journal, before anything relies on it.
    pub(super) async fn record_answer(
        &self,
        intent: IntentId,
        answer: Result<String, PluginError>,
    ) -> Result<Result<String, String>, Error> {
        let result = answer.as_ref().map_or_else(|error| format!("failed: {error}"), |id| named(id));
        self.job.journal.record_result(intent, result).await?;
        Ok(answer.map_err(|error| error.to_string()))
    }

    /// Waits for an operation together with the other item operations.
    pub(super) fn track(&self, plugin: &str, volume: &str, snapshot: &str, pending: Arc<PendingSnapshot>) {
        let item = ItemId::new("persistentvolumes", None, volume);
        self.job.operations.track_existing(plugin, item, snapshot, pending);
    }

    /// Ends the plugins' processes.
    pub async fn close(&self) {
        self.locations.close().await;
    }
}
