//! Volumes that plugins make from the snapshots of a backup.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use plimsoll_archive::volume_info::{NativeSnapshotInfo, RestoreVolumeInfo, VolumeSnapshot};
use plimsoll_engine::backup::actions::ItemId;
use plimsoll_engine::item_operations::ItemOperations;
use plimsoll_engine::log::Level;
use plimsoll_engine::ports::{Effect, Journal, JournalEntry, SnapshotRestorer};
use plimsoll_engine::{Error, PluginLogSink, kill};
use plimsoll_plugin::{LogSink, SnapshotProgressQuery, VolumeInfo};
use plimsoll_progress::Task;
use serde_json::Value;

use super::SnapshotServices;
use super::earlier::{EarlierRequests, named};
use super::locations::SnapshotLocations;
use super::pending::PendingSnapshot;
use super::plugin_operation::{PluginOperation, PluginState, RecordSubject};
use super::records::{RecordKind, Records, text};
use crate::volume_job::VolumeJob;

/// About how long they take: the weight of the stage once there are any.
const EXPECTED_DURATION: Duration = Duration::from_mins(1);

/// Parameters of the restore of snapshots.
pub struct SnapshotRestoreParameters {
    /// Services of the server.
    pub services: Arc<SnapshotServices>,
    /// The Restore.
    pub job: VolumeJob,
    /// When it was created.
    pub created: Timestamp,
    /// The backup they belong to.
    pub backup: String,
    /// The snapshots of the backup.
    pub snapshots: Vec<VolumeSnapshot>,
    /// The journal.
    pub journal: Arc<dyn Journal>,
    /// Journal entries of earlier attempts.
    pub known: Vec<JournalEntry>,
    /// Its item operations.
    pub operations: Arc<ItemOperations>,
    /// Log of the operation.
    pub plugin_log: Arc<PluginLogSink>,
    /// Sink for the log lines of plugins.
    pub logs: Arc<dyn LogSink>,
    /// Timeout of one operation.
    pub limit: Duration,
}

/// Creates volumes from snapshots.
pub struct SnapshotRestore {
    parameters: SnapshotRestoreParameters,
    snapshots: HashMap<String, VolumeSnapshot>,
    opened_locations: SnapshotLocations,
    records: OnceLock<Arc<Records>>,
    earlier: Mutex<EarlierRequests>,
    infos: Mutex<Vec<RestoreVolumeInfo>>,
}

impl SnapshotRestore {
    /// Restores the volumes of one restore.
    pub fn new(mut parameters: SnapshotRestoreParameters) -> Self {
        let usable = |snapshot: &VolumeSnapshot| !snapshot.status.provider_snapshot_id.is_empty();
        let snapshots = std::mem::take(&mut parameters.snapshots).into_iter().filter(usable);
        Self {
            snapshots: snapshots.map(|one| (one.spec.persistent_volume_name.clone(), one)).collect(),
            opened_locations: SnapshotLocations::new(&parameters.services, Arc::clone(&parameters.logs)),
            earlier: Mutex::new(EarlierRequests::of(&parameters.known)),
            records: OnceLock::new(),
            infos: Mutex::default(),
            parameters,
        }
    }

