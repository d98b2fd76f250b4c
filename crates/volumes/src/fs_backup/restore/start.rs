//! Creates the PodVolumeRestores of a restored pod.

use kube::api::{ObjectMeta, PostParams};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeRestore, PodVolumeRestoreSpec, UploaderType};
use plimsoll_engine::cluster::collection_path;
use plimsoll_engine::{Error, RetryPolicy, kill};
use serde_json::{Value, json};

use super::{FsRestoreParameters, StartedTransfer, Work};
use crate::fs_backup::policy::claim_name;
use crate::fs_backup::restored_pod::RestoredPod;
use crate::fs_backup::volume_reader::VolumeReader;
use crate::fs_backup::{identifier, transfer_name};
use crate::repositories::RepositoryKey;
use crate::transfer::RESTORE_WAIT;
use crate::volume_job::VolumeJob;

impl Work {
    /// Creates the transfers of a restored pod for the agent of its node.
    pub(super) async fn restore(&self, pod: Value, backups: Vec<PodVolumeBackup>) {
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
        let FsRestoreParameters { services, location, job: VolumeJob { task, stage, .. }, .. } = &self.parameters;
        let key = RepositoryKey { location: location.clone(), ..RepositoryKey::of_pod_volume_backup(backup) };
        let repository = self.repositories.get(&services.repositories, &key, task).await?;
        let shown = stage.take(label);
        shown.start();
        let namespace = pod.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default().to_owned();
        let claim = claim_of(pod, backup.spec.volume.as_deref().unwrap_or_default());
        let existing = match &claim {
            Some(claim) => self.claim(&namespace, claim).await?,
            None => None,
        };
        if let Some(existing) = &existing {
            let pod = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            self.warn_of_claim_in_use(&namespace, pod, existing, label).await?;
        }
        let claim_uid =
            existing.and_then(|claim| claim.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned));
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

    pub(super) async fn claim(&self, namespace: &str, name: &str) -> Result<Option<Value>, Error> {
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
        let format = RepositoryKey::of_pod_volume_backup(backup).format;
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

    /// Warns about a claim that existed before: its files are replaced while pods may use them.
    async fn warn_of_claim_in_use(&self, namespace: &str, pod: &str, claim: &Value, label: &str) -> Result<(), Error> {
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
    claim_name(pod, found)
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
}
