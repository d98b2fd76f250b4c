//! The volumes of a backup's pods: chosen, handed to agents, waited for.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use kube::api::{ObjectMeta, PostParams};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeBackupSpec, UploaderSettings, UploaderType};
use plimsoll_archive::volume_info::BackupVolumeInfo;
use plimsoll_engine::ports::{VolumeBackupResults, VolumeBackupper};
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_mover::MoverKind;
use plimsoll_progress::Task;
use serde_json::{Value, json};
use tracing::debug;

use super::follower::{Follower, TransferResult};
use super::policy::{Choice, FsBackupPolicy, VolumeBinding, listed, volumes};
use super::services::TransferServices;
use super::volume_info::{self, ClaimInfo};
use super::volume_reader::VolumeReader;
use super::{identifier, transfer_name};
use crate::repositories::{RepositoryCache, RepositoryKey};
use crate::transfer::{TransferMessage, transfer_message};
use crate::volume_job::VolumeJob;

/// About how long the volumes of a backup take: the weight of the stage once there are any.
const EXPECTED: Duration = Duration::from_mins(1);

/// Parameters of the file-system backup.
pub struct FsBackupParameters {
    /// Services of the server.
    pub services: Arc<TransferServices>,
    /// The Backup.
    pub job: VolumeJob,
    /// The BackupStorageLocation with the repository.
    pub location: String,
    /// Which volumes are backed up.
    pub policy: FsBackupPolicy,
    /// Timeout of one transfer.
    pub limit: Duration,
    /// Settings of the mover.
    pub settings: UploaderSettings,
}

/// Backs up the volumes of pods.
pub struct FsBackup {
    parameters: FsBackupParameters,
    kind: MoverKind,
    follower: Follower<PodVolumeBackup>,
    repositories: RepositoryCache,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Claims whose volume a pod has brought already.
    claims: HashSet<String>,
    windows: HashMap<String, bool>,
    started: Vec<StartedTransfer>,
    idle: Vec<Idle>,
    results: VolumeBackupResults,
}

#[derive(Clone)]
struct StartedTransfer {
    namespace: String,
    label: String,
    claim_info: ClaimInfo,
    ended: TransferResult<PodVolumeBackup>,
}

/// A volume that is backed up.
struct SelectedVolume {
    volume: String,
    claim: Option<Value>,
    claim_info: ClaimInfo,
    /// `namespace/name` of its claim.
    key: Option<String>,
}

/// A pod that does not bring volumes, because it does not run or does not mount them, and their claims.
struct Idle {
    namespace: String,
    claims: Vec<Option<String>>,
    line: String,
}

fn text<'a>(value: &'a Value, place: &str) -> &'a str {
    value.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

fn path(pod: &Value) -> String {
    format!("{}/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"))
}

impl FsBackup {
    /// Starts to follow the transfers of the backup.
    pub async fn new(parameters: FsBackupParameters) -> Result<Self, Error> {
        let services = &parameters.services;
        let kind = services.mover.resolve(&services.leader, &parameters.job.task).await?;
        let selector = format!("{}={}", labels::BACKUP_UID, parameters.job.uid);
        let follower = Follower::start(services, selector, parameters.limit);
        Ok(Self { kind, follower, repositories: RepositoryCache::default(), state: Mutex::default(), parameters })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the files of this claim, `namespace/name`, are backed up.
    pub fn includes_claim(&self, claim: &str) -> bool {
        self.state().claims.contains(claim)
    }

    fn error(&self, pod: &Value, text_of_it: String) {
        self.state().results.errors.push((text(pod, "/metadata/namespace").to_owned(), text_of_it));
    }

    fn warn(&self, pod: &Value, text_of_it: String) {
        self.state().results.warnings.push((text(pod, "/metadata/namespace").to_owned(), text_of_it));
    }

    fn reading(&self) -> VolumeReader<'_> {
        VolumeReader { cluster: &self.parameters.services.leader.cluster, task: &self.parameters.job.task }
    }

    /// The volumes of a pod that are backed up. Those that should be and cannot are named.
    async fn choose(&self, pod: &Value) -> Result<Vec<SelectedVolume>, Error> {
        let mut chosen = Vec::new();
        for name in listed(pod, labels::BACKUP_VOLUMES) {
            if !volumes(pod).any(|volume| volume["name"] == name) {
                self.warn(pod, format!("pod {} has no volume {name}, which its annotation names", path(pod)));
            }
        }
        for volume in volumes(pod) {
            if let Some(one) = self.choose_one(pod, volume).await? {
                chosen.push(one);
            }
        }
        // Several pods may share a claim: its files are the same. Only a pod that can bring them takes it from the others.
        chosen.retain(|one| one.key.as_ref().is_none_or(|key| !self.includes_claim(key)));
        if chosen.is_empty() {
            return Ok(chosen);
        }
        let (phase, node) = (text(pod, "/status/phase"), text(pod, "/spec/nodeName"));
        if phase != "Running" {
            let line = format!("pod {} is {phase}, not Running: its volumes are not backed up", path(pod));
            let claims = chosen.into_iter().map(|one| one.key).collect();
            self.state().idle.push(Idle { namespace: text(pod, "/metadata/namespace").to_owned(), claims, line });
            return Ok(Vec::new());
        }
        if self.is_windows(node).await? {
            let why = windows_refused(node);
            self.error(pod, format!("volumes of pod {} are refused: {why}", path(pod)));
            return Ok(Vec::new());
        }
        let take = |one: &SelectedVolume| one.key.clone().is_none_or(|key| self.state().claims.insert(key));
        chosen.retain(take);
        Ok(chosen)
    }

