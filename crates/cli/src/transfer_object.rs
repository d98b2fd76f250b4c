//! The four kinds of objects that stand for a transfer, and the fields that each of them calls differently.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeRestore, UploaderType};
use plimsoll_api::velero::v2alpha1::{DataDownload, DataUpload};
use plimsoll_api::velero::{DataMovement, VolumeTransfer};

use crate::transfer::{Direction, NO_POD};

/// A kind of object that stands for one transfer. The four kinds differ in these fields only.
pub trait TransferObject: VolumeTransfer + ResourceExt {
    const KIND: &'static str;
    const DIRECTION: Direction;

    fn fields(&self) -> TransferFields;
}

/// The fields whose names differ between the kinds of transfers.
#[derive(Default)]
pub struct TransferFields {
    pub namespace: Option<String>,
    pub pod: Option<String>,
    pub volume: Option<String>,
    pub node: Option<String>,
    pub snapshot: Option<String>,
    /// The program that transfers the data.
    pub uploader: String,
    /// The bytes that the repository did not have yet.
    pub incremental_bytes: Option<i64>,
}

impl TransferFields {
    fn of_pod(pod: Option<&ObjectReference>, volume: Option<&String>, uploader: Option<&UploaderType>) -> Self {
        let pod = pod.cloned().unwrap_or_default();
        let uploader = uploader.map(ToString::to_string).unwrap_or_default();
        Self { namespace: pod.namespace, pod: pod.name, volume: volume.cloned(), uploader, ..Self::default() }
    }

    /// The data of a snapshot has no pod: its claim stands for the volume.
    fn of_claim(object: &impl DataMovement, namespace: Option<&String>, claim: Option<&String>) -> Self {
        Self {
            namespace: namespace.cloned(),
            pod: Some(NO_POD.to_owned()),
            volume: claim.cloned(),
            node: object.node().map(str::to_owned),
            ..Self::default()
        }
    }
}

impl TransferObject for PodVolumeBackup {
    const KIND: &'static str = "PodVolumeBackup";
    const DIRECTION: Direction = Direction::Backup;

    fn fields(&self) -> TransferFields {
        let (spec, status) = (&self.spec, self.status.as_ref());
        TransferFields {
            node: spec.node.clone(),
            snapshot: status.and_then(|status| status.snapshot_id.clone()),
            incremental_bytes: status.and_then(|status| status.incremental_bytes),
            ..TransferFields::of_pod(spec.pod.as_ref(), spec.volume.as_ref(), spec.uploader_type.as_ref())
        }
    }
}

impl TransferObject for PodVolumeRestore {
    const KIND: &'static str = "PodVolumeRestore";
    const DIRECTION: Direction = Direction::Restore;

    fn fields(&self) -> TransferFields {
        let spec = &self.spec;
        TransferFields {
            node: self.status.as_ref().and_then(|status| status.node.clone()),
            snapshot: spec.snapshot_id.clone(),
            ..TransferFields::of_pod(spec.pod.as_ref(), spec.volume.as_ref(), spec.uploader_type.as_ref())
        }
    }
}

impl TransferObject for DataUpload {
    const KIND: &'static str = "DataUpload";
    const DIRECTION: Direction = Direction::Backup;

    fn fields(&self) -> TransferFields {
        let (spec, status) = (&self.spec, self.status.as_ref());
        TransferFields {
            snapshot: status.and_then(|status| status.snapshot_id.clone()),
            incremental_bytes: status.and_then(|status| status.incremental_bytes),
            uploader: annotated_mover(self),
            ..TransferFields::of_claim(self, spec.source_namespace.as_ref(), spec.source_pvc.as_ref())
        }
    }
}

impl TransferObject for DataDownload {
    const KIND: &'static str = "DataDownload";
    const DIRECTION: Direction = Direction::Restore;

    fn fields(&self) -> TransferFields {
        let target = self.spec.target_volume.clone().unwrap_or_default();
        TransferFields {
            snapshot: self.spec.snapshot_id.clone(),
            uploader: annotated_mover(self),
            ..TransferFields::of_claim(self, target.namespace.as_ref(), target.pvc.as_ref())
        }
    }
}

/// The mover of an object without an uploader type; Velero has only kopia.
fn annotated_mover(object: &impl ResourceExt) -> String {
    object.annotations().get(labels::MOVER).map_or("kopia", String::as_str).to_owned()
}
