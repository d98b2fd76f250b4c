//! Snapshots of CSI drivers: VolumeSnapshots in a backup, claims that begin as them in a restore, and their data on its way into
//! a repository and back.
//!
//! ```text
//!  claim ── class of its driver? ──▶ VolumeSnapshot ── handle ──▶ archive: claim, snapshot, content, class
//!                                      │   └─ ready? ──▶ WaitingForPluginOperations ──▶ kept, and the objects go
//!                                      └─ snapshotMoveData ──▶ DataUpload ──▶ see `exposer`
//! ```
//!
//! Objects and names are Velero's: each can read the other's backups.

mod backup;
mod class;
mod delete;
mod download;
mod restore;
mod snapshot_state;
mod snapshot_taker;
mod upload;

pub(crate) use backup::CLAIM_ACTION;
pub use backup::{CsiBackup, CsiBackupParameters, DataMovement};
pub use delete::{MovedSnapshots, delete_snapshots, register_deletion, release_snapshots};
pub use restore::{CLAIM_RESTORE_ACTION, CsiRestore, CsiRestoreParameters, register_restore};
pub(crate) use snapshot_state::{is_permanent, permanent_error};

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Map, Value, json};

pub(crate) const GROUP: &str = "snapshot.storage.k8s.io";
pub(crate) const VERSION: &str = "snapshot.storage.k8s.io/v1";
pub(crate) const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
pub(crate) const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";
pub(crate) const CLASSES: &str = "volumesnapshotclasses.snapshot.storage.k8s.io";
pub(crate) const UPLOADS: &str = "datauploads.velero.io";
/// On a claim of the archive: its snapshot.
const SNAPSHOT_NAME: &str = "velero.io/volume-snapshot-name";
/// On a claim of the archive: the upload of its data, as `namespace/name`.
const UPLOAD_NAME: &str = "velero.io/data-upload-name";
const HANDLE: &str = "velero.io/csi-volumesnapshot-handle";
const DRIVER_NAME: &str = "velero.io/csi-driver-name";
const RESTORE_SIZE: &str = "velero.io/csi-volumesnapshot-restore-size";
const DELETION_POLICY: &str = "velero.io/csi-vsc-deletion-policy";
/// In the selector of a claim that waits for its data, and on the volume that it waits for.
pub(crate) const AWAITED_VOLUME: &str = "velero.io/dynamic-pv-restore";

/// Annotations of a content: the secret without which its driver does not delete the snapshot, as with Ceph.
const DELETION_SECRET: &str = "snapshot.storage.kubernetes.io/deletion-secret";

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind))
}

pub(crate) fn snapshots(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource("VolumeSnapshot"))
}

fn all_snapshots(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource("VolumeSnapshot"))
}

pub(crate) fn contents(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource("VolumeSnapshotContent"))
}

pub(crate) fn classes(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource("VolumeSnapshotClass"))
}

/// The class for a claim in a backup without annotations; none where the driver has none. The error says why none can be chosen.
pub(crate) fn choose_class(
    all: &[Value],
    driver: &str,
    claim: &Value,
    policy: Option<&str>,
) -> Result<Option<String>, String> {
    class::choose(all, driver, claim, policy, &Value::Null)
}

fn text<'a>(value: &'a Value, place: &str) -> &'a str {
    value.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object.pointer("/metadata/annotations").and_then(|all| all.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// The annotations of a content that every other content of the same snapshot needs.
pub(crate) fn secret_annotations(content: &Value) -> Map<String, Value> {
    let all = content.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
    all.filter(|(key, _)| key.starts_with(DELETION_SECRET)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Puts a label or an annotation on an object.
fn set_metadata(object: &mut Value, map: &str, key: &str, value: &str) {
    if !object["metadata"][map].is_object() {
        object["metadata"][map] = json!({});
    }
    object["metadata"][map][key] = json!(value);
}
