//! The data of CSI snapshots: DataUpload and DataDownload as transfers. Their volume is held by a pod of their own name, which
//! the server creates before an agent takes them up.

use std::path::Path;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::ResourceExt;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{
    PodVolumeBackup, PodVolumeRestore, UploaderType, parallel_files_download, parallel_files_upload, write_sparse_files,
};
use plimsoll_api::velero::v2alpha1::{DataDownload, DataUpload};
use plimsoll_mover::{Backup, MoverKind, Outcome, Restore, Work};
use serde_json::{Value, json};

use super::{Transfer, TransferError, VolumePath};

/// The volume's name in the pod that holds it.
pub const VOLUME: &str = "data";

/// The requester of the snapshots in a repository, as Velero calls it.
const REQUESTER: &str = "snapshot-data-upload-download";

/// The mover. Velero has only kopia, and does not annotate it.
pub fn kind_of(object: &impl ResourceExt) -> MoverKind {
    match object.annotations().get(labels::MOVER).map(String::as_str) {
        Some("built-in") => MoverKind::BuiltIn,
        Some("restic") => MoverKind::Restic,
        _ => MoverKind::Kopia,
    }
}

fn holder(object: &impl ResourceExt) -> ObjectReference {
    ObjectReference { namespace: object.namespace(), name: Some(object.name_any()), ..ObjectReference::default() }
}

impl Transfer for DataUpload {
    fn pod(&self) -> ObjectReference {
        holder(self)
    }

    fn volume(&self) -> &str {
        VOLUME
    }

    fn repository_namespace(&self) -> String {
        self.spec.source_namespace.clone().unwrap_or_default()
    }

    fn uploader(&self) -> UploaderType {
        UploaderType::from(kind_of(self).uploader_type())
    }

    /// Empty until its volume is exposed on a node.
    fn node(&self) -> Option<&str> {
        Some(self.status.as_ref().and_then(|status| status.node.as_deref()).unwrap_or_default())
    }

    fn suits(_: &Pod) -> bool {
        true
    }

    fn work(&self, path: &VolumePath) -> Result<Work, TransferError> {
        let spec = &self.spec;
        let claim = spec.source_pvc.clone().unwrap_or_default();
        let namespace = spec.source_namespace.clone().unwrap_or_default();
        let backup = self.labels().get(labels::BACKUP_NAME).cloned().unwrap_or_default();
        let uid = self.labels().get(labels::BACKUP_UID).cloned().unwrap_or_default();
        let claim_uid = self.labels().get(labels::PVC_UID).cloned().unwrap_or_default();
        let tags = [("backup", backup), ("backup-uid", uid), ("ns", namespace.clone()), ("pvc-uid", claim_uid)];
        let tags = tags.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let mut work = Backup::new(&path.path, format!("{namespace}/{claim}"), tags);
        REQUESTER.clone_into(&mut work.requester);
        work.parallel = parallel_files_upload(&spec.data_mover_config).map_err(TransferError::Invalid)?;
        Ok(Work::Backup(work))
    }

    fn start_status(directory: &Path, node: &str) -> Value {
        json!({ "path": directory.display().to_string(), "node": node })
    }

    fn waiting_restore(&self) -> Result<Option<&str>, TransferError> {
        Ok(None)
    }

    fn ended(outcome: &Outcome) -> Value {
        PodVolumeBackup::ended(outcome)
    }
}

impl Transfer for DataDownload {
    fn expected_bytes(&self) -> Option<u64> {
        self.spec.snapshot_size.and_then(|size| u64::try_from(size).ok())
    }

    fn pod(&self) -> ObjectReference {
        holder(self)
    }

    fn volume(&self) -> &str {
        VOLUME
    }

    fn repository_namespace(&self) -> String {
        self.spec.source_namespace.clone().unwrap_or_default()
    }

    fn uploader(&self) -> UploaderType {
        UploaderType::from(kind_of(self).uploader_type())
    }

    /// Empty until its volume is exposed on a node.
    fn node(&self) -> Option<&str> {
        Some(self.status.as_ref().and_then(|status| status.node.as_deref()).unwrap_or_default())
    }

    fn suits(_: &Pod) -> bool {
        true
    }

    fn work(&self, path: &VolumePath) -> Result<Work, TransferError> {
        let snapshot = self.spec.snapshot_id.clone().filter(|id| !id.is_empty());
        let snapshot = snapshot.ok_or_else(|| TransferError::Invalid("spec.snapshotID is empty".into()))?;
        let settings = &self.spec.data_mover_config;
        let mut restore = Restore::new(snapshot, &path.path);
        restore.parallel = parallel_files_download(settings).map_err(TransferError::Invalid)?;
        restore.sparse = write_sparse_files(settings).map_err(TransferError::Invalid)?.unwrap_or(true);
        Ok(Work::Restore(restore))
    }

    fn start_status(_: &Path, node: &str) -> Value {
        json!({ "node": node })
    }

    fn waiting_restore(&self) -> Result<Option<&str>, TransferError> {
        Ok(None)
    }

    fn ended(outcome: &Outcome) -> Value {
        PodVolumeRestore::ended(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_that_does_not_say_is_kopias_and_no_nodes_until_its_volume_is_there() {
        let mut upload = DataUpload::default();
        assert_eq!((kind_of(&upload), Transfer::node(&upload)), (MoverKind::Kopia, Some("")));
        upload.annotations_mut().insert(labels::MOVER.into(), "built-in".into());
        upload.status.get_or_insert_default().node = Some("n".into());
        assert_eq!((kind_of(&upload), Transfer::node(&upload)), (MoverKind::BuiltIn, Some("n")));
        assert_eq!(upload.uploader(), UploaderType::Restic);
    }
}