    fn earlier(&self) -> MutexGuard<'_, EarlierRequests> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn records(&self) -> Arc<Records> {
        let records = self
            .records
            .get_or_init(|| Arc::new(Records::start(&self.parameters.services.leader, RecordKind::Restore)));
        Arc::clone(records)
    }

    /// Method and result of each volume.
    pub fn infos(&self) -> Vec<RestoreVolumeInfo> {
        self.infos.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the plugins' processes.
    pub async fn close(&self) {
        self.opened_locations.close().await;
    }

    async fn restore_volume(&self, volume: &Value, new_name: &str) -> Result<Result<Value, String>, Error> {
        let name = text(volume, "/metadata/name");
        let Some(snapshot) = self.snapshots.get(name) else {
            return Ok(Err("its snapshot failed, or is not in the backup's list".to_owned()));
        };
        let (spec, id) = (&snapshot.spec, snapshot.status.provider_snapshot_id.as_str());
        let snapshotter = match self.opened_locations.by_name(&spec.location).await? {
            Ok(snapshotter) => snapshotter,
            Err(why) => return Ok(Err(format!("snapshot {id} cannot be restored: {why}"))),
        };
        self.parameters.job.task.start();
        self.parameters.job.task.expect_duration(EXPECTED_DURATION);
        let task = self.parameters.job.task.planned(new_name);
        task.start();
        let subject =
            SnapshotProgressQuery { snapshot: id.to_owned(), restoring: true, ..SnapshotProgressQuery::default() };
        let record_subject = self.record_subject(new_name, snapshot);
        let mut live = PluginOperation::new(self.records(), record_subject, Arc::clone(&snapshotter), subject, task);
        live.begin().await?;
        let answer = match self.made_earlier(name, id).await? {
            Some(made) => Ok(made),
            None => self.create_volume_from_snapshot(snapshot, &mut live).await?,
        };
        let made = match answer {
            Ok(made) => snapshotter.set_volume_id(volume, &made).await.map_err(|error| error.to_string()),
            Err(why) => Err(why),
        };
        if let Err(why) = &made {
            live.end(&Err(why.clone())).await?;
        }
        let made = match made {
            Ok(object) => self.track_operation(live, new_name, id).await?.map(|()| object),
            Err(why) => Err(why),
        };
        if made.is_ok() {
            let info = info(snapshot, new_name, volume);
            self.infos.lock().unwrap_or_else(PoisonError::into_inner).push(info);
        }
        Ok(made)
    }

    fn record_subject(&self, name: &str, snapshot: &VolumeSnapshot) -> RecordSubject {
        let parameters = &self.parameters;
        RecordSubject {
            parent: parameters.job.name.clone(),
            parent_uid: parameters.job.uid.clone(),
            owner: parameters.job.owner.clone(),
            since: parameters.created,
            backup: parameters.backup.clone(),
            volume: name.to_owned(),
            location: snapshot.spec.location.clone(),
            snapshot: snapshot.status.provider_snapshot_id.clone(),
        }
    }

    /// The volume that an earlier server created for this restore. A volume that may exist without a known name is reported.
    async fn made_earlier(&self, volume: &str, snapshot: &str) -> Result<Option<String>, Error> {
        let known = self.earlier().take_named(volume);
        let open = self.earlier().take_open(volume);
        for request in open {
            self.report_orphan("a server that died had", volume, snapshot);
            self.parameters.journal.record_result(request.intent, "possible orphan".to_owned()).await?;
        }
        Ok(known.and_then(|request| request.name))
    }

    fn report_orphan(&self, requester: &str, volume: &str, snapshot: &str) {
        let line = format!(
            "{requester} asked for a volume from snapshot {snapshot} of {volume}, and its name is not known: it may exist and \
             have no owner"
        );
        self.parameters.plugin_log.line(Level::Warning, line);
    }

    /// Calls the plugin. The call is never repeated: its result is in the journal before anything relies on it.
    async fn create_volume_from_snapshot(
        &self,
        snapshot: &VolumeSnapshot,
        live: &mut PluginOperation,
    ) -> Result<Result<String, String>, Error> {
        let (parameters, spec) = (&self.parameters, &snapshot.spec);
        parameters.services.leader.fence.check()?;
        let effect = Effect::Volume {
            location: spec.location.clone(),
            volume: spec.persistent_volume_name.clone(),
            snapshot: snapshot.status.provider_snapshot_id.clone(),
        };
        let intent = parameters.journal.record_intent(effect).await?;
        kill::point("snapshot.restore.before");
        let facts = VolumeInfo { volume_type: spec.volume_type.clone(), iops: spec.volume_iops };
        let snapshotter = Arc::clone(&live.snapshotter);
        let id = &snapshot.status.provider_snapshot_id;
        let answer = tokio::select! {
            biased;
            answer = snapshotter.create_volume_from_snapshot(id, &facts, &spec.volume_az, parameters.limit) => answer,
            never = live.follow() => match never {},
        };
        kill::point("snapshot.restore.after");
        if answer.as_ref().is_err_and(plimsoll_plugin::Error::outcome_unknown) {
            self.report_orphan("a plugin that could not answer was", &spec.persistent_volume_name, id);
        }
        let result = answer.as_ref().map_or_else(|error| format!("failed: {error}"), |id| named(id));
        parameters.journal.record_result(intent, result).await?;
        kill::point("snapshot.restored.after");
        Ok(answer.map_err(|error| error.to_string()))
    }

    /// Polls the volume once. If the plugin still works on it, it is waited for with the other operations.
    async fn track_operation(
        &self,
        mut live: PluginOperation,
        name: &str,
        snapshot: &str,
    ) -> Result<Result<(), String>, Error> {
        match live.poll().await {
            PluginState::InProgress(_) | PluginState::Silent(_) => {
                let plugin = live.snapshotter.name().to_owned();
                let item = ItemId::new("persistentvolumes", None, name);
                self.parameters.operations.track_existing(
                    &plugin,
                    item,
                    snapshot,
                    Arc::new(PendingSnapshot::new(live)),
                );
                Ok(Ok(()))
            }
            PluginState::Unknown => live.end(&Ok(())).await.map(Ok),
            PluginState::Ended(how) => live.end(&how).await.map(|()| how),
        }
    }
}

fn info(snapshot: &VolumeSnapshot, name: &str, volume: &Value) -> RestoreVolumeInfo {
    RestoreVolumeInfo {
        pvc_name: text(volume, "/spec/claimRef/name").to_owned(),
        pvc_namespace: text(volume, "/spec/claimRef/namespace").to_owned(),
        pv_name: name.to_owned(),
        restore_method: "NativeSnapshot".into(),
        native_snapshot_info: Some(NativeSnapshotInfo {
            phase: "Completed".into(),
            ..NativeSnapshotInfo::from(snapshot)
        }),
        ..RestoreVolumeInfo::default()
    }
}

impl SnapshotRestorer for SnapshotRestore {
    fn create_volume<'a>(
        &'a self,
        volume: &'a Value,
        name: &'a str,
        task: &'a Task,
    ) -> BoxFuture<'a, Result<Result<Value, String>, Error>> {
        Box::pin(async move {
            let _waiting = task.wait_in_queue(format!("waiting for the volume snapshotter to create volume {name}"));
            self.restore_volume(volume, name).await
        })
    }
}
