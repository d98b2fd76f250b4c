//! The volumes of restored pods: their data is handed out to agents and waited for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, try_join_all};
use kube::api::{ObjectMeta, PostParams};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{
    PodVolumeBackup, PodVolumeRestore, PodVolumeRestoreSpec, TransferPhase, UploaderSettings, UploaderType,
};
use plimsoll_engine::cluster::collection_path;
use plimsoll_engine::ports::{VolumeRestoreResults, VolumeRestorer};
use plimsoll_engine::registry::{AppliesTo, Source as Origin};
use plimsoll_engine::restore::actions::Actions;
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_select::resources::ResourceMapper;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use super::follower::{Follower, TransferResult};
use super::restore_wait_action::{ACTION, Expected, Pods, RestoreHelper, RestoreWaitAction, WaitContainerConfig};
use super::restored_pod::RestoredPod;
use super::services::TransferServices;
use super::volume_reader::VolumeReader;
use super::{identifier, transfer_name, volume_info};
use crate::repositories::{RepositoryCache, RepositoryKey};
use crate::transfer::{INCOMPLETE, RESTORE_WAIT, TransferMessage, transfer_message};
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
    /// The backup's location, as this cluster calls it: another cluster may have called it otherwise.
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

/// Whether it holds the files of a claim.
pub fn is_of_claim(backup: &PodVolumeBackup) -> bool {
    let has_tag = backup.spec.tags.get("pvc-uid").is_some_and(|uid| !uid.is_empty());
    has_tag || backup.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(labels::PVC_NAME))
}

/// Whether a volume can be restored.
pub(super) fn is_restorable(backup: &PodVolumeBackup) -> bool {
    let snapshot = backup.status.as_ref().and_then(|status| status.snapshot_id.as_deref()).unwrap_or_default();
    backup.phase() == TransferPhase::Completed && !snapshot.is_empty()
}

/// The data that a restorable volume lacks.
fn shortcoming(backup: &PodVolumeBackup) -> Option<&str> {
    let message = backup.status.as_ref().and_then(|status| status.message.as_deref());
    message.filter(|message| is_restorable(backup) && message.starts_with(INCOMPLETE))
}

/// Why the data of a volume is lost, if it is. One that ended well without a snapshot held nothing.
fn loss(backup: &PodVolumeBackup) -> Option<String> {
    let message = backup.status.as_ref().and_then(|status| status.message.as_deref()).unwrap_or_default();
    match backup.phase() {
        TransferPhase::Completed => None,
        TransferPhase::Canceled => Some("its backup was cancelled".into()),
        TransferPhase::Failed if message.is_empty() => Some("its backup failed without a message".into()),
        TransferPhase::Failed => Some(format!("its backup failed: {message}")),
        phase => Some(format!("its backup has not ended: it is {phase}")),
    }
}

impl FsRestore {
    /// Registers the action that makes pods wait, and gets ready for them. Where there is no data to wait for the action sees to
    /// it that no pod waits for an earlier restore's.
    pub fn register(
        parameters: FsRestoreParameters,
        actions: &mut Actions,
        mapper: &(impl ResourceMapper + ?Sized),
    ) -> Result<Option<Self>, Error> {
        let mut by_pod: HashMap<(String, String), Vec<PodVolumeBackup>> = HashMap::new();
        for backup in parameters.backups.iter().filter(|backup| is_restorable(backup) || loss(backup).is_some()) {
            let pod = backup.spec.pod.clone().unwrap_or_default();
            let key = (pod.namespace.unwrap_or_default(), pod.name.unwrap_or_default());
            by_pod.entry(key).or_default().push(backup.clone());
        }
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

impl VolumeRestorer for FsRestore {
    fn start_pod(&self, pod: &Value) {
        let text = |place: &str| pod.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = (text("/metadata/namespace"), text("/metadata/name"));
        let expected = self.work.expected.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        let (backups, others): (Vec<_>, Vec<_>) = expected.into_iter().flatten().partition(is_restorable);
        self.work.name_lost(&key, &others);
        self.work.name_incomplete(&key, &backups);
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
            self.work.results().await
        })
    }
}

