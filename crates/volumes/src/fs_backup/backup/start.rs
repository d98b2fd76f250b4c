//! Creates the PodVolumeBackups of a pod.

use kube::api::{ObjectMeta, PostParams};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeBackupSpec, UploaderType};
use plimsoll_engine::{Error, RetryPolicy, kill};
use serde_json::{Value, json};

use super::select::SelectedVolume;
use super::{FsBackup, FsBackupParameters, StartedTransfer, path, text};
use crate::fs_backup::{identifier, transfer_name};
use crate::repositories::RepositoryKey;
use crate::volume_job::VolumeJob;

impl FsBackup {
    /// Creates the transfers of a pod for the agent of its node.
    pub(super) async fn start_transfers(
        &self,
        pod: &Value,
        chosen: Vec<SelectedVolume>,
    ) -> Result<Vec<StartedTransfer>, Error> {
        let FsBackupParameters { services, location, job: VolumeJob { task, stage, .. }, .. } = &self.parameters;
        task.start();
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
            let shown = stage.take(&label);
            shown.runs_on(text(pod, "/spec/nodeName"));
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

    /// Creates a transfer. An existing one was created by this backup, under an earlier leader.
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
}
