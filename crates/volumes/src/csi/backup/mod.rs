//! CSI snapshots of the claims of a backup.

mod claim_action;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::UploaderSettings;
use plimsoll_archive::volume_info::{BackupVolumeInfo, CsiSnapshotInfo};
use plimsoll_engine::backup::actions::BackupItemActions;
use plimsoll_engine::cluster::ItemMeta;
use plimsoll_engine::item_filter::ItemFilter;
use plimsoll_engine::item_operations::ItemOperationProgress;
use plimsoll_engine::log::Level;
use plimsoll_engine::registry::{AppliesTo, Source};
use plimsoll_engine::{Error, PluginLogSink, RetryPolicy};
use plimsoll_mover::MoverKind;
use plimsoll_progress::Task;
use plimsoll_select::resource_policies::{VolumeAction, VolumeProperties};
use plimsoll_select::resources::ResourceMapper;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use self::claim_action::ClaimAction;
use super::snapshot_taker::{CreatedSnapshot, SnapshotTaker};
use super::upload::{Upload, Uploads};
use super::{SNAPSHOTS, class, classes, text};
use crate::fs_backup::{ClaimInfo, FsBackupPolicy, TransferServices, claims_of};
use crate::snapshot_choice::{SnapshotChoice, snapshot_choice};
use crate::volume_job::VolumeJob;

/// The action that takes the snapshot of a claim.
pub(crate) const CLAIM_ACTION: &str = "velero.io/csi-pvc-backupper";

/// Parameters of [`CsiBackup`].
pub struct CsiBackupParameters {
    /// Services of the server.
    pub services: Arc<TransferServices>,
    /// The Backup.
    pub job: VolumeJob,
    /// The Backup object, for its snapshot classes.
    pub backup: Value,
    /// `snapshotVolumes`.
    pub wanted: Option<bool>,
    /// Whether volume snapshotters are configured: they handle drivers without a class.
    pub plugins: bool,
    /// The filters of the Backup.
    pub item_filter: Arc<ItemFilter>,
    /// The policy for file-system backup.
    pub policy: FsBackupPolicy,
    /// Timeout of a driver for a snapshot.
    pub limit: Duration,
    /// Settings of data movement, if it is enabled.
    pub movement: Option<DataMovement>,
    /// Log of the operation.
    pub plugin_log: Arc<PluginLogSink>,
}

/// Settings of data movement.
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

/// Takes CSI snapshots.
pub struct CsiBackup {
    parameters: CsiBackupParameters,
    uploads: Option<Uploads>,
    /// Results by claim. A claim is processed once, as an item or with its pod, and several claims at a time.
    claim_results: Mutex<HashMap<String, Arc<OnceCell<Option<ClaimResult>>>>>,
    pods: tokio::sync::Mutex<HashMap<String, Arc<Vec<Value>>>>,
    infos: Mutex<Vec<BackupVolumeInfo>>,
    /// Whether all pods were read: claims of pods with hooks are processed between these.
    pods_read: tokio::sync::watch::Sender<bool>,
}

/// The result of a claim.
#[derive(Clone, Debug)]
enum ClaimResult {
    Snapshot(CreatedSnapshot),
    Upload(Upload),
}

