//! The handshake with the pod of a restore.

use serde_json::{Value, json};

use crate::test_bed::{TestBed, script, wait_for_path};

/// The status of the container that waits.
fn waiting_container(state: &Value) -> Value {
    let mut status =
        json!({ "name": "restore-wait", "ready": false, "image": "any", "imageID": "", "restartCount": 0 });
    json_patch::merge(&mut status, state);
    json!({ "initContainerStatuses": [status] })
}

fn running() -> Value {
    json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_waits_again_after_its_restore_is_released_again_and_its_marker_removed() {
    let bed = TestBed::new().await;
    let marker = bed.volume().join(".velero/restore-uid");
    let ended_before =
        json!({ "state": running(), "lastState": { "terminated": { "exitCode": 0 } }, "restartCount": 1 });
    bed.set_pod_status(waiting_container(&ended_before)).await;
    let agent = bed.start("agent", script::FAIL);
    wait_for_path(&marker, true).await;
    // The container ends without it, as one that an agent of another installation has released.
    let ended = json!({ "state": { "terminated": { "exitCode": 0 } }, "restartCount": 1 });
    bed.set_pod_status(waiting_container(&ended)).await;
    wait_for_path(&marker, false).await;
    agent.stop().await;
}
