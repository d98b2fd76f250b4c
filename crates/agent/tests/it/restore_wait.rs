//! The handshake with the pod of a restore: it starts once the data of its volume is there.

use plimsoll_api::velero::v1::PodVolumeRestore;
use serde_json::{Value, json};

use crate::test_bed::{SHOP, TestBed, create, script, wait_for_path};

/// The status of the container that waits.
fn waiting_container(state: Value) -> Value {
    let mut status =
        json!({ "name": "restore-wait", "ready": false, "image": "any", "imageID": "", "restartCount": 0 });
    json_patch::merge(&mut status, &state);
    json!({ "initContainerStatuses": [status] })
}

fn running() -> Value {
    json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } })
}

async fn restore(bed: &TestBed) {
    let owner = json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "name": "r", "uid": "restore-uid" });
    let object = json!({ "metadata": { "name": "r", "ownerReferences": [owner] }, "spec": { "volume": "data",
        "pod": { "kind": "Pod", "namespace": SHOP, "name": "db", "uid": bed.pod.metadata.uid },
        "sourceNamespace": SHOP, "snapshotID": "5eed", "backupStorageLocation": "default", "repoIdentifier": "", "uploaderType": "restic" } });
    create(&bed.api::<PodVolumeRestore>(), object).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_released_once_the_data_of_its_volume_is_there() {
    let bed = TestBed::new().await;
    let marker = bed.volume().join(".velero/restore-uid");
    let agent = bed.start("agent", script::RESTORE);
    restore(&bed).await;
    // Nothing is written before the container runs: the volume may not be mounted.
    bed.set_pod_status(waiting_container(json!({ "state": { "waiting": { "reason": "PodInitializing" } } }))).await;
    bed.set_pod_status(waiting_container(json!({ "state": running() }))).await;
    bed.in_phase::<PodVolumeRestore>("r", "InProgress").await;
    assert!(!marker.exists(), "the data is not there");
    bed.let_movers_go_on();
    let ended = bed.in_phase::<PodVolumeRestore>("r", "Completed").await;
    assert!(marker.exists(), "{ended:#}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_waits_again_after_its_restore_is_released_again_and_its_marker_removed() {
    let bed = TestBed::new().await;
    let marker = bed.volume().join(".velero/restore-uid");
    let ended_before =
        json!({ "state": running(), "lastState": { "terminated": { "exitCode": 0 } }, "restartCount": 1 });
    bed.set_pod_status(waiting_container(ended_before)).await;
    let agent = bed.start("agent", script::FAIL);
    wait_for_path(&marker, true).await;
    // The container ends without it, as one that an agent of another installation has released.
    let ended = json!({ "state": { "terminated": { "exitCode": 0 } }, "restartCount": 1 });
    bed.set_pod_status(waiting_container(ended)).await;
    wait_for_path(&marker, false).await;
    agent.stop().await;
}
