//! Snapshots of a backup with volume snapshotters.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use plimsoll_archive::volume_info::{
    BackupVolumeInfo, NativeSnapshotInfo, VolumeSnapshot, VolumeSnapshotSpec, VolumeSnapshotStatus,
};
use plimsoll_engine::backup::actions::ItemId;
use plimsoll_engine::cluster::{ItemMeta, collection_path};
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::item_operations::ItemOperations;
use plimsoll_engine::ports::{Effect, Journal, JournalEntry, VolumeBackupResults, VolumeBackupper};
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_plugin::{Error as PluginError, LogSink, SnapshotProgressQuery, VolumeSnapshotterClient};
use plimsoll_progress::Task;
use plimsoll_select::resource_policies::{ResourcePolicies, VolumeActionType, VolumeProperties};
use serde_json::Value;

use super::SnapshotServices;
use super::earlier::{EarlierRequest, EarlierRequests, named};
use super::locations::{ChosenLocations, SnapshotLocations, plugin_error};
use super::pending::PendingSnapshot;
use super::record_sync::{PluginOperation, PluginState, RecordSubject};
use super::records::{RecordKind, Records, is_kept, text};
use super::zone;
use crate::csi::CsiBackup;
use crate::fs_backup::{ClaimInfo, FsBackup, claims_of, skipped};
use crate::volume_job::VolumeJob;

/// So many snapshots are asked for at a time.
const MAX_CONCURRENT_SNAPSHOTS: usize = 4;
/// About how long they take: the weight of the stage once there are any.
const EXPECTED_DURATION: Duration = Duration::from_mins(1);

