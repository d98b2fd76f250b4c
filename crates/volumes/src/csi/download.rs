//! The data of a snapshot on its way out of a repository: the DataDownloads of a restore.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use kube::ResourceExt;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use plimsoll_api::go::GoDuration;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_api::velero::v2alpha1::{DataDownload, DataDownloadSpec, DataUpload, NodeOs, TargetVolumeSpec};
use plimsoll_archive::volume_info::{RestoreVolumeInfo, SnapshotDataMovementInfo, SnapshotInfo, VolumeNames};
use plimsoll_engine::item_operations::ItemOperationProgress;
use plimsoll_engine::restore::action::{
    AdditionalResources, RestoreActionInput, RestoreActionOutput, RestoreItemAction,
};
use plimsoll_engine::{Error, RetryPolicy, kill};
use serde_json::{Value, json};

use super::restore::CsiRestoreParameters;
use super::{AWAITED_VOLUME, text};
use crate::fs_backup::{TransferMonitor, TransferServices, transfer_name};
use crate::repositories::{self, RepositoryKey};
use crate::transfer::Transfer;
use crate::transfer::data_movement::kind_of;

/// The uploads of a backup, by `namespace/name`.
pub(super) type KnownUploads = Arc<Mutex<HashMap<String, DataUpload>>>;

/// An upload is a record, not an object to restore: it is remembered for the claim whose data it has moved.
pub(super) struct RememberUploads(pub KnownUploads);

impl RestoreItemAction for RememberUploads {
    fn execute<'a>(&'a self, input: RestoreActionInput<'a>) -> BoxFuture<'a, Result<RestoreActionOutput, String>> {
        Box::pin(async move {
            let read = serde_json::from_value::<DataUpload>(input.from_backup.clone());
            let upload = read.map_err(|error| format!("it cannot be read: {error}"))?;
            let key = format!("{}/{}", upload.namespace().unwrap_or_default(), upload.name_any());
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, upload);
            Ok(RestoreActionOutput { skip: true, ..RestoreActionOutput::of(input.item) })
        })
    }

    fn additional_resources(&self) -> AdditionalResources {
        AdditionalResources::None
    }
}

/// The downloads of one restore.
pub(super) struct Downloads {
    services: Arc<TransferServices>,
    pub known: KnownUploads,
    /// By operation.
    started: Mutex<HashMap<String, StartedDownload>>,
    monitor: TransferMonitor,
}

#[derive(Clone)]
struct StartedDownload {
    download: String,
    info: RestoreVolumeInfo,
}

impl Downloads {
    pub fn new(services: &Arc<TransferServices>) -> Self {
        let (known, started) = Default::default();
        Self { services: Arc::clone(services), known, started, monitor: TransferMonitor::new(services) }
    }

    fn started(&self) -> MutexGuard<'_, HashMap<String, StartedDownload>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Method and result of each volume.
    pub fn infos(&self) -> Vec<RestoreVolumeInfo> {
        self.started().values().map(|one| one.info.clone()).collect()
    }

