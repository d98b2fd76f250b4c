//! What becomes of snapshots when their backup has ended, is given up, or is deleted.

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

use super::{CONTENTS, SNAPSHOTS, UPLOADS, VERSION, all_snapshots, contents, snapshots, text};
use crate::transfer::data_movement::kind_of;

/// How long a driver may take to delete one.
const LIMIT: Duration = Duration::from_mins(2);
const EVERY: Duration = Duration::from_millis(250);

async fn of_backup(client: &Client, uid: &str) -> Vec<Value> {
    let own = ListParams::default().labels(&format!("{}={uid}", labels::BACKUP_UID));
    match all_snapshots(client).list(&own).await {
        Ok(found) => found.items.iter().map(|one| json!(one)).collect(),
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => {
            warn!("the VolumeSnapshots of a backup cannot be listed: {error}");
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

/// A backup has ended: the driver keeps its snapshots, and the objects go. Whatever stays is harmless.
pub async fn release_snapshots(leader: &LeaderClient, uid: &str) {
    for snapshot in of_backup(&leader.client, uid).await {
        if leader.fence.check().is_err() {
            return;
        }
        if let Err(error) = release_snapshot(&leader.client, &snapshot, "Retain").await {
            warn!("VolumeSnapshot {} stays: {error}", text(&snapshot, "/metadata/name"));
        }
    }
}

/// A backup is given up, or its data is elsewhere: its snapshots go, and what the driver has goes with them.
pub async fn delete_snapshots(leader: &LeaderClient, uid: &str) {
    for snapshot in of_backup(&leader.client, uid).await {
        if let Err(error) = release_snapshot(&leader.client, &snapshot, "Delete").await {
            warn!("VolumeSnapshot {} stays: {error}", text(&snapshot, "/metadata/name"));
        }
    }
}

/// The snapshot is the last to go: as long as it is there, this is done again.
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

/// What lies in repositories because data was moved there, as far as the items of a backup tell.
#[derive(Clone, Default)]
pub struct MovedSnapshots(Arc<Mutex<Vec<PodVolumeBackup>>>);

impl MovedSnapshots {
    /// The snapshots in the repositories, as the transfers that `forget` takes.
    pub fn transfers(&self) -> Vec<PodVolumeBackup> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Registers the actions that deal with the snapshots of a backup.
pub fn register_deletion(
    leader: &LeaderClient,
    moved_snapshots: &MovedSnapshots,
    actions: &mut Registry<dyn DeleteItemAction>,
    mapper: &(impl ResourceMapper + ?Sized),
) -> Result<(), Error> {
    let moved = Arc::new(ForgetMovedData(moved_snapshots.clone()));
    let wanted = AppliesTo::resources([UPLOADS]);
    actions.register(Source::BuiltIn(1), "velero.io/dataupload-delete", &wanted, mapper, moved)?;
    if mapper.resolve(SNAPSHOTS).is_none() {
        return Ok(());
    }
    let wanted = AppliesTo::resources([CONTENTS]);
    let action = Arc::new(Deletion(leader.client.clone()));
    actions.register(Source::BuiltIn(1), "velero.io/csi-volumesnapshotcontent-delete", &wanted, mapper, action)
}

/// Whether an item was made by this backup: an archive may hold those of others.
fn is_its_own(item: &Value, backup: &Value) -> bool {
    let label = item.pointer("/metadata/labels").and_then(|all| all.get(labels::BACKUP_NAME)).and_then(Value::as_str);
    label == Some(labels::valid_name(text(backup, "/metadata/name")).as_str())
}

/// Whether the data was moved by Velero or by us. Of others' nothing is known but that it is in no repository of ours.
fn is_ours(upload: &DataUpload) -> bool {
    matches!(upload.spec.data_mover.as_deref(), None | Some("" | "velero"))
}

/// Data that was moved is forgotten where it lies.
struct ForgetMovedData(MovedSnapshots);

impl DeleteItemAction for ForgetMovedData {
    fn execute<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            if is_its_own(item, backup)
                && let Ok(upload) = serde_json::from_value::<DataUpload>(item.clone())
                && is_ours(&upload)
            {
                self.0.0.lock().unwrap_or_else(PoisonError::into_inner).push(as_files(&upload));
            }
            Ok(())
        })
    }
}

/// A snapshot of a repository is the same thing, whatever has written it.
fn as_files(upload: &DataUpload) -> PodVolumeBackup {
    let mut files = PodVolumeBackup::default();
    files.spec.pod.get_or_insert_default().namespace.clone_from(&upload.spec.source_namespace);
    files.spec.backup_storage_location.clone_from(&upload.spec.backup_storage_location);
    files.spec.uploader_type = Some(UploaderType::from(kind_of(upload).uploader_type()));
    let snapshot = upload.status.as_ref().and_then(|status| status.snapshot_id.clone());
    files.status.get_or_insert_default().snapshot_id = snapshot;
    files
}

/// A content with it stays until its driver has done what it is deleted for. The controller puts it on contents that are
/// bound only, so this one has it from the beginning.
const PROTECTION: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";

/// Only a driver can delete a snapshot, and only for a content: one is made that says so, and deleted.
struct Deletion(Client);

impl DeleteItemAction for Deletion {
    fn execute<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let made = text(item, "/status/snapshotHandle");
            // Those that another program made are not ours.
            if made.is_empty() || !is_its_own(item, backup) {
                return Ok(());
            }
            self.delete(item, made, text(backup, "/metadata/name")).await
        })
    }
}

