//! The restore item actions for claims, VolumeSnapshots and VolumeSnapshotContents.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use plimsoll_archive::volume_info::{CsiSnapshotInfo, RestoreVolumeInfo, SnapshotInfo, VolumeNames};
use plimsoll_engine::Error;
use plimsoll_engine::item_operations::{ItemOperationClient, ItemOperationProgress};
use plimsoll_engine::restore::action::{
    AdditionalResources, RestoreActionInput, RestoreActionOutput, RestoreItemAction,
};
use serde_json::Value;
use tokio::time::Instant;

use super::CsiRestore;
use super::objects::{content, from_snapshot, snapshot, without_source};
use crate::csi::snapshot_taker::{read_state, to_progress};
use crate::csi::{CLASSES, CONTENTS, SNAPSHOT_NAME, SNAPSHOTS, UPLOAD_NAME, annotation, text};

/// Timeout of a driver until a snapshot is ready to use.
const READY_TIMEOUT: Duration = Duration::from_mins(10);

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Claim,
    Snapshot,
    Content,
}

/// Restores one kind of the objects of a snapshot.
pub(super) struct Restorer {
    pub all: Arc<CsiRestore>,
    pub part: Part,
    /// When an operation was first polled.
    pub began: Mutex<BTreeMap<String, Instant>>,
}

impl Restorer {
    async fn claim(&self, item: Value, from_backup: &Value) -> Result<RestoreActionOutput, String> {
        let (snapshot, upload) = (annotation(from_backup, SNAPSHOT_NAME), annotation(from_backup, UPLOAD_NAME));
        if (snapshot.is_empty() && upload.is_empty()) || !self.all.parameters.with_data {
            return Ok(RestoreActionOutput::of(item));
        }
        let target = self.all.target(text(from_backup, "/metadata/namespace"));
        if self.all.is_bound_elsewhere(target, text(from_backup, "/metadata/name")).await? {
            return Ok(RestoreActionOutput::of(item));
        }
        if !upload.is_empty() {
            return self
                .all
                .downloads
                .start(&self.all.parameters, without_source(item), from_backup, upload, target)
                .await;
        }
        if !self.all.known {
            return Err("its data is in a CSI snapshot, and this cluster does not serve VolumeSnapshots".to_owned());
        }
        self.record_info(from_backup, target);
        Ok(from_snapshot(item, from_backup, snapshot, &self.all.snapshot_name(snapshot)))
    }

    fn record_info(&self, claim: &Value, target: &str) {
        let info = RestoreVolumeInfo {
            volume: VolumeNames {
                pvc_name: text(claim, "/metadata/name").to_owned(),
                pvc_namespace: target.to_owned(),
                pv_name: text(claim, "/spec/volumeName").to_owned(),
            },
            restore_method: "CSISnapshot".into(),
            snapshot: SnapshotInfo {
                csi_snapshot_info: Some(CsiSnapshotInfo {
                    vsc_name: self.all.snapshot_name(annotation(claim, SNAPSHOT_NAME)),
                    ..CsiSnapshotInfo::default()
                }),
                ..SnapshotInfo::default()
            },
            ..RestoreVolumeInfo::default()
        };
        self.all.infos.lock().unwrap_or_else(PoisonError::into_inner).push(info);
    }

    fn transform(&self, item: &Value, from_backup: &Value) -> Result<RestoreActionOutput, String> {
        if !self.all.parameters.with_data {
            return Ok(RestoreActionOutput { skip: true, ..RestoreActionOutput::of(item.clone()) });
        }
        if self.part == Part::Snapshot {
            let (name, namespace) = (text(from_backup, "/metadata/name"), text(from_backup, "/metadata/namespace"));
            return snapshot(item, from_backup, &self.all.snapshot_name(name), self.all.target(namespace));
        }
        let reference = |field: &str| text(from_backup, &format!("/spec/volumeSnapshotRef/{field}"));
        let made = content(
            item,
            from_backup,
            &self.all.snapshot_name(reference("name")),
            self.all.target(reference("namespace")),
        );
        let known = made.as_ref().map(|made| made.item.clone()).unwrap_or_default();
        self.complete(&known);
        made
    }

    /// The volume info of a content.
    fn complete(&self, made: &Value) {
        let mut infos = self.all.infos.lock().unwrap_or_else(PoisonError::into_inner);
        let meant = |csi: &&mut CsiSnapshotInfo| csi.vsc_name == text(made, "/metadata/name");
        for csi in infos.iter_mut().filter_map(|info| info.snapshot.csi_snapshot_info.as_mut()).filter(meant) {
            text(made, "/spec/source/snapshotHandle").clone_into(&mut csi.snapshot_handle);
            text(made, "/spec/driver").clone_into(&mut csi.driver);
        }
    }

    /// Whether a snapshot can be used.
    async fn ready(&self, operation: &str) -> Result<ItemOperationProgress, Error> {
        let (namespace, name) = operation.split_once('/').unwrap_or_default();
        let (mut reading, _) =
            to_progress(read_state(&self.all.parameters.services.leader.client, namespace, name).await?);
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        let since = began.entry(operation.to_owned()).or_insert_with(Instant::now);
        if !reading.completed && since.elapsed() >= READY_TIMEOUT {
            reading.completed = true;
            reading.error = format!("it cannot be used after {} s: {}", READY_TIMEOUT.as_secs(), reading.description);
        }
        Ok(reading)
    }
}

impl RestoreItemAction for Restorer {
    fn execute<'a>(&'a self, input: RestoreActionInput<'a>) -> BoxFuture<'a, Result<RestoreActionOutput, String>> {
        Box::pin(async move {
            match self.part {
                Part::Claim => self.claim(input.item, input.from_backup).await,
                Part::Snapshot | Part::Content => self.transform(&input.item, input.from_backup),
            }
        })
    }

    fn additional_resources(&self) -> AdditionalResources {
        match self.part {
            Part::Claim => AdditionalResources::Only(&[SNAPSHOTS]),
            Part::Snapshot => AdditionalResources::Only(&[CLASSES, CONTENTS]),
            Part::Content => AdditionalResources::None,
        }
    }

    fn operation_client(self: Arc<Self>) -> Option<Arc<dyn ItemOperationClient>> {
        Some(self)
    }
}

impl ItemOperationClient for Restorer {
    fn progress<'a>(&'a self, operation: &'a str, _: &'a Value) -> BoxFuture<'a, Result<ItemOperationProgress, Error>> {
        Box::pin(async move {
            match self.part {
                Part::Claim => self.all.downloads.read(operation).await,
                Part::Snapshot | Part::Content => self.ready(operation).await,
            }
        })
    }

    /// Keeps created objects and cancels data movement.
    fn cancel<'a>(&'a self, operation: &'a str, _: &'a Value) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            match self.part {
                Part::Claim => self.all.downloads.cancel(operation).await,
                Part::Snapshot | Part::Content => Ok(()),
            }
        })
    }

    fn resumes_operations(&self) -> bool {
        true
    }
}