    /// Requests the data of a claim. The claim waits for a volume with a label of this restore.
    pub async fn start(
        &self,
        parameters: &CsiRestoreParameters,
        mut claim: Value,
        from_backup: &Value,
        upload: &str,
        target: &str,
    ) -> Result<RestoreActionOutput, String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(upload).cloned();
        let Some(known) = known else {
            return Err(format!("the backup has no DataUpload {upload}, which its data is in"));
        };
        let snapshot = known.status.as_ref().and_then(|status| status.snapshot_id.clone()).unwrap_or_default();
        if known.phase() != TransferPhase::Completed {
            return Err(format!("DataUpload {upload}, which its data is in, ended {}", known.phase()));
        }
        if snapshot.is_empty() {
            // There is no snapshot of nothing: the volume was empty, and a new one is too.
            return Ok(RestoreActionOutput::of(claim));
        }
        let name = text(from_backup, "/metadata/name");
        let download = Self::object(parameters, &known, from_backup, target);
        self.create(parameters, &known, &download).await.map_err(|error| error.to_string())?;
        let operation = operation(parameters, from_backup);
        let info = info(&download, &known, name, target, &operation);
        self.started().insert(operation.clone(), StartedDownload { download: download.name_any(), info });
        claim["spec"]["selector"] = json!({ "matchLabels": { AWAITED_VOLUME: volume_label(&download, target, name) } });
        Ok(RestoreActionOutput { item: claim, operation: Some(operation), ..RestoreActionOutput::default() })
    }

    fn object(parameters: &CsiRestoreParameters, upload: &DataUpload, claim: &Value, target: &str) -> DataDownload {
        let status = upload.status.clone().unwrap_or_default();
        let name = text(claim, "/metadata/name");
        let volume = TargetVolumeSpec {
            pvc: Some(name.to_owned()),
            // The definition wants one; which it will be is not known yet.
            pv: Some(text(claim, "/spec/volumeName").to_owned()),
            namespace: Some(target.to_owned()),
            ..TargetVolumeSpec::default()
        };
        let mut settings = upload.spec.data_mover_config.clone();
        settings.extend(parameters.settings.clone());
        let spec = DataDownloadSpec {
            target_volume: Some(volume),
            backup_storage_location: Some(parameters.location.clone()),
            data_mover: upload.spec.data_mover.clone(),
            snapshot_id: status.snapshot_id,
            snapshot_size: status.progress.and_then(|progress| progress.total_bytes),
            source_namespace: upload.spec.source_namespace.clone(),
            data_mover_config: settings,
            operation_timeout: Some(GoDuration::from(parameters.limit)),
            node_os: Some(status.node_os.unwrap_or(NodeOs::Linux)),
            ..DataDownloadSpec::default()
        };
        let marks = json!({ labels::RESTORE_NAME: labels::valid_name(&parameters.job.name), labels::RESTORE_UID: parameters.job.uid,
            labels::ASYNC_OPERATION_ID: operation(parameters, claim) });
        let metadata = ObjectMeta {
            name: Some(transfer_name(&parameters.job.name, &parameters.job.uid, &format!("{target}/{name}"), "data")),
            labels: serde_json::from_value(marks).ok(),
            annotations: Some([(labels::MOVER.to_owned(), kind_of(upload).name().to_owned())].into()),
            owner_references: Some(vec![parameters.job.owner.clone()]),
            ..ObjectMeta::default()
        };
        DataDownload { metadata, spec, status: None }
    }

    async fn create(
        &self,
        parameters: &CsiRestoreParameters,
        upload: &DataUpload,
        object: &DataDownload,
    ) -> Result<(), Error> {
        let key = RepositoryKey::new(upload.repository_namespace(), &parameters.location, kind_of(upload));
        repositories::require(&self.services.repositories, &key, &parameters.job.task).await?;
        let name = object.name_any();
        let create = || async {
            match self.services.leader.api::<DataDownload>().create(&PostParams::default(), object).await {
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                answer => answer.map(drop).map_err(|e| Error::api(format!("create DataDownload {name}"), e)),
            }
        };
        self.services.leader.fence.check()?;
        kill::point("download.create.before");
        RetryPolicy::default().run(&parameters.job.task, create).await?;
        kill::point("download.create.after");
        Ok(())
    }

    fn name_of(&self, operation: &str) -> Result<String, Error> {
        let absent = || Error::Selection(format!("no operation {operation} has started"));
        self.started().get(operation).map(|one| one.download.clone()).ok_or_else(absent)
    }

    /// The progress of a download. It has ended when the volume is bound to its claim.
    pub async fn read(&self, operation: &str) -> Result<ItemOperationProgress, Error> {
        let name = self.name_of(operation)?;
        let found = self.services.leader.api::<DataDownload>().get_opt(&name).await;
        let Some(download) = found.map_err(|e| Error::api(format!("read DataDownload {name}"), e))? else {
            let error = format!("DataDownload {name} was deleted");
            return Ok(ItemOperationProgress { completed: true, error, ..ItemOperationProgress::default() });
        };
        let mut reading = self.monitor.read(&download).await?;
        if let Some(moved) =
            self.started().get_mut(operation).and_then(|one| one.info.snapshot.snapshot_data_movement_info.as_mut())
        {
            moved.phase = download.phase().to_string();
        }
        if download.phase() == TransferPhase::Completed && !download.annotations().contains_key(labels::CLEANED_UP) {
            reading.completed = false;
            reading.error.clear();
            reading.description = "its claim gets the volume".into();
        }
        Ok(reading)
    }

    /// Cancels a download.
    pub async fn cancel(&self, operation: &str) -> Result<(), Error> {
        let name = self.name_of(operation)?;
        let patch = Patch::Merge(json!({ "spec": { "cancel": true } }));
        let written = self.services.leader.api::<DataDownload>().patch(&name, &PatchParams::default(), &patch).await;
        written.map(drop).map_err(|e| Error::api(format!("cancel DataDownload {name}"), e))
    }
}

fn operation(parameters: &CsiRestoreParameters, claim: &Value) -> String {
    labels::valid_name(&format!("dd-{}.{}", parameters.job.uid, text(claim, "/metadata/uid")))
}

/// The label of the volume that the claim waits for.
fn volume_label(download: &DataDownload, target: &str, claim: &str) -> String {
    let name = download.name_any();
    let tail = &name[name.len().saturating_sub(10)..];
    labels::valid_name(&format!("{target}.{claim}.{tail}"))
}

fn info(
    download: &DataDownload,
    upload: &DataUpload,
    claim: &str,
    namespace: &str,
    operation: &str,
) -> RestoreVolumeInfo {
    RestoreVolumeInfo {
        volume: VolumeNames {
            pvc_name: claim.to_owned(),
            pvc_namespace: namespace.to_owned(),
            ..VolumeNames::default()
        },
        restore_method: "CSISnapshot".into(),
        snapshot_data_moved: true,
        snapshot: SnapshotInfo {
            snapshot_data_movement_info: Some(SnapshotDataMovementInfo {
                data_mover: download.spec.data_mover.clone().unwrap_or_default(),
                uploader_type: kind_of(upload).uploader_type().to_owned(),
                snapshot_handle: download.spec.snapshot_id.clone().unwrap_or_default(),
                operation_id: operation.to_owned(),
                size: download.spec.snapshot_size.unwrap_or_default(),
                ..SnapshotDataMovementInfo::default()
            }),
            ..SnapshotInfo::default()
        },
        ..RestoreVolumeInfo::default()
    }
}