impl Work {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names the volumes of a pod that was created whose data is not in the backup.
    fn name_lost(&self, (namespace, pod): &(String, String), backups: &[PodVolumeBackup]) {
        let lost = backups.iter().filter_map(|backup| Some((backup.spec.volume.as_deref()?, loss(backup)?)));
        let lines = lost.map(|(volume, why)| format!("volume {namespace}/{pod}/{volume} is not restored: {why}"));
        self.state().errors.extend(lines.map(|line| (namespace.clone(), line)));
    }

    /// Names the volumes whose backup could not read everything: the restored files do not show that.
    fn name_incomplete(&self, (namespace, pod): &(String, String), backups: &[PodVolumeBackup]) {
        let known = backups.iter().filter_map(|backup| Some((backup.spec.volume.as_deref()?, shortcoming(backup)?)));
        let lines = known
            .map(|(volume, what)| format!("volume {namespace}/{pod}/{volume}: its backup was not complete: {what}"));
        self.state().warnings.extend(lines.map(|line| (namespace.clone(), line)));
    }

    /// A claim that was there before may be in use: its files are replaced while they are in use.
    async fn warn_of_live(&self, namespace: &str, pod: &str, claim: &Value, label: &str) -> Result<(), Error> {
        let FsRestoreParameters { services, job: VolumeJob { name, task, .. }, .. } = &self.parameters;
        let mark = claim.pointer("/metadata/labels").and_then(|all| all.get(labels::RESTORE_NAME));
        if mark.is_some_and(|restore| *restore == labels::valid_name(name)) {
            return Ok(());
        }
        let claim = claim.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let path = collection_path("v1", "pods", Some(namespace));
        let found = RetryPolicy::default().run(task, || services.leader.cluster.get(&path)).await?;
        let pods: Value = found.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        for user in users(&pods, claim).into_iter().filter(|user| *user != pod) {
            let line = format!(
                "volume {label}: claim {namespace}/{claim} was there before, and pod {namespace}/{user} works with it while the \
                 files of the backup are written over its own"
            );
            self.state().warnings.push((namespace.to_owned(), line));
        }
        Ok(())
    }

    /// Hands the volumes of a pod that was created to the agent of its node.
    async fn restore(&self, pod: Value, backups: Vec<PodVolumeBackup>) {
        let namespace = pod.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let waits = pod.pointer("/spec/initContainers").and_then(Value::as_array);
        let waits = waits.into_iter().flatten().any(|container| container["name"] == RESTORE_WAIT);
        self.parameters.job.task.start();
        for backup in backups {
            let volume = backup.spec.volume.clone().unwrap_or_default();
            let label = format!("{namespace}/{name}/{volume}");
            self.state().used.insert(backup.metadata.name.clone().unwrap_or_default());
            let answer = if waits {
                self.restore_one(&pod, &backup, &label).await
            } else {
                Err(Error::Selection(format!("a modifier took container {RESTORE_WAIT} off its pod")))
            };
            match answer {
                Ok(started) => self.state().started.push(started),
                Err(error @ Error::Fenced(_)) => self.state().fenced = Some(error),
                Err(error) => {
                    let line = format!("volume {label} is not restored: {}: {error}", error.reason());
                    self.state().errors.push((namespace.clone(), line));
                }
            }
        }
    }

