//! Clean-up of CSI snapshots when their backup has ended, failed, or is deleted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::{PodVolumeBackup, UploaderType};
use plimsoll_api::velero::v2alpha1::DataUpload;
use plimsoll_engine::delete::DeleteItemAction;
use plimsoll_engine::registry::{AppliesTo, Registry, Source};
use plimsoll_engine::{Error, kill};
use plimsoll_operations::LeaderClient;
use plimsoll_select::resources::ResourceMapper;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::warn;

use super::{
    CONTENTS, SNAPSHOTS, UPLOADS, VERSION, all_snapshots, classes, contents, secret_annotations, snapshots, text,
};
use crate::transfer::data_movement::kind_of;

/// Timeout of a driver to delete a snapshot.
const DELETE_TIMEOUT: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(250);

async fn list_snapshots(client: &Client, uid: &str) -> Vec<Value> {
    let own = ListParams::default().labels(&format!("{}={uid}", labels::BACKUP_UID));
    match all_snapshots(client).list(&own).await {
        Ok(found) => found.items.iter().map(|one| json!(one)).collect(),
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => {
            warn!("failed to list the VolumeSnapshots of a backup: {error}");
            Vec::new()
        }
    }
}

fn ignore_not_found<R>(answer: kube::Result<R>) -> kube::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop),
    }
}

/// Deletes the snapshot objects of a completed backup; the driver retains the snapshots. Best effort.
pub async fn release_snapshots(leader: &LeaderClient, uid: &str) {
    for snapshot in list_snapshots(&leader.client, uid).await {
        if leader.fence.check().is_err() {
            return;
        }
        if let Err(error) = release_snapshot(&leader.client, &snapshot, "Retain").await {
            warn!("failed to delete VolumeSnapshot {}: {error}", text(&snapshot, "/metadata/name"));
        }
    }
}

/// Deletes the snapshots of a failed backup or of moved data, also in the storage.
pub async fn delete_snapshots(leader: &LeaderClient, uid: &str) {
    for snapshot in list_snapshots(&leader.client, uid).await {
        if leader.fence.check().is_err() {
            return;
        }
        if let Err(error) = release_snapshot(&leader.client, &snapshot, "Delete").await {
            warn!("failed to delete VolumeSnapshot {}: {error}", text(&snapshot, "/metadata/name"));
        }
    }
}

/// The VolumeSnapshot is deleted last, so that an interrupted deletion is repeated.
async fn release_snapshot(client: &Client, snapshot: &Value, policy: &str) -> kube::Result<()> {
    let content = text(snapshot, "/status/boundVolumeSnapshotContentName");
    let (namespace, name) = (text(snapshot, "/metadata/namespace"), text(snapshot, "/metadata/name"));
    kill::point("csi.release.before");
    if !content.is_empty() {
        let patch = Patch::Merge(json!({ "spec": { "deletionPolicy": policy } }));
        ignore_not_found(contents(client).patch(content, &PatchParams::default(), &patch).await)?;
        if policy == "Retain" {
            ignore_not_found(contents(client).delete(content, &DeleteParams::default()).await)?;
        }
    }
    ignore_not_found(snapshots(client, namespace).delete(name, &DeleteParams::default()).await)?;
    kill::point("csi.release.after");
    Ok(())
}

/// Maximum number of repository snapshots of a backup: an archive may name millions.
const MAX_MOVED_SNAPSHOTS: usize = 100_000;

/// Repository snapshots of moved data, from the DataUploads of a backup.
#[derive(Clone, Default)]
pub struct MovedSnapshots(Arc<Mutex<Vec<PodVolumeBackup>>>);

impl MovedSnapshots {
    /// The repository snapshots, as the PodVolumeBackups that `forget` takes.
    pub fn transfers(&self) -> Vec<PodVolumeBackup> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Registers the delete item actions for the snapshots of a backup.
pub fn register_deletion(
    leader: &LeaderClient,
    moved_snapshots: &MovedSnapshots,
    actions: &mut Registry<dyn DeleteItemAction>,
    mapper: &(impl ResourceMapper + ?Sized),
) -> Result<(), Error> {
    let moved = Arc::new(ForgetMovedDataAction(moved_snapshots.clone()));
    let wanted = AppliesTo::resources([UPLOADS]);
    actions.register(Source::BuiltIn(1), "velero.io/dataupload-delete", &wanted, mapper, moved)?;
    if mapper.resolve(SNAPSHOTS).is_none() {
        return Ok(());
    }
    let wanted = AppliesTo::resources([CONTENTS]);
    let action = Arc::new(DeleteSnapshotAction(leader.client.clone()));
    actions.register(Source::BuiltIn(1), "velero.io/csi-volumesnapshotcontent-delete", &wanted, mapper, action)
}

/// Whether this backup created an item: an archive may have items of others.
fn belongs_to_backup(item: &Value, backup: &Value) -> bool {
    let label = item.pointer("/metadata/labels").and_then(|all| all.get(labels::BACKUP_NAME)).and_then(Value::as_str);
    label == Some(labels::valid_name(text(backup, "/metadata/name")).as_str())
}

/// Whether the data mover is Velero's or ours; the data of others is in no known repository.
fn has_built_in_mover(upload: &DataUpload) -> bool {
    matches!(upload.spec.data_mover.as_deref(), None | Some("" | "velero"))
}

/// Collects moved data, to forget it in its repository.
struct ForgetMovedDataAction(MovedSnapshots);

impl DeleteItemAction for ForgetMovedDataAction {
    /// The repository is in the location of the backup.
    fn is_external(&self) -> bool {
        false
    }

