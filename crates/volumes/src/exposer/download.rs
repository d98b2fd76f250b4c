//! A volume for data that comes back: made from scratch for a claim of ours, and handed to the restored claim once it is full.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_api::velero::v2alpha1::DataDownload;
use plimsoll_engine::{Error, kill};
use serde_json::{Value, json};

use super::driver_objects::{self, NotCopied};
use super::holder_pod::{HeldVolume, claim, pod, remove};
use super::{ExposeStep, ExposedTransfer, Exposer};
use crate::csi::AWAITED_VOLUME;

/// On a volume that changes hands: the reclaim policy that it gets back.
const RECLAIM_POLICY: &str = "plimsoll.dev/reclaim-policy";

impl ExposedTransfer for DataDownload {
    async fn expose(&self, exposer: &Exposer) -> Result<ExposeStep, Error> {
        let Some(target) = target(self, exposer).await? else {
            return Ok(ExposeStep::Waiting(format!("for claim {} to be restored", path(self))));
        };
        let spec = target.spec.clone().unwrap_or_default();
        if spec.volume_name.as_deref().is_some_and(|volume| !volume.is_empty()) {
            return Ok(ExposeStep::Refused(format!("claim {} has a volume already", path(self))));
        }
        if spec.volume_mode.as_deref() == Some("Block") {
            return Ok(ExposeStep::Refused(format!("claim {} is a block device, which has no files", path(self))));
        }
        let (needed, namespace) = (exposer.config.restored_driver_objects(), target.namespace().unwrap_or_default());
        match driver_objects::copy_all(&exposer.leader, self, &namespace, &needed).await? {
            Ok(()) => {}
            Err(NotCopied::Waiting(why)) => return Ok(ExposeStep::Waiting(why)),
            // Claims are restored before what their drivers need.
            Err(NotCopied::Missing(what)) => return Ok(ExposeStep::Waiting(format!("for {what} to be restored"))),
        }
        let like = json!({ "accessModes": spec.access_modes, "storageClassName": spec.storage_class_name,
            "volumeMode": "Filesystem", "resources": spec.resources });
        claim(exposer, self, like, &BTreeMap::new()).await?;
        let storage_class = spec.storage_class_name.unwrap_or_default();
        pod(exposer, self, &HeldVolume { storage_class, ..HeldVolume::default() }).await
    }

    async fn clean_up(&self, exposer: &Exposer) -> Result<bool, Error> {
        let gone = if self.phase() == TransferPhase::Completed {
            hand_over(self, exposer).await?
        } else {
            discard(self, exposer).await?
        };
        if gone {
            driver_objects::release_all(&exposer.leader, self).await?;
        }
        Ok(gone)
    }
}

/// Deletes what was made for data that did not come back. Whether it is gone.
async fn discard(download: &DataDownload, exposer: &Exposer) -> Result<bool, Error> {
    let (name, uid) = (download.name_any(), download.uid().unwrap_or_default());
    let pod_gone = remove(&exposer.leader.api::<Pod>(), &name, &uid).await?;
    Ok(remove(&exposer.leader.api::<PersistentVolumeClaim>(), &name, &uid).await? && pod_gone)
}

fn path(download: &DataDownload) -> String {
    let target = download.spec.target_volume.clone().unwrap_or_default();
    format!("{}/{}", target.namespace.unwrap_or_default(), target.pvc.unwrap_or_default())
}

/// The claim that is to have the volume.
async fn target(download: &DataDownload, exposer: &Exposer) -> Result<Option<PersistentVolumeClaim>, Error> {
    let target = download.spec.target_volume.clone().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(exposer.leader.client.clone(), &target.namespace.unwrap_or_default());
    let found = claims.get_opt(&target.pvc.unwrap_or_default()).await;
    found.map_err(|e| Error::api(format!("read claim {}", path(download)), e))
}