    /// The warnings about pods that did not bring their volumes: none where another pod has brought everything they share with it.
    fn idle_pod_warnings(&self) -> Vec<(String, String)> {
        let mut state = self.state();
        let idle = std::mem::take(&mut state.idle);
        let left_out =
            |one: &Idle| one.claims.iter().any(|key| key.as_ref().is_none_or(|key| !state.claims.contains(key)));
        idle.into_iter().filter(left_out).map(|one| (one.namespace, one.line)).collect()
    }

    async fn choose_one(&self, pod: &Value, volume: &Value) -> Result<Option<SelectedVolume>, Error> {
        let namespace = text(pod, "/metadata/namespace");
        let (claim, persistent) = self.reading().binding(pod, volume).await?;
        let claim_info = claim.as_ref().map(|claim| ClaimInfo::of(claim, persistent.as_ref())).unwrap_or_default();
        let name = text(volume, "/name").to_owned();
        let key = (!claim_info.claim.is_empty()).then(|| format!("{namespace}/{}", claim_info.claim));
        let binding = VolumeBinding { claim: claim.as_ref(), volume: persistent.as_ref() };
        match self.parameters.policy.choose(pod, volume, binding) {
            Choice::Leave => Ok(None),
            Choice::Exclude(why) => {
                debug!("volume {}/{name} is not backed up: {why}", path(pod));
                Ok(None)
            }
            Choice::Skip(why) => {
                if !claim_info.volume.is_empty() {
                    self.state().results.infos.push(volume_info::skipped(&claim_info, &why));
                }
                Ok(None)
            }
            Choice::Unmounted => {
                let line = format!("the files of volume {}/{name} are not backed up: {UNMOUNTED}", path(pod));
                let claims = vec![key];
                self.state().idle.push(Idle { namespace: namespace.to_owned(), claims, line });
                Ok(None)
            }
            Choice::Refuse { why, named } => {
                let line = format!("volume {}/{name} is not backed up: {why}", path(pod));
                if named {
                    self.error(pod, line);
                } else {
                    self.warn(pod, line);
                }
                Ok(None)
            }
            Choice::BackUp => Ok(Some(SelectedVolume { volume: name, claim, claim_info, key })),
        }
    }

    async fn is_windows(&self, node: &str) -> Result<bool, Error> {
        if let Some(known) = self.state().windows.get(node) {
            return Ok(*known);
        }
        let windows = self.reading().runs_windows(node).await?;
        self.state().windows.insert(node.to_owned(), windows);
        Ok(windows)
    }

    /// Hands the volumes of a pod to its node's agent.
    async fn start_transfers(&self, pod: &Value, chosen: Vec<SelectedVolume>) -> Result<Vec<StartedTransfer>, Error> {
        let FsBackupParameters { services, location, job: VolumeJob { task, .. }, .. } = &self.parameters;
        task.start();
        task.expect_duration(EXPECTED);
        let namespace = text(pod, "/metadata/namespace");
        let key = RepositoryKey::new(namespace, location, self.kind);
        let repository = match self.repositories.get(&services.repositories, &key, task).await {
            Ok(repository) => repository,
            Err(error @ (Error::Fenced(_) | Error::Cancelled)) => return Err(error),
            Err(error) => {
                for one in chosen {
                    self.error(pod, format!("volume {}/{}: {}: {error}", path(pod), one.volume, error.reason()));
                }
                return Ok(Vec::new());
            }
        };
        let identifier = identifier(services, repository, task).await?;
        let mut started = Vec::new();
        for one in chosen {
            let label = format!("{}/{}", path(pod), one.volume);
            let shown = task.planned(&label);
            shown.start();
            let object = self.transfer(pod, &one, &identifier);
            let name = object.metadata.name.clone().unwrap_or_default();
            self.create(&object).await?;
            let ended = self.follower.follow(&name, shown);
            let namespace = namespace.to_owned();
            started.push(StartedTransfer { namespace, label, claim_info: one.claim_info, ended });
        }
        self.state().started.extend(started.iter().cloned());
        Ok(started)
    }