    fn execute<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            if belongs_to_backup(item, backup)
                && let Ok(upload) = serde_json::from_value::<DataUpload>(item.clone())
                && has_built_in_mover(&upload)
            {
                let mut found = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
                if found.len() == MAX_MOVED_SNAPSHOTS {
                    return Err(format!("the backup has more than {MAX_MOVED_SNAPSHOTS} items like this one"));
                }
                found.push(as_pod_volume_backup(&upload));
            }
            Ok(())
        })
    }
}

/// The DataUpload as a PodVolumeBackup: both refer to a repository snapshot.
fn as_pod_volume_backup(upload: &DataUpload) -> PodVolumeBackup {
    let mut files = PodVolumeBackup::default();
    files.spec.pod.get_or_insert_default().namespace.clone_from(&upload.spec.source_namespace);
    files.spec.backup_storage_location.clone_from(&upload.spec.backup_storage_location);
    files.spec.uploader_type = Some(UploaderType::from(kind_of(upload).uploader_type()));
    let snapshot = upload.status.as_ref().and_then(|status| status.snapshot_id.clone());
    files.status.get_or_insert_default().snapshot_id = snapshot;
    files
}

/// Finalizer that keeps a content until the driver has deleted the snapshot. The controller sets it only on bound contents, so
/// it is set on creation.
const PROTECTION: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";

/// Creates a VolumeSnapshotContent and deletes it: only that makes a driver delete a snapshot.
struct DeleteSnapshotAction(Client);

impl DeleteItemAction for DeleteSnapshotAction {
    fn execute<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let made = text(item, "/status/snapshotHandle");
            // Created by another program.
            if made.is_empty() || !belongs_to_backup(item, backup) {
                return Ok(());
            }
            self.delete(item, made, text(backup, "/metadata/name")).await
        })
    }
}

