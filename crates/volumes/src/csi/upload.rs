//! DataUploads of a backup: data movement of CSI snapshots.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use plimsoll_api::go::GoDuration;
use plimsoll_api::labels;
use plimsoll_api::velero::v1::TransferPhase;
use plimsoll_api::velero::v2alpha1::{CsiSnapshotSpec, DataUpload, DataUploadSpec};
use plimsoll_archive::volume_info::{BackupVolumeInfo, SnapshotDataMovementInfo};
use plimsoll_engine::item_operations::ItemOperationProgress;
use plimsoll_engine::{Error, RetryPolicy, kill};
use plimsoll_progress::Task;
use serde_json::{Value, json};

use super::backup::{CsiBackupParameters, DataMovement};
use super::snapshot_taker::{CreatedSnapshot, SnapshotTaker};
use super::text;
use crate::fs_backup::{TransferMonitor, TransferServices, transfer_name};
use crate::repositories::{self, RepositoryKey};

/// A requested upload.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    pub namespace: String,
    pub name: String,
    /// Its snapshot.
    pub snapshot: String,
    pub operation: String,
    mover: String,
    format: &'static str,
}

impl Upload {
    /// The volume info before it has ended.
    pub fn info(&self) -> SnapshotDataMovementInfo {
        SnapshotDataMovementInfo {
            data_mover: self.mover.clone(),
            uploader_type: self.format.to_owned(),
            operation_id: self.operation.clone(),
            phase: TransferPhase::New.to_string(),
            ..SnapshotDataMovementInfo::default()
        }
    }
}

/// The uploads of one backup.
pub(super) struct Uploads {
    services: Arc<TransferServices>,
    backup: String,
    uid: String,
    owner: OwnerReference,
    limit: std::time::Duration,
    movement: DataMovement,
    /// Names of the uploads by operation.
    names: Mutex<HashMap<String, String>>,
    monitor: TransferMonitor,
    task: Task,
}

impl Uploads {
    pub fn new(parameters: &CsiBackupParameters, movement: DataMovement) -> Self {
        Self {
            services: Arc::clone(&parameters.services),
            backup: parameters.job.name.clone(),
            uid: parameters.job.uid.clone(),
            owner: parameters.job.owner.clone(),
            limit: parameters.limit,
            movement,
            names: Mutex::default(),
            monitor: TransferMonitor::new(&parameters.services),
            task: parameters.job.task.clone(),
        }
    }

    /// Takes a snapshot and creates its DataUpload. An existing one of an earlier attempt is used.
    pub async fn start(&self, claim: &Value, class: &str, taker: &SnapshotTaker<'_>) -> Result<Upload, Error> {
        if claim.pointer("/spec/storageClassName").is_none() {
            // A DataUpload without one is refused, which would leave the snapshot behind.
            return Err(Error::Selection("the claim has no storage class to create a volume for its data with".into()));
        }
        let claim_uid = text(claim, "/metadata/uid");
        let upload = Upload {
            namespace: self.services.leader.namespace.clone(),
            name: transfer_name(&self.backup, &self.uid, claim_uid, "data"),
            snapshot: taker.name_for(claim),
            operation: labels::valid_name(&format!("du-{}.{claim_uid}", self.uid)),
            mover: self.movement.mover.clone().unwrap_or_default(),
            format: self.movement.kind.uploader_type(),
        };
        if self.find(&upload.name).await?.is_none() {
            let namespace = text(claim, "/metadata/namespace");
            let key = RepositoryKey::new(namespace, &self.movement.location, self.movement.kind);
            repositories::require(&self.services.repositories, &key, taker.task).await?;
            let created = taker.take(claim, class).await?;
            self.create(&self.object(&upload, claim, &created), taker).await?;
        }
        self.names().insert(upload.operation.clone(), upload.name.clone());
        Ok(upload)
    }

