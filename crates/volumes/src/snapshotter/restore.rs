//! Volumes that plugins make from the snapshots of a backup.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use plimsoll_archive::volume_info::{NativeSnapshotInfo, RestoreVolumeInfo, SnapshotInfo, VolumeNames, VolumeSnapshot};
use plimsoll_engine::log::Level;
use plimsoll_engine::ports::{Effect, SnapshotRestorer};
use plimsoll_engine::{Error, PluginLogSink, kill};
use plimsoll_plugin::{SnapshotProgressQuery, VolumeInfo};
use plimsoll_progress::Task;
use serde_json::Value;

use super::context::{SnapshotContext, SnapshotJob};
use super::pending::PendingSnapshot;
use super::plugin_operation::PluginOperation;
use super::records::{RecordKind, text};

/// Parameters of the restore of snapshots.
pub struct SnapshotRestoreParameters {
    /// The Restore.
    pub job: SnapshotJob,
    /// The snapshots of the backup.
    pub snapshots: Vec<VolumeSnapshot>,
    /// Log of the operation.
    pub plugin_log: Arc<PluginLogSink>,
}

/// Creates volumes from snapshots.
pub struct SnapshotRestore {
    context: Arc<SnapshotContext>,
    snapshots: HashMap<String, VolumeSnapshot>,
    plugin_log: Arc<PluginLogSink>,
    infos: Mutex<Vec<RestoreVolumeInfo>>,
}

impl SnapshotRestore {
    /// Restores the volumes of one restore.
    pub fn new(parameters: SnapshotRestoreParameters) -> Self {
        let usable = |snapshot: &VolumeSnapshot| !snapshot.status.provider_snapshot_id.is_empty();
        let snapshots = parameters.snapshots.into_iter().filter(usable);
        Self {
            context: Arc::new(SnapshotContext::new(parameters.job, RecordKind::Restore)),
            snapshots: snapshots.map(|one| (one.spec.persistent_volume_name.clone(), one)).collect(),
            plugin_log: parameters.plugin_log,
            infos: Mutex::default(),
        }
    }

    /// What its snapshots share.
    pub fn context(&self) -> &Arc<SnapshotContext> {
        &self.context
    }

    /// Method and result of each volume.
    pub fn infos(&self) -> Vec<RestoreVolumeInfo> {
        self.infos.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn restore_volume(&self, volume: &Value, new_name: &str) -> Result<Result<Value, String>, Error> {
        let name = text(volume, "/metadata/name");
        let Some(snapshot) = self.snapshots.get(name) else {
            return Ok(Err("its snapshot failed, or is not in the backup's list".to_owned()));
        };
        let (spec, id) = (&snapshot.spec, snapshot.status.provider_snapshot_id.as_str());
        let snapshotter = match self.context.locations.by_name(&spec.location).await? {
            Ok(snapshotter) => snapshotter,
            Err(why) => return Ok(Err(format!("snapshot {id} cannot be restored: {why}"))),
        };
        let task = self.context.start_task(new_name);
        let subject =
            SnapshotProgressQuery { snapshot: id.to_owned(), restoring: true, ..SnapshotProgressQuery::default() };
        let record_subject = self.context.record_subject(new_name, &spec.location, id);
        let mut live =
            PluginOperation::new(self.context.records(), record_subject, Arc::clone(&snapshotter), subject, task);
        live.begin().await?;
        let answer = match self.find_created_volume(name, id).await? {
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

    /// The volume that an earlier server created for this restore. A volume that may exist without a known name is reported.
    async fn find_created_volume(&self, volume: &str, snapshot: &str) -> Result<Option<String>, Error> {
        let known = self.context.earlier().take_named(volume);
        let open = self.context.earlier().take_open(volume);
        for request in open {
            self.report_orphan("a server that died had", volume, snapshot);
            self.context.job.journal.record_result(request.intent, "possible orphan".to_owned()).await?;
        }
        Ok(known.and_then(|request| request.name))
    }

    fn report_orphan(&self, requester: &str, volume: &str, snapshot: &str) {
        let line = format!(
            "{requester} asked for a volume from snapshot {snapshot} of {volume}, and its name is not known: it may exist and \
             have no owner"
        );
        self.plugin_log.line(Level::Warning, line);
    }

    /// Calls the plugin. The call is never repeated: its result is in the journal before anything relies on it.
    async fn create_volume_from_snapshot(
        &self,
        snapshot: &VolumeSnapshot,
        live: &mut PluginOperation,
    ) -> Result<Result<String, String>, Error> {
        let (job, spec) = (&self.context.job, &snapshot.spec);
        job.services.leader.fence.check()?;
        let effect = Effect::Volume {
            location: spec.location.clone(),
            volume: spec.persistent_volume_name.clone(),
            snapshot: snapshot.status.provider_snapshot_id.clone(),
        };
        let intent = job.journal.record_intent(effect).await?;
        kill::point("snapshot.restore.before");
        let facts = VolumeInfo { volume_type: spec.volume_type.clone(), iops: spec.volume_iops };
        let snapshotter = Arc::clone(&live.snapshotter);
        let id = &snapshot.status.provider_snapshot_id;
        let answer = tokio::select! {
            biased;
            answer = snapshotter.create_volume_from_snapshot(id, &facts, &spec.volume_az, job.limit) => answer,
            never = live.follow() => match never {},
        };
        kill::point("snapshot.restore.after");
        if answer.as_ref().is_err_and(plimsoll_plugin::Error::outcome_unknown) {
            self.report_orphan("a plugin that could not answer was", &spec.persistent_volume_name, id);
        }
        let answer = self.context.record_answer(intent, answer).await?;
        kill::point("snapshot.restored.after");
        Ok(answer)
    }

    /// Polls the volume once. If the plugin still works on it, it is waited for with the other operations.
    async fn track_operation(
        &self,
        mut live: PluginOperation,
        name: &str,
        snapshot: &str,
    ) -> Result<Result<(), String>, Error> {
        let ended = live.end_if_ended().await?;
        if ended.is_none() {
            let plugin = live.snapshotter.name().to_owned();
            self.context.track(&plugin, name, snapshot, Arc::new(PendingSnapshot::new(live)));
        }
        Ok(ended.unwrap_or(Ok(())))
    }
}

fn info(snapshot: &VolumeSnapshot, name: &str, volume: &Value) -> RestoreVolumeInfo {
    RestoreVolumeInfo {
        volume: VolumeNames {
            pvc_name: text(volume, "/spec/claimRef/name").to_owned(),
            pvc_namespace: text(volume, "/spec/claimRef/namespace").to_owned(),
            pv_name: name.to_owned(),
        },
        restore_method: "NativeSnapshot".into(),
        snapshot: SnapshotInfo {
            native_snapshot_info: Some(NativeSnapshotInfo {
                phase: "Completed".into(),
                ..NativeSnapshotInfo::from(snapshot)
            }),
            ..SnapshotInfo::default()
        },
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
            let _waiting =
                task.wait_quietly(format!("waiting for the volume snapshotter to create volume {name}"), None);
            self.restore_volume(volume, name).await
        })
    }
}