impl DeleteSnapshotAction {
    async fn delete(&self, item: &Value, handle: &str, backup: &str) -> Result<(), String> {
        let name = format!("{}-delete", text(item, "/metadata/name"));
        let class = self.class_of(item).await?;
        let object = temporary_content(item, &name, handle, class, backup);
        let object: DynamicObject = serde_json::from_value(object).map_err(|error| error.to_string())?;
        kill::point("csi.delete.before");
        match contents(&self.0).create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            answer => drop(answer.map_err(|error| format!("VolumeSnapshotContent {name}: {error}"))?),
        }
        self.delete_when_processed(&name).await?;
        kill::point("csi.delete.after");
        Ok(())
    }

    /// The class of a content, if there still is one: a driver processes no content whose class is missing.
    async fn class_of<'a>(&self, item: &'a Value) -> Result<Option<&'a str>, String> {
        let class = text(item, "/spec/volumeSnapshotClassName");
        let found = match class {
            "" => None,
            class => classes(&self.0)
                .get_opt(class)
                .await
                .map_err(|error| format!("VolumeSnapshotClass {class}: {error}"))?,
        };
        Ok(found.map(|_| class))
    }

    /// Continues an interrupted attempt. A content that is deleted before the sidecar of the driver has processed it
    /// disappears at once, and the snapshot stays in the storage for ever.
    async fn delete_when_processed(&self, name: &str) -> Result<(), String> {
        let api_error = |error: kube::Error| format!("VolumeSnapshotContent {name}: {error}");
        let deadline = Instant::now() + DELETE_TIMEOUT;
        while let Some(content) = contents(&self.0).get_opt(name).await.map_err(api_error)? {
            let content = json!(content);
            let state = ContentState::of(&content);
            if state == ContentState::Processed {
                ignore_not_found(contents(&self.0).delete(name, &DeleteParams::default()).await).map_err(api_error)?;
            }
            if Instant::now() >= deadline {
                return Err(state.timeout_error(name, &content));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

/// The content that makes a driver delete its snapshot.
fn temporary_content(item: &Value, name: &str, handle: &str, class: Option<&str>, backup: &str) -> Value {
    let mut content = json!({ "apiVersion": VERSION, "kind": "VolumeSnapshotContent",
        "metadata": { "name": name, "labels": { labels::BACKUP_NAME: labels::valid_name(backup) },
            "annotations": secret_annotations(item), "finalizers": [PROTECTION] },
        "spec": { "deletionPolicy": "Delete", "driver": text(item, "/spec/driver"), "source": { "snapshotHandle": handle },
            "volumeSnapshotRef": { "apiVersion": VERSION, "kind": "VolumeSnapshot", "name": name,
                "namespace": text(item, "/spec/volumeSnapshotRef/namespace") } } });
    if let Some(class) = class {
        content["spec"]["volumeSnapshotClassName"] = json!(class);
    }
    content
}

/// The state of a content that was created to delete a snapshot.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ContentState {
    /// The sidecar of the driver has not processed it.
    Pending,
    /// The sidecar has found the snapshot, or that it does not exist: the content can be deleted.
    Processed,
    /// It is being deleted.
    Deleting,
}

impl ContentState {
    fn of(content: &Value) -> Self {
        let absent = text(content, "/status/error/message").contains("code = NotFound");
        if !content["metadata"]["deletionTimestamp"].is_null() {
            Self::Deleting
        } else if absent || !text(content, "/status/snapshotHandle").is_empty() {
            Self::Processed
        } else {
            Self::Pending
        }
    }

    fn timeout_error(self, name: &str, content: &Value) -> String {
        let (driver, said) = (text(content, "/spec/driver"), text(content, "/status/error/message"));
        let what = match self {
            Self::Pending => "has not processed",
            Self::Processed | Self::Deleting => "has not deleted",
        };
        let said = if said.is_empty() { "is its csi-snapshotter running?" } else { said };
        format!("driver {driver} {what} VolumeSnapshotContent {name}: {said}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_items_of_the_backup_are_deleted() {
        let backup = json!({ "metadata": { "name": "b" } });
        let of = |name: &str| json!({ "metadata": { "labels": { labels::BACKUP_NAME: name } } });
        assert!(
            belongs_to_backup(&of("b"), &backup)
                && !belongs_to_backup(&of("other"), &backup)
                && !belongs_to_backup(&json!({}), &backup)
        );
    }

    #[test]
    fn the_content_for_a_deletion_names_the_secret_that_the_driver_needs() {
        let annotations = json!({ "snapshot.storage.kubernetes.io/deletion-secret-name": "rbd",
            "snapshot.storage.kubernetes.io/deletion-secret-namespace": "ceph" });
        let mut item = json!({ "metadata": { "name": "c", "annotations": annotations },
            "spec": { "driver": "d", "volumeSnapshotRef": { "name": "s", "namespace": "shop" } } });
        item["metadata"]["annotations"]["other"] = json!("x");
        let content = temporary_content(&item, "c-delete", "h", Some("k"), "b");
        assert_eq!(content["metadata"]["annotations"], annotations);
        assert_eq!(content["spec"]["volumeSnapshotClassName"], "k");
        assert_eq!(content["spec"]["source"], json!({ "snapshotHandle": "h" }));
        assert!(temporary_content(&item, "c-delete", "h", None, "b")["spec"].get("volumeSnapshotClassName").is_none());
    }

    #[test]
    fn a_content_is_deleted_after_the_sidecar_has_processed_it() {
        let of = |status: Value| ContentState::of(&json!({ "metadata": {}, "status": status }));
        assert_eq!(of(Value::Null), ContentState::Pending);
        assert_eq!(of(json!({ "readyToUse": false })), ContentState::Pending);
        assert_eq!(of(json!({ "snapshotHandle": "h" })), ContentState::Processed);
        let error = |message: &str| json!({ "error": { "message": message } });
        assert_eq!(of(error("rpc error: code = NotFound desc = no such snapshot")), ContentState::Processed);
        assert_eq!(of(error("rpc error: code = Unavailable desc = down")), ContentState::Pending);
        let deleting = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": { "driver": "d" },
            "status": error("rpc error: code = Internal desc = busy") });
        let state = ContentState::of(&deleting);
        assert_eq!(state, ContentState::Deleting);
        assert_eq!(
            state.timeout_error("c", &deleting),
            "driver d has not deleted VolumeSnapshotContent c: rpc error: code = Internal desc = busy"
        );
    }

    #[test]
    fn a_moved_snapshot_is_forgotten_in_the_repository_of_its_namespace() {
        let upload: DataUpload = serde_json::from_value(json!({ "metadata": { "name": "u" },
            "spec": { "sourceNamespace": "shop", "backupStorageLocation": "l" }, "status": { "snapshotID": "1" } }))
        .unwrap();
        let files = as_pod_volume_backup(&upload);
        assert_eq!(files.spec.pod.unwrap().namespace.as_deref(), Some("shop"));
        assert_eq!(
            (files.spec.uploader_type, files.status.unwrap().snapshot_id),
            (Some(UploaderType::Kopia), Some("1".into()))
        );
    }
}
