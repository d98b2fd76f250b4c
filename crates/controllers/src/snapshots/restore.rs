//! Volumes that plugins make from the snapshots of a backup.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use plimsoll_archive::volumes::{NativeSnapshotInfo, RestoreVolumeInfo, VolumeSnapshot};
use plimsoll_engine::backup::actions::ItemId;
use plimsoll_engine::log::Level;
use plimsoll_engine::operations::Operations;
use plimsoll_engine::ports::{Effect, Journal, SnapshotVolumes};
use plimsoll_engine::{Error, Heard, kill};
use plimsoll_operations::JournalEntry;
use plimsoll_plugin::{LogSink, Subject, VolumeFacts};
use plimsoll_progress::Task;
use serde_json::Value;

use super::earlier::{Earlier, named};
use super::live::{About, Live, Seen};
use super::moving::Moving;
use super::places::Places;
use super::records::{Records, Sort, text};
use crate::context::Context;

/// About how long they take: the weight of the stage once there are any.
const EXPECTED: Duration = Duration::from_mins(1);

/// What a restore wants of snapshots.
pub(crate) struct Making {
    pub context: Arc<Context>,
    pub name: String,
    pub uid: String,
    pub owner: OwnerReference,
    pub created: Timestamp,
    /// The backup they belong to.
    pub backup: String,
    pub snapshots: Vec<VolumeSnapshot>,
    pub journal: Arc<dyn Journal>,
    pub known: Vec<JournalEntry>,
    pub operations: Arc<Operations>,
    pub heard: Arc<Heard>,
    pub logs: Arc<dyn LogSink>,
    /// How long one may take.
    pub limit: Duration,
    /// The stage that they are shown in.
    pub task: Task,
}

/// Makes them.
pub(crate) struct FromSnapshots {
    making: Making,
    snapshots: HashMap<String, VolumeSnapshot>,
    places: Places,
    records: OnceLock<Arc<Records>>,
    earlier: Mutex<Earlier>,
    infos: Mutex<Vec<RestoreVolumeInfo>>,
}

impl FromSnapshots {
    pub fn new(mut making: Making) -> Self {
        let usable = |snapshot: &VolumeSnapshot| !snapshot.status.provider_snapshot_id.is_empty();
        let snapshots = std::mem::take(&mut making.snapshots).into_iter().filter(usable);
        Self {
            snapshots: snapshots.map(|one| (one.spec.persistent_volume_name.clone(), one)).collect(),
            places: Places::new(&making.context, Arc::clone(&making.logs)),
            earlier: Mutex::new(Earlier::of(&making.known)),
            records: OnceLock::new(),
            infos: Mutex::default(),
            making,
        }
    }

