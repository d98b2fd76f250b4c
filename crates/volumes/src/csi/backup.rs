//! Claims of a backup whose driver takes snapshots: which of them, and what comes of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::UploaderSettings;
use plimsoll_archive::volume_info::{BackupVolumeInfo, CsiSnapshotInfo};
use plimsoll_engine::backup::actions::{BackupActionOutput, BackupItemAction, BackupItemActions, ItemId};
use plimsoll_engine::cluster::ItemMeta;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::item_operations::{ItemOperationClient, ItemOperationProgress, StartedOperation};
use plimsoll_engine::log::Level;
use plimsoll_engine::registry::{AppliesTo, Source};
use plimsoll_engine::{Error, PluginLogSink, RetryPolicy};
use plimsoll_mover::MoverKind;
use plimsoll_progress::Task;
use plimsoll_select::resource_policies::{ResourcePolicies, VolumeActionType, VolumeProperties};
use plimsoll_select::resources::ResourceMapper;
use serde_json::{Value, json};

use super::take::{CreatedSnapshot, SnapshotTaker};
use super::upload::{Upload, Uploads};
use super::{CLASSES, CONTENTS, SNAPSHOT_NAME, SNAPSHOTS, UPLOAD_NAME, UPLOADS, class, classes, mark, text};
use crate::fs_backup::{ClaimInfo, FsBackupPolicy, TransferServices, claims_of};
use crate::volume_job::VolumeJob;

/// What a backup wants of CSI snapshots.
pub struct CsiBackupParameters {
    /// What the work needs of the server.
    pub services: Arc<TransferServices>,
    /// The Backup.
    pub job: VolumeJob,
    /// The Backup, for the classes it names.
    pub backup: Value,
    /// `snapshotVolumes`.
    pub wanted: Option<bool>,
    /// Whether plugins take snapshots too: then a driver without a class is theirs.
    pub plugins: bool,
    /// The Backup's filters.
    pub item_filter: Arc<ItemFilter>,
    /// What it wants of files.
    pub policy: FsBackupPolicy,
    /// How long a driver may take until it has a snapshot.
    pub limit: Duration,
    /// Where the data goes, if it is to be moved.
    pub movement: Option<DataMovement>,
    /// Where its log lines and problems go.
    pub plugin_log: Arc<PluginLogSink>,
}

/// Where the data of snapshots goes.
#[derive(Clone)]
pub struct DataMovement {
    /// The BackupStorageLocation with the repository.
    pub location: String,
    /// The mover.
    pub kind: MoverKind,
    /// `datamover` of the Backup.
    pub mover: Option<String>,
    /// Settings of the mover.
    pub settings: UploaderSettings,
}

/// Takes them.
pub struct CsiBackup {
    parameters: CsiBackupParameters,
    uploads: Option<Uploads>,
    /// One claim after another: a claim is met by its own turn and by its pod's.
    turn: tokio::sync::Mutex<HashMap<String, Option<ClaimResult>>>,
    pods: tokio::sync::Mutex<HashMap<String, Arc<Vec<Value>>>>,
    infos: Mutex<Vec<BackupVolumeInfo>>,
    /// Whether all pods have had their turn: the claims of one with hooks are dealt with between those.
    pods_read: tokio::sync::watch::Sender<bool>,
}

/// What was done about a claim.
#[derive(Clone, Debug)]
enum ClaimResult {
    Snapshot(CreatedSnapshot),
    Upload(Upload),
}

