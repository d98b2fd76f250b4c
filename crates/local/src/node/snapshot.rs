//! The CSI driver and snapshot controller of the node: a snapshot is a copy of the directory of a volume.
//!
//! ```text
//! VolumeSnapshot of a claim ──take──> copy, VolumeSnapshotContent ──> ready
//! VolumeSnapshot of a content ──bind──> ready, if the copy exists
//! VolumeSnapshotContent without its snapshot ──> deleted, and with the policy Delete the copy too
//! ```

use super::{NODE_NAME, key_of};
use crate::{
    Core,
    object::{finalizers, is_terminating, now, set_finalizers, text},
    status_error::StatusError,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";
pub(super) const CLASSES: &str = "volumesnapshotclasses.snapshot.storage.k8s.io";
const API_VERSION: &str = "snapshot.storage.k8s.io/v1";
/// The name of the CSI driver.
pub(super) const DRIVER: &str = "csi.plimsoll.dev";
/// As in the snapshot controller, a content stays until its snapshot is deleted from the storage.
const PROTECTION_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";

/// Whether a change of this resource requires a reconciliation.
pub(super) fn is_relevant(resource: &str) -> bool {
    resource == SNAPSHOTS || resource == CONTENTS
}

/// The storage class whose volumes support snapshots.
pub(super) fn storage_class() -> Value {
    json!({ "metadata": {"name": format!("{NODE_NAME}-csi")}, "provisioner": DRIVER, "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate" })
}

/// The VolumeSnapshotClass, labelled for Velero.
pub(super) fn snapshot_class() -> Value {
    json!({ "apiVersion": API_VERSION, "kind": "VolumeSnapshotClass", "driver": DRIVER, "deletionPolicy": "Delete",
        "metadata": {"name": format!("{NODE_NAME}-csi"), "labels": {"velero.io/csi-volumesnapshot-class": "true"}} })
}

/// Takes requested snapshots, binds pre-provisioned ones, and deletes unreferenced contents.
pub(super) async fn reconcile(core: &Core) -> Result<(), StatusError> {
    let snapshots = core.list_all(SNAPSHOTS)?;
    let is_pending = |snapshot: &&Value| {
        let ended =
            snapshot.pointer("/status/readyToUse") == Some(&json!(true)) || snapshot["status"]["error"].is_object();
        !ended && !is_terminating(snapshot)
    };
    for snapshot in snapshots.iter().filter(is_pending) {
        let source = |field: &str| text(snapshot, &format!("/spec/source/{field}"));
        match (source("persistentVolumeClaimName"), source("volumeSnapshotContentName")) {
            ("", "") => {}
            ("", content) => bind(core, snapshot, content).await?,
            (claim, _) => take_snapshot(core, snapshot, claim).await?,
        }
    }
    for content in core.list_all(CONTENTS)? {
        if text(&content, "/spec/driver") == DRIVER {
            reconcile_content(core, &content, &snapshots).await?;
        }
    }
    Ok(())
}

async fn reconcile_content(core: &Core, content: &Value, snapshots: &[Value]) -> Result<(), StatusError> {
    let is_delete_policy = text(content, "/spec/deletionPolicy") == "Delete";
    if is_terminating(content) {
        // As in the csi-snapshotter sidecar, a handle that is not in the status is not deleted from the storage.
        let handle = text(content, "/status/snapshotHandle");
        if is_delete_policy && is_valid_handle(handle) {
            super::remove_directory(&snapshot_directory(core, handle)).await;
        }
        return core.remove_finalizer(&key_of(CONTENTS, content), PROTECTION_FINALIZER).await;
    }
    let wanted = text(content, "/spec/volumeSnapshotRef/uid");
    let is_unreferenced =
        !wanted.is_empty() && !snapshots.iter().any(|snapshot| text(snapshot, "/metadata/uid") == wanted);
    let named = text(content, "/spec/source/snapshotHandle");
    let is_unrecorded = !named.is_empty() && text(content, "/status/snapshotHandle").is_empty();
    if finalizers(content).is_empty() || is_unrecorded {
        record_handle(core, content, named.to_owned()).await
    } else if is_unreferenced && is_delete_policy {
        core.delete_exact(&key_of(CONTENTS, content), content).await
    } else {
        Ok(())
    }
}

/// Any client can write a handle: only a plain name, not a path, is valid.
fn is_valid_handle(handle: &str) -> bool {
    !handle.is_empty() && handle.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn snapshot_directory(core: &Core, handle: &str) -> PathBuf {
    core.node.get().map(|node| node.directory.join("snapshots").join(handle)).unwrap_or_default()
}

/// The directory and size of a claim whose volume is of this driver.
fn claim_directory(core: &Core, namespace: &str, claim: &str) -> Result<Option<(PathBuf, Value)>, StatusError> {
    let Some(claim) = core.read_object("persistentvolumeclaims", namespace, claim)? else { return Ok(None) };
    let volume = core.read_object("persistentvolumes", "", text(&claim, "/spec/volumeName"))?.unwrap_or_default();
    let ours = text(&volume, "/spec/csi/driver") == DRIVER;
    let size = volume["spec"]["capacity"]["storage"].clone();
    Ok(ours.then(|| (PathBuf::from(text(&volume, "/spec/csi/volumeHandle")), size)))
}

async fn take_snapshot(core: &Core, snapshot: &Value, claim: &str) -> Result<(), StatusError> {
    let class = core.read_object(CLASSES, "", text(snapshot, "/spec/volumeSnapshotClassName"))?.unwrap_or_default();
    if text(&class, "/driver") != DRIVER {
        return Ok(());
    }
    let Some((from, size)) = claim_directory(core, text(snapshot, "/metadata/namespace"), claim)? else {
        return Ok(());
    };
    if !from.is_dir() {
        return set_error(core, snapshot, format!("rpc error: code = NotFound desc = no volume {}", from.display()))
            .await;
    }
    let uid = text(snapshot, "/metadata/uid");
    let (name, handle) = (format!("snapcontent-{uid}"), format!("snapshot-{uid}"));
    copy_directory(&from, &snapshot_directory(core, &handle)).await?;
    let reference = json!({"apiVersion": API_VERSION, "kind": "VolumeSnapshot", "name": snapshot["metadata"]["name"],
        "namespace": snapshot["metadata"]["namespace"], "uid": uid});
    let content = json!({
        "apiVersion": API_VERSION, "kind": "VolumeSnapshotContent",
        "metadata": {"name": name, "finalizers": [PROTECTION_FINALIZER]},
        "spec": {"deletionPolicy": class["deletionPolicy"], "driver": DRIVER, "volumeSnapshotRef": reference,
            "volumeSnapshotClassName": class["metadata"]["name"], "source": {"volumeHandle": from}},
    });
    core.create_if_absent(CONTENTS, content.clone()).await?;
    record_handle(core, &content, handle).await?;
    set_ready(core, snapshot, name, size).await
}

/// Reports a permanent error of the driver in the status.
async fn set_error(core: &Core, snapshot: &Value, message: String) -> Result<(), StatusError> {
    core.modify(&key_of(SNAPSHOTS, snapshot), move |snapshot| {
        snapshot["status"] = json!({"readyToUse": false, "error": {"message": message, "time": now()}});
    })
    .await
}

async fn set_ready(core: &Core, snapshot: &Value, content: String, size: Value) -> Result<(), StatusError> {
    core.modify(&key_of(SNAPSHOTS, snapshot), move |snapshot| {
        snapshot["status"] = json!({"boundVolumeSnapshotContentName": content, "readyToUse": true,
            "creationTime": now(), "restoreSize": size});
    })
    .await
}

/// Binds a snapshot to a pre-provisioned content: it is ready if the driver has its handle.
async fn bind(core: &Core, snapshot: &Value, content: &str) -> Result<(), StatusError> {
    let Some(found) = core.read_object(CONTENTS, "", content)? else { return Ok(()) };
    let handle = text(&found, "/spec/source/snapshotHandle").to_owned();
    let is_for_snapshot = ["name", "namespace"]
        .iter()
        .all(|part| found["spec"]["volumeSnapshotRef"][*part] == snapshot["metadata"][*part]);
    if text(&found, "/spec/driver") != DRIVER || !is_for_snapshot {
        return Ok(());
    }
    if !is_valid_handle(&handle) || !snapshot_directory(core, &handle).is_dir() {
        return set_error(core, snapshot, format!("rpc error: code = NotFound desc = no snapshot {handle}")).await;
    }
    let (uid, bytes) = (text(snapshot, "/metadata/uid").to_owned(), directory_size(&snapshot_directory(core, &handle)));
    record_handle(core, &found, handle).await?;
    core.modify(&key_of(CONTENTS, &found), move |content| content["spec"]["volumeSnapshotRef"]["uid"] = json!(uid))
        .await?;
    set_ready(core, snapshot, content.to_owned(), json!(bytes.to_string())).await
}

/// Records the handle in the status and adds the finalizer.
async fn record_handle(core: &Core, content: &Value, handle: String) -> Result<(), StatusError> {
    let there = is_valid_handle(&handle) && snapshot_directory(core, &handle).is_dir();
    let bytes = if there { directory_size(&snapshot_directory(core, &handle)) } else { 0 };
    core.modify(&key_of(CONTENTS, content), move |content| {
        content["status"] = json!({"snapshotHandle": handle, "readyToUse": there, "restoreSize": bytes});
        set_finalizers(content, &[PROTECTION_FINALIZER.to_owned()]);
    })
    .await
}

/// The initial content of the volume of a claim.
pub(super) enum VolumeSource {
    /// No content.
    Empty,
    /// The content of a snapshot.
    Snapshot(PathBuf),
    /// The snapshot is not ready yet.
    NotReady,
}

/// The initial content of the volume of a claim.
pub(super) fn volume_source(core: &Core, claim: &Value) -> Result<VolumeSource, StatusError> {
    let from = ["/spec/dataSourceRef", "/spec/dataSource"].iter().find_map(|at| claim.pointer(at));
    let Some(from) = from.filter(|from| from["kind"] == "VolumeSnapshot") else { return Ok(VolumeSource::Empty) };
    let snapshot =
        core.read_object(SNAPSHOTS, text(claim, "/metadata/namespace"), text(from, "/name"))?.unwrap_or_default();
    if snapshot.pointer("/status/readyToUse") != Some(&json!(true)) {
        return Ok(VolumeSource::NotReady);
    }
    let bound = text(&snapshot, "/status/boundVolumeSnapshotContentName");
    let content = core.read_object(CONTENTS, "", bound)?.unwrap_or_default();
    let handle = text(&content, "/status/snapshotHandle");
    Ok(if is_valid_handle(handle) {
        VolumeSource::Snapshot(snapshot_directory(core, handle))
    } else {
        VolumeSource::NotReady
    })
}

/// Creates an empty volume.
pub(super) async fn create_directory(directory: &Path) -> Result<(), StatusError> {
    let internal_error =
        |error| StatusError::new(500, "InternalError", format!("cannot create {}: {error}", directory.display()));
    tokio::fs::create_dir_all(directory).await.map_err(internal_error)
}

/// Copies a directory atomically, replacing an existing one.
pub(super) async fn copy_directory(from: &Path, to: &Path) -> Result<(), StatusError> {
    let internal_error =
        |error: String| StatusError::new(500, "InternalError", format!("cannot copy {}: {error}", from.display()));
    let partial = to.with_extension("partial");
    super::remove_directory(&partial).await;
    super::remove_directory(to).await;
    create_directory(to.parent().unwrap_or(to)).await?;
    let mut command = tokio::process::Command::new("cp");
    let copied = command.args(["-a", "--reflink=auto", "--"]).arg(from).arg(&partial).output().await;
    match copied.map_err(|error| internal_error(error.to_string()))? {
        done if done.status.success() => {}
        failed => return Err(internal_error(String::from_utf8_lossy(&failed.stderr).into_owned())),
    }
    tokio::fs::rename(&partial, to).await.map_err(|error| internal_error(error.to_string()))
}

fn directory_size(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => directory_size(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
