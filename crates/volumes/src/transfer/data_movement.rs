//! The data of CSI snapshots: DataUpload and DataDownload as transfers. Their volume is held by a pod of their own name, which
//! the server creates before an agent takes them up.

use std::path::Path;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::ResourceExt;
use plimsoll_api::labels;
use plimsoll_api::velero::DataMovement;
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeRestore, UploaderType, parallel_files_upload};
use plimsoll_api::velero::v2alpha1::{DataDownload, DataUpload};
use plimsoll_mover::{Backup, MoverKind, Outcome, Work};
use plimsoll_operations::controller::NamespacedResource;
use serde::Serialize;
use serde_json::{Value, json};

use super::pod_volume::restore_work;
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

/// In what the two directions differ.
trait MovementJob: DataMovement + NamespacedResource + Serialize {
    /// See [`Transfer::expected_bytes`].
    fn expected_bytes(&self) -> Option<u64> {
        None
    }
    /// See [`Transfer::work`].
    fn work(&self, path: &VolumePath) -> Result<Work, TransferError>;
    /// See [`Transfer::start_status`].
    fn start_status(directory: &Path, node: &str) -> Value;
    /// See [`Transfer::ended`].
    fn ended(outcome: &Outcome) -> Value;
}

impl<T: MovementJob> Transfer for T {
    fn pod(&self) -> ObjectReference {
        ObjectReference { namespace: self.namespace(), name: Some(self.name_any()), ..ObjectReference::default() }
    }

    fn volume(&self) -> &str {
        VOLUME
    }

    fn repository_namespace(&self) -> String {
        self.source_namespace().unwrap_or_default().to_owned()
    }

    fn uploader(&self) -> UploaderType {
        UploaderType::from(kind_of(self).uploader_type())
    }

    fn expected_bytes(&self) -> Option<u64> {
        MovementJob::expected_bytes(self)
    }

    /// Empty until its volume is exposed on a node.
    fn node(&self) -> Option<&str> {
        Some(DataMovement::node(self).unwrap_or_default())
    }

    fn is_pod_ready(_: &Pod) -> bool {
        true
    }

    fn work(&self, path: &VolumePath) -> Result<Work, TransferError> {
        MovementJob::work(self, path)
    }

    fn start_status(directory: &Path, node: &str) -> Value {
        <T as MovementJob>::start_status(directory, node)
    }

    fn waiting_restore(&self) -> Result<Option<&str>, TransferError> {
        Ok(None)
    }

    fn ended(outcome: &Outcome) -> Value {
        <T as MovementJob>::ended(outcome)
    }
}

impl MovementJob for DataUpload {
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

    fn ended(outcome: &Outcome) -> Value {
        PodVolumeBackup::ended(outcome)
    }
}

impl MovementJob for DataDownload {
    fn expected_bytes(&self) -> Option<u64> {
        self.spec.snapshot_size.and_then(|size| u64::try_from(size).ok())
    }

    fn work(&self, path: &VolumePath) -> Result<Work, TransferError> {
        restore_work(self.spec.snapshot_id.as_deref(), &self.spec.data_mover_config, path)
    }

    fn start_status(_: &Path, node: &str) -> Value {
        json!({ "node": node })
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