impl CsiBackup {
    /// Registers the action; `None` if the cluster does not serve VolumeSnapshots, or snapshots are disabled.
    pub fn register(
        parameters: CsiBackupParameters,
        actions: &mut BackupItemActions,
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Result<Option<Arc<Self>>, Error> {
        // A volume policy can request snapshots although the backup has `snapshotVolumes: false`.
        if parameters.wanted == Some(false) && !parameters.policy.has_volume_policies() {
            return Ok(None);
        }
        if mapper.resolve(SNAPSHOTS).is_none() {
            if parameters.movement.is_some() {
                let line = "spec.snapshotMoveData: this cluster does not serve VolumeSnapshots; no data is moved";
                parameters.plugin_log.line(Level::Warning, line.to_owned());
            }
            return Ok(None);
        }
        let uploads = parameters.movement.clone().map(|movement| Uploads::new(&parameters, movement));
        let (claim_results, pods, infos, pods_read) = Default::default();
        let csi = Arc::new(Self { parameters, uploads, claim_results, pods, infos, pods_read });
        let claims = AppliesTo::resources(["persistentvolumeclaims"]);
        let action = Arc::new(ClaimAction(Arc::clone(&csi)));
        actions.register(Source::BuiltIn(2), CLAIM_ACTION, &claims, mapper, action)?;
        Ok(Some(csi))
    }

    fn infos(&self) -> MutexGuard<'_, Vec<BackupVolumeInfo>> {
        self.infos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Method and result of each volume.
    pub fn results(&self) -> Vec<BackupVolumeInfo> {
        self.infos().clone()
    }

    /// The results after all transfers have ended.
    pub async fn final_results(&self) -> Result<Vec<BackupVolumeInfo>, Error> {
        let mut infos = self.results();
        if let Some(uploads) = &self.uploads {
            for info in infos.iter_mut().filter(|info| info.snapshot_data_moved) {
                uploads.update_info(info).await?;
            }
        }
        Ok(infos)
    }

    /// Called after the last pod.
    pub fn all_pods_read(&self) {
        self.pods_read.send_replace(true);
    }

    /// Whether a claim, `namespace/name`, has a snapshot.
    pub fn has(&self, claim: &str) -> bool {
        self.infos().iter().any(|info| format!("{}/{}", info.volume.pvc_namespace, info.volume.pvc_name) == claim)
    }

    /// Takes snapshots of the claims of a frozen pod, except those with file-system backup.
    pub async fn back_up_pod(&self, pod: &Value, is_backed_up: impl Fn(&str) -> bool) -> Result<(), Error> {
        let namespace = text(pod, "/metadata/namespace");
        for name in claims_of(pod).into_iter().filter(|name| !is_backed_up(&format!("{namespace}/{name}"))) {
            let claim = self.read("persistentvolumeclaims", Some(namespace), &name).await?;
            if let Some(claim) = claim.filter(|claim| self.is_in_backup(claim)) {
                self.snapshot_claim(&claim).await?;
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

    /// Takes the snapshot of a claim once, and caches the result.
    async fn snapshot_claim(&self, claim: &Value) -> Result<Option<ClaimResult>, Error> {
        let key = format!("{}/{}", text(claim, "/metadata/namespace"), text(claim, "/metadata/name"));
        let result = {
            let mut results = self.claim_results.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(results.entry(key.clone()).or_default())
        };
        result.get_or_try_init(|| self.process_claim(claim, &key)).await.cloned()
    }

    async fn process_claim(&self, claim: &Value, key: &str) -> Result<Option<ClaimResult>, Error> {
        let name = text(claim, "/spec/volumeName");
        if name.is_empty() || text(claim, "/status/phase") != "Bound" {
            return Ok(None);
        }
        let Some(volume) = self.read("persistentvolumes", None, name).await? else { return Ok(None) };
        let driver = text(&volume, "/spec/csi/driver").to_owned();
        let policy = self.policy_of(claim, &volume);
        let requested = self.snapshot_request(claim, &volume, policy).await?;
        let Some(explicit) = requested.filter(|_| !driver.is_empty()) else { return Ok(None) };
        let named = policy.and_then(VolumeAction::snapshot_class);
        let chosen = class::choose(&self.classes().await?, &driver, claim, named, &self.parameters.backup);
        let Some(class) = self.class_or_log(chosen, &driver, key, explicit) else { return Ok(None) };
        self.warn_of_group(claim, key);
        self.start(claim, &volume, key, &class).await
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

    /// The snapshot class; logs why there is none.
    fn class_or_log(
        &self,
        chosen: Result<Option<String>, String>,
        driver: &str,
        key: &str,
        explicit: bool,
    ) -> Option<String> {
        let error = match chosen {
            Ok(Some(class)) => return Some(class),
            Ok(None) if self.parameters.plugins => return None,
            Ok(None) => format!("no VolumeSnapshotClass for driver {driver}"),
            Err(error) => error,
        };
        let level = if explicit { Level::Error } else { Level::Warning };
        self.parameters.plugin_log.line(level, format!("no snapshot of claim {key}: {error}"));
        None
    }

    /// The volumes of a group would be snapshotted at one moment.
    fn warn_of_group(&self, claim: &Value, key: &str) {
        let group = claim.pointer("/metadata/labels").and_then(|all| all.get(labels::VOLUME_GROUP)?.as_str());
        if let Some(group) = group {
            let line = format!(
                "claim {key} is snapshotted by itself, not at one moment with volume group {group}: \
                 VolumeGroupSnapshots are not supported"
            );
            self.parameters.plugin_log.line(Level::Warning, line);
        }
    }

    async fn start(&self, claim: &Value, volume: &Value, key: &str, class: &str) -> Result<Option<ClaimResult>, Error> {
        self.parameters.job.task.start();
        let (claimed, started) = (ClaimInfo::of(claim, Some(volume)), Timestamp::now());
        let task = self.parameters.job.stage.take(key);
        task.start();
        let answer = self.create(claim, class, &task).await;
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
        let log_error =
            |error: String| self.parameters.plugin_log.line(Level::Error, format!("snapshot of claim {key}: {error}"));
        Ok(made.map_err(log_error).ok())
    }

    async fn create(&self, claim: &Value, class: &str, task: &Task) -> Result<ClaimResult, Error> {
        let CsiBackupParameters { services, job: VolumeJob { name, uid, .. }, limit, .. } = &self.parameters;
        let taker = SnapshotTaker { leader: &services.leader, backup: name, uid, limit: *limit, task };
        match &self.uploads {
            None => Ok(ClaimResult::Snapshot(taker.take(claim, class).await?)),
            Some(uploads) => Ok(ClaimResult::Upload(uploads.start(claim, class, &taker).await?)),
        }
    }

    /// The action of the volume policy for a claim.
    fn policy_of(&self, claim: &Value, volume: &Value) -> Option<&VolumeAction> {
        let properties = VolumeProperties::of_persistent_volume(volume, Some(claim));
        self.parameters.policy.policies.as_ref().and_then(|policies| policies.action(&properties))
    }

    /// Whether a snapshot is requested, and whether explicitly.
    async fn snapshot_request(
        &self,
        claim: &Value,
        volume: &Value,
        policy: Option<&VolumeAction>,
    ) -> Result<Option<bool>, Error> {
        let parameters = &self.parameters;
        let explicit = match snapshot_choice(parameters.wanted, policy.map(|action| action.kind)) {
            SnapshotChoice::Leave | SnapshotChoice::Skip => return Ok(None),
            SnapshotChoice::Take { .. } if policy.is_some() => return Ok(Some(true)),
            SnapshotChoice::Take { explicit } => explicit || parameters.movement.is_some(),
        };
        let by_files = self.pods_of(text(claim, "/metadata/namespace")).await?;
        let files = by_files.iter().any(|pod| parameters.policy.backs_up_claim(pod, claim, volume));
        Ok((!files).then_some(explicit))
    }

    async fn pods_of(&self, namespace: &str) -> Result<Arc<Vec<Value>>, Error> {
        let mut cached = self.pods.lock().await;
        if let Some(pods) = cached.get(namespace) {
            return Ok(Arc::clone(pods));
        }
        let api: Api<Pod> = Api::namespaced(self.parameters.services.leader.client.clone(), namespace);
        let list = || async {
            let all = api.list(&ListParams::default()).await;
            all.map_err(|e| Error::api(format!("list pods in namespace {namespace}"), e))
        };
        let pods = RetryPolicy::default().run(&self.parameters.job.task, list).await?;
        let pods: Arc<Vec<Value>> = Arc::new(pods.items.iter().map(|pod| json!(pod)).collect());
        cached.insert(namespace.to_owned(), Arc::clone(&pods));
        Ok(pods)
    }

    /// The progress of a snapshot; records its size once it is ready.
    async fn ready(&self, operation: &str) -> Result<ItemOperationProgress, Error> {
        let CsiBackupParameters { services, job: VolumeJob { name, uid, task, .. }, limit, .. } = &self.parameters;
        let taker = SnapshotTaker { leader: &services.leader, backup: name, uid, limit: *limit, task };
        let (namespace, snapshot) = operation.split_once('/').unwrap_or_default();
        let (progress, taken) = taker.read(namespace, snapshot).await?;
        if let Some(taken) = taken {
            for info in self.infos().iter_mut() {
                let csi = info.snapshot.csi_snapshot_info.as_mut().filter(|csi| csi.vsc_name == taken.content);
                let Some(csi) = csi else { continue };
                (csi.size, csi.ready_to_use) = (taken.size, Some(true));
                info.completion_timestamp = Some(format!("{:.0}", Timestamp::now()));
            }
        }
        Ok(progress)
    }
}

fn info(claimed: &ClaimInfo, made: &Result<ClaimResult, String>, started: Timestamp, moved: bool) -> BackupVolumeInfo {
    let mut info = BackupVolumeInfo {
        backup_method: "CSISnapshot".into(),
        snapshot_data_moved: moved,
        preserve_local_snapshot: !moved && made.is_ok(),
        start_timestamp: Some(format!("{started:.0}")),
        result: if made.is_ok() { "succeeded" } else { "failed" }.into(),
        ..claimed.volume_info()
    };
    match made {
        Ok(ClaimResult::Upload(upload)) => info.snapshot.snapshot_data_movement_info = Some(upload.info()),
        Ok(ClaimResult::Snapshot(made)) => info.snapshot.csi_snapshot_info = Some(snapshot_info(made)),
        Err(_) if !moved => info.snapshot.csi_snapshot_info = Some(CsiSnapshotInfo::default()),
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
