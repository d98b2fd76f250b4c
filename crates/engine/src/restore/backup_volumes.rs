//! PersistentVolumes and claims: which volumes are restored as objects, and which are provisioned again.
//!
//! Data that cannot be restored is an error with the name of the volume: a claim must not be empty unnoticed.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use plimsoll_api::velero::v1::PodVolumeBackup;
use plimsoll_archive::layout;
use plimsoll_archive::volume_info::{BackupVolumeInfo, VolumeSnapshot};
use plimsoll_store::Store;
use serde_json::{Value, json};

use super::item::RestoreOrigin;
use super::provisioned_volumes::ProvisionedClaim;
use crate::{Error, read_backup_list};

/// How the data of a volume was backed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VolumeMethod {
    /// Snapshot of a volume snapshotter.
    NativeSnapshot,
    /// File-system backup.
    PodVolume,
    /// CSI snapshot.
    CsiSnapshot,
    /// Data movement.
    Moved,
    /// CSI snapshot that failed.
    CsiFailed,
    /// No data in the backup.
    None,
}

impl VolumeMethod {
    fn of(info: &BackupVolumeInfo) -> Self {
        match info.backup_method.as_str() {
            "NativeSnapshot" => Self::NativeSnapshot,
            "PodVolumeBackup" => Self::PodVolume,
            "CSISnapshot" if info.result == "failed" => Self::CsiFailed,
            "CSISnapshot" if info.snapshot_data_moved => Self::Moved,
            "CSISnapshot" => Self::CsiSnapshot,
            _ => Self::None,
        }
    }
}

/// The volumes of a backup.
#[derive(Debug, Default)]
pub struct BackupVolumes {
    /// By the name of the PersistentVolume.
    methods: HashMap<String, VolumeMethod>,
    /// Claims with a file-system backup, as `namespace/name`.
    claims: HashSet<String>,
    /// File-system backups.
    pod_volume_backups: Vec<PodVolumeBackup>,
    /// Whether the cluster supports CSI snapshots.
    csi: bool,
    /// `restorePVs: false`.
    without_data: bool,
    /// Snapshots of volume snapshotters.
    native_snapshots: Vec<VolumeSnapshot>,
    /// Claims whose data was moved into the repository, as namespace and name, and its bytes.
    moved: Vec<(String, String, u64)>,
    /// Claims whose volumes are provisioned anew and have data in the backup.
    provisioned_claims: Vec<ProvisionedClaim>,
    /// Volumes that are provisioned for their claims.
    provisioned: Mutex<HashSet<String>>,
    /// New names of volumes, by the name in the backup.
    renamed: Mutex<HashMap<String, String>>,
}

fn moved(info: &BackupVolumeInfo) -> Option<(String, String, u64)> {
    let data =
        info.snapshot.snapshot_data_movement_info.as_ref().filter(|_| VolumeMethod::of(info) == VolumeMethod::Moved)?;
    let bytes = u64::try_from(data.size).ok()?;
    Some((info.volume.pvc_namespace.clone(), info.volume.pvc_name.clone(), bytes))
}

/// How a PersistentVolume is restored.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VolumeDecision {
    /// As an object.
    RestoreObject,
    /// Provisioned for its claim. The text describes lost data.
    Provision(Option<String>),
    /// From the snapshot of a volume snapshotter, unless the volume exists.
    RestoreSnapshot,
}