/// Parameters of the snapshots of a backup.
pub struct SnapshotBackupParameters {
    /// Services of the server.
    pub services: Arc<SnapshotServices>,
    /// The Backup.
    pub job: VolumeJob,
    /// When it was created.
    pub created: Timestamp,
    /// The Backup's own labels: tags of its snapshots.
    pub labels: BTreeMap<String, String>,
    /// `snapshotVolumes`.
    pub wanted: Option<bool>,
    /// Its volume policies.
    pub policies: Option<ResourcePolicies>,
    /// The snapshot locations it uses.
    pub locations: ChosenLocations,
    /// The Backup's filters.
    pub item_filter: Arc<ItemFilter>,
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

/// Takes snapshots with volume snapshotters.
pub struct SnapshotBackup {
    parameters: SnapshotBackupParameters,
    opened_locations: SnapshotLocations,
    records: OnceLock<Arc<Records>>,
    earlier: Mutex<EarlierRequests>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// PersistentVolumes of the backup.
    volumes: Vec<Value>,
    /// Processed volumes.
    met: HashSet<String>,
    /// Locations that were complained about.
    refused: HashSet<String>,
    taken: Vec<Taken>,
    infos: Vec<BackupVolumeInfo>,
    errors: Vec<(String, String)>,
    warnings: Vec<(String, String)>,
}

/// A snapshot that was asked for.
#[derive(Clone)]
struct Taken {
    snapshot: VolumeSnapshot,
    claim_info: ClaimInfo,
    started: Timestamp,
    moving: Arc<PendingSnapshot>,
}

/// The decision about a volume.
#[derive(Debug, PartialEq, Eq)]
enum SnapshotChoice {
    /// A snapshot; whether it was asked for explicitly.
    Take { asked: bool },
    /// Nothing.
    Leave,
    /// Nothing, because a policy says so.
    Skip,
}

fn snapshot_choice(wanted: Option<bool>, policy: Option<VolumeActionType>) -> SnapshotChoice {
    match (policy, wanted) {
        (Some(VolumeActionType::Skip), _) => SnapshotChoice::Skip,
        (Some(VolumeActionType::FsBackup | VolumeActionType::Custom), _) | (None, Some(false)) => SnapshotChoice::Leave,
        (Some(VolumeActionType::Snapshot), _) | (None, Some(true)) => SnapshotChoice::Take { asked: true },
        (None, None) => SnapshotChoice::Take { asked: false },
    }
}

/// A volume that a plugin knows.
struct Candidate {
    snapshotter: Arc<VolumeSnapshotterClient>,
    location: String,
    handle: String,
}

impl SnapshotBackup {
    /// Takes the snapshots of one backup.
    pub fn new(parameters: SnapshotBackupParameters) -> Self {
        Self {
            opened_locations: SnapshotLocations::new(&parameters.services, Arc::clone(&parameters.logs)),
            earlier: Mutex::new(EarlierRequests::of(&parameters.known)),
            records: OnceLock::new(),
            state: Mutex::default(),
            parameters,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn earlier(&self) -> MutexGuard<'_, EarlierRequests> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn records(&self) -> Arc<Records> {
        let records =
            self.records.get_or_init(|| Arc::new(Records::start(&self.parameters.services.leader, RecordKind::Backup)));
        Arc::clone(records)
    }

    fn error(&self, namespace: &str, line: String) {
        self.state().errors.push((namespace.to_owned(), line));
    }

    fn warn(&self, namespace: &str, line: String) {
        self.state().warnings.push((namespace.to_owned(), line));
    }

    /// Whether no snapshot can be taken.
    fn is_idle(&self) -> bool {
        let by_policy = self.parameters.policies.as_ref().is_some_and(ResourcePolicies::has_volume_policies);
        self.parameters.locations.0.is_empty() && self.parameters.wanted != Some(true) && !by_policy
    }

    async fn read(&self, plural: &str, namespace: Option<&str>, name: &str) -> Result<Option<Value>, Error> {
        let path = format!("{}/{name}", collection_path("v1", plural, namespace));
        let get = || self.parameters.services.leader.cluster.get(&path);
        let found = RetryPolicy::default().run(&self.parameters.job.task, get).await?;
        Ok(found.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Takes snapshots of the volumes of a frozen pod, except those with file-system backup.
    async fn back_up_pod(&self, pod: &Value, is_backed_up: impl Fn(&str) -> bool) -> Result<(), Error> {
        if self.is_idle() {
            return Ok(());
        }
        let namespace = text(pod, "/metadata/namespace");
        for name in claims_of(pod) {
            if is_backed_up(&format!("{namespace}/{name}")) {
                continue;
            }
            let Some(claim) = self.read("persistentvolumeclaims", Some(namespace), &name).await? else { continue };
            let Some(volume) = self.read("persistentvolumes", None, text(&claim, "/spec/volumeName")).await? else {
                continue;
            };
            if self.is_in_backup(&claim, &volume) {
                self.back_up_volume(&volume, Some(&claim)).await?;
            }
        }
        Ok(())
    }

    /// Whether a claim, and through it its volume, is a part of the backup.
    fn is_in_backup(&self, claim: &Value, volume: &Value) -> bool {
        let adds = |resource: &str, object: &Value| {
            let meta: Result<ItemMeta, _> = ItemMeta::of(object.to_string().as_bytes());
            meta.is_ok_and(|meta| self.parameters.item_filter.includes_additional_item(resource, &meta))
        };
        adds("persistentvolumeclaims", claim) && adds("persistentvolumes", volume)
    }

    /// Takes snapshots of all volumes of the backup that are not handled otherwise.
    async fn back_up_remaining(&self, is_backed_up: impl Fn(&str) -> bool) -> Result<(), Error> {
        let volumes = std::mem::take(&mut self.state().volumes);
        if !self.is_idle() {
            let left = volumes.into_iter().filter(|volume| {
                let claim = ["/spec/claimRef/namespace", "/spec/claimRef/name"].map(|place| text(volume, place));
                !is_backed_up(&claim.join("/"))
            });
            let takes: Vec<_> = left.map(|volume| async move { self.take_claimed(&volume).await }).collect();
            stream::iter(takes).buffer_unordered(MAX_CONCURRENT_SNAPSHOTS).try_collect::<()>().await?;
        }
        self.delete_orphans().await
    }

    async fn take_claimed(&self, volume: &Value) -> Result<(), Error> {
        let (namespace, name) = (text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"));
        let claim = match name {
            "" => None,
            name => self.read("persistentvolumeclaims", Some(namespace), name).await?,
        };
        self.back_up_volume(volume, claim.as_ref()).await
    }

    /// Takes a snapshot of one volume, if it is requested and a volume snapshotter supports it.
    async fn back_up_volume(&self, volume: &Value, claim: Option<&Value>) -> Result<(), Error> {
        let name = text(volume, "/metadata/name").to_owned();
        if !self.state().met.insert(name.clone()) {
            return Ok(());
        }
        let claim_info = ClaimInfo::of_volume(volume);
        let policies = self.parameters.policies.as_ref().filter(|policies| policies.has_volume_policies());
        let policy =
            policies.and_then(|policies| policies.action(&VolumeProperties::of_persistent_volume(volume, claim)));
        let asked = match snapshot_choice(self.parameters.wanted, policy.map(|action| action.kind)) {
            SnapshotChoice::Take { asked } => asked,
            SnapshotChoice::Leave => return Ok(()),
            SnapshotChoice::Skip => {
                self.state().infos.push(skipped(&claim_info, "skipped due to policy"));
                return Ok(());
            }
        };
        let Some(known) = self.find_plugin(volume, asked).await? else {
            if asked {
                let line = format!("no snapshot of volume {name}: no plugin of a VolumeSnapshotLocation supports it");
                self.warn(&claim_info.namespace, line);
            }
            return Ok(());
        };
        match self.snapshot(&name, volume, &known, &claim_info).await {
            Ok(()) => Ok(()),
            Err(error @ Error::Plugin { .. }) => {
                self.error(&claim_info.namespace, format!("snapshot of volume {name}: {error}"));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The first location whose plugin says that the volume is one of its kind.
    async fn find_plugin(&self, volume: &Value, asked: bool) -> Result<Option<Candidate>, Error> {
        for location in &self.parameters.locations.0 {
            let name = location.metadata.name.clone().unwrap_or_default();
            let found = async {
                let snapshotter = self.opened_locations.snapshotter(location).await?;
                let handle = snapshotter.volume_id(volume).await.map_err(|error| plugin_error(&error))?;
                Ok::<_, Error>((snapshotter, handle))
            };
            match found.await {
                Ok((snapshotter, Some(handle))) => return Ok(Some(Candidate { snapshotter, location: name, handle })),
                Ok((_, None)) => {}
                Err(error @ Error::Fenced(_)) => return Err(error),
                Err(error) => self.complain(&name, &error, asked),
            }
        }
        Ok(None)
    }

    /// A location that cannot be used is named once. Where snapshots were not asked for explicitly that is no error.
    fn complain(&self, location: &str, error: &Error, asked: bool) {
        if !self.state().refused.insert(location.to_owned()) {
            return;
        }
        let line = format!("VolumeSnapshotLocation {location} cannot be used: {error}");
        let absent = matches!(error, Error::Plugin { reason: "PluginNotFound", .. });
        if absent && !asked {
            self.warn("", line);
        } else {
            self.error("", line);
        }
    }

    fn tags(&self, volume: &str) -> BTreeMap<String, String> {
        let mut tags = self.parameters.labels.clone();
        tags.insert("velero.io/backup".into(), self.parameters.job.name.clone());
        tags.insert("velero.io/pv".into(), volume.to_owned());
        tags
    }

    async fn snapshot(
        &self,
        name: &str,
        volume: &Value,
        known: &Candidate,
        claim_info: &ClaimInfo,
    ) -> Result<(), Error> {
        self.parameters.job.task.start();
        self.parameters.job.task.expect_duration(EXPECTED_DURATION);
        let task = self.parameters.job.task.planned(name);
        task.start();
        let (snapshotter, zone) = (&known.snapshotter, zone::of(volume));
        let facts = match snapshotter.volume_info(&known.handle, &zone).await {
            Ok(facts) => facts,
            Err(error) => {
                task.fail(error.to_string());
                return Err(plugin_error(&error));
            }
        };
        let tags = self.tags(name);
        let subject = SnapshotProgressQuery {
            volume: known.handle.clone(),
            tags: tags.clone(),
            ..SnapshotProgressQuery::default()
        };
        let mut live = PluginOperation::new(
            self.records(),
            self.record_subject(name, &known.location),
            Arc::clone(snapshotter),
            subject,
            task,
        );
        let effect = Effect::Snapshot {
            location: known.location.clone(),
            volume: name.to_owned(),
            handle: known.handle.clone(),
            volume_type: facts.volume_type,
            zone,
            iops: facts.iops,
        };
        let started = Timestamp::now();
        let earlier = self.taken_earlier(name, &claim_info.namespace).await?;
        live.begin().await?;
        let (effect, answer) = if let Some(asked) = earlier {
            (asked.effect, Ok(asked.name.unwrap_or_default()))
        } else {
            let answer = self.create_snapshot(&effect, &mut live, &claim_info.namespace).await?;
            (effect, answer)
        };
        self.record(effect, answer, live, claim_info, started).await
    }

    fn record_subject(&self, volume: &str, location: &str) -> RecordSubject {
        let parameters = &self.parameters;
        RecordSubject {
            parent: parameters.job.name.clone(),
            parent_uid: parameters.job.uid.clone(),
            owner: parameters.job.owner.clone(),
            since: parameters.created,
            backup: parameters.job.name.clone(),
            volume: volume.to_owned(),
            location: location.to_owned(),
            snapshot: String::new(),
        }
    }

    /// Calls the plugin. The call is never repeated: its result is in the journal before anything relies on it.
    async fn create_snapshot(
        &self,
        effect: &Effect,
        live: &mut PluginOperation,
        namespace: &str,
    ) -> Result<Result<String, String>, Error> {
        let Effect::Snapshot { volume, handle, zone, .. } = effect else { return Ok(Err(String::new())) };
        let parameters = &self.parameters;
        parameters.services.leader.fence.check()?;
        let intent = parameters.journal.record_intent(effect.clone()).await?;
        kill::point("snapshot.create.before");
        let (snapshotter, tags) = (Arc::clone(&live.snapshotter), self.tags(volume));
        let answer = tokio::select! {
            biased;
            answer = snapshotter.create_snapshot(handle, zone, &tags, parameters.limit) => answer,
            never = live.follow() => match never {},
        };
        kill::point("snapshot.create.after");
        let answer = match answer {
            Err(error) if error.outcome_unknown() => self.made_all_the_same(error, volume, namespace).await?,
            said => said,
        };
        let result = answer.as_ref().map_or_else(|error| format!("failed: {error}"), |id| named(id));
        parameters.journal.record_result(intent, result).await?;
        kill::point("snapshot.recorded.after");
        Ok(answer.map_err(|error| error.to_string()))
    }

    /// Writes down what came of a call, and sees whether the snapshot still moves.
    async fn record(
        &self,
        effect: Effect,
        answer: Result<String, String>,
        mut live: PluginOperation,
        claim_info: &ClaimInfo,
        started: Timestamp,
    ) -> Result<(), Error> {
        let mut snapshot = entry(&self.parameters, effect, &answer);
        let id = match answer {
            Ok(id) => id,
            Err(why) => {
                let name = &snapshot.spec.persistent_volume_name;
                self.error(&claim_info.namespace, format!("snapshot of volume {name}: {why}"));
                live.end(&Err(why)).await?;
                self.add_taken(snapshot, claim_info, started, live);
                return Ok(());
            }
        };
        live.named(&id).await?;
        let moves = match live.poll().await {
            PluginState::InProgress(_) | PluginState::Silent(_) => true,
            PluginState::Unknown => false,
            PluginState::Ended(how) => {
                if let Err(why) = &how {
                    let name = &snapshot.spec.persistent_volume_name;
                    self.error(&claim_info.namespace, format!("snapshot {id} of volume {name}: {why}"));
                    snapshot.status.phase = "Failed".into();
                }
                live.end(&how).await?;
                false
            }
        };
        if !moves {
            live.end(&Ok(())).await?;
        }
        let (plugin, name) = (live.snapshotter.name().to_owned(), snapshot.spec.persistent_volume_name.clone());
        let moving = self.add_taken(snapshot, claim_info, started, live);
        if moves {
            self.parameters.operations.track_existing(
                &plugin,
                ItemId::new("persistentvolumes", None, &name),
                &id,
                moving,
            );
        }
        Ok(())
    }

    fn add_taken(
        &self,
        snapshot: VolumeSnapshot,
        claim_info: &ClaimInfo,
        started: Timestamp,
        live: PluginOperation,
    ) -> Arc<PendingSnapshot> {
        let moving = Arc::new(PendingSnapshot::new(live));
        let taken = Taken { snapshot, claim_info: claim_info.clone(), started, moving: Arc::clone(&moving) };
        self.state().taken.push(taken);
        moving
    }

    /// A snapshot that a server which died has taken of this volume: the one it wrote down, or the one that the plugin's own
    /// record names. What may be there all the same is named.
    async fn taken_earlier(&self, volume: &str, namespace: &str) -> Result<Option<EarlierRequest>, Error> {
        let known = self.earlier().take_named(volume);
        let mut found = known;
        let open = self.earlier().take_open(volume);
        for asked in open {
            match self.find_snapshot(volume).await?.filter(|_| found.is_none()) {
                Some(id) => {
                    self.parameters.journal.record_result(asked.intent, named(&id)).await?;
                    found = Some(EarlierRequest { name: Some(id), ..asked });
                }
                None => self.name_orphan(&asked, volume, namespace).await?,
            }
        }
        Ok(found)
    }

    /// A snapshot of a plugin that could not say whether it has made it: the one that its own record names. What may be there
    /// all the same is named.
    async fn made_all_the_same(
        &self,
        error: PluginError,
        volume: &str,
        namespace: &str,
    ) -> Result<Result<String, PluginError>, Error> {
        Ok(if let Some(id) = self.find_snapshot(volume).await? {
            self.warn(
                namespace,
                format!("snapshot {id} of volume {volume} is there, by the plugin's own record: {error}"),
            );
            Ok(id)
        } else {
            self.warn(namespace, self.possible_orphan("a plugin that could not answer was", volume));
            Err(error)
        })
    }

    fn possible_orphan(&self, requester: &str, volume: &str) -> String {
        format!(
            "{requester} asked for a snapshot of volume {volume}, and its name is not known: it may exist, with the tags \
             velero.io/backup={} and velero.io/pv={volume}, and belong to no backup",
            self.parameters.job.name
        )
    }

    async fn find_snapshot(&self, volume: &str) -> Result<Option<String>, Error> {
        let records = self.records();
        let all = RetryPolicy::default().run(&self.parameters.job.task, || records.list()).await?;
        let meant = |record: &&Value| {
            let made = text(record, "/metadata/creationTimestamp").parse::<Timestamp>();
            !is_kept(record)
                && text(record, "/spec/backup") == self.parameters.job.name
                && text(record, "/spec/volume") == volume
                && made.is_ok_and(|made| made >= self.parameters.created)
        };
        let id = all.iter().find(meant).map(|record| text(record, "/status/snapshotID").to_owned());
        Ok(id.filter(|id| !id.is_empty()))
    }

    async fn name_orphan(&self, asked: &EarlierRequest, volume: &str, namespace: &str) -> Result<(), Error> {
        self.warn(namespace, self.possible_orphan("a server that died had", volume));
        self.parameters.journal.record_result(asked.intent, "possible orphan".to_owned()).await
    }

    /// Deletes snapshots of an earlier attempt whose volumes are no longer part of the backup.
    async fn delete_orphans(&self) -> Result<(), Error> {
        let (named, open) = self.earlier().rest();
        for asked in named {
            let Effect::Snapshot { location, volume, .. } = &asked.effect else { continue };
            let id = asked.name.clone().unwrap_or_default();
            let gone = match self.opened_locations.by_name(location).await? {
                Ok(snapshotter) => snapshotter.delete_snapshot(&id).await.map_err(|error| error.to_string()),
                Err(why) => Err(why),
            };
            if let Err(why) = gone {
                let line =
                    format!("snapshot {id} of volume {volume} belongs to no backup and cannot be deleted: {why}");
                self.warn("", line);
            }
            self.parameters.journal.record_result(asked.intent, "not needed".to_owned()).await?;
        }
        for asked in open {
            let Effect::Snapshot { volume, .. } = &asked.effect else { continue };
            self.name_orphan(&asked, volume, "").await?;
        }
        Ok(())
    }

    /// The results so far.
    async fn results(&self, into: &mut VolumeBackupResults) -> Result<(), Error> {
        let taken = self.state().taken.clone();
        for one in &taken {
            into.volume_plugin_backups.extend(one.moving.live.lock().await.current().await?);
            into.infos.push(info(one));
            into.snapshots.push(one.snapshot.clone());
        }
        let mut state = self.state();
        into.infos.append(&mut state.infos);
        into.errors.append(&mut state.errors);
        into.warnings.append(&mut state.warnings);
        Ok(())
    }

    /// The results after all operations have ended.
    pub async fn final_results(&self, before: &VolumeBackupResults) -> Result<VolumeBackupResults, Error> {
        let mut after = VolumeBackupResults { infos: before.infos.clone(), ..VolumeBackupResults::default() };
        let taken = self.state().taken.clone();
        for mut one in taken {
            let mut live = one.moving.live.lock().await;
            // Its follower may have given up on it.
            live.abandon("it is no longer waited for").await?;
            let record = live.current().await?;
            drop(live);
            if record.as_ref().is_some_and(super::records::has_failed) {
                one.snapshot.status.phase = "Failed".into();
            }
            let name = one.snapshot.spec.persistent_volume_name.clone();
            if let Some(known) = after.infos.iter_mut().find(|known| known.pv_name == name) {
                *known = info(&one);
            }
            after.snapshots.push(one.snapshot);
            after.volume_plugin_backups.extend(record);
        }
        Ok(after)
    }

    /// Ends the plugins' processes.
    pub async fn close(&self) {
        self.opened_locations.close().await;
    }
}

fn entry(parameters: &SnapshotBackupParameters, effect: Effect, answer: &Result<String, String>) -> VolumeSnapshot {
    let Effect::Snapshot { location, volume, handle, volume_type, zone, iops } = effect else {
        return VolumeSnapshot::default();
    };
    VolumeSnapshot {
        spec: VolumeSnapshotSpec {
            backup_name: parameters.job.name.clone(),
            backup_uid: parameters.job.uid.clone(),
            location,
            persistent_volume_name: volume,
            provider_volume_id: handle,
            volume_type,
            volume_az: zone,
            volume_iops: iops,
        },
        status: VolumeSnapshotStatus {
            provider_snapshot_id: answer.clone().unwrap_or_default(),
            phase: if answer.is_ok() { "Completed" } else { "Failed" }.into(),
        },
    }
}

fn info(taken: &Taken) -> BackupVolumeInfo {
    let VolumeSnapshot { spec, status } = &taken.snapshot;
    let claim_info = &taken.claim_info;
    let good = status.phase == "Completed";
    BackupVolumeInfo {
        pvc_name: claim_info.claim.clone(),
        pvc_namespace: claim_info.namespace.clone(),
        pv_name: spec.persistent_volume_name.clone(),
        backup_method: "NativeSnapshot".into(),
        start_timestamp: Some(format!("{:.0}", taken.started)),
        completion_timestamp: Some(format!("{:.0}", Timestamp::now())),
        result: if good { "succeeded" } else { "failed" }.into(),
        native_snapshot_info: Some(NativeSnapshotInfo {
            snapshot_handle: status.provider_snapshot_id.clone(),
            volume_type: spec.volume_type.clone(),
            volume_az: spec.volume_az.clone(),
            iops: spec.volume_iops.map(|iops| iops.to_string()).unwrap_or_default(),
            phase: status.phase.clone(),
        }),
        pv_info: claim_info.persistent.clone(),
        ..BackupVolumeInfo::default()
    }
}

/// Files of pods' volumes, and snapshots of the others.
pub struct CombinedVolumeBackup {
    /// Files of pods' volumes.
    pub pods: FsBackup,
    /// The snapshots of the backup.
    pub snapshots: Arc<SnapshotBackup>,
    /// Snapshots of CSI drivers.
    pub csi: Option<Arc<CsiBackup>>,
}

impl CombinedVolumeBackup {
    /// Whether the data of a claim is backed up by another method.
    fn is_backed_up(&self, claim: &str) -> bool {
        self.pods.includes_claim(claim) || self.csi.as_ref().is_some_and(|csi| csi.has(claim))
    }
}

impl VolumeBackupper for CombinedVolumeBackup {
    fn has_volumes(&self, pod: &Value) -> bool {
        self.pods.has_volumes(pod)
    }

    fn back_up<'a>(&'a self, pod: &'a Value, frozen: bool, task: &'a Task) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.pods.back_up(pod, frozen, task).await?;
            if frozen {
                // Before the post-hooks run.
                if let Some(csi) = &self.csi {
                    csi.back_up_pod(pod, |claim| self.pods.includes_claim(claim)).await?;
                }
                self.snapshots.back_up_pod(pod, |claim| self.is_backed_up(claim)).await?;
            }
            Ok(())
        })
    }

    fn all_pods_read(&self) {
        if let Some(csi) = &self.csi {
            csi.all_pods_read();
        }
    }

    fn add_persistent_volume(&self, volume: &Value) {
        self.snapshots.state().volumes.push(volume.clone());
    }

    fn finish(&self) -> BoxFuture<'_, Result<VolumeBackupResults, Error>> {
        Box::pin(async {
            self.snapshots.back_up_remaining(|claim| self.is_backed_up(claim)).await?;
            let mut results = self.pods.finish().await?;
            results.infos.extend(self.csi.as_ref().map(|csi| csi.results()).unwrap_or_default());
            self.snapshots.results(&mut results).await?;
            Ok(results)
        })
    }

    fn final_results<'a>(
        &'a self,
        results: &'a VolumeBackupResults,
    ) -> BoxFuture<'a, Result<Option<VolumeBackupResults>, Error>> {
        Box::pin(async move {
            let csi = match &self.csi {
                Some(csi) => csi.final_results().await?,
                None => Vec::new(),
            };
            if results.snapshots.is_empty() && csi.is_empty() {
                return Ok(None);
            }
            let mut changed = self.snapshots.final_results(results).await?;
            for info in csi {
                if let Some(existing) = changed.infos.iter_mut().find(|existing| existing.pv_name == info.pv_name) {
                    *existing = info;
                }
            }
            Ok(Some(changed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_decides_first_and_the_backup_after_it() {
        for (wanted, policy, expected) in [
            (None, None, SnapshotChoice::Take { asked: false }),
            (Some(true), None, SnapshotChoice::Take { asked: true }),
            (Some(false), None, SnapshotChoice::Leave),
            (Some(false), Some(VolumeActionType::Snapshot), SnapshotChoice::Take { asked: true }),
            (Some(true), Some(VolumeActionType::FsBackup), SnapshotChoice::Leave),
            (Some(true), Some(VolumeActionType::Skip), SnapshotChoice::Skip),
        ] {
            assert_eq!(snapshot_choice(wanted, policy), expected, "{wanted:?} {policy:?}");
        }
    }
}
