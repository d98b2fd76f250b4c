//! PersistentVolumes and claims: which volumes come back as objects, and which are made anew.
//!
//! What cannot be restored is refused by name: a claim that comes back empty without a word is the worst a restore can do.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use plimsoll_api::velero::v1::PodVolumeBackup;
use plimsoll_archive::volume_info::{BackupVolumeInfo, VolumeSnapshot};
use plimsoll_archive::{codec, layout};
use plimsoll_store::Store;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::item::Origin;
use crate::Error;

/// How the data of a volume was backed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// By a volume-snapshotter plugin.
    NativeSnapshot,
    /// File by file.
    PodVolume,
    /// By a CSI driver, and the snapshot is still there.
    CsiSnapshot,
    /// By a CSI driver, and the data was moved into a repository.
    Moved,
    /// By a CSI driver, in vain.
    CsiFailed,
    /// Not at all.
    None,
}

/// What is known of the backup's volumes.
#[derive(Debug, Default)]
pub struct Volumes {
    /// By the name of the PersistentVolume.
    methods: HashMap<String, Method>,
    /// Claims whose files were backed up, as `namespace/name`.
    claims: HashSet<String>,
    /// The backups of files.
    files: Vec<PodVolumeBackup>,
    /// Whether claims come back as the snapshots of their CSI drivers.
    csi: bool,
    /// Whether the Restore does not want their data.
    without_data: bool,
    /// The snapshots of plugins.
    native: Vec<VolumeSnapshot>,
    /// Volumes that are made anew for their claims.
    provisioned: Mutex<HashSet<String>>,
    /// Volumes that have another name than in the backup.
    renamed: Mutex<HashMap<String, String>>,
}

/// What is to be done about a PersistentVolume.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is restored as an object.
    AsItIs,
    /// Its claim gets a new one. The text says what is lost by that.
    MadeAnew(Option<String>),
    /// It is made from a plugin's snapshot, unless it is still there.
    FromSnapshot,
}

impl Volumes {
    /// Reads what lies beside the backup. `restore_volumes` is `restorePVs` of the Restore.
    pub async fn read(store: &Store, backup: &str, restore_volumes: Option<bool>) -> Result<Self, Error> {
        let infos: Vec<BackupVolumeInfo> = list(store, &layout::backup_volume_info(backup)).await?;
        let snapshots: Vec<VolumeSnapshot> = list(store, &layout::backup_volume_snapshots(backup)).await?;
        let files: Vec<PodVolumeBackup> = list(store, &layout::backup_pod_volume_backups(backup)).await?;
        let native = snapshots.clone();
        let snapshots =
            snapshots.into_iter().map(|snapshot| (snapshot.spec.persistent_volume_name, Method::NativeSnapshot));
        let infos = infos.into_iter().filter(|info| !info.pv_name.is_empty()).map(|info| {
            let method = match info.backup_method.as_str() {
                "NativeSnapshot" => Method::NativeSnapshot,
                "PodVolumeBackup" => Method::PodVolume,
                "CSISnapshot" if info.result == "failed" => Method::CsiFailed,
                "CSISnapshot" if info.snapshot_data_moved => Method::Moved,
                "CSISnapshot" => Method::CsiSnapshot,
                _ => Method::None,
            };
            (info.pv_name, method)
        });
        let claims = files.iter().filter_map(claim_of).collect();
        // What the volume infos say goes before what older backups have.
        Ok(Self {
            methods: snapshots.chain(infos).collect(),
            claims,
            files,
            native,
            csi: false,
            without_data: restore_volumes == Some(false),
            provisioned: Mutex::default(),
            renamed: Mutex::default(),
        })
    }

    /// Whether claims come back as the snapshots of their CSI drivers.
    #[must_use]
    pub fn with_csi(self, csi: bool) -> Self {
        Self { csi, ..self }
    }

    /// Whether the data of volumes is to be restored.
    pub fn restores_data(&self) -> bool {
        !self.without_data
    }

    /// The backups of files.
    pub fn files(&self) -> &[PodVolumeBackup] {
        &self.files
    }