impl BackupVolumes {
    /// Reads the metadata files of the backup. `restore_volumes` is `restorePVs` of the Restore.
    pub async fn read(store: &Store, backup: &str, restore_volumes: Option<bool>) -> Result<Self, Error> {
        let infos: Vec<BackupVolumeInfo> = read_backup_list(store, &layout::backup_volume_info(backup)).await?;
        let snapshots: Vec<VolumeSnapshot> = read_backup_list(store, &layout::backup_volume_snapshots(backup)).await?;
        let pod_volume_backups: Vec<PodVolumeBackup> =
            read_backup_list(store, &layout::backup_pod_volume_backups(backup)).await?;
        let native_snapshots = snapshots.clone();
        let provisioned_claims = infos.iter().filter_map(provisioned_claim).collect();
        let moved = infos.iter().filter_map(moved).collect();
        let snapshots =
            snapshots.into_iter().map(|snapshot| (snapshot.spec.persistent_volume_name, VolumeMethod::NativeSnapshot));
        let infos = infos.into_iter().filter(|info| !info.volume.pv_name.is_empty());
        let infos = infos.map(|info| (info.volume.pv_name.clone(), VolumeMethod::of(&info)));
        let claims = pod_volume_backups.iter().filter_map(claim_of).collect();
        // Volume infos override the snapshot list of older backups.
        Ok(Self {
            methods: snapshots.chain(infos).collect(),
            claims,
            pod_volume_backups,
            native_snapshots,
            moved,
            provisioned_claims,
            csi: false,
            without_data: restore_volumes == Some(false),
            provisioned: Mutex::default(),
            renamed: Mutex::default(),
        })
    }

    /// Claims whose data was moved into the repository, as namespace and name, and its bytes.
    pub fn moved(&self) -> &[(String, String, u64)] {
        if self.without_data { &[] } else { &self.moved }
    }

    /// Sets whether the cluster supports CSI snapshots.
    pub fn set_csi(&mut self, csi: bool) {
        self.csi = csi;
    }

    /// Whether the data of volumes is restored.
    pub fn restores_data(&self) -> bool {
        !self.without_data
    }

    /// Claims whose volumes are provisioned anew and have data in the backup.
    pub(super) fn provisioned_claims(&self) -> &[ProvisionedClaim] {
        &self.provisioned_claims
    }

    /// File-system backups.
    pub fn pod_volume_backups(&self) -> &[PodVolumeBackup] {
        &self.pod_volume_backups
    }

    /// The snapshots that volumes are restored from.
    pub fn native_snapshots(&self) -> &[VolumeSnapshot] {
        if self.without_data { &[] } else { &self.native_snapshots }
    }

    fn method(&self, volume: &Value) -> VolumeMethod {
        let name = volume.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        if let Some(method) = self.methods.get(name) {
            return *method;
        }
        if self.has_files(volume) { VolumeMethod::PodVolume } else { VolumeMethod::None }
    }

    /// Whether the claim of a volume has a file-system backup.
    fn has_files(&self, volume: &Value) -> bool {
        let claim = |field: &str| volume.pointer(&format!("/spec/claimRef/{field}")).and_then(Value::as_str);
        match (claim("namespace"), claim("name")) {
            (Some(namespace), Some(name)) => self.claims.contains(&format!("{namespace}/{name}")),
            _ => false,
        }
    }

    /// Decides how a volume is restored.
    pub(super) fn decide(&self, volume: &Value) -> VolumeDecision {
        let deletes = volume.pointer("/spec/persistentVolumeReclaimPolicy").and_then(Value::as_str) == Some("Delete");
        let wanted = !self.without_data;
        match self.method(volume) {
            VolumeMethod::NativeSnapshot if wanted => VolumeDecision::RestoreSnapshot,
            // The files are restored through a pod that mounts the claim.
            VolumeMethod::PodVolume if self.has_files(volume) => VolumeDecision::Provision(None),
            VolumeMethod::PodVolume => VolumeDecision::Provision(
                wanted.then(|| "its file-system backup failed or is missing: its claim gets an empty volume".into()),
            ),
            VolumeMethod::CsiSnapshot if !self.csi => VolumeDecision::Provision(wanted.then(|| {
                "its data is in a CSI snapshot, and this cluster does not serve VolumeSnapshots: its claim gets an \
                 empty volume"
                    .into()
            })),
            VolumeMethod::CsiFailed => VolumeDecision::Provision(
                wanted.then(|| "its CSI snapshot failed during the backup: its claim gets an empty volume".into()),
            ),
            VolumeMethod::CsiSnapshot | VolumeMethod::Moved => VolumeDecision::Provision(None),
            VolumeMethod::None if deletes => VolumeDecision::Provision(None),
            VolumeMethod::None | VolumeMethod::NativeSnapshot => VolumeDecision::RestoreObject,
        }
    }