    fn names(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn find(&self, name: &str) -> Result<Option<DataUpload>, Error> {
        let found = self.services.leader.api::<DataUpload>().get_opt(name).await;
        found.map_err(|e| Error::api(format!("read DataUpload {name}"), e))
    }

    fn object(&self, upload: &Upload, claim: &Value, created: &CreatedSnapshot) -> DataUpload {
        let class = claim.pointer("/spec/storageClassName").and_then(Value::as_str);
        let snapshot = CsiSnapshotSpec {
            volume_snapshot: Some(created.name.clone()),
            storage_class: class.map(str::to_owned),
            snapshot_class: Some(created.class.clone()),
            driver: Some(created.taken.driver.clone()),
            ..CsiSnapshotSpec::default()
        };
        let spec = DataUploadSpec {
            snapshot_type: Some("CSI".into()),
            csi_snapshot: Some(snapshot),
            source_pvc: Some(text(claim, "/metadata/name").to_owned()),
            data_mover: self.movement.mover.clone(),
            backup_storage_location: Some(self.movement.location.clone()),
            source_namespace: Some(text(claim, "/metadata/namespace").to_owned()),
            data_mover_config: self.movement.settings.clone(),
            operation_timeout: Some(GoDuration::from(self.limit)),
            ..DataUploadSpec::default()
        };
        let labels_of_upload = json!({ labels::BACKUP_NAME: labels::valid_name(&self.backup), labels::BACKUP_UID: self.uid,
            labels::PVC_UID: text(claim, "/metadata/uid"), labels::ASYNC_OPERATION_ID: upload.operation });
        let metadata = ObjectMeta {
            name: Some(upload.name.clone()),
            labels: serde_json::from_value(labels_of_upload).ok(),
            annotations: Some([(labels::MOVER.to_owned(), self.movement.kind.name().to_owned())].into()),
            owner_references: Some(vec![self.owner.clone()]),
            ..ObjectMeta::default()
        };
        DataUpload { metadata, spec, status: None }
    }

    async fn create(&self, object: &DataUpload, taker: &SnapshotTaker<'_>) -> Result<(), Error> {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let create = || async {
            match self.services.leader.api::<DataUpload>().create(&PostParams::default(), object).await {
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                answer => answer.map(drop).map_err(|e| Error::api(format!("create DataUpload {name}"), e)),
            }
        };
        self.services.leader.fence.check()?;
        kill::point("upload.create.before");
        RetryPolicy::default().run(taker.task, create).await?;
        kill::point("upload.create.after");
        Ok(())
    }

    fn name_of(&self, operation: &str) -> Result<String, Error> {
        let absent = || Error::Selection(format!("unknown operation {operation}"));
        self.names().get(operation).cloned().ok_or_else(absent)
    }

    /// The progress of an upload.
    pub async fn read(&self, operation: &str) -> Result<ItemOperationProgress, Error> {
        let name = self.name_of(operation)?;
        match self.find(&name).await? {
            Some(upload) => self.monitor.read(&upload).await,
            None => Ok(ItemOperationProgress {
                completed: true,
                error: format!("DataUpload {name} was deleted"),
                ..ItemOperationProgress::default()
            }),
        }
    }

    /// Cancels an upload.
    pub async fn cancel(&self, operation: &str) -> Result<(), Error> {
        let name = self.name_of(operation)?;
        let patch = Patch::Merge(json!({ "spec": { "cancel": true } }));
        let written = self.services.leader.api::<DataUpload>().patch(&name, &PatchParams::default(), &patch).await;
        written.map(drop).map_err(|e| Error::api(format!("cancel DataUpload {name}"), e))
    }

    /// Writes the result of an upload into the volume info.
    pub async fn update_info(&self, info: &mut BackupVolumeInfo) -> Result<(), Error> {
        let Some(moved) = info.snapshot.snapshot_data_movement_info.as_mut() else { return Ok(()) };
        let name = self.name_of(&moved.operation_id)?;
        let found = RetryPolicy::default().run(&self.task, || self.find(&name)).await?;
        let Some(upload) = found else {
            info.result = "failed".into();
            return Ok(());
        };
        let status = upload.status.clone().unwrap_or_default();
        moved.snapshot_handle = status.snapshot_id.unwrap_or_default();
        moved.size = status.progress.and_then(|progress| progress.total_bytes).unwrap_or_default();
        moved.incremental_size = status.incremental_bytes.unwrap_or_default();
        moved.phase = upload.phase().to_string();
        info.completion_timestamp = status.completion_timestamp.map(|time| format!("{:.0}", time.0));
        info.result = if upload.phase() == TransferPhase::Completed { "succeeded" } else { "failed" }.into();
        Ok(())
    }
}