    fn earlier(&self) -> MutexGuard<'_, Earlier> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn records(&self) -> Arc<Records> {
        let records = self.records.get_or_init(|| Arc::new(Records::start(&self.making.context, Sort::Restore)));
        Arc::clone(records)
    }

    /// How each volume was made.
    pub fn infos(&self) -> Vec<RestoreVolumeInfo> {
        self.infos.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the plugins' processes.
    pub async fn close(&self) {
        self.places.close().await;
    }

    async fn make_one(&self, volume: &Value, called: &str) -> Result<Result<Value, String>, Error> {
        let name = text(volume, "/metadata/name");
        let Some(snapshot) = self.snapshots.get(name) else {
            return Ok(Err("its snapshot failed, or is not in the backup's list".to_owned()));
        };
        let (spec, id) = (&snapshot.spec, snapshot.status.provider_snapshot_id.as_str());
        let snapshotter = match self.places.by_name(&spec.location).await? {
            Ok(snapshotter) => snapshotter,
            Err(why) => return Ok(Err(format!("snapshot {id} cannot be restored: {why}"))),
        };
        self.making.task.start();
        self.making.task.expect_duration(EXPECTED);
        let task = self.making.task.planned(called);
        task.start();
        let subject = Subject { snapshot: id.to_owned(), restoring: true, ..Subject::default() };
        let about = self.about(called, snapshot);
        let mut live = Live::new(self.records(), about, Arc::clone(&snapshotter), subject, task);
        live.begin().await?;
        let answer = match self.made_earlier(name, id).await? {
            Some(made) => Ok(made),
            None => self.ask(snapshot, &mut live).await?,
        };
        let made = match answer {
            Ok(made) => snapshotter.with_volume_id(volume, &made).await.map_err(|error| error.to_string()),
            Err(why) => Err(why),
        };
        if let Err(why) = &made {
            live.end(&Err(why.clone())).await?;
        }
        let made = match made {
            Ok(object) => self.look_after(live, called, id).await?.map(|()| object),
            Err(why) => Err(why),
        };
        if made.is_ok() {
            let info = info(snapshot, called, volume);
            self.infos.lock().unwrap_or_else(PoisonError::into_inner).push(info);
        }
        Ok(made)
    }

    fn about(&self, called: &str, snapshot: &VolumeSnapshot) -> About {
        let making = &self.making;
        About {
            parent: making.name.clone(),
            parent_uid: making.uid.clone(),
            owner: making.owner.clone(),
            since: making.created,
            backup: making.backup.clone(),
            volume: called.to_owned(),
            location: snapshot.spec.location.clone(),
            snapshot: snapshot.status.provider_snapshot_id.clone(),
        }
    }

    /// A volume that a server which died had made for this restore. What may be there all the same is named.
    async fn made_earlier(&self, volume: &str, snapshot: &str) -> Result<Option<String>, Error> {
        let known = self.earlier().take_named(volume);
        let open = self.earlier().take_open(volume);
        for asked in open {
            self.name_orphan("a server that died had", volume, snapshot);
            self.making.journal.settle(asked.intent, "possible orphan".to_owned()).await?;
        }
        Ok(known.and_then(|asked| asked.name))
    }

    fn name_orphan(&self, whoever: &str, volume: &str, snapshot: &str) {
        let line = format!(
            "{whoever} asked for a volume from snapshot {snapshot} of {volume}, and its name is not known: it may exist and \
             belong to nobody"
        );
        self.making.heard.line(Level::Warning, line);
    }

    /// The call itself. It is never made twice: what came of it is in the journal before anything relies on it.
    async fn ask(&self, snapshot: &VolumeSnapshot, live: &mut Live) -> Result<Result<String, String>, Error> {
        let (making, spec) = (&self.making, &snapshot.spec);
        making.context.leader.fence.check()?;
        let effect = Effect::Volume {
            location: spec.location.clone(),
            volume: spec.persistent_volume_name.clone(),
            snapshot: snapshot.status.provider_snapshot_id.clone(),
        };
        let intent = making.journal.intend(effect).await?;
        kill::point("snapshot.restore.before");
        let facts = VolumeFacts { volume_type: spec.volume_type.clone(), iops: spec.volume_iops };
        let snapshotter = Arc::clone(&live.snapshotter);
        let id = &snapshot.status.provider_snapshot_id;
        let answer = tokio::select! {
            biased;
            answer = snapshotter.volume(id, &facts, &spec.volume_az, making.limit) => answer,
            never = live.follow() => match never {},
        };
        kill::point("snapshot.restore.after");
        if answer.as_ref().is_err_and(plimsoll_plugin::Error::leaves_doubt) {
            self.name_orphan("a plugin that could not answer was", &spec.persistent_volume_name, id);
        }
        let result = answer.as_ref().map_or_else(|error| format!("failed: {error}"), |id| named(id));
        making.journal.settle(intent, result).await?;
        kill::point("snapshot.restored.after");
        Ok(answer.map_err(|error| error.to_string()))
    }

    /// Sees whether the plugin still works on the volume; then it is waited for with the other operations.
    async fn look_after(&self, mut live: Live, called: &str, snapshot: &str) -> Result<Result<(), String>, Error> {
        match live.look().await {
            Seen::Moving(_) | Seen::Silent(_) => {
                let plugin = live.snapshotter.name().to_owned();
                let item = ItemId::new("persistentvolumes", None, called);
                self.making.operations.take_along(&plugin, item, snapshot, Arc::new(Moving::new(live)));
                Ok(Ok(()))
            }
            Seen::Unknown => live.end(&Ok(())).await.map(Ok),
            Seen::Ended(how) => live.end(&how).await.map(|()| how),
        }
    }
}

fn info(snapshot: &VolumeSnapshot, called: &str, volume: &Value) -> RestoreVolumeInfo {
    let (spec, status) = (&snapshot.spec, &snapshot.status);
    RestoreVolumeInfo {
        pvc_name: text(volume, "/spec/claimRef/name").to_owned(),
        pvc_namespace: text(volume, "/spec/claimRef/namespace").to_owned(),
        pv_name: called.to_owned(),
        restore_method: "NativeSnapshot".into(),
        native_snapshot_info: Some(NativeSnapshotInfo {
            snapshot_handle: status.provider_snapshot_id.clone(),
            volume_type: spec.volume_type.clone(),
            volume_az: spec.volume_az.clone(),
            iops: spec.volume_iops.map(|iops| iops.to_string()).unwrap_or_default(),
            phase: "Completed".into(),
        }),
        ..RestoreVolumeInfo::default()
    }
}

impl SnapshotVolumes for FromSnapshots {
    fn make<'a>(
        &'a self,
        volume: &'a Value,
        called: &'a str,
        task: &'a Task,
    ) -> BoxFuture<'a, Result<Result<Value, String>, Error>> {
        Box::pin(async move {
            let _waiting = task.wait_patiently(format!("waiting for the plugin that makes volume {called}"));
            self.make_one(volume, called).await
        })
    }
}