    /// Marks a volume as provisioned for its claim.
    pub(super) fn mark_provisioned(&self, volume: &str) {
        self.provisioned.lock().unwrap_or_else(PoisonError::into_inner).insert(volume.to_owned());
    }

    /// Records the new name of a volume.
    pub(super) fn rename(&self, volume: &str, to: &str) {
        self.renamed.lock().unwrap_or_else(PoisonError::into_inner).insert(volume.to_owned(), to.to_owned());
    }

    /// Removes the binding of a claim to its volume, and the volume name if the volume is provisioned. A new name of the volume
    /// is set.
    pub(super) fn release_claim(&self, claim: &mut Value) {
        let volume = claim.pointer("/spec/volumeName").and_then(Value::as_str).unwrap_or_default().to_owned();
        if volume.is_empty() {
            return;
        }
        release(claim);
        let provisioned = self.provisioned.lock().unwrap_or_else(PoisonError::into_inner).contains(&volume);
        if let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut).filter(|_| provisioned) {
            spec.remove("volumeName");
        }
        let renamed = self.renamed.lock().unwrap_or_else(PoisonError::into_inner).get(&volume).cloned();
        if let Some(name) = renamed {
            claim["spec"]["volumeName"] = json!(name);
        }
    }
}

/// The claim, if its volume is provisioned anew and the backup knows what the volume had.
fn provisioned_claim(info: &BackupVolumeInfo) -> Option<ProvisionedClaim> {
    let provisioned = matches!(
        VolumeMethod::of(info),
        VolumeMethod::PodVolume | VolumeMethod::CsiSnapshot | VolumeMethod::CsiFailed | VolumeMethod::Moved
    );
    let volume = info.pv_info.clone().filter(|volume| provisioned && !volume.reclaim_policy.is_empty())?;
    (!info.volume.pvc_name.is_empty()).then(|| ProvisionedClaim {
        namespace: info.volume.pvc_namespace.clone(),
        name: info.volume.pvc_name.clone(),
        volume,
    })
}

/// Removes the binding of a volume, so that its claim can bind to it in the target namespace.
pub(super) fn release_volume(volume: &mut Value, origin: &RestoreOrigin) {
    release(volume);
    if let Some(claim) = volume.pointer_mut("/spec/claimRef").and_then(Value::as_object_mut)
        && let Some(namespace) = claim.get("namespace").and_then(Value::as_str).map(|ns| origin.target(ns).to_owned())
    {
        claim.insert("namespace".into(), json!(namespace));
    }
}

fn release(object: &mut Value) {
    if let Some(claim) = object.pointer_mut("/spec/claimRef").and_then(Value::as_object_mut) {
        claim.remove("uid");
        claim.remove("resourceVersion");
    }
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove("pv.kubernetes.io/bind-completed");
        annotations.remove("pv.kubernetes.io/bound-by-controller");
    }
}