impl CsiBackup {
    /// Registers the action that takes them; nothing if the cluster knows no snapshots, or none are wanted.
    pub fn register(
        parameters: CsiBackupParameters,
        actions: &mut BackupItemActions,
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Result<Option<Arc<Self>>, Error> {
        if parameters.wanted == Some(false) {
            return Ok(None);
        }
        if mapper.resolve(SNAPSHOTS).is_none() {
            if parameters.movement.is_some() {
                let line = "spec.snapshotMoveData: this cluster knows no VolumeSnapshots, so no data is moved";
                parameters.plugin_log.line(Level::Warning, line.to_owned());
            }
            return Ok(None);
        }
        let uploads = parameters.movement.clone().map(|movement| Uploads::new(&parameters, movement));
        let (turn, pods, infos, pods_read) = Default::default();
        let csi = Arc::new(Self { parameters, uploads, turn, pods, infos, pods_read });
        let claims = AppliesTo::resources(["persistentvolumeclaims"]);
        let action = Arc::new(ClaimAction(Arc::clone(&csi)));
        actions.register(Source::BuiltIn(2), "velero.io/csi-pvc-backupper", &claims, mapper, action)?;
        Ok(Some(csi))
    }

    fn infos(&self) -> MutexGuard<'_, Vec<BackupVolumeInfo>> {
        self.infos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How each volume was backed up, or not.
    pub fn results(&self) -> Vec<BackupVolumeInfo> {
        self.infos().clone()
    }

    /// The same, once nothing moves any more.
    pub async fn settled(&self) -> Result<Vec<BackupVolumeInfo>, Error> {
        let mut infos = self.results();
        if let Some(uploads) = &self.uploads {
            for info in infos.iter_mut().filter(|info| info.snapshot_data_moved) {
                uploads.settle(info).await?;
            }
        }
        Ok(infos)
    }

    /// All pods have had their turn.
    pub fn all_pods_read(&self) {
        self.pods_read.send_replace(true);
    }

    /// Whether a claim, `namespace/name`, has one.
    pub fn has(&self, claim: &str) -> bool {
        self.infos().iter().any(|info| format!("{}/{}", info.pvc_namespace, info.pvc_name) == claim)
    }

    /// Takes snapshots of the claims of a pod that stands still, but for those whose files are backed up.
    pub async fn of_pod(&self, pod: &Value, brought: impl Fn(&str) -> bool) -> Result<(), Error> {
        let namespace = text(pod, "/metadata/namespace");
        for name in claims_of(pod).into_iter().filter(|name| !brought(&format!("{namespace}/{name}"))) {
            let claim = self.read("persistentvolumeclaims", Some(namespace), &name).await?;
            if let Some(claim) = claim.filter(|claim| self.is_in_backup(claim)) {
                self.deal_with(&claim).await?;
            }
        }
        Ok(())
    }

    fn is_in_backup(&self, claim: &Value) -> bool {
        let meta: Result<ItemMeta, _> = ItemMeta::of(claim.to_string().as_bytes());
        meta.is_ok_and(|meta| self.parameters.item_filter.includes_additional_item("persistentvolumeclaims", &meta))
    }

    async fn read(&self, plural: &str, namespace: Option<&str>, name: &str) -> Result<Option<Value>, Error> {
        let path = format!("{}/{name}", plimsoll_engine::cluster::collection_path("v1", plural, namespace));
        let get = || self.parameters.services.leader.cluster.get(&path);
        let found = RetryPolicy::default().run(&self.parameters.job.task, get).await?;
        Ok(found.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// The snapshot of a claim, taken once.
    async fn deal_with(&self, claim: &Value) -> Result<Option<ClaimResult>, Error> {
        let key = format!("{}/{}", text(claim, "/metadata/namespace"), text(claim, "/metadata/name"));
        let mut turn = self.turn.lock().await;
        if let Some(known) = turn.get(&key) {
            return Ok(known.clone());
        }
        let dealt = self.look_at(claim, &key).await?;
        turn.insert(key, dealt.clone());
        Ok(dealt)
    }

    async fn look_at(&self, claim: &Value, key: &str) -> Result<Option<ClaimResult>, Error> {
        let name = text(claim, "/spec/volumeName");
        if name.is_empty() || text(claim, "/status/phase") != "Bound" {
            return Ok(None);
        }
        let Some(volume) = self.read("persistentvolumes", None, name).await? else { return Ok(None) };
        let driver = text(&volume, "/spec/csi/driver").to_owned();
        let Some(asked) = self.wish(claim, &volume).await?.filter(|_| !driver.is_empty()) else { return Ok(None) };
        let chosen = class::choose(&self.classes().await?, &driver, claim, &self.parameters.backup);
        let Some(class) = self.chosen(chosen, &driver, key, asked) else { return Ok(None) };
        self.begin(claim, &volume, key, &class).await
    }

    async fn classes(&self) -> Result<Vec<Value>, Error> {
        let client = &self.parameters.services.leader.client;
        let list = || async {
            let all = classes(client).list(&ListParams::default()).await;
            all.map_err(|e| Error::api("list VolumeSnapshotClasses", e))
        };
        let all = RetryPolicy::default().run(&self.parameters.job.task, list).await?;
        Ok(all.items.iter().map(|class| json!(class)).collect())
    }

    /// The class, or a word about why there is none.
    fn chosen(&self, chosen: Result<Option<String>, String>, driver: &str, key: &str, asked: bool) -> Option<String> {
        let why = match chosen {
            Ok(Some(class)) => return Some(class),
            Ok(None) if self.parameters.plugins => return None,
            Ok(None) => format!("there is no VolumeSnapshotClass of driver {driver}"),
            Err(why) => why,
        };
        let level = if asked { Level::Error } else { Level::Warning };
        self.parameters.plugin_log.line(level, format!("claim {key} has no snapshot: {why}"));
        None
    }

    async fn begin(&self, claim: &Value, volume: &Value, key: &str, class: &str) -> Result<Option<ClaimResult>, Error> {
        self.parameters.job.task.start();
        let (claimed, started) = (ClaimInfo::of(claim, Some(volume)), Timestamp::now());
        let task = self.parameters.job.task.child(key);
        let answer = self.make(claim, class, &task).await;
        match &answer {
            Ok(_) => task.finish(),
            Err(error) => task.fail(error.to_string()),
        }
        let made = match answer {
            Ok(made) => Ok(made),
            Err(error @ (Error::Fenced(_) | Error::Cancelled)) => return Err(error),
            Err(error) => Err(error.to_string()),
        };
        self.infos().push(info(&claimed, &made, started, self.uploads.is_some()));
        let complain =
            |why: String| self.parameters.plugin_log.line(Level::Error, format!("snapshot of claim {key}: {why}"));
        Ok(made.map_err(complain).ok())
    }

    async fn make(&self, claim: &Value, class: &str, task: &Task) -> Result<ClaimResult, Error> {
        let CsiBackupParameters { services, job: VolumeJob { name, uid, .. }, limit, .. } = &self.parameters;
        let taker = SnapshotTaker { leader: &services.leader, backup: name, uid, limit: *limit, task };
        match &self.uploads {
            None => Ok(ClaimResult::Snapshot(taker.take(claim, class).await?)),
            Some(uploads) => Ok(ClaimResult::Upload(uploads.begin(claim, class, &taker).await?)),
        }
    }

    /// Whether a snapshot is wanted, and whether it was asked for explicitly.
    async fn wish(&self, claim: &Value, volume: &Value) -> Result<Option<bool>, Error> {
        let parameters = &self.parameters;
        let policies =
            parameters.policy.policies.as_ref().filter(|policies| ResourcePolicies::has_volume_policies(policies));
        let policy =
            policies.and_then(|policies| policies.action(&VolumeProperties::of_persistent_volume(volume, Some(claim))));
        match policy.map(|action| action.kind) {
            Some(VolumeActionType::Snapshot) => return Ok(Some(true)),
            Some(_) => return Ok(None),
            None => {}
        }
        let by_files = self.pods_of(text(claim, "/metadata/namespace")).await?;
        let files = by_files.iter().any(|pod| parameters.policy.brings(pod, claim, volume));
        let asked = parameters.wanted == Some(true) || parameters.movement.is_some();
        Ok((!files).then_some(asked))
    }

    async fn pods_of(&self, namespace: &str) -> Result<Arc<Vec<Value>>, Error> {
        let mut known = self.pods.lock().await;
        if let Some(pods) = known.get(namespace) {
            return Ok(Arc::clone(pods));
        }
        let api: Api<Pod> = Api::namespaced(self.parameters.services.leader.client.clone(), namespace);
        let list = || async {
            let all = api.list(&ListParams::default()).await;
            all.map_err(|e| Error::api(format!("list pods in namespace {namespace}"), e))
        };
        let pods = RetryPolicy::default().run(&self.parameters.job.task, list).await?;
        let pods: Arc<Vec<Value>> = Arc::new(pods.items.iter().map(|pod| json!(pod)).collect());
        known.insert(namespace.to_owned(), Arc::clone(&pods));
        Ok(pods)
    }

    /// Whether the snapshot of an operation is ready; then its size is known.
    async fn ready(&self, operation: &str) -> Result<ItemOperationProgress, Error> {
        let CsiBackupParameters { services, job: VolumeJob { name, uid, task, .. }, limit, .. } = &self.parameters;
        let taker = SnapshotTaker { leader: &services.leader, backup: name, uid, limit: *limit, task };
        let (namespace, snapshot) = operation.split_once('/').unwrap_or_default();
        let (reading, taken) = taker.read(namespace, snapshot).await?;
        if let Some(taken) = taken {
            for info in self.infos().iter_mut() {
                let csi = info.csi_snapshot_info.as_mut().filter(|csi| csi.vsc_name == taken.content);
                let Some(csi) = csi else { continue };
                (csi.size, csi.ready_to_use) = (taken.size, Some(true));
                info.completion_timestamp = Some(format!("{:.0}", Timestamp::now()));
            }
        }
        Ok(reading)
    }
}

fn info(claimed: &ClaimInfo, made: &Result<ClaimResult, String>, started: Timestamp, moved: bool) -> BackupVolumeInfo {
    let mut info = BackupVolumeInfo {
        pvc_name: claimed.claim.clone(),
        pvc_namespace: claimed.namespace.clone(),
        pv_name: claimed.volume.clone(),
        backup_method: "CSISnapshot".into(),
        snapshot_data_moved: moved,
        preserve_local_snapshot: !moved && made.is_ok(),
        start_timestamp: Some(format!("{started:.0}")),
        result: if made.is_ok() { "succeeded" } else { "failed" }.into(),
        pv_info: claimed.persistent.clone(),
        ..BackupVolumeInfo::default()
    };
    match made {
        Ok(ClaimResult::Upload(upload)) => info.snapshot_data_movement_info = Some(upload.info()),
        Ok(ClaimResult::Snapshot(made)) => info.csi_snapshot_info = Some(snapshot_info(made)),
        Err(_) if !moved => info.csi_snapshot_info = Some(CsiSnapshotInfo::default()),
        Err(_) => {}
    }
    info
}

fn snapshot_info(made: &CreatedSnapshot) -> CsiSnapshotInfo {
    let taken = made.taken.clone();
    CsiSnapshotInfo {
        snapshot_handle: taken.handle,
        size: taken.size,
        driver: taken.driver,
        vsc_name: taken.content,
        operation_id: made.operation(),
        ready_to_use: Some(taken.ready),
        ..CsiSnapshotInfo::default()
    }
}

/// A claim on its way into the archive: its snapshot comes along.
struct ClaimAction(Arc<CsiBackup>);

fn with_snapshot(mut item: Value, made: &CreatedSnapshot) -> BackupActionOutput {
    mark(&mut item, "labels", SNAPSHOT_NAME, &labels::valid_name(&made.name));
    mark(&mut item, "annotations", SNAPSHOT_NAME, &made.name);
    mark(&mut item, "annotations", labels::MUST_INCLUDE_ADDITIONAL_ITEMS, "true");
    let snapshot = ItemId::new(SNAPSHOTS, Some(&made.namespace), &made.name);
    let content = ItemId::new(CONTENTS, None, &made.taken.content);
    let class = ItemId::new(CLASSES, None, &made.class);
    let operation = Some(StartedOperation { id: made.operation(), post: vec![snapshot.clone(), content.clone()] });
    BackupActionOutput { item: Some(item), additional: vec![snapshot, content, class], operation }
}

fn with_upload(mut item: Value, upload: &Upload) -> BackupActionOutput {
    mark(&mut item, "labels", SNAPSHOT_NAME, &labels::valid_name(&upload.snapshot));
    mark(&mut item, "annotations", SNAPSHOT_NAME, &upload.snapshot);
    mark(&mut item, "annotations", UPLOAD_NAME, &format!("{}/{}", upload.namespace, upload.name));
    let post = vec![ItemId::new(UPLOADS, Some(&upload.namespace), &upload.name)];
    let operation = Some(StartedOperation { id: upload.operation.clone(), post });
    BackupActionOutput { item: Some(item), additional: Vec::new(), operation }
}

impl BackupItemAction for ClaimAction {
    fn execute<'a>(&'a self, item: &'a Value, _: &'a Value) -> BoxFuture<'a, Result<BackupActionOutput, Error>> {
        Box::pin(async move {
            // The sender is part of this object, so this does not fail.
            let _ = self.0.pods_read.subscribe().wait_for(|read| *read).await;
            Ok(match self.0.deal_with(item).await? {
                Some(ClaimResult::Snapshot(made)) => with_snapshot(item.clone(), &made),
                Some(ClaimResult::Upload(upload)) => with_upload(item.clone(), &upload),
                None => BackupActionOutput::default(),
            })
        })
    }

    fn operation_client(self: Arc<Self>) -> Option<Arc<dyn ItemOperationClient>> {
        Some(self)
    }
}

impl ItemOperationClient for ClaimAction {
    fn progress<'a>(&'a self, operation: &'a str, _: &'a Value) -> BoxFuture<'a, Result<ItemOperationProgress, Error>> {
        Box::pin(async move {
            match &self.0.uploads {
                Some(uploads) => uploads.read(operation).await,
                None => self.0.ready(operation).await,
            }
        })
    }

    /// A snapshot goes with the backup that is given up; data that moves is stopped at once.
    fn cancel<'a>(&'a self, operation: &'a str, _: &'a Value) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            match &self.0.uploads {
                Some(uploads) => uploads.cancel(operation).await,
                None => Ok(()),
            }
        })
    }

    /// A new leader finds the same snapshot, and the same upload, by its name.
    fn resumes_operations(&self) -> bool {
        true
    }
}