    async fn restore_one(&self, pod: &Value, backup: &PodVolumeBackup, label: &str) -> Result<StartedTransfer, Error> {
        let FsRestoreParameters { services, location, job: VolumeJob { task, .. }, .. } = &self.parameters;
        let key = RepositoryKey { location: location.clone(), ..RepositoryKey::holds(backup) };
        let repository = self.repositories.get(&services.repositories, &key, task).await?;
        let shown = task.child(label);
        let namespace = pod.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default().to_owned();
        let claim = claim_of(pod, backup.spec.volume.as_deref().unwrap_or_default());
        let there = match &claim {
            Some(claim) => self.claim(&namespace, claim).await?,
            None => None,
        };
        if let Some(there) = &there {
            let pod = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            self.warn_of_live(&namespace, pod, there, label).await?;
        }
        let claim_uid =
            there.and_then(|claim| claim.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned));
        let object = self.transfer(pod, backup, &identifier(services, repository, &shown).await?, claim_uid);
        let name = object.metadata.name.clone().unwrap_or_default();
        services.leader.fence.check()?;
        kill::point("volumes.create.before");
        let create = || async {
            match services.leader.api::<PodVolumeRestore>().create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                answer => answer.map(|_| ()).map_err(|e| Error::api(format!("create PodVolumeRestore {name}"), e)),
            }
        };
        RetryPolicy::default().run(&shown, create).await?;
        kill::point("volumes.create.after");
        let ended = self.follower.follow(&name, shown);
        Ok(StartedTransfer { pod: RestoredPod::of(pod), namespace, label: label.to_owned(), claim, ended })
    }

    async fn claim(&self, namespace: &str, name: &str) -> Result<Option<Value>, Error> {
        let FsRestoreParameters { services, job: VolumeJob { task, .. }, .. } = &self.parameters;
        VolumeReader { cluster: &services.leader.cluster, task }.claim(namespace, name).await
    }

    fn transfer(
        &self,
        pod: &Value,
        backup: &PodVolumeBackup,
        identifier: &str,
        claim_uid: Option<String>,
    ) -> PodVolumeRestore {
        let FsRestoreParameters { services, job: VolumeJob { name, uid, owner, .. }, location, .. } = &self.parameters;
        let text = |place: &str| pod.pointer(place).and_then(Value::as_str).unwrap_or_default();
        let pod_uid = text("/metadata/uid");
        let volume = backup.spec.volume.clone().unwrap_or_default();
        let reference = json!({ "kind": "Pod", "namespace": text("/metadata/namespace"), "name": text("/metadata/name"),
            "uid": pod_uid });
        let status = backup.status.clone().unwrap_or_default();
        let format = RepositoryKey::holds(backup).format;
        let spec = PodVolumeRestoreSpec {
            pod: serde_json::from_value(reference).ok(),
            volume: Some(volume.clone()),
            backup_storage_location: Some(location.clone()),
            repo_identifier: Some(identifier.to_owned()),
            uploader_type: Some(UploaderType::from(format)),
            snapshot_id: status.snapshot_id,
            snapshot_size: status.progress.and_then(|progress| progress.total_bytes),
            source_namespace: backup.spec.pod.as_ref().and_then(|pod| pod.namespace.clone()),
            uploader_settings: self.parameters.settings.clone(),
            ..PodVolumeRestoreSpec::default()
        };
        let mut marks = json!({ labels::RESTORE_NAME: labels::valid_name(name), labels::RESTORE_UID: uid, labels::POD_UID: pod_uid });
        if let Some(claim_uid) = claim_uid {
            marks[labels::PVC_UID] = json!(claim_uid);
        }
        let mover = services.mover.for_restore(spec.uploader_type.as_ref());
        let metadata = ObjectMeta {
            name: Some(transfer_name(name, uid, pod_uid, &volume)),
            labels: serde_json::from_value(marks).ok(),
            annotations: Some([(labels::MOVER.to_owned(), mover.name().to_owned())].into()),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        };
        PodVolumeRestore { metadata, spec, status: None }
    }

    async fn results(&self) -> Result<VolumeRestoreResults, Error> {
        let (started, mut errors, mut warnings) = {
            let mut state = self.state();
            if let Some(error) = state.fenced.take() {
                return Err(error);
            }
            let state = &mut *state;
            (take(&mut state.started), take(&mut state.errors), take(&mut state.warnings))
        };
        let mut infos = Vec::new();
        let mut pods: BTreeMap<RestoredPod, bool> = BTreeMap::new();
        for one in started {
            let has_data = pods.entry(one.pod).or_insert(true);
            let ended = match one.ended.await {
                Ok(ended) => ended,
                Err(lost) => {
                    *has_data = false;
                    errors.push((one.namespace, format!("volume {}: its PodVolumeRestore {lost}", one.label)));
                    continue;
                }
            };
            *has_data &= ended.phase() == TransferPhase::Completed;
            let line = |text: String| (one.namespace.clone(), format!("volume {}: {text}", one.label));
            match transfer_message(ended.as_ref(), "its restore was cancelled") {
                TransferMessage::Problem(text) => errors.push(line(text)),
                TransferMessage::Warning(text) => warnings.push(line(text)),
                TransferMessage::None => {}
            }
            infos.push(volume_info::restored(&ended, one.claim.as_deref()));
        }
        let with_data = pods.into_iter().filter(|(_, has_data)| *has_data).map(|(pod, _)| pod);
        errors.extend(self.go_on(with_data).await?);
        self.parameters.job.task.finish();
        errors.extend(self.find_empty_claims().await?);
        Ok(VolumeRestoreResults { infos, errors, warnings })
    }
}

