//! Volume data transfers: what PodVolumeBackup, PodVolumeRestore, DataUpload and DataDownload have in common. The server creates them,
//! an agent runs them.

pub mod agent_lease;
pub(crate) mod data_movement;
mod error;
pub mod progress;
mod record;
pub mod restore_wait;
mod volume_path;

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Resource;
use kube::core::NamespaceResourceScope;
use plimsoll_api::summary::ProgressSummary;
use plimsoll_api::velero::v1::{
    PodVolumeBackup, PodVolumeRestore, TransferPhase, TransferProgress, UploaderType, parallel_files_download,
    parallel_files_upload, write_sparse_files,
};
use plimsoll_mover::{Backup, Outcome, Restore, Work};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use self::error::TransferError;
pub use self::record::TransferRecord;
pub use self::restore_wait::RESTORE_WAIT;
pub use self::volume_path::VolumePath;

/// Annotation: the Secret beside it that holds the repository, where that belongs to no location.
pub const REPOSITORY_SECRET: &str = "plimsoll.dev/repository-secret";
/// The key in it.
pub const REPOSITORY_KEY: &str = "repository";
/// Annotation: what below the volume is backed up.
pub const INNER_PATH: &str = "plimsoll.dev/path";
/// Annotation: where that is found in the snapshot.
pub const PLACED_AT: &str = "plimsoll.dev/placed-at";
/// In Velero's words: there is no snapshot of nothing.
const EMPTY: &str = "volume was empty so no snapshot was taken";

/// A custom resource that asks for a volume's data to be moved.
pub trait Transfer:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    /// The pod that has the volume.
    fn pod(&self) -> ObjectReference;
    /// The volume's name in the pod.
    fn volume(&self) -> &str;
    /// The BackupStorageLocation with the repository.
    fn location(&self) -> &str;
    /// The namespace whose repository it is.
    fn repository_namespace(&self) -> String;
    /// The format of the repository.
    fn uploader(&self) -> UploaderType;
    /// Whether it is cancelled.
    fn is_cancelled(&self) -> bool;
    /// Its phase.
    fn phase(&self) -> TransferPhase;
    /// All bytes, as far as that is known before the mover has started.
    fn expected_bytes(&self) -> Option<u64> {
        None
    }
    /// The last progress.
    fn shown(&self) -> Option<TransferProgress>;
    /// Rate, time left, stalls.
    fn summary(&self) -> Option<ProgressSummary>;
    /// Why it stands as it does.
    fn message(&self) -> Option<&str>;
    /// The node that is known to do it without a look at the pod.
    fn node(&self) -> Option<&str>;
    /// Whether a pod is ready for it.
    fn suits(pod: &Pod) -> bool;
    /// The path below the volume that it is about, if not all of it.
    fn inner(&self) -> Option<PathBuf> {
        None
    }
    /// The job for a mover.
    fn work(&self, path: &VolumePath) -> Result<Work, TransferError>;
    /// Fields of the status when it starts.
    fn start_status(directory: &Path, node: &str) -> Value;
    /// The uid of the Restore that a pod waits for: the name of the file that ends the wait.
    fn waiting_restore(&self) -> Result<Option<&str>, TransferError>;
    /// Fields of the last status.
    fn ended(outcome: &Outcome) -> Value;
}

impl Transfer for PodVolumeBackup {
    fn pod(&self) -> ObjectReference {
        self.spec.pod.clone().unwrap_or_default()
    }

    fn volume(&self) -> &str {
        self.spec.volume.as_deref().unwrap_or_default()
    }

    fn location(&self) -> &str {
        self.spec.backup_storage_location.as_deref().unwrap_or_default()
    }

    fn repository_namespace(&self) -> String {
        self.pod().namespace.unwrap_or_default()
    }

    fn uploader(&self) -> UploaderType {
        self.spec.uploader_type.clone().unwrap_or_default()
    }

    fn is_cancelled(&self) -> bool {
        self.spec.cancel == Some(true)
    }

    fn phase(&self) -> TransferPhase {
        self.phase()
    }

    fn shown(&self) -> Option<TransferProgress> {
        self.status.as_ref()?.progress.clone()
    }

    fn summary(&self) -> Option<ProgressSummary> {
        self.status.as_ref()?.plimsoll.clone()
    }

    fn message(&self) -> Option<&str> {
        self.status.as_ref()?.message.as_deref()
    }

    fn node(&self) -> Option<&str> {
        Some(self.spec.node.as_deref().unwrap_or_default())
    }

    fn suits(_: &Pod) -> bool {
        true
    }

    fn inner(&self) -> Option<PathBuf> {
        self.metadata.annotations.as_ref()?.get(INNER_PATH).map(PathBuf::from)
    }

