//! File-system backup of the volumes of pods: they are selected, their transfers created and waited for.

mod select;
mod start;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{PodVolumeBackup, UploaderSettings};
use plimsoll_archive::volume_info::BackupVolumeInfo;
use plimsoll_engine::Error;
use plimsoll_engine::ports::{VolumeBackupResults, VolumeBackupper};
use plimsoll_mover::MoverKind;
use plimsoll_progress::Task;
use serde_json::{Value, json};

use self::select::IdlePod;
pub(crate) use self::select::{UNMOUNTED, windows_refused};
use super::follower::{Follower, TransferResult};
use super::policy::FsBackupPolicy;
use super::services::TransferServices;
use super::volume_info::{self, ClaimInfo};
use super::volume_reader::VolumeReader;
use crate::repositories::RepositoryCache;
use crate::transfer::{TransferMessage, transfer_message};
use crate::volume_job::VolumeJob;

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
    /// Claims whose volume is backed up through a pod.
    claims: HashSet<String>,
    windows: HashMap<String, bool>,
    started: Vec<StartedTransfer>,
    idle: Vec<IdlePod>,
    results: VolumeBackupResults,
}

#[derive(Clone)]
struct StartedTransfer {
    namespace: String,
    label: String,
    claim_info: ClaimInfo,
    ended: TransferResult<PodVolumeBackup>,
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

    fn error(&self, pod: &Value, line: String) {
        self.state().results.errors.push((text(pod, "/metadata/namespace").to_owned(), line));
    }

    fn warn(&self, pod: &Value, line: String) {
        self.state().results.warnings.push((text(pod, "/metadata/namespace").to_owned(), line));
    }

    fn reading(&self) -> VolumeReader<'_> {
        VolumeReader { cluster: &self.parameters.services.leader.cluster, task: &self.parameters.job.task }
    }

    /// Notes the size of a claim's volume for the next backup.
    fn note_size(&self, ended: &PodVolumeBackup) {
        let claim = ended.metadata.labels.as_ref().and_then(|labels| labels.get(labels::PVC_UID));
        let progress = ended.status.as_ref().and_then(|status| status.progress.as_ref());
        let size = progress.and_then(|progress| u64::try_from(progress.total_bytes?).ok());
        if let (Some(claim), Some(size)) = (claim, size) {
            self.parameters.job.history.set_size(claim, size);
        }
    }

    /// Waits for all transfers. Returns the results.
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
            self.note_size(&ended);
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
            self.parameters.job.stage.skip_rest("it was not backed up");
            self.parameters.job.task.finish();
            Ok(results)
        })
    }
}
