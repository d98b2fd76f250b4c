//! The results of the restore of pod volumes.

use std::collections::BTreeMap;
use std::mem::take;

use futures::future::try_join_all;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{PodVolumeBackup, TransferPhase};
use plimsoll_engine::Error;
use plimsoll_engine::ports::VolumeRestoreResults;

use super::{FsRestoreParameters, Work};
use crate::fs_backup::backup_content::{is_restorable, loss_reason, shortcoming};
use crate::fs_backup::restored_pod::RestoredPod;
use crate::fs_backup::volume_info;
use crate::transfer::{TransferMessage, transfer_message};
use crate::volume_job::VolumeJob;

impl Work {
    /// Reports the volumes of a restored pod whose data is not in the backup.
    pub(super) fn report_lost(&self, (namespace, pod): &(String, String), backups: &[PodVolumeBackup]) {
        let lost = backups.iter().filter_map(|backup| Some((backup.spec.volume.as_deref()?, loss_reason(backup)?)));
        let lines = lost.map(|(volume, why)| format!("volume {namespace}/{pod}/{volume} is not restored: {why}"));
        self.state().errors.extend(lines.map(|line| (namespace.clone(), line)));
    }

    /// Reports the volumes whose backup is incomplete: the restored files do not show that.
    pub(super) fn report_incomplete(&self, (namespace, pod): &(String, String), backups: &[PodVolumeBackup]) {
        let known = backups.iter().filter_map(|backup| Some((backup.spec.volume.as_deref()?, shortcoming(backup)?)));
        let lines = known
            .map(|(volume, what)| format!("volume {namespace}/{pod}/{volume}: its backup was not complete: {what}"));
        self.state().warnings.extend(lines.map(|line| (namespace.clone(), line)));
    }

    pub(super) async fn results(&self) -> Result<VolumeRestoreResults, Error> {
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
        errors.extend(self.wait_until_released(with_data).await?);
        self.parameters.job.task.finish();
        errors.extend(self.find_empty_claims().await?);
        Ok(VolumeRestoreResults { infos, errors, warnings })
    }

    /// Waits until pods that have their data are released. Returns the errors of those that are not.
    async fn wait_until_released(
        &self,
        pods: impl Iterator<Item = RestoredPod>,
    ) -> Result<Vec<(String, String)>, Error> {
        let FsRestoreParameters { services, job: VolumeJob { task, .. }, .. } = &self.parameters;
        let limit = services.resource_timeout;
        let stuck = try_join_all(pods.map(|pod| async move {
            let stuck = pod.wait_until_released(&services.leader.client, task, limit).await?;
            Ok::<_, Error>(stuck.map(|why| (pod.namespace, why)))
        }));
        Ok(stuck.await?.into_iter().flatten().collect())
    }

    /// Reports claims of this restore whose files are in the backup, and whose pod was not created.
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
