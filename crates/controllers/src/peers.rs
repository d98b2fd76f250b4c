//! One controller for one custom resource: beside a Velero or a Kanister that works, we only look on.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::labels;
use tracing::{info, warn};

use crate::Error;

/// How soon we notice that a peer came or went.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Labels by which their installers mark the servers. Ours has the first too: by it the `velero` command line finds a server.
const MARKS: [(&str, &str, &str); 3] = [
    ("Velero", "component", "velero"),
    ("Kanister", "app.kubernetes.io/name", "kanister-operator"),
    ("Kanister", "app", "kanister-operator"),
];

/// A server of another make that serves the same custom resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    product: &'static str,
    deployment: String,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (deployment {}, which has a ready pod)", self.product, self.deployment)
    }
}

/// Waits until no peer works in the namespace, and says for whom it waits.
pub async fn gone(client: &Client, namespace: &str) -> Result<(), Error> {
    let mut said = None;
    loop {
        match working(client, namespace).await {
            Ok(None) => {
                if said.is_some() {
                    info!("no other server works in namespace {namespace} any more: standing for election");
                }
                return Ok(());
            }
            Ok(found) if found != said => {
                if let Some(peer) = &found {
                    info!("observing only: {peer} serves namespace {namespace}; scale it to 0 to let this server lead");
                }
                said = found;
            }
            Ok(_) => {}
            Err(error) if error.is_retryable() => warn!("looking for other servers: {error}"),
            Err(error) => return Err(error),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits until a peer works in the namespace.
pub async fn came(client: &Client, namespace: &str) -> Peer {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Ok(Some(peer)) = working(client, namespace).await {
            return peer;
        }
    }
}

async fn working(client: &Client, namespace: &str) -> Result<Option<Peer>, Error> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let found = api.list(&ListParams::default()).await.map_err(|e| Error::api("list deployments", e))?;
    Ok(found.items.iter().find_map(peer))
}

fn peer(deployment: &Deployment) -> Option<Peer> {
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0) > 0;
    let marked = |key: &str, value: &str| deployment.labels().get(key).is_some_and(|found| found == value);
    if marked(labels::PART_OF, labels::OURS) {
        return None;
    }
    let (product, ..) = MARKS.iter().find(|(_, key, value)| ready && marked(key, value))?;
    Some(Peer { product, deployment: deployment.name_any() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(label: &str, value: &str, ready: i32) -> Deployment {
        serde_json::from_value(json!({ "metadata": { "name": "d", "labels": { label: value } },
            "spec": { "selector": {}, "template": {} }, "status": { "readyReplicas": ready } }))
        .unwrap()
    }

    #[test]
    fn a_peer_counts_while_one_of_its_pods_is_ready() {
        assert_eq!(peer(&deployment("component", "velero", 1)).unwrap().product, "Velero");
        assert_eq!(peer(&deployment("app", "kanister-operator", 2)).unwrap().product, "Kanister");
        assert_eq!(peer(&deployment("component", "velero", 0)), None);
        assert_eq!(peer(&deployment("app", "shop", 1)), None);
    }

    #[test]
    fn our_own_server_is_no_peer_though_it_is_marked_as_a_velero() {
        let mut ours = deployment("component", "velero", 1);
        ours.labels_mut().insert(labels::PART_OF.into(), labels::OURS.into());
        assert_eq!(peer(&ours), None);
    }
}
