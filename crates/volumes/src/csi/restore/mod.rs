//! Restores a claim from its snapshot: claim, snapshot and content, each with a name of this restore. A claim whose data was
//! moved waits for it.

mod action;
mod objects;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::UploaderSettings;
use plimsoll_archive::volume_info::RestoreVolumeInfo;
use plimsoll_engine::Error;
use plimsoll_engine::registry::{AppliesTo, Source};
use plimsoll_engine::restore::action::RestoreItemAction;
use plimsoll_engine::restore::actions::Actions;
use plimsoll_select::resources::ResourceMapper;
use sha2::{Digest, Sha256};

use self::action::{Part, Restorer};
use super::download::{Downloads, RememberUploads};
use super::{CONTENTS, SNAPSHOTS, UPLOADS};
use crate::fs_backup::TransferServices;
use crate::volume_job::VolumeJob;

const CLAIMS: &str = "persistentvolumeclaims";

/// Parameters of the restore of CSI snapshots.
pub struct CsiRestoreParameters {
    /// Services of the server.
    pub services: Arc<TransferServices>,
    /// The Restore.
    pub job: VolumeJob,
    /// The namespaces that get another name.
    pub namespaces: BTreeMap<String, String>,
    /// The name of the backup's BackupStorageLocation in this cluster.
    pub location: String,
    /// Whether volumes get their data.
    pub with_data: bool,
    /// Timeout of the preparation of a volume.
    pub limit: Duration,
    /// Settings of the mover.
    pub settings: UploaderSettings,
}

/// Restores claims whose driver took snapshots.
pub struct CsiRestore {
    pub(super) parameters: CsiRestoreParameters,
    downloads: Downloads,
    /// Whether the cluster serves VolumeSnapshots.
    known: bool,
    infos: Mutex<Vec<RestoreVolumeInfo>>,
}

/// The action that restores a claim, and the data of its volume.
pub const CLAIM_RESTORE_ACTION: &str = "velero.io/csi-pvc-restorer";

/// Registers the actions.
pub fn register_restore(
    parameters: CsiRestoreParameters,
    actions: &mut Actions,
    mapper: &(impl ResourceMapper + ?Sized),
) -> Result<Arc<CsiRestore>, Error> {
    let known = mapper.resolve(SNAPSHOTS).is_some();
    let downloads = Downloads::new(&parameters.services);
    let all = Arc::new(CsiRestore { parameters, downloads, known, infos: Mutex::default() });
    let uploads: Arc<dyn RestoreItemAction> = Arc::new(RememberUploads(Arc::clone(&all.downloads.known)));
    let wanted = AppliesTo::resources([UPLOADS]);
    actions.register(Source::BuiltIn(1), "velero.io/dataupload", &wanted, mapper, uploads)?;
    let parts = [
        (CLAIM_RESTORE_ACTION, CLAIMS, Part::Claim),
        ("velero.io/csi-volumesnapshot-restorer", SNAPSHOTS, Part::Snapshot),
        ("velero.io/csi-volumesnapshotcontent-restorer", CONTENTS, Part::Content),
    ];
    for (name, resource, part) in parts.into_iter().take(if known { 3 } else { 1 }) {
        let action = Arc::new(Restorer { all: Arc::clone(&all), part, began: Mutex::default() });
        actions.register(Source::BuiltIn(2), name, &AppliesTo::resources([resource]), mapper, action)?;
    }
    Ok(all)
}

impl CsiRestore {
    /// Whether the cluster serves VolumeSnapshots.
    pub fn supports_snapshots(&self) -> bool {
        self.known
    }

    /// Method and result of each volume.
    pub fn infos(&self) -> Vec<RestoreVolumeInfo> {
        let mut infos = self.infos.lock().unwrap_or_else(PoisonError::into_inner).clone();
        infos.extend(self.downloads.infos());
        infos
    }

    /// The name of a snapshot in this restore: stable across attempts, unique for each restore.
    fn snapshot_name(&self, snapshot: &str) -> String {
        hex::encode(Sha256::digest(format!("{}/{snapshot}", self.parameters.job.uid)))[..63].to_owned()
    }

    fn target<'a>(&'a self, namespace: &'a str) -> &'a str {
        self.parameters.namespaces.get(namespace).map_or(namespace, String::as_str)
    }

    /// Whether a claim exists that this restore did not create: it stays as it is.
    async fn is_bound_elsewhere(&self, namespace: &str, name: &str) -> Result<bool, String> {
        let CsiRestoreParameters { services, job: VolumeJob { name: restore, .. }, .. } = &self.parameters;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(services.leader.client.clone(), namespace);
        let found = claims.get_opt(name).await.map_err(|error| format!("claim {namespace}/{name}: {error}"))?;
        let made_by = |claim: &PersistentVolumeClaim| claim.labels().get(labels::RESTORE_NAME).cloned();
        Ok(found.is_some_and(|claim| made_by(&claim) != Some(labels::valid_name(restore))))
    }
}
