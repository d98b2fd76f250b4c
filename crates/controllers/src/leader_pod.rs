//! The label on the leader's pod: what the Service selects.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tracing::warn;

/// Label on the leader's pod and on no other.
pub const LEADER: &str = "plimsoll.dev/leader";

/// Takes the mark off a pod that does not lead yet: its last process may have.
pub async fn unmark(client: &Client, namespace: &str, pod: &str) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({ "metadata": { "labels": { LEADER: null } } }));
    pods.patch(pod, &PatchParams::default(), &patch).await.map(|_| ())
}

/// Puts the mark on the leader's pod and takes it off all others. Tries until it has: nothing waits for it.
pub async fn mark(client: Client, namespace: String, pod: String) {
    while let Err(error) = try_mark(&client, &namespace, &pod).await {
        warn!("marking pod {pod} as the leader's: {error}");
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

async fn try_mark(client: &Client, namespace: &str, pod: &str) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    for other in pods.list(&ListParams::default().labels(LEADER)).await? {
        if other.name_any() != pod {
            unmark(client, namespace, &other.name_any()).await?;
        }
    }
    let patch = Patch::Merge(json!({ "metadata": { "labels": { LEADER: "true" } } }));
    pods.patch(pod, &PatchParams::default(), &patch).await.map(|_| ())
}
