//! Volume infos of a backup or restore.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeRestore, TransferPhase};
use plimsoll_archive::volume_info::{
    BackupVolumeInfo, PersistentVolumeInfo, PodVolumeInfo, RestoreVolumeInfo, VolumeNames,
};
use serde_json::Value;

/// The claim and the volume behind a pod's volume.
#[derive(Clone, Debug, Default)]
pub struct ClaimInfo {
    /// The name of the claim.
    pub claim: String,
    /// Its namespace.
    pub namespace: String,
    /// The name of the PersistentVolume.
    pub volume: String,
    /// Info of the PersistentVolume.
    pub persistent: Option<PersistentVolumeInfo>,
}

impl ClaimInfo {
    /// From the claim and, where it is known, its volume.
    pub fn of(claim: &Value, volume: Option<&Value>) -> Self {
        Self {
            claim: text(claim, "/metadata/name"),
            namespace: text(claim, "/metadata/namespace"),
            volume: text(claim, "/spec/volumeName"),
            persistent: volume.map(persistent),
        }
    }

    /// From a volume, which names its claim.
    pub fn of_volume(volume: &Value) -> Self {
        Self {
            claim: text(volume, "/spec/claimRef/name"),
            namespace: text(volume, "/spec/claimRef/namespace"),
            volume: text(volume, "/metadata/name"),
            persistent: Some(persistent(volume)),
        }
    }

    /// The volume info without a method.
    pub fn volume_info(&self) -> BackupVolumeInfo {
        BackupVolumeInfo {
            volume: VolumeNames {
                pvc_name: self.claim.clone(),
                pvc_namespace: self.namespace.clone(),
                pv_name: self.volume.clone(),
            },
            pv_info: self.persistent.clone(),
            ..BackupVolumeInfo::default()
        }
    }
}

fn text(value: &Value, place: &str) -> String {
    value.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn persistent(volume: &Value) -> PersistentVolumeInfo {
    let labels = volume.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    PersistentVolumeInfo {
        reclaim_policy: text(volume, "/spec/persistentVolumeReclaimPolicy"),
        labels: labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect(),
    }
}

/// A volume that was backed up, or not.
pub fn backed_up(backup: &PodVolumeBackup, claim_info: &ClaimInfo) -> BackupVolumeInfo {
    let (spec, status) = (&backup.spec, backup.status.clone().unwrap_or_default());
    let pod = spec.pod.clone().unwrap_or_default();
    let time = |time: Option<Time>| time.map(|time| format!("{:.0}", time.0));
    let completed = backup.phase() == TransferPhase::Completed;
    BackupVolumeInfo {
        backup_method: "PodVolumeBackup".into(),
        start_timestamp: time(status.start_timestamp),
        completion_timestamp: time(status.completion_timestamp),
        result: if completed { "succeeded" } else { "failed" }.into(),
        pvb_info: Some(PodVolumeInfo {
            snapshot_handle: status.snapshot_id.unwrap_or_default(),
            size: status.progress.and_then(|progress| progress.total_bytes).unwrap_or_default(),
            incremental_size: status.incremental_bytes.unwrap_or_default(),
            uploader_type: spec.uploader_type.clone().unwrap_or_default().to_string(),
            volume_name: spec.volume.clone().unwrap_or_default(),
            pod_name: pod.name.unwrap_or_default(),
            pod_namespace: pod.namespace.unwrap_or_default(),
            node_name: spec.node.clone().unwrap_or_default(),
            phase: backup.phase().to_string(),
        }),
        ..claim_info.volume_info()
    }
}

/// A volume that was left out on purpose.
pub fn skipped(claim_info: &ClaimInfo, why: &str) -> BackupVolumeInfo {
    BackupVolumeInfo { skipped: true, skipped_reason: why.to_owned(), ..claim_info.volume_info() }
}

/// A volume that was restored, or not.
pub fn restored(restore: &PodVolumeRestore, claim: Option<&str>) -> RestoreVolumeInfo {
    let (spec, status) = (&restore.spec, restore.status.clone().unwrap_or_default());
    let pod = spec.pod.clone().unwrap_or_default();
    RestoreVolumeInfo {
        volume: VolumeNames {
            pvc_name: claim.unwrap_or_default().to_owned(),
            pvc_namespace: claim.and(pod.namespace.clone()).unwrap_or_default(),
            ..VolumeNames::default()
        },
        restore_method: "PodVolumeRestore".into(),
        pvr_info: Some(PodVolumeInfo {
            snapshot_handle: spec.snapshot_id.clone().unwrap_or_default(),
            size: status.progress.and_then(|progress| progress.total_bytes).unwrap_or_default(),
            uploader_type: spec.uploader_type.clone().unwrap_or_default().to_string(),
            volume_name: spec.volume.clone().unwrap_or_default(),
            pod_name: pod.name.unwrap_or_default(),
            pod_namespace: pod.namespace.unwrap_or_default(),
            node_name: status.node.unwrap_or_default(),
            phase: restore.phase().to_string(),
            ..PodVolumeInfo::default()
        }),
        ..RestoreVolumeInfo::default()
    }
}