    /// The snapshots of plugins that volumes are to be made from.
    pub fn native(&self) -> &[VolumeSnapshot] {
        if self.without_data { &[] } else { &self.native }
    }

    fn method(&self, volume: &Value) -> Method {
        let name = volume.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        if let Some(method) = self.methods.get(name) {
            return *method;
        }
        if self.has_files(volume) { Method::PodVolume } else { Method::None }
    }

    /// Whether the files of a volume's claim can be restored.
    fn has_files(&self, volume: &Value) -> bool {
        let claim = |field: &str| volume.pointer(&format!("/spec/claimRef/{field}")).and_then(Value::as_str);
        match (claim("namespace"), claim("name")) {
            (Some(namespace), Some(name)) => self.claims.contains(&format!("{namespace}/{name}")),
            _ => false,
        }
    }

    /// Decides about a volume of the backup.
    pub(super) fn decide(&self, volume: &Value) -> Decision {
        let deletes = volume.pointer("/spec/persistentVolumeReclaimPolicy").and_then(Value::as_str) == Some("Delete");
        let wanted = !self.without_data;
        match self.method(volume) {
            Method::NativeSnapshot if wanted => Decision::FromSnapshot,
            // Its files come back through a pod that mounts the claim.
            Method::PodVolume if self.has_files(volume) => Decision::MadeAnew(None),
            Method::PodVolume => Decision::MadeAnew(wanted.then(|| {
                "the backup of its files failed, or is not in the backup's list: its claim gets an empty volume".into()
            })),
            Method::CsiSnapshot if !self.csi => Decision::MadeAnew(wanted.then(|| {
                "its data is in a snapshot of a CSI driver, and this cluster knows no VolumeSnapshots: its claim gets an \
                 empty volume"
                    .into()
            })),
            Method::CsiFailed => Decision::MadeAnew(wanted.then(|| {
                "the snapshot of its CSI driver failed at backup: its claim gets an empty volume".into()
            })),
            Method::CsiSnapshot | Method::Moved => Decision::MadeAnew(None),
            Method::None if deletes => Decision::MadeAnew(None),
            Method::None | Method::NativeSnapshot => Decision::AsItIs,
        }
    }

    /// Its claim gets a new volume.
    pub(super) fn make_anew(&self, volume: &str) {
        self.provisioned.lock().unwrap_or_else(PoisonError::into_inner).insert(volume.to_owned());
    }

    /// It has another name from now on.
    pub(super) fn rename(&self, volume: &str, to: &str) {
        self.renamed.lock().unwrap_or_else(PoisonError::into_inner).insert(volume.to_owned(), to.to_owned());
    }

    /// Takes off a claim what tied it to its volume, and the volume itself if that is made anew; one that has another name now
    /// is called by it.
    pub(super) fn release_claim(&self, claim: &mut Value) {
        let volume = claim.pointer("/spec/volumeName").and_then(Value::as_str).unwrap_or_default().to_owned();
        if volume.is_empty() {
            return;
        }
        release(claim);
        let anew = self.provisioned.lock().unwrap_or_else(PoisonError::into_inner).contains(&volume);
        if let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut).filter(|_| anew) {
            spec.remove("volumeName");
        }
        let renamed = self.renamed.lock().unwrap_or_else(PoisonError::into_inner).get(&volume).cloned();
        if let Some(name) = renamed {
            claim["spec"]["volumeName"] = json!(name);
        }
    }
}