    /// An existing transfer was created by this backup, under an earlier leader.
    async fn create(&self, object: &PodVolumeBackup) -> Result<(), Error> {
        let FsBackupParameters { services, job: VolumeJob { task, .. }, .. } = &self.parameters;
        let name = object.metadata.name.as_deref().unwrap_or_default();
        services.leader.fence.check()?;
        kill::point("volumes.create.before");
        let create = || async {
            match services.leader.api::<PodVolumeBackup>().create(&PostParams::default(), object).await {
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                answer => answer.map(|_| ()).map_err(|e| Error::api(format!("create PodVolumeBackup {name}"), e)),
            }
        };
        RetryPolicy::default().run(task, create).await?;
        kill::point("volumes.create.after");
        Ok(())
    }

    fn transfer(&self, pod: &Value, one: &SelectedVolume, identifier: &str) -> PodVolumeBackup {
        let FsBackupParameters { job: VolumeJob { name, uid, owner, .. }, location, .. } = &self.parameters;
        let pod_uid = text(pod, "/metadata/uid");
        let mut tags = json!({ "backup": name, "backup-uid": uid, "pod": text(pod, "/metadata/name"), "pod-uid": pod_uid,
            "ns": text(pod, "/metadata/namespace"), "volume": one.volume });
        let mut marks = json!({ labels::BACKUP_NAME: labels::valid_name(name), labels::BACKUP_UID: uid });
        let mut notes = json!({ labels::MOVER: self.kind.name() });
        if let Some(claim) = &one.claim {
            let claim_uid = text(claim, "/metadata/uid");
            tags["pvc-uid"] = json!(claim_uid);
            marks[labels::PVC_UID] = json!(claim_uid);
            notes[labels::PVC_NAME] = json!(text(claim, "/metadata/name"));
        }
        let map = |value: Value| serde_json::from_value(value).unwrap_or_default();
        let reference = json!({ "kind": "Pod", "namespace": text(pod, "/metadata/namespace"),
            "name": text(pod, "/metadata/name"), "uid": pod_uid });
        let spec = PodVolumeBackupSpec {
            node: Some(text(pod, "/spec/nodeName").to_owned()),
            pod: serde_json::from_value(reference).ok(),
            volume: Some(one.volume.clone()),
            backup_storage_location: Some(location.clone()),
            repo_identifier: Some(identifier.to_owned()),
            uploader_type: Some(UploaderType::from(self.kind.uploader_type())),
            tags: map(tags),
            uploader_settings: self.parameters.settings.clone(),
            ..PodVolumeBackupSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(transfer_name(name, uid, pod_uid, &one.volume)),
            labels: Some(map(marks)),
            annotations: Some(map(notes)),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        };
        PodVolumeBackup { metadata, spec, status: None }
    }

    /// Waits for all of them; what they amount to.
    async fn results(&self) -> VolumeBackupResults {
        let started = self.state().started.clone();
        let mut infos: Vec<BackupVolumeInfo> = Vec::new();
        let mut backups = Vec::new();
        for one in started {
            let ended = match one.ended.clone().await {
                Ok(ended) => ended,
                Err(lost) => {
                    let line = format!("volume {}: its PodVolumeBackup {lost}", one.label);
                    self.state().results.errors.push((one.namespace, line));
                    continue;
                }
            };
            let line = |text: String| (one.namespace.clone(), format!("volume {}: {text}", one.label));
            match transfer_message(ended.as_ref(), "its backup was cancelled") {
                TransferMessage::Problem(text) => self.state().results.errors.push(line(text)),
                TransferMessage::Warning(text) => self.state().results.warnings.push(line(text)),
                TransferMessage::None => {}
            }
            infos.push(volume_info::backed_up(&ended, &one.claim_info));
            backups.push(json!(ended.as_ref()));
        }
        let idle_pod_warnings = self.idle_pod_warnings();
        let mut results = std::mem::take(&mut self.state().results);
        results.warnings.extend(idle_pod_warnings);
        results.infos.extend(infos);
        results.pod_volume_backups = backups;
        results
    }
}

/// Why a volume is not backed up that a pod only declares.
pub(super) const UNMOUNTED: &str = "no container of its pod mounts it, so that it has no directory";

/// Why volumes of a pod on such a node are not backed up.
pub(super) fn windows_refused(node: &str) -> String {
    format!("node {node} runs Windows, which is not supported")
}

impl VolumeBackupper for FsBackup {
    fn has_volumes(&self, pod: &Value) -> bool {
        self.parameters.policy.concern(pod)
    }

    fn back_up<'a>(&'a self, pod: &'a Value, frozen: bool, task: &'a Task) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let chosen = self.choose(pod).await?;
            if chosen.is_empty() {
                return Ok(());
            }
            let count = chosen.len();
            let started = self.start_transfers(pod, chosen).await?;
            if frozen {
                let _waiting = task.wait_in_queue(format!("waiting for {count} volumes of a frozen pod"));
                for one in started {
                    // The result is part of the results.
                    let _ = one.ended.await;
                }
            }
            Ok(())
        })
    }

    fn finish(&self) -> BoxFuture<'_, Result<VolumeBackupResults, Error>> {
        Box::pin(async {
            let results = self.results().await;
            self.parameters.job.task.finish();
            Ok(results)
        })
    }
}
