//! A CSI driver and its snapshot-controller, on the embedded API.

use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::test_bed::{DRIVER, SHOP, create};

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The size of a snapshot.
pub const SIZE: u64 = 4096;

/// Takes the snapshots of the claims in [`SHOP`] until it is dropped.
pub struct SnapshotDriver(JoinHandle<()>);

impl Drop for SnapshotDriver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl SnapshotDriver {
    /// A driver whose snapshots are ready at once.
    pub fn start(client: &Client) -> Self {
        let client = client.clone();
        Self(tokio::spawn(async move {
            loop {
                for snapshot in new_snapshots(&client).await {
                    take(&client, &snapshot).await;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }))
    }

    /// A driver that fails to take each snapshot with this message.
    pub fn start_failing(client: &Client, message: &'static str) -> Self {
        let client = client.clone();
        Self(tokio::spawn(async move {
            loop {
                for snapshot in new_snapshots(&client).await {
                    set_status(&snapshots(&client), &snapshot, json!({ "error": { "message": message } })).await;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }))
    }
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", kind))
}

/// The VolumeSnapshots in [`SHOP`].
pub fn snapshots(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), SHOP, &resource("VolumeSnapshot"))
}

fn contents(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource("VolumeSnapshotContent"))
}

/// Creates the VolumeSnapshotClass of the driver.
pub async fn create_class(client: &Client) {
    let classes: Api<DynamicObject> = Api::all_with(client.clone(), &resource("VolumeSnapshotClass"));
    let class = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": { "name": "example", "labels": { "velero.io/csi-volumesnapshot-class": "true" } },
        "driver": DRIVER, "deletionPolicy": "Retain" });
    create(&classes, class).await;
}

/// The snapshots without a status.
async fn new_snapshots(client: &Client) -> Vec<String> {
    let all = snapshots(client).list(&ListParams::default()).await.unwrap().items;
    all.iter().filter(|snapshot| snapshot.data["status"].is_null()).map(ResourceExt::name_any).collect()
}

async fn take(client: &Client, snapshot: &str) {
    let name = format!("content-{snapshot}");
    let content = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": name }, "spec": { "driver": DRIVER, "deletionPolicy": "Retain" },
        "status": { "snapshotHandle": format!("handle-{snapshot}"), "readyToUse": true, "restoreSize": SIZE } });
    contents(client).create(&PostParams::default(), &serde_json::from_value(content).unwrap()).await.unwrap();
    let status = json!({ "boundVolumeSnapshotContentName": name, "readyToUse": true, "restoreSize": "4Ki" });
    set_status(&snapshots(client), snapshot, status).await;
}

async fn set_status(api: &Api<DynamicObject>, name: &str, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
}