impl Work {
    /// Waits until pods that have their data go on; what is wrong with those that do not.
    async fn go_on(&self, pods: impl Iterator<Item = RestoredPod>) -> Result<Vec<(String, String)>, Error> {
        let FsRestoreParameters { services, job: VolumeJob { task, .. }, .. } = &self.parameters;
        let limit = services.resource_timeout;
        let stuck = try_join_all(pods.map(|pod| async move {
            let stuck = pod.wait_until_released(&services.leader.client, task, limit).await?;
            Ok::<_, Error>(stuck.map(|why| (pod.namespace, why)))
        }));
        Ok(stuck.await?.into_iter().flatten().collect())
    }

    /// Claims of this restore whose files are in the backup, and came back through no pod.
    async fn find_empty_claims(&self) -> Result<Vec<(String, String)>, Error> {
        let FsRestoreParameters { job: VolumeJob { name, .. }, backups, namespaces, .. } = &self.parameters;
        let used = take(&mut self.state().used);
        let mut errors = Vec::new();
        for backup in backups.iter().filter(|backup| is_restorable(backup)) {
            let claim = backup.metadata.annotations.as_ref().and_then(|all| all.get(labels::PVC_NAME));
            let Some(claim) = claim.filter(|_| !used.contains(backup.metadata.name.as_deref().unwrap_or_default()))
            else {
                continue;
            };
            let pod = backup.spec.pod.clone().unwrap_or_default();
            let old = pod.namespace.unwrap_or_default();
            let namespace = namespaces.get(&old).unwrap_or(&old);
            let found = self.claim(namespace, claim).await?.unwrap_or_default();
            let marks = found.pointer("/metadata/labels").and_then(|all| all.get(labels::RESTORE_NAME));
            if marks.is_some_and(|restore| *restore == labels::valid_name(name)) {
                let pod = pod.name.unwrap_or_default();
                let why = format!("its files come back through pod {old}/{pod}, which was not created");
                errors.push((namespace.clone(), format!("claim {namespace}/{claim} is left empty: {why}")));
            }
        }
        Ok(errors)
    }
}

/// The running pods of a list that mount a claim.
fn users<'a>(pods: &'a Value, claim: &str) -> Vec<&'a str> {
    let mounts = |pod: &&Value| {
        let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
        volumes.into_iter().any(|volume| volume["persistentVolumeClaim"]["claimName"] == claim)
    };
    let running = pods["items"].as_array().into_iter().flatten().filter(|pod| pod["status"]["phase"] == "Running");
    running.filter(mounts).filter_map(|pod| pod.pointer("/metadata/name")?.as_str()).collect()
}

fn claim_of(pod: &Value, volume: &str) -> Option<String> {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let found = volumes.into_iter().flatten().find(|known| known["name"] == volume)?;
    super::policy::claim_name(pod, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_running_pods_that_mount_a_claim_work_with_it() {
        let pod = |name: &str, phase: &str, claim: &str| {
            json!({ "metadata": { "name": name }, "status": { "phase": phase },
                "spec": { "volumes": [{ "emptyDir": {} }, { "persistentVolumeClaim": { "claimName": claim } }] } })
        };
        let pods = json!({ "items": [pod("a", "Running", "data"), pod("b", "Pending", "data"), pod("c", "Running", "other")] });
        assert_eq!(users(&pods, "data"), ["a"]);
        assert!(users(&json!({}), "data").is_empty());
    }

    #[test]
    fn a_backup_that_could_not_read_everything_stays_known_as_that() {
        let backup = |message: &str, snapshot: &str| -> PodVolumeBackup {
            let status = json!({ "phase": "Completed", "message": message, "snapshotID": snapshot });
            serde_json::from_value(json!({ "metadata": {}, "spec": {}, "status": status })).unwrap()
        };
        let words = "Incomplete: 1 files could not be read";
        assert_eq!(shortcoming(&backup(words, "0123")), Some(words));
        assert_eq!(shortcoming(&backup(words, "")), None, "there is nothing to restore");
        assert_eq!(shortcoming(&backup("no lock file was kept", "0123")), None);
    }
}
