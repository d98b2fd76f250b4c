//! Who moves the volumes of which pods: every claim by a pod that can bring it.

use serde_json::json;

use crate::bed::{Bed, dismiss, phase};
use crate::pod_volumes::{Application, agent, agent_log, server, transfer};

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_a_finished_pod_shares_with_a_running_one_is_backed_up_by_way_of_that() {
    let bed = Bed::local_with_pods().await;
    let (application, home) = (Application::start(&bed, "shop", 100_000).await, bed.home("home").await);
    // By its name it comes first.
    application.finished_pod("a-finished", "data").await;
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages("b", "errors"), agent_log(&home));
    let found = transfer(&home, "PodVolumeBackup", "data").await.expect("the claim is backed up");
    assert_eq!((&found["spec"]["pod"]["name"], phase(&found)), (&json!("writer"), "Completed"), "{found:#}");
    let warnings = home.messages("b", "warnings");
    assert!(!warnings.contains("not Running"), "everything it has is backed up: {warnings}");
    dismiss(agent).await;
}
