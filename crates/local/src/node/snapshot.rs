//! Snapshots of claims, as a CSI driver and its controller make them: copied directories.
//!
//! ```text
//! VolumeSnapshot of a claim ──take──> copy, VolumeSnapshotContent ──> ready
//! VolumeSnapshot of a content ──bind──> ready, if the copy is there
//! VolumeSnapshotContent without its snapshot ──> deleted, and with the policy Delete the copy too
//! ```

use super::{NAME, key_of};
use crate::{
    Core,
    failure::Failure,
    object::{finalizers, is_terminating, now, set_finalizers, text},
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";
pub(super) const CLASSES: &str = "volumesnapshotclasses.snapshot.storage.k8s.io";
const VERSION: &str = "snapshot.storage.k8s.io/v1";
/// The driver's name: of the volumes, of the classes.
pub(super) const DRIVER: &str = "csi.plimsoll.dev";
/// As the real controller has it: a content stays until its data is dealt with.
const PROTECTION: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";

/// Whether a change of such an object is a reason to look.
pub(super) fn is_concern(resource: &str) -> bool {
    resource == SNAPSHOTS || resource == CONTENTS
}

/// The class whose volumes can be snapshotted.
pub(super) fn storage_class() -> Value {
    json!({ "metadata": {"name": format!("{NAME}-csi")}, "provisioner": DRIVER, "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate" })
}

/// The class of their snapshots, marked as the one for backups.
pub(super) fn class() -> Value {
    json!({ "apiVersion": VERSION, "kind": "VolumeSnapshotClass", "driver": DRIVER, "deletionPolicy": "Delete",
        "metadata": {"name": format!("{NAME}-csi"), "labels": {"velero.io/csi-volumesnapshot-class": "true"}} })
}

/// Takes what is asked for, binds what is there, and removes what nobody wants any more.
pub(super) async fn reconcile(core: &Core) -> Result<(), Failure> {
    let snapshots = core.all(SNAPSHOTS)?;
    let open = |snapshot: &&Value| {
        let ended =
            snapshot.pointer("/status/readyToUse") == Some(&json!(true)) || snapshot["status"]["error"].is_object();
        !ended && !is_terminating(snapshot)
    };
    for snapshot in snapshots.iter().filter(open) {
        let source = |field: &str| text(snapshot, &format!("/spec/source/{field}"));
        match (source("persistentVolumeClaimName"), source("volumeSnapshotContentName")) {
            ("", "") => {}
            ("", content) => bind(core, snapshot, content).await?,
            (claim, _) => take(core, snapshot, claim).await?,
        }
    }
    for content in core.all(CONTENTS)? {
        if text(&content, "/spec/driver") == DRIVER {
            look_after(core, &content, &snapshots).await?;
        }
    }
    Ok(())
}

async fn look_after(core: &Core, content: &Value, snapshots: &[Value]) -> Result<(), Failure> {
    let deletes = text(content, "/spec/deletionPolicy") == "Delete";
    if is_terminating(content) {
        // As the real sidecar does it: what was never noted is not deleted from the storage.
        let handle = text(content, "/status/snapshotHandle");
        if deletes && is_name(handle) {
            super::remove(&place(core, handle)).await;
        }
        return core.release(&key_of(CONTENTS, content), PROTECTION).await;
    }
    let wanted = text(content, "/spec/volumeSnapshotRef/uid");
    let gone = !wanted.is_empty() && !snapshots.iter().any(|snapshot| text(snapshot, "/metadata/uid") == wanted);
    let named = text(content, "/spec/source/snapshotHandle");
    let unnoted = !named.is_empty() && text(content, "/status/snapshotHandle").is_empty();
    if finalizers(content).is_empty() || unnoted {
        note(core, content, named.to_owned()).await
    } else if gone && deletes {
        core.remove(&key_of(CONTENTS, content), content).await
    } else {
        Ok(())
    }
}

/// Anybody can write a handle: only what is a name, and no path, is one of ours.
fn is_name(handle: &str) -> bool {
    !handle.is_empty() && handle.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn place(core: &Core, handle: &str) -> PathBuf {
    core.node.get().map(|node| node.directory.join("snapshots").join(handle)).unwrap_or_default()
}

/// The directory of a claim that this driver has made.
fn of_claim(core: &Core, namespace: &str, claim: &str) -> Result<Option<(PathBuf, Value)>, Failure> {
    let Some(claim) = core.read("persistentvolumeclaims", namespace, claim)? else { return Ok(None) };
    let volume = core.read("persistentvolumes", "", text(&claim, "/spec/volumeName"))?.unwrap_or_default();
    let ours = text(&volume, "/spec/csi/driver") == DRIVER;
    let size = volume["spec"]["capacity"]["storage"].clone();
    Ok(ours.then(|| (PathBuf::from(text(&volume, "/spec/csi/volumeHandle")), size)))
}

async fn take(core: &Core, snapshot: &Value, claim: &str) -> Result<(), Failure> {
    let class = core.read(CLASSES, "", text(snapshot, "/spec/volumeSnapshotClassName"))?.unwrap_or_default();
    if text(&class, "/driver") != DRIVER {
        return Ok(());
    }
    let Some((from, size)) = of_claim(core, text(snapshot, "/metadata/namespace"), claim)? else { return Ok(()) };
    if !from.is_dir() {
        return refuse(core, snapshot, format!("rpc error: code = NotFound desc = no volume {}", from.display())).await;
    }
    let uid = text(snapshot, "/metadata/uid");
    let (name, handle) = (format!("snapcontent-{uid}"), format!("snapshot-{uid}"));
    copy(&from, &place(core, &handle)).await?;
    let reference = json!({"apiVersion": VERSION, "kind": "VolumeSnapshot", "name": snapshot["metadata"]["name"],
        "namespace": snapshot["metadata"]["namespace"], "uid": uid});
    let content = json!({
        "apiVersion": VERSION, "kind": "VolumeSnapshotContent",
        "metadata": {"name": name, "finalizers": [PROTECTION]},
        "spec": {"deletionPolicy": class["deletionPolicy"], "driver": DRIVER, "volumeSnapshotRef": reference,
            "volumeSnapshotClassName": class["metadata"]["name"], "source": {"volumeHandle": from}},
    });
    core.make(CONTENTS, content.clone()).await?;
    note(core, &content, handle).await?;
    ready(core, snapshot, name, size).await
}

/// As a driver's permanent refusal reaches whoever asked.
async fn refuse(core: &Core, snapshot: &Value, message: String) -> Result<(), Failure> {
    core.alter(&key_of(SNAPSHOTS, snapshot), move |snapshot| {
        snapshot["status"] = json!({"readyToUse": false, "error": {"message": message, "time": now()}});
    })
    .await
}

async fn ready(core: &Core, snapshot: &Value, content: String, size: Value) -> Result<(), Failure> {
    core.alter(&key_of(SNAPSHOTS, snapshot), move |snapshot| {
        snapshot["status"] = json!({"boundVolumeSnapshotContentName": content, "readyToUse": true,
            "creationTime": now(), "restoreSize": size});
    })
    .await
}

/// A snapshot of somebody's handle: it is ready if the driver has it.
async fn bind(core: &Core, snapshot: &Value, content: &str) -> Result<(), Failure> {
    let Some(found) = core.read(CONTENTS, "", content)? else { return Ok(()) };
    let handle = text(&found, "/spec/source/snapshotHandle").to_owned();
    let meant = ["name", "namespace"]
        .iter()
        .all(|part| found["spec"]["volumeSnapshotRef"][*part] == snapshot["metadata"][*part]);
    if text(&found, "/spec/driver") != DRIVER || !meant {
        return Ok(());
    }
    if !is_name(&handle) || !place(core, &handle).is_dir() {
        return refuse(core, snapshot, format!("rpc error: code = NotFound desc = no snapshot {handle}")).await;
    }
    let (uid, bytes) = (text(snapshot, "/metadata/uid").to_owned(), size_of(&place(core, &handle)));
    note(core, &found, handle).await?;
    core.alter(&key_of(CONTENTS, &found), move |content| content["spec"]["volumeSnapshotRef"]["uid"] = json!(uid))
        .await?;
    ready(core, snapshot, content.to_owned(), json!(bytes.to_string())).await
}

/// From now on a content does not go without the driver.
async fn note(core: &Core, content: &Value, handle: String) -> Result<(), Failure> {
    let there = is_name(&handle) && place(core, &handle).is_dir();
    let bytes = if there { size_of(&place(core, &handle)) } else { 0 };
    core.alter(&key_of(CONTENTS, content), move |content| {
        content["status"] = json!({"snapshotHandle": handle, "readyToUse": there, "restoreSize": bytes});
        set_finalizers(content, &[PROTECTION.to_owned()]);
    })
    .await
}

/// What a claim's volume begins as.
pub(super) enum Beginning {
    /// Nothing.
    Empty,
    /// The content of a snapshot.
    Copy(PathBuf),
    /// It is not known yet: the snapshot is not ready.
    Later,
}

/// What a claim's volume is to begin as.
pub(super) fn source(core: &Core, claim: &Value) -> Result<Beginning, Failure> {
    let from = ["/spec/dataSourceRef", "/spec/dataSource"].iter().find_map(|at| claim.pointer(at));
    let Some(from) = from.filter(|from| from["kind"] == "VolumeSnapshot") else { return Ok(Beginning::Empty) };
    let snapshot = core.read(SNAPSHOTS, text(claim, "/metadata/namespace"), text(from, "/name"))?.unwrap_or_default();
    if snapshot.pointer("/status/readyToUse") != Some(&json!(true)) {
        return Ok(Beginning::Later);
    }
    let bound = text(&snapshot, "/status/boundVolumeSnapshotContentName");
    let content = core.read(CONTENTS, "", bound)?.unwrap_or_default();
    let handle = text(&content, "/status/snapshotHandle");
    Ok(if is_name(handle) { Beginning::Copy(place(core, handle)) } else { Beginning::Later })
}

/// An empty volume.
pub(super) async fn make(directory: &Path) -> Result<(), Failure> {
    let refuse = |error| Failure::new(500, "InternalError", format!("cannot make {}: {error}", directory.display()));
    tokio::fs::create_dir_all(directory).await.map_err(refuse)
}

/// Copies a directory, whole or not at all; done again, it replaces what is there.
pub(super) async fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let refuse = |error: String| Failure::new(500, "InternalError", format!("cannot copy {}: {error}", from.display()));
    let partial = to.with_extension("partial");
    super::remove(&partial).await;
    super::remove(to).await;
    make(to.parent().unwrap_or(to)).await?;
    let mut command = tokio::process::Command::new("cp");
    let copied = command.args(["-a", "--reflink=auto", "--"]).arg(from).arg(&partial).output().await;
    match copied.map_err(|error| refuse(error.to_string()))? {
        done if done.status.success() => {}
        failed => return Err(refuse(String::from_utf8_lossy(&failed.stderr).into_owned())),
    }
    tokio::fs::rename(&partial, to).await.map_err(|error| refuse(error.to_string()))
}

fn size_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size_of(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