/// The claim of a completed PodVolumeBackup. Without a snapshot the volume was empty.
fn claim_of(backup: &PodVolumeBackup) -> Option<String> {
    let claim = backup.metadata.annotations.as_ref()?.get("velero.io/pvc-name")?;
    let raw = json!(backup);
    let done = raw.pointer("/status/phase").and_then(Value::as_str) == Some("Completed");
    let namespace = raw.pointer("/spec/pod/namespace").and_then(Value::as_str)?;
    done.then(|| format!("{namespace}/{claim}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volumes(method: VolumeMethod, restore_volumes: Option<bool>) -> BackupVolumes {
        BackupVolumes {
            methods: HashMap::from([("pv".to_owned(), method)]),
            without_data: restore_volumes == Some(false),
            ..BackupVolumes::default()
        }
    }

    fn volume(policy: &str) -> Value {
        json!({"metadata": {"name": "pv", "annotations": {"pv.kubernetes.io/bound-by-controller": "yes", "mine": "kept"}},
            "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": {"namespace": "old", "name": "c", "uid": "1", "resourceVersion": "2"}}})
    }

    #[test]
    fn the_method_and_the_reclaim_policy_decide() {
        let decide = |method, wanted, policy: &str| volumes(method, wanted).decide(&volume(policy));
        assert_eq!(decide(VolumeMethod::None, None, "Retain"), VolumeDecision::RestoreObject);
        assert_eq!(decide(VolumeMethod::None, None, "Delete"), VolumeDecision::Provision(None));
        assert!(matches!(decide(VolumeMethod::PodVolume, None, "Retain"), VolumeDecision::Provision(Some(_))));
        assert!(matches!(decide(VolumeMethod::CsiSnapshot, Some(true), "Retain"), VolumeDecision::Provision(Some(_))));
        assert_eq!(decide(VolumeMethod::CsiSnapshot, Some(false), "Retain"), VolumeDecision::Provision(None));
        assert!(matches!(decide(VolumeMethod::CsiFailed, None, "Delete"), VolumeDecision::Provision(Some(_))));
        assert_eq!(decide(VolumeMethod::Moved, None, "Retain"), VolumeDecision::Provision(None));
        let mut known = volumes(VolumeMethod::CsiSnapshot, None);
        known.set_csi(true);
        assert_eq!(known.decide(&volume("Retain")), VolumeDecision::Provision(None));
        assert_eq!(decide(VolumeMethod::NativeSnapshot, None, "Retain"), VolumeDecision::RestoreSnapshot);
        assert_eq!(decide(VolumeMethod::NativeSnapshot, Some(false), "Delete"), VolumeDecision::RestoreObject);
    }

    #[test]
    fn a_volume_with_a_file_system_backup_is_provisioned_without_error() {
        let claims = HashSet::from(["old/c".to_owned()]);
        let known = BackupVolumes { claims, ..volumes(VolumeMethod::PodVolume, None) };
        assert_eq!(known.decide(&volume("Retain")), VolumeDecision::Provision(None));
    }

    #[test]
    fn an_empty_volume_is_provisioned_without_error() {
        let backup = |status: Value| {
            serde_json::from_value(json!({"apiVersion": "velero.io/v1", "kind": "PodVolumeBackup",
                "metadata": {"name": "x", "annotations": {"velero.io/pvc-name": "c"}},
                "spec": {"pod": {"namespace": "old", "name": "p"}, "volume": "data"}, "status": status}))
            .unwrap()
        };
        let empty: PodVolumeBackup = backup(json!({"phase": "Completed", "snapshotID": "",
            "message": "volume was empty so no snapshot was taken"}));
        let failed: PodVolumeBackup = backup(json!({"phase": "Failed"}));
        let decide = |one: &PodVolumeBackup| {
            let claims = claim_of(one).into_iter().collect();
            BackupVolumes { claims, ..volumes(VolumeMethod::PodVolume, None) }.decide(&volume("Retain"))
        };
        assert_eq!(decide(&empty), VolumeDecision::Provision(None));
        assert!(matches!(decide(&failed), VolumeDecision::Provision(Some(_))));
    }

    #[test]
    fn the_binding_of_a_volume_is_removed_and_its_namespace_mapped() {
        let origin = RestoreOrigin::fixture().with_mapping("old", "new");
        let mut object = volume("Retain");
        release_volume(&mut object, &origin);
        assert_eq!(object["spec"]["claimRef"], json!({"namespace": "new", "name": "c"}));
        assert_eq!(object["metadata"]["annotations"], json!({"mine": "kept"}));
    }

    #[test]
    fn a_claim_loses_its_volume_name_only_if_the_volume_is_provisioned() {
        let volumes = BackupVolumes::default();
        volumes.mark_provisioned("gone");
        for (name, stays) in [("gone", false), ("kept", true)] {
            let mut claim = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": name}});
            volumes.release_claim(&mut claim);
            assert_eq!(claim["spec"].get("volumeName").is_some(), stays, "{name}");
            assert_eq!(claim["metadata"]["annotations"], json!({}));
        }
    }
}
