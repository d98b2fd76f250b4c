//! Restores a claim from its snapshot: claim, snapshot and content, each with a name of this restore. A claim whose data was
//! moved waits for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, ResourceExt};
use plimsoll_api::labels::{self, RESTORE_MUST_INCLUDE_ADDITIONAL_ITEMS as MUST_INCLUDE};
use plimsoll_api::velero::v1::UploaderSettings;
use plimsoll_archive::volume_info::{CsiSnapshotInfo, RestoreVolumeInfo};
use plimsoll_engine::Error;
use plimsoll_engine::item_operations::{ItemOperationClient, ItemOperationProgress};
use plimsoll_engine::registry::{AppliesTo, Source};
use plimsoll_engine::restore::action::{
    AdditionalResources, ItemId, RestoreActionInput, RestoreActionOutput, RestoreItemAction,
};
use plimsoll_engine::restore::actions::Actions;
use plimsoll_select::resources::ResourceMapper;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::download::{Downloads, RememberUploads};
use super::snapshot_taker::{read_state, to_progress};
use super::{
    CLASSES, CONTENTS, DRIVER_NAME, GROUP, HANDLE, RESTORE_SIZE, SNAPSHOT_NAME, SNAPSHOTS, UPLOAD_NAME, UPLOADS,
};
use super::{VERSION, annotation, set_metadata, text};
use crate::fs_backup::TransferServices;
use crate::volume_job::VolumeJob;

const CLAIMS: &str = "persistentvolumeclaims";
/// Timeout of a driver until a snapshot is ready to use.
const LIMIT: Duration = Duration::from_mins(10);

/// Parameters of the restore of CSI snapshots.
pub struct CsiRestoreParameters {
    /// Services of the server.
    pub services: Arc<TransferServices>,
    /// The Restore.
    pub job: VolumeJob,
    /// The namespaces that get another name.
    pub namespaces: BTreeMap<String, String>,
    /// The name of the backup's BackupStorageLocation in this cluster.
    pub location: String,
    /// Whether volumes get their data.
    pub with_data: bool,
    /// Timeout of the preparation of a volume.
    pub limit: Duration,
    /// Settings of the mover.
    pub settings: UploaderSettings,
}

/// Restores claims whose driver took snapshots.
pub struct CsiRestore {
    pub(super) parameters: CsiRestoreParameters,
    downloads: Downloads,
    /// Whether the cluster serves VolumeSnapshots.
    known: bool,
    infos: Mutex<Vec<RestoreVolumeInfo>>,
}

/// Registers the actions.
pub fn register_restore(
    parameters: CsiRestoreParameters,
    actions: &mut Actions,
    mapper: &(impl ResourceMapper + ?Sized),
) -> Result<Arc<CsiRestore>, Error> {
    let known = mapper.resolve(SNAPSHOTS).is_some();
    let downloads = Downloads::new(&parameters.services);
    let all = Arc::new(CsiRestore { parameters, downloads, known, infos: Mutex::default() });
    let uploads: Arc<dyn RestoreItemAction> = Arc::new(RememberUploads(Arc::clone(&all.downloads.known)));
    let wanted = AppliesTo::resources([UPLOADS]);
    actions.register(Source::BuiltIn(1), "velero.io/dataupload", &wanted, mapper, uploads)?;
    let parts = [
        ("velero.io/csi-pvc-restorer", CLAIMS, Part::Claim),
        ("velero.io/csi-volumesnapshot-restorer", SNAPSHOTS, Part::Snapshot),
        ("velero.io/csi-volumesnapshotcontent-restorer", CONTENTS, Part::Content),
    ];
    for (name, resource, part) in parts.into_iter().take(if known { 3 } else { 1 }) {
        let action = Arc::new(Restorer { all: Arc::clone(&all), part, began: Mutex::default() });
        actions.register(Source::BuiltIn(2), name, &AppliesTo::resources([resource]), mapper, action)?;
    }
    Ok(all)
}

impl CsiRestore {
    /// Whether the cluster serves VolumeSnapshots.
    pub fn supports_snapshots(&self) -> bool {
        self.known
    }