/// The next thing on the volume's way to the restored claim. Whether it has arrived.
async fn hand_over(download: &DataDownload, exposer: &Exposer) -> Result<bool, Error> {
    let (name, uid) = (download.name_any(), download.uid().unwrap_or_default());
    let claims = exposer.leader.api::<PersistentVolumeClaim>();
    let own = claims.get_opt(&name).await.map_err(|e| Error::api(format!("read claim {name}"), e))?;
    if let Some(own) = own.filter(|own| own.labels().get(labels::TRANSFER_UID) == Some(&uid)) {
        let volume = own.spec.and_then(|spec| spec.volume_name).unwrap_or_default();
        if own.metadata.deletion_timestamp.is_none() {
            secure(download, exposer, &volume).await?;
        }
        kill::point("exposing.handover.before");
        remove(&exposer.leader.api::<Pod>(), &name, &uid).await?;
        remove(&claims, &name, &uid).await?;
        return Ok(false);
    }
    let volumes: Api<PersistentVolume> = Api::all(exposer.leader.client.clone());
    let ours = ListParams::default().labels(&format!("{}={uid}", labels::TRANSFER_UID));
    let found = volumes.list(&ours).await.map_err(|e| Error::api("list volumes", e))?.items.into_iter().next();
    match found {
        Some(volume) => bind_to_claim(download, exposer, &volume).await,
        None => Ok(true),
    }
}

async fn change(exposer: &Exposer, volume: &str, patch: &Value) -> Result<(), Error> {
    let volumes: Api<PersistentVolume> = Api::all(exposer.leader.client.clone());
    let written = volumes.patch(volume, &PatchParams::default(), &Patch::Merge(patch)).await;
    written.map(drop).map_err(|e| Error::api(format!("write volume {volume}"), e))
}

/// From now on the volume outlives the claim that it was made for.
async fn secure(download: &DataDownload, exposer: &Exposer, volume: &str) -> Result<(), Error> {
    let volumes: Api<PersistentVolume> = Api::all(exposer.leader.client.clone());
    let found = volumes.get(volume).await.map_err(|e| Error::api(format!("read volume {volume}"), e))?;
    let selector = target(download, exposer).await?.and_then(|claim| claim.spec?.selector?.match_labels);
    let awaited = selector.and_then(|labels| labels.get(AWAITED_VOLUME).cloned());
    let policy = found.annotations().get(RECLAIM_POLICY).cloned();
    let policy = policy.or_else(|| found.spec?.persistent_volume_reclaim_policy).unwrap_or_else(|| "Delete".into());
    let patch = json!({
        "metadata": { "labels": { labels::TRANSFER_UID: download.uid(), AWAITED_VOLUME: awaited },
            "annotations": { RECLAIM_POLICY: policy } },
        "spec": { "persistentVolumeReclaimPolicy": "Retain" },
    });
    change(exposer, volume, &patch).await
}

/// Binds a released volume to the restored claim. Returns whether it is bound.
async fn bind_to_claim(download: &DataDownload, exposer: &Exposer, volume: &PersistentVolume) -> Result<bool, Error> {
    let name = volume.name_any();
    let policy = volume.annotations().get(RECLAIM_POLICY).cloned().unwrap_or_else(|| "Delete".into());
    let released = json!({
        "metadata": { "labels": { labels::TRANSFER_UID: null }, "annotations": { RECLAIM_POLICY: null } },
        "spec": { "persistentVolumeReclaimPolicy": policy },
    });
    let Some(target) = target(download, exposer).await? else {
        // It is not needed any more: its reclaim policy applies.
        change(exposer, &name, &released).await?;
        return Ok(true);
    };
    let wanted = (target.namespace(), Some(target.name_any()));
    let reference = volume.spec.clone().and_then(|spec| spec.claim_ref).unwrap_or_default();
    if (reference.namespace, reference.name) != wanted {
        let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": wanted.0, "name": wanted.1,
            "uid": null, "resourceVersion": null });
        let free = json!({ "pv.kubernetes.io/bound-by-controller": null });
        change(exposer, &name, &json!({ "metadata": { "annotations": free }, "spec": { "claimRef": claim } })).await?;
        return Ok(false);
    }
    let bound = target.status.and_then(|status| status.phase).is_some_and(|phase| phase == "Bound");
    let is_its = target.spec.and_then(|spec| spec.volume_name).is_some_and(|volume| volume == name);
    if bound && is_its {
        kill::point("exposing.handover.after");
        change(exposer, &name, &released).await?;
    }
    Ok(bound && is_its)
}
