//! PodVolumeBackup and PodVolumeRestore as transfers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{
    PodVolumeBackup, PodVolumeRestore, UploaderType, parallel_files_download, parallel_files_upload, write_sparse_files,
};
use plimsoll_mover::{Backup, Outcome, Restore, Work};
use serde_json::{Value, json};

use super::message::{EMPTY, incomplete, with_warnings};
use super::{INNER_PATH, PLACED_AT, RESTORE_WAIT, Transfer, TransferError, VolumePath};

/// The job that restores a snapshot, for both kinds of transfers that restore.
pub(super) fn restore_work(
    snapshot: Option<&str>,
    settings: &BTreeMap<String, String>,
    path: &VolumePath,
) -> Result<Work, TransferError> {
    let snapshot = snapshot.filter(|id| !id.is_empty());
    let snapshot = snapshot.ok_or_else(|| TransferError::Invalid("spec.snapshotID is empty".into()))?;
    let mut restore = Restore::new(snapshot, &path.path);
    restore.parallel = parallel_files_download(settings).map_err(TransferError::Invalid)?;
    restore.sparse = write_sparse_files(settings).map_err(TransferError::Invalid)?.unwrap_or(true);
    Ok(Work::Restore(restore))
}

impl Transfer for PodVolumeBackup {
    fn pod(&self) -> ObjectReference {
        self.spec.pod.clone().unwrap_or_default()
    }

    fn volume(&self) -> &str {
        self.spec.volume.as_deref().unwrap_or_default()
    }

    fn repository_namespace(&self) -> String {
        self.pod().namespace.unwrap_or_default()
    }

    fn uploader(&self) -> UploaderType {
        self.spec.uploader_type.clone().unwrap_or_default()
    }

    fn node(&self) -> Option<&str> {
        Some(self.spec.node.as_deref().unwrap_or_default())
    }

    fn is_pod_ready(_: &Pod) -> bool {
        true
    }

    fn inner(&self) -> Option<PathBuf> {
        self.metadata.annotations.as_ref()?.get(INNER_PATH).map(PathBuf::from)
    }

    fn work(&self, path: &VolumePath) -> Result<Work, TransferError> {
        let pod = self.pod();
        let claim = self.metadata.annotations.as_ref().and_then(|all| all.get(labels::PVC_NAME));
        let name = claim.map_or(self.volume(), String::as_str);
        let (namespace, pod) = (pod.namespace.unwrap_or_default(), pod.name.unwrap_or_default());
        let source = format!("{namespace}/{pod}/{name}");
        let mut backup = Backup::new(&path.path, source, self.spec.tags.clone());
        let at = self.metadata.annotations.as_ref().and_then(|all| all.get(PLACED_AT)).map(PathBuf::from);
        backup.parallel = parallel_files_upload(&self.spec.uploader_settings).map_err(TransferError::Invalid)?;
        backup.only.clone_from(&path.only);
        // One entry is found beside nothing else.
        backup.at = if path.only.is_some() { at.and_then(|at| Some(at.parent()?.to_owned())) } else { at };
        Ok(Work::Backup(backup))
    }

    fn start_status(directory: &Path, _: &str) -> Value {
        json!({ "path": directory.display().to_string() })
    }

    fn waiting_restore(&self) -> Result<Option<&str>, TransferError> {
        Ok(None)
    }

    fn ended(outcome: &Outcome) -> Value {
        let Outcome::Backup(done) = outcome else { return json!({}) };
        let message = match (&done.snapshot, incomplete(&done.problems, "could not be read as they were")) {
            (_, Some(incomplete)) => Some(incomplete),
            (None, None) => Some(EMPTY.to_owned()),
            (Some(_), None) => None,
        };
        json!({
            "snapshotID": done.snapshot.clone().unwrap_or_default(),
            "incrementalBytes": done.added,
            "fileCount": done.files,
            "progress": { "totalBytes": done.bytes, "bytesDone": done.bytes },
            "message": with_warnings(message, &done.warnings),
        })
    }
}

impl Transfer for PodVolumeRestore {
    fn expected_bytes(&self) -> Option<u64> {
        self.spec.snapshot_size.and_then(|size| u64::try_from(size).ok())
    }

    fn pod(&self) -> ObjectReference {
        self.spec.pod.clone().unwrap_or_default()
    }

    fn volume(&self) -> &str {
        self.spec.volume.as_deref().unwrap_or_default()
    }

    fn repository_namespace(&self) -> String {
        let source = self.spec.source_namespace.clone().filter(|name| !name.is_empty());
        source.or_else(|| self.pod().namespace).unwrap_or_default()
    }

    fn uploader(&self) -> UploaderType {
        self.spec.uploader_type.clone().unwrap_or_default()
    }

    fn node(&self) -> Option<&str> {
        self.status.as_ref()?.node.as_deref().filter(|node| !node.is_empty())
    }

    /// Its volumes are mounted once the container that waits for them runs.
    fn is_pod_ready(pod: &Pod) -> bool {
        let statuses = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_ref());
        let waits = statuses.into_iter().flatten().find(|status| status.name == RESTORE_WAIT);
        waits.and_then(|status| status.state.as_ref()).is_some_and(|state| state.running.is_some())
    }

    fn work(&self, path: &VolumePath) -> Result<Work, TransferError> {
        restore_work(self.spec.snapshot_id.as_deref(), &self.spec.uploader_settings, path)
    }

    fn start_status(_: &Path, node: &str) -> Value {
        // The wait is over.
        json!({ "node": node, "message": null })
    }

    fn waiting_restore(&self) -> Result<Option<&str>, TransferError> {
        let owners = self.metadata.owner_references.as_deref().unwrap_or_default();
        let restore = owners.iter().find(|owner| owner.kind == "Restore");
        restore.map(|owner| Some(owner.uid.as_str())).ok_or_else(|| TransferError::Invalid("no Restore owns it".into()))
    }

    fn ended(outcome: &Outcome) -> Value {
        let Outcome::Restore(done) = outcome else { return json!({}) };
        json!({
            "progress": { "totalBytes": done.bytes, "bytesDone": done.bytes },
            "message": with_warnings(incomplete(&done.problems, "were not restored as they were"), &done.warnings),
        })
    }
}
