//! The label on the leader's pod: what the Service selects.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use plimsoll_store::RetryPolicy;
use serde_json::json;
use tracing::warn;

/// Label on the leader's pod and on no other.
pub const LEADER_LABEL: &str = "plimsoll.dev/leader";

/// Removes the label from a pod that does not lead yet: an earlier process of the same pod may have led.
pub async fn remove_label(client: &Client, namespace: &str, pod: &str) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({ "metadata": { "labels": { LEADER_LABEL: null } } }));
    pods.patch(pod, &PatchParams::default(), &patch).await.map(|_| ())
}

/// Sets the label on the leader's pod and removes it from all others. Retries until it succeeds: nothing waits for it.
pub async fn set_label(client: Client, namespace: String, pod: String) {
    let warn = |error: &kube::Error| warn!("failed to set label {LEADER_LABEL} on pod {pod}: {error}");
    let policy = RetryPolicy::with_timeout(Duration::MAX);
    // Without a time limit it does not return an error.
    let _ = policy.run(|_| true, warn, || try_set_label(&client, &namespace, &pod)).await;
}

async fn try_set_label(client: &Client, namespace: &str, pod: &str) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    for other in pods.list(&ListParams::default().labels(LEADER_LABEL)).await? {
        if other.name_any() != pod {
            remove_label(client, namespace, &other.name_any()).await?;
        }
    }
    let patch = Patch::Merge(json!({ "metadata": { "labels": { LEADER_LABEL: "true" } } }));
    pods.patch(pod, &PatchParams::default(), &patch).await.map(|_| ())
}
