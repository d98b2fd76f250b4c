//! The fields that the four kinds of transfers of volume data have in common.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::go::GoDuration;
use crate::summary::ProgressSummary;
use crate::velero::v1::{PodVolumeBackup, PodVolumeRestore, TransferPhase, TransferProgress};
use crate::velero::v2alpha1::{DataDownload, DataUpload};

/// A custom resource that moves the data of one volume: PodVolumeBackup, PodVolumeRestore, DataUpload or DataDownload.
pub trait VolumeTransfer {
    /// The phase; `New` if the object has no status yet.
    fn phase(&self) -> TransferPhase;
    /// Name of the BackupStorageLocation that holds the repository.
    fn location(&self) -> &str;
    /// Whether cancellation is requested.
    fn is_cancelled(&self) -> bool;
    /// The bytes so far.
    fn progress(&self) -> Option<&TransferProgress>;
    /// Rate, time left, stalls.
    fn summary(&self) -> Option<&ProgressSummary>;
    /// The reason of its phase, or a warning.
    fn message(&self) -> Option<&str>;
    /// When the work started.
    fn start_timestamp(&self) -> Option<&Time>;
    /// When the work ended, successfully or not.
    fn completion_timestamp(&self) -> Option<&Time>;
}

/// The types of the specs and statuses differ; the names of these fields do not.
macro_rules! volume_transfer {
    ($($kind:ty),+) => {$(
        impl $kind {
            /// The phase; `New` if the object has no status yet.
            pub fn phase(&self) -> TransferPhase {
                self.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default()
            }
        }

        impl VolumeTransfer for $kind {
            fn phase(&self) -> TransferPhase {
                self.phase()
            }

            fn location(&self) -> &str {
                self.spec.backup_storage_location.as_deref().unwrap_or_default()
            }

            fn is_cancelled(&self) -> bool {
                self.spec.cancel == Some(true)
            }

            fn progress(&self) -> Option<&TransferProgress> {
                self.status.as_ref()?.progress.as_ref()
            }

            fn summary(&self) -> Option<&ProgressSummary> {
                self.status.as_ref()?.plimsoll.as_ref()
            }

            fn message(&self) -> Option<&str> {
                self.status.as_ref()?.message.as_deref()
            }

            fn start_timestamp(&self) -> Option<&Time> {
                self.status.as_ref()?.start_timestamp.as_ref()
            }

            fn completion_timestamp(&self) -> Option<&Time> {
                self.status.as_ref()?.completion_timestamp.as_ref()
            }
        }
    )+};
}

volume_transfer!(PodVolumeBackup, PodVolumeRestore, DataUpload, DataDownload);

/// The transfers of the data of CSI snapshots: the fields that pod volumes do not have.
pub trait DataMovement: VolumeTransfer {
    /// The data mover; empty or `velero` is the built-in one.
    fn data_mover(&self) -> Option<&str>;
    /// The namespace of the claim that was backed up.
    fn source_namespace(&self) -> Option<&str>;
    /// How long preparing the volume may take, if it is set.
    fn operation_timeout(&self) -> Option<&GoDuration>;
    /// When preparing the volume started.
    fn accepted_timestamp(&self) -> Option<&Time>;
    /// The node that has the volume.
    fn node(&self) -> Option<&str>;
}

macro_rules! data_movement {
    ($($kind:ty),+) => {$(
        impl DataMovement for $kind {
            fn data_mover(&self) -> Option<&str> {
                self.spec.data_mover.as_deref()
            }

            fn source_namespace(&self) -> Option<&str> {
                self.spec.source_namespace.as_deref()
            }

            fn operation_timeout(&self) -> Option<&GoDuration> {
                self.spec.operation_timeout.as_ref()
            }

            fn accepted_timestamp(&self) -> Option<&Time> {
                self.status.as_ref()?.accepted_timestamp.as_ref()
            }

            fn node(&self) -> Option<&str> {
                self.status.as_ref()?.node.as_deref()
            }
        }
    )+};
}

data_movement!(DataUpload, DataDownload);