    fn work(&self, path: &VolumePath) -> Result<Work, TransferError> {
        let pod = self.pod();
        let claim = self.metadata.annotations.as_ref().and_then(|all| all.get(plimsoll_api::labels::PVC_NAME));
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

    fn location(&self) -> &str {
        self.spec.backup_storage_location.as_deref().unwrap_or_default()
    }

    fn repository_namespace(&self) -> String {
        let source = self.spec.source_namespace.clone().filter(|name| !name.is_empty());
        source.or_else(|| self.pod().namespace).unwrap_or_default()
    }

    fn uploader(&self) -> UploaderType {
        self.spec.uploader_type.clone().unwrap_or_default()
    }

    fn is_cancelled(&self) -> bool {
        self.spec.cancel == Some(true)
    }

    fn phase(&self) -> TransferPhase {
        self.phase()
    }

    fn shown(&self) -> Option<TransferProgress> {
        self.status.as_ref()?.progress.clone()
    }

    fn summary(&self) -> Option<ProgressSummary> {
        self.status.as_ref()?.plimsoll.clone()
    }

    fn message(&self) -> Option<&str> {
        self.status.as_ref()?.message.as_deref()
    }

    fn node(&self) -> Option<&str> {
        self.status.as_ref()?.node.as_deref().filter(|node| !node.is_empty())
    }

    /// Its volumes are mounted once the container that waits for them runs.
    fn suits(pod: &Pod) -> bool {
        let statuses = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_ref());
        let waits = statuses.into_iter().flatten().find(|status| status.name == RESTORE_WAIT);
        waits.and_then(|status| status.state.as_ref()).is_some_and(|state| state.running.is_some())
    }

    fn work(&self, path: &VolumePath) -> Result<Work, TransferError> {
        let snapshot = self.spec.snapshot_id.clone().filter(|id| !id.is_empty());
        let snapshot = snapshot.ok_or_else(|| TransferError::Invalid("spec.snapshotID is empty".into()))?;
        let settings = &self.spec.uploader_settings;
        let mut restore = Restore::new(snapshot, &path.path);
        restore.parallel = parallel_files_download(settings).map_err(TransferError::Invalid)?;
        restore.sparse = write_sparse_files(settings).map_err(TransferError::Invalid)?.unwrap_or(true);
        Ok(Work::Restore(restore))
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

/// The first word of the message of a transfer that completed without some files.
pub const INCOMPLETE: &str = "Incomplete";

/// What an ended transfer reports to its Backup or Restore.
#[derive(Debug, PartialEq, Eq)]
pub enum TransferMessage {
    /// Nothing.
    None,
    /// Everything was moved, with a caveat.
    Warning(String),
    /// Not everything was moved.
    Problem(String),
}

/// The report of an ended transfer. An incomplete one is a problem too.
pub fn transfer_message<T: Transfer>(ended: &T, cancelled: &str) -> TransferMessage {
    let message = ended.message().unwrap_or_default();
    match ended.phase() {
        TransferPhase::Completed if message.is_empty() || message == EMPTY => TransferMessage::None,
        TransferPhase::Completed if !message.starts_with(INCOMPLETE) => TransferMessage::Warning(message.into()),
        TransferPhase::Canceled => TransferMessage::Problem(cancelled.into()),
        _ => TransferMessage::Problem(message.into()),
    }
}

fn incomplete(problems: &plimsoll_mover::Problems, what: &str) -> Option<String> {
    let first = problems.named.first()?;
    Some(format!("{INCOMPLETE}: {} files {what}, among them {}: {}", problems.count, first.path, first.cause))
}

/// Warnings of a transfer for its owner.
fn with_warnings(message: Option<String>, warnings: &[String]) -> Option<String> {
    let said: Vec<_> = message.into_iter().chain(warnings.iter().cloned()).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_complete_is_a_problem_and_anything_else_that_an_ended_transfer_says_a_warning() {
        let ended = |phase: &str, message: &str| -> PodVolumeBackup {
            serde_json::from_value(
                json!({ "metadata": {}, "spec": {}, "status": { "phase": phase, "message": message } }),
            )
            .unwrap()
        };
        let says = |phase: &str, message: &str| transfer_message(&ended(phase, message), "cancelled");
        assert_eq!(says("Completed", ""), TransferMessage::None);
        assert_eq!(says("Completed", EMPTY), TransferMessage::None);
        assert_eq!(
            says("Completed", "no lock file was kept"),
            TransferMessage::Warning("no lock file was kept".into())
        );
        assert_eq!(says("Completed", "Incomplete: 1 files"), TransferMessage::Problem("Incomplete: 1 files".into()));
        assert_eq!(says("Failed", "why"), TransferMessage::Problem("why".into()));
        assert_eq!(says("Canceled", "x"), TransferMessage::Problem("cancelled".into()));
    }

    #[test]
    fn an_empty_volume_ends_at_nothing_of_nothing_and_says_so() {
        let ended = PodVolumeBackup::ended(&Outcome::Backup(plimsoll_mover::BackupOutcome::default()));
        assert_eq!(ended["progress"], json!({"totalBytes": 0, "bytesDone": 0}));
        assert_eq!(ended["message"], EMPTY);
    }

    #[test]
    fn what_the_owner_of_the_repository_should_know_is_said_after_how_it_ended() {
        let warnings = vec!["no lock file was kept".to_owned()];
        let snapshot = Some("0123".to_owned());
        let good = plimsoll_mover::BackupOutcome { snapshot, warnings: warnings.clone(), ..Default::default() };
        let ended = PodVolumeBackup::ended(&Outcome::Backup(good));
        assert_eq!(ended["message"], "no lock file was kept");
        let problems = plimsoll_mover::Problems {
            named: vec![plimsoll_mover::Problem { path: "a".into(), cause: "gone".into() }],
            count: 1,
        };
        let bad = plimsoll_mover::RestoreOutcome { problems, warnings, ..Default::default() };
        let message = PodVolumeRestore::ended(&Outcome::Restore(bad))["message"].to_string();
        assert!(
            message.starts_with("\"Incomplete: 1 files") && message.ends_with("; no lock file was kept\""),
            "{message}"
        );
        let message = &PodVolumeRestore::ended(&Outcome::Restore(plimsoll_mover::RestoreOutcome::default()))["message"];
        assert!(message.is_null(), "{message}");
    }
}
