//! Volume data transfers: what PodVolumeBackup, PodVolumeRestore, DataUpload and DataDownload have in common. The server creates them,
//! an agent runs them.

pub mod agent_lease;
pub(crate) mod data_movement;
mod error;
mod message;
mod pod_volume;
pub mod progress;
mod record;
pub mod restore_wait;
mod volume_path;

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use plimsoll_api::velero::VolumeTransfer;
use plimsoll_api::velero::v1::UploaderType;
use plimsoll_mover::{Outcome, Work};
use plimsoll_operations::controller::NamespacedResource;
use serde::Serialize;
use serde_json::Value;

pub use self::error::TransferError;
pub use self::message::{INCOMPLETE, TransferMessage, transfer_message};
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

/// A custom resource that requests the movement of a volume's data, as a mover needs it.
pub trait Transfer: VolumeTransfer + NamespacedResource + Serialize {
    /// The pod that has the volume.
    fn pod(&self) -> ObjectReference;
    /// The volume's name in the pod.
    fn volume(&self) -> &str;
    /// The namespace whose repository it is.
    fn repository_namespace(&self) -> String;
    /// The format of the repository.
    fn uploader(&self) -> UploaderType;
    /// All bytes, as far as that is known before the mover has started.
    fn expected_bytes(&self) -> Option<u64> {
        None
    }
    /// The node that runs it, if that is known without its pod.
    fn node(&self) -> Option<&str>;
    /// Whether a pod is ready for it.
    fn is_pod_ready(pod: &Pod) -> bool;
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