    /// Method and result of each volume.
    pub fn infos(&self) -> Vec<RestoreVolumeInfo> {
        let mut infos = self.infos.lock().unwrap_or_else(PoisonError::into_inner).clone();
        infos.extend(self.downloads.infos());
        infos
    }

    /// The name of a snapshot in this restore: stable across attempts, unique for each restore.
    fn snapshot_name(&self, snapshot: &str) -> String {
        hex::encode(Sha256::digest(format!("{}/{snapshot}", self.parameters.job.uid)))[..63].to_owned()
    }

    fn target<'a>(&'a self, namespace: &'a str) -> &'a str {
        self.parameters.namespaces.get(namespace).map_or(namespace, String::as_str)
    }

    /// Whether a claim exists that this restore did not create: it stays as it is.
    async fn is_bound_elsewhere(&self, namespace: &str, name: &str) -> Result<bool, String> {
        let CsiRestoreParameters { services, job: VolumeJob { name: restore, .. }, .. } = &self.parameters;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(services.leader.client.clone(), namespace);
        let found = claims.get_opt(name).await.map_err(|error| format!("claim {namespace}/{name}: {error}"))?;
        let made_by = |claim: &PersistentVolumeClaim| claim.labels().get(labels::RESTORE_NAME).cloned();
        Ok(found.is_some_and(|claim| made_by(&claim) != Some(labels::valid_name(restore))))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Claim,
    Snapshot,
    Content,
}

struct Restorer {
    all: Arc<CsiRestore>,
    part: Part,
    /// When an operation was first polled.
    began: Mutex<BTreeMap<String, Instant>>,
}

/// A claim without what ties it to a volume or to a snapshot of the past.
fn without_source(mut item: Value) -> Value {
    if let Some(spec) = item.get_mut("spec").and_then(Value::as_object_mut) {
        for field in ["volumeName", "dataSource", "dataSourceRef"] {
            spec.remove(field);
        }
    }
    for map in ["labels", "annotations"] {
        if let Some(all) = item.pointer_mut(&format!("/metadata/{map}")).and_then(Value::as_object_mut) {
            all.remove(SNAPSHOT_NAME);
            all.remove(UPLOAD_NAME);
        }
    }
    item
}

/// A claim that begins as a snapshot.
fn from_snapshot(item: Value, from_backup: &Value, snapshot: &str, called: &str) -> RestoreActionOutput {
    let mut item = without_source(item);
    let source = json!({ "apiGroup": GROUP, "kind": "VolumeSnapshot", "name": called });
    item["spec"]["dataSource"] = source.clone();
    item["spec"]["dataSourceRef"] = source;
    set_metadata(&mut item, "annotations", MUST_INCLUDE, "true");
    let namespace = text(from_backup, "/metadata/namespace");
    RestoreActionOutput {
        item,
        additional: vec![ItemId::namespaced(SNAPSHOTS, namespace, snapshot)],
        ..RestoreActionOutput::default()
    }
}

/// A snapshot of a content that has the same name.
fn snapshot(item: &Value, from_backup: &Value, called: &str, target: &str) -> Result<RestoreActionOutput, String> {
    let content = text(from_backup, "/status/boundVolumeSnapshotContentName");
    if content.is_empty() {
        return Err("it has no content: the driver had not taken it".to_owned());
    }
    let class = text(from_backup, "/spec/volumeSnapshotClassName");
    let mut made = json!({ "apiVersion": item["apiVersion"], "kind": item["kind"],
        "metadata": { "name": called, "namespace": item["metadata"]["namespace"],
            "annotations": { HANDLE: annotation(from_backup, HANDLE), DRIVER_NAME: annotation(from_backup, DRIVER_NAME),
                RESTORE_SIZE: annotation(from_backup, RESTORE_SIZE) } },
        "spec": { "source": { "volumeSnapshotContentName": called } } });
    let class = Some(class).filter(|class| !class.is_empty());
    if let Some(class) = class {
        made["spec"]["volumeSnapshotClassName"] = json!(class);
    }
    set_metadata(&mut made, "annotations", MUST_INCLUDE, "true");
    let class = class.map(|class| ItemId::cluster(CLASSES, class));
    let additional = class.into_iter().chain([ItemId::cluster(CONTENTS, content)]).collect();
    let operation = Some(format!("{target}/{called}"));
    Ok(RestoreActionOutput { item: made, additional, operation, ..RestoreActionOutput::default() })
}

/// A content of the driver's own handle. It is kept when its objects go: the backup still needs it.
fn content(item: &Value, from_backup: &Value, called: &str, target: &str) -> Result<RestoreActionOutput, String> {
    let handle = text(from_backup, "/status/snapshotHandle");
    if handle.is_empty() {
        return Err("it has no handle: the driver had not taken it".to_owned());
    }
    let mut made = json!({ "apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": { "name": called },
        "spec": { "deletionPolicy": "Retain", "driver": from_backup["spec"]["driver"],
            "source": { "snapshotHandle": handle },
            "volumeSnapshotRef": { "apiVersion": VERSION, "kind": "VolumeSnapshot", "name": called, "namespace": target } } });
    if let Some(class) = from_backup.pointer("/spec/volumeSnapshotClassName") {
        made["spec"]["volumeSnapshotClassName"] = class.clone();
    }
    Ok(RestoreActionOutput::of(made))
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
            pvc_name: text(claim, "/metadata/name").to_owned(),
            pvc_namespace: target.to_owned(),
            pv_name: text(claim, "/spec/volumeName").to_owned(),
            restore_method: "CSISnapshot".into(),
            csi_snapshot_info: Some(CsiSnapshotInfo {
                vsc_name: self.all.snapshot_name(annotation(claim, SNAPSHOT_NAME)),
                ..CsiSnapshotInfo::default()
            }),
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
        for csi in infos.iter_mut().filter_map(|info| info.csi_snapshot_info.as_mut()).filter(meant) {
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
        if !reading.completed && since.elapsed() >= LIMIT {
            reading.completed = true;
            reading.error = format!("it cannot be used after {} s: {}", LIMIT.as_secs(), reading.description);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_snapshot_and_content_find_each_other_under_the_names_of_the_restore() {
        let claim = json!({ "metadata": { "namespace": "old", "name": "c", "annotations": { SNAPSHOT_NAME: "s" } },
            "spec": { "volumeName": "v" } });
        let output = from_snapshot(claim.clone(), &claim, "s", "called");
        assert_eq!(output.item["spec"]["dataSource"]["name"], "called");
        assert!(output.item["spec"].get("volumeName").is_none() && annotation(&output.item, SNAPSHOT_NAME).is_empty());
        assert_eq!(output.additional, [ItemId::namespaced(SNAPSHOTS, "old", "s")]);
        let from = json!({ "metadata": { "namespace": "old", "name": "s" }, "spec": { "volumeSnapshotClassName": "k" },
            "status": { "boundVolumeSnapshotContentName": "content" } });
        let output = snapshot(&from, &from, "called", "new").unwrap();
        assert_eq!(output.item["metadata"]["name"], "called");
        assert_eq!(output.operation.as_deref(), Some("new/called"));
        assert_eq!(output.additional, [ItemId::cluster(CLASSES, "k"), ItemId::cluster(CONTENTS, "content")]);
        let from = json!({ "metadata": { "name": "content" }, "status": { "snapshotHandle": "h" },
            "spec": { "driver": "d", "deletionPolicy": "Delete", "volumeSnapshotRef": { "name": "s", "namespace": "old" } } });
        let output = content(&from, &from, "called", "new").unwrap();
        let spec = &output.item["spec"];
        assert_eq!((&spec["deletionPolicy"], &spec["source"]), (&json!("Retain"), &json!({ "snapshotHandle": "h" })));
        assert_eq!(spec["volumeSnapshotRef"]["namespace"], "new");
        assert_eq!(
            (&output.item["metadata"]["name"], &spec["volumeSnapshotRef"]["name"]),
            (&json!("called"), &json!("called"))
        );
    }

    #[test]
    fn what_the_driver_had_not_taken_is_refused() {
        let none = json!({ "metadata": { "namespace": "old", "name": "s" }, "spec": {} });
        assert!(snapshot(&none, &none, "called", "new").unwrap_err().contains("no content"));
        assert!(content(&none, &none, "called", "new").unwrap_err().contains("no handle"));
    }
}
