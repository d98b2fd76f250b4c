//! Restores the data of pods' volumes: creates a transfer for each volume, and waits for it.

mod results;
mod start;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeRestore, UploaderSettings};
use plimsoll_engine::Error;
use plimsoll_engine::ports::{VolumeRestoreResults, VolumeRestorer};
use plimsoll_engine::registry::{AppliesTo, Source as Origin};
use plimsoll_engine::restore::actions::Actions;
use plimsoll_progress::Basis;
use plimsoll_select::resources::ResourceMapper;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use super::backup_content::{is_restorable, loss_reason};
use super::follower::{Follower, TransferResult};
use super::restore_wait_action::{ACTION, Expected, Pods, RestoreHelper, RestoreWaitAction, WaitContainerConfig};
use super::restored_pod::RestoredPod;
use super::services::TransferServices;
use crate::repositories::RepositoryCache;
use crate::usual_work::transfer_work;
use crate::volume_job::VolumeJob;

/// Parameters of the restore of pod volumes.
pub struct FsRestoreParameters {
    /// Services of the server.
    pub services: Arc<TransferServices>,
    /// The Backup.
    pub job: VolumeJob,
    /// The init container that waits for the data.
    pub helper: RestoreHelper,
    /// The volume backups of the backup.
    pub backups: Vec<PodVolumeBackup>,
    /// The name of the backup's location in this cluster. Another cluster may have given it another name.
    pub location: String,
    /// The namespaces that get another name.
    pub namespaces: BTreeMap<String, String>,
    /// Timeout of the transfer of one volume.
    pub limit: Duration,
    /// Settings of the mover.
    pub settings: UploaderSettings,
}

/// Restores the data of pods' volumes.
pub struct FsRestore {
    work: Arc<Work>,
    tasks: Mutex<JoinSet<()>>,
}

struct Work {
    parameters: FsRestoreParameters,
    expected: Expected,
    follower: Follower<PodVolumeRestore>,
    repositories: RepositoryCache,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    started: Vec<StartedTransfer>,
    errors: Vec<(String, String)>,
    warnings: Vec<(String, String)>,
    /// Volume backups that a pod has taken, by their names.
    used: BTreeSet<String>,
    fenced: Option<Error>,
}

struct StartedTransfer {
    namespace: String,
    pod: RestoredPod,
    label: String,
    claim: Option<String>,
    ended: TransferResult<PodVolumeRestore>,
}

impl FsRestore {
    /// Registers the action that makes pods wait for their data. It is registered without data too: then it removes the wait
    /// container of an earlier restore.
    pub fn register(
        parameters: FsRestoreParameters,
        actions: &mut Actions,
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Result<Option<Self>, Error> {
        let mut by_pod: HashMap<(String, String), Vec<PodVolumeBackup>> = HashMap::new();
        for backup in parameters.backups.iter().filter(|backup| is_restorable(backup) || loss_reason(backup).is_some())
        {
            let pod = backup.spec.pod.clone().unwrap_or_default();
            let key = (pod.namespace.unwrap_or_default(), pod.name.unwrap_or_default());
            by_pod.entry(key).or_default().push(backup.clone());
        }
        plan_transfers(&parameters, by_pod.values().flatten().filter(|backup| is_restorable(backup)));
        let expected = Expected::default();
        let waiting = RestoreWaitAction {
            pods: Pods { backups: by_pod, namespaces: parameters.namespaces.clone(), expected: Arc::clone(&expected) },
            restore_uid: parameters.job.uid.clone(),
            configured: WaitContainerConfig {
                client: parameters.services.leader.client.clone(),
                namespace: parameters.services.leader.namespace.clone(),
                helper: parameters.helper.clone(),
                task: parameters.job.task.clone(),
                waiter: OnceCell::new(),
            },
        };
        let pods = AppliesTo::resources(["pods"]);
        actions.register(Origin::BuiltIn(1), ACTION, &pods, mapper, Arc::new(waiting))?;
        if parameters.backups.is_empty() {
            return Ok(None);
        }
        let selector = format!("{}={}", labels::RESTORE_UID, parameters.job.uid);
        let follower = Follower::start(&parameters.services, selector, parameters.limit);
        let work = Arc::new(Work {
            parameters,
            expected,
            follower,
            repositories: RepositoryCache::default(),
            state: Mutex::default(),
        });
        Ok(Some(Self { work, tasks: Mutex::default() }))
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Plans the volumes: the sizes of their snapshots are known exactly.
fn plan_transfers<'a>(parameters: &FsRestoreParameters, backups: impl Iterator<Item = &'a PodVolumeBackup>) {
    for backup in backups {
        let pod = backup.spec.pod.clone().unwrap_or_default();
        let (namespace, pod) = (pod.namespace.unwrap_or_default(), pod.name.unwrap_or_default());
        let namespace = parameters.namespaces.get(&namespace).unwrap_or(&namespace);
        let label = format!("{namespace}/{pod}/{}", backup.spec.volume.as_deref().unwrap_or_default());
        let progress = backup.status.as_ref().and_then(|status| status.progress.as_ref());
        let size = progress.and_then(|progress| u64::try_from(progress.total_bytes?).ok()).unwrap_or(0);
        parameters.job.stage.plan(&label, transfer_work(size, Basis::Exact), None);
    }
}

impl VolumeRestorer for FsRestore {
    fn start_pod(&self, pod: &Value) {
        let text = |place: &str| pod.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = (text("/metadata/namespace"), text("/metadata/name"));
        let expected = self.work.expected.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        let (backups, others): (Vec<_>, Vec<_>) = expected.into_iter().flatten().partition(is_restorable);
        self.work.report_lost(&key, &others);
        self.work.report_incomplete(&key, &backups);
        if backups.is_empty() {
            return;
        }
        let (work, pod) = (Arc::clone(&self.work), pod.clone());
        self.tasks().spawn(async move { work.restore(pod, backups).await });
    }

    fn finish(&self) -> BoxFuture<'_, Result<VolumeRestoreResults, Error>> {
        Box::pin(async {
            let mut tasks = take(&mut *self.tasks());
            while tasks.join_next().await.is_some() {}
            self.work.parameters.job.stage.skip_rest("it was not restored");
            self.work.results().await
        })
    }
}

impl Work {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