impl Deletion {
    async fn delete(&self, item: &Value, handle: &str, backup: &str) -> Result<(), String> {
        let name = format!("{}-delete", text(item, "/metadata/name"));
        let mut spec = json!({ "deletionPolicy": "Delete", "driver": text(item, "/spec/driver"),
            "source": { "snapshotHandle": handle },
            "volumeSnapshotRef": { "apiVersion": VERSION, "kind": "VolumeSnapshot",
                "name": name, "namespace": text(item, "/spec/volumeSnapshotRef/namespace") } });
        if let Some(class) = item.pointer("/spec/volumeSnapshotClassName") {
            spec["volumeSnapshotClassName"] = class.clone();
        }
        let object = json!({ "apiVersion": VERSION, "kind": "VolumeSnapshotContent",
            "metadata": { "name": name, "labels": { labels::BACKUP_NAME: labels::valid_name(backup) },
                "finalizers": [PROTECTION] },
            "spec": spec });
        let object: DynamicObject = serde_json::from_value(object).map_err(|error| error.to_string())?;
        kill::point("csi.delete.before");
        match contents(&self.0).create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            answer => drop(answer.map_err(|error| format!("VolumeSnapshotContent {name}: {error}"))?),
        }
        self.delete_once_noted(&name).await?;
        kill::point("csi.delete.after");
        Ok(())
    }

    /// Goes on wherever an earlier try has ended. A content that is deleted before the driver's sidecar has noted its
    /// handle goes at once, and leaves the snapshot with the storage for ever.
    async fn delete_once_noted(&self, name: &str) -> Result<(), String> {
        let refused = |error: kube::Error| format!("VolumeSnapshotContent {name}: {error}");
        let deadline = Instant::now() + LIMIT;
        while let Some(content) = contents(&self.0).get_opt(name).await.map_err(refused)? {
            let content = json!(content);
            let standing = Standing::of(&content);
            if standing == Standing::Noted {
                ignore_not_found(contents(&self.0).delete(name, &DeleteParams::default()).await).map_err(refused)?;
            }
            if Instant::now() >= deadline {
                return Err(standing.blame(name, &content));
            }
            tokio::time::sleep(EVERY).await;
        }
        Ok(())
    }
}

/// How far a content is that was made to delete a snapshot.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Standing {
    /// The driver's sidecar has not seen it.
    Fresh,
    /// The sidecar knows which snapshot it stands for, or that there is none any more: it can be deleted.
    Noted,
    /// It is being deleted.
    Going,
}

impl Standing {
    fn of(content: &Value) -> Self {
        let absent = text(content, "/status/error/message").contains("code = NotFound");
        if !content["metadata"]["deletionTimestamp"].is_null() {
            Self::Going
        } else if absent || !text(content, "/status/snapshotHandle").is_empty() {
            Self::Noted
        } else {
            Self::Fresh
        }
    }

    fn blame(self, name: &str, content: &Value) -> String {
        let (driver, said) = (text(content, "/spec/driver"), text(content, "/status/error/message"));
        let what = match self {
            Self::Fresh => "has not taken note of",
            Self::Noted | Self::Going => "does not finish deleting",
        };
        let said = if said.is_empty() { "is its csi-snapshotter running?" } else { said };
        format!("driver {driver} {what} VolumeSnapshotContent {name}: {said}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_backup_itself_made_goes_with_it() {
        let backup = json!({ "metadata": { "name": "b" } });
        let of = |name: &str| json!({ "metadata": { "labels": { labels::BACKUP_NAME: name } } });
        assert!(
            is_its_own(&of("b"), &backup) && !is_its_own(&of("other"), &backup) && !is_its_own(&json!({}), &backup)
        );
    }

    #[test]
    fn a_content_is_deleted_once_its_driver_knows_what_it_stands_for() {
        let of = |status: Value| Standing::of(&json!({ "metadata": {}, "status": status }));
        assert_eq!(of(Value::Null), Standing::Fresh);
        assert_eq!(of(json!({ "readyToUse": false })), Standing::Fresh);
        assert_eq!(of(json!({ "snapshotHandle": "h" })), Standing::Noted);
        let error = |message: &str| json!({ "error": { "message": message } });
        assert_eq!(of(error("rpc error: code = NotFound desc = no such snapshot")), Standing::Noted);
        assert_eq!(of(error("rpc error: code = Unavailable desc = down")), Standing::Fresh);
        let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": { "driver": "d" },
            "status": error("rpc error: code = Internal desc = busy") });
        let standing = Standing::of(&going);
        assert_eq!(standing, Standing::Going);
        assert_eq!(
            standing.blame("c", &going),
            "driver d does not finish deleting VolumeSnapshotContent c: rpc error: code = Internal desc = busy"
        );
    }

    #[test]
    fn a_moved_snapshot_is_forgotten_in_the_repository_of_its_namespace() {
        let upload: DataUpload = serde_json::from_value(json!({ "metadata": { "name": "u" },
            "spec": { "sourceNamespace": "shop", "backupStorageLocation": "l" }, "status": { "snapshotID": "1" } }))
        .unwrap();
        let files = as_files(&upload);
        assert_eq!(files.spec.pod.unwrap().namespace.as_deref(), Some("shop"));
        assert_eq!(
            (files.spec.uploader_type, files.status.unwrap().snapshot_id),
            (Some(UploaderType::Kopia), Some("1".into()))
        );
    }
}