/// Makes a volume one that its claim, in its new namespace, can be bound to again.
pub(super) fn release_volume(volume: &mut Value, origin: &Origin) {
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

/// The claim whose files a pod volume backup holds. One that ended well without a snapshot held none: the volume was empty.
fn claim_of(backup: &PodVolumeBackup) -> Option<String> {
    let claim = backup.metadata.annotations.as_ref()?.get("velero.io/pvc-name")?;
    let raw = json!(backup);
    let done = raw.pointer("/status/phase").and_then(Value::as_str) == Some("Completed");
    let namespace = raw.pointer("/spec/pod/namespace").and_then(Value::as_str)?;
    done.then(|| format!("{namespace}/{claim}"))
}

/// A list beside the backup; one that is not there is empty.
async fn list<T: DeserializeOwned>(store: &Store, key: &str) -> Result<Vec<T>, Error> {
    if !store.exists(key).await? {
        return Ok(Vec::new());
    }
    let packed = store.get(key).await?;
    codec::read_gzip_list(packed.as_ref()).map_err(|source| Error::Archive { name: key.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn volumes(method: Method, restore_volumes: Option<bool>) -> Volumes {
        Volumes {
            methods: HashMap::from([("pv".to_owned(), method)]),
            without_data: restore_volumes == Some(false),
            ..Volumes::default()
        }
    }

    fn volume(policy: &str) -> Value {
        json!({"metadata": {"name": "pv", "annotations": {"pv.kubernetes.io/bound-by-controller": "yes", "mine": "kept"}},
            "spec": {"persistentVolumeReclaimPolicy": policy, "claimRef": {"namespace": "old", "name": "c", "uid": "1", "resourceVersion": "2"}}})
    }

    #[test]
    fn the_method_and_the_reclaim_policy_decide() {
        let decide = |method, wanted, policy: &str| volumes(method, wanted).decide(&volume(policy));
        assert_eq!(decide(Method::None, None, "Retain"), Decision::AsItIs);
        assert_eq!(decide(Method::None, None, "Delete"), Decision::MadeAnew(None));
        assert!(matches!(decide(Method::PodVolume, None, "Retain"), Decision::MadeAnew(Some(_))));
        assert!(matches!(decide(Method::CsiSnapshot, Some(true), "Retain"), Decision::MadeAnew(Some(_))));
        assert_eq!(decide(Method::CsiSnapshot, Some(false), "Retain"), Decision::MadeAnew(None));
        assert!(matches!(decide(Method::CsiFailed, None, "Delete"), Decision::MadeAnew(Some(_))));
        assert_eq!(decide(Method::Moved, None, "Retain"), Decision::MadeAnew(None));
        let known = volumes(Method::CsiSnapshot, None).with_csi(true);
        assert_eq!(known.decide(&volume("Retain")), Decision::MadeAnew(None));
        assert_eq!(decide(Method::NativeSnapshot, None, "Retain"), Decision::FromSnapshot);
        assert_eq!(decide(Method::NativeSnapshot, Some(false), "Delete"), Decision::AsItIs);
    }

    #[test]
    fn a_volume_whose_files_can_be_restored_is_made_anew_without_a_word() {
        let claims = HashSet::from(["old/c".to_owned()]);
        let known = Volumes { claims, ..volumes(Method::PodVolume, None) };
        assert_eq!(known.decide(&volume("Retain")), Decision::MadeAnew(None));
    }

    #[test]
    fn a_volume_that_was_empty_comes_back_empty_without_a_word() {
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
            Volumes { claims, ..volumes(Method::PodVolume, None) }.decide(&volume("Retain"))
        };
        assert_eq!(decide(&empty), Decision::MadeAnew(None));
        assert!(matches!(decide(&failed), Decision::MadeAnew(Some(_))));
    }

    #[test]
    fn a_volume_is_released_from_its_old_claim_and_follows_the_namespace() {
        let origin = Origin {
            restore: String::new(),
            created: jiff::Timestamp::MIN,
            backup: String::new(),
            namespaces: BTreeMap::from([("old".to_owned(), "new".to_owned())]),
        };
        let mut object = volume("Retain");
        release_volume(&mut object, &origin);
        assert_eq!(object["spec"]["claimRef"], json!({"namespace": "new", "name": "c"}));
        assert_eq!(object["metadata"]["annotations"], json!({"mine": "kept"}));
    }

    #[test]
    fn a_claim_loses_its_volume_only_if_that_is_made_anew() {
        let volumes = Volumes::default();
        volumes.make_anew("gone");
        for (name, stays) in [("gone", false), ("kept", true)] {
            let mut claim = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": name}});
            volumes.release_claim(&mut claim);
            assert_eq!(claim["spec"].get("volumeName").is_some(), stays, "{name}");
            assert_eq!(claim["metadata"]["annotations"], json!({}));
        }
    }
}
