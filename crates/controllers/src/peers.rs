//! One controller for one custom resource: beside a Velero or a Kanister that works, we only look on.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
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
/// What Velero calls its node agents, whatever labels a chart gives them.
const NODE_AGENTS: [&str; 2] = ["node-agent", "node-agent-windows"];

/// Which of our programs must not work beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The server, beside other servers.
    Server,
    /// An agent, beside other servers and beside Velero's node agents, which act on the same transfers without their server.
    Agent,
}

/// A program of another make that serves the same custom resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    product: &'static str,
    kind: &'static str,
    name: String,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} {}, which has a ready pod)", self.product, self.kind, self.name)
    }
}

impl Peer {
    /// What lets us work.
    fn way_out(&self, namespace: &str, side: Side) -> String {
        match (self.kind, side) {
            ("daemonset", _) => {
                format!("`kubectl -n {namespace} delete daemonset {}` lets this agent work", self.name)
            }
            (_, Side::Server) => "scale it to 0 to let this server lead".to_owned(),
            (_, Side::Agent) => "scale it to 0 to let this agent work".to_owned(),
        }
    }
}

/// Waits until no peer works in the namespace, and says for whom it waits.
pub async fn gone(client: &Client, namespace: &str, side: Side) -> Result<(), Error> {
    let mut said = None;
    loop {
        match working(client, namespace, side).await {
            Ok(None) => {
                if said.is_some() {
                    let next = if side == Side::Server { "standing for election" } else { "going to work" };
                    info!("nobody else serves namespace {namespace} any more: {next}");
                }
                return Ok(());
            }
            Ok(found) if found != said => {
                if let Some(peer) = &found {
                    let way_out = peer.way_out(namespace, side);
                    info!("observing only: {peer} serves namespace {namespace}; {way_out}");
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
pub async fn came(client: &Client, namespace: &str, side: Side) -> Peer {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Ok(Some(peer)) = working(client, namespace, side).await {
            return peer;
        }
    }
}

async fn working(client: &Client, namespace: &str, side: Side) -> Result<Option<Peer>, Error> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let found = api.list(&ListParams::default()).await.map_err(|e| Error::api("list deployments", e))?;
    match found.items.iter().find_map(server) {
        None if side == Side::Agent => node_agents(client, namespace).await,
        found => Ok(found),
    }
}

/// Velero's node agents, if any of them is ready.
pub async fn node_agents(client: &Client, namespace: &str) -> Result<Option<Peer>, Error> {
    let api: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    let found = api.list(&ListParams::default()).await.map_err(|e| Error::api("list daemonsets", e))?;
    Ok(found.items.iter().find_map(node_agent))
}

fn server(deployment: &Deployment) -> Option<Peer> {
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0) > 0;
    let marked = |key: &str, value: &str| deployment.labels().get(key).is_some_and(|found| found == value);
    if marked(labels::PART_OF, labels::PART_OF_PLIMSOLL) {
        return None;
    }
    let (product, ..) = MARKS.iter().find(|(_, key, value)| ready && marked(key, value))?;
    Some(Peer { product, kind: "deployment", name: deployment.name_any() })
}

fn node_agent(set: &DaemonSet) -> Option<Peer> {
    let ready = set.status.as_ref().is_some_and(|status| status.number_ready > 0);
    let marked = |key: &str, value: &str| set.labels().get(key).is_some_and(|found| found == value);
    let theirs = marked("component", "velero") || NODE_AGENTS.contains(&set.name_any().as_str());
    let ours = marked(labels::PART_OF, labels::PART_OF_PLIMSOLL);
    (ready && theirs && !ours).then(|| Peer { product: "Velero", kind: "daemonset", name: set.name_any() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn deployment(label: &str, value: &str, ready: i32) -> Deployment {
        serde_json::from_value(json!({ "metadata": { "name": "d", "labels": { label: value } },
            "spec": { "selector": {}, "template": {} }, "status": { "readyReplicas": ready } }))
        .unwrap()
    }

    #[expect(clippy::needless_pass_by_value, reason = "what json! makes is given away")]
    fn set(name: &str, labels: Value, ready: i32) -> Option<String> {
        let set = json!({ "metadata": { "name": name, "labels": labels },
            "spec": { "selector": {}, "template": {} }, "status": { "numberReady": ready, "currentNumberScheduled": 1,
                "desiredNumberScheduled": 1, "numberMisscheduled": 0 } });
        node_agent(&serde_json::from_value(set).unwrap()).map(|peer| peer.way_out("velero", Side::Agent))
    }

    #[test]
    fn a_peer_counts_while_one_of_its_pods_is_ready() {
        assert_eq!(server(&deployment("component", "velero", 1)).unwrap().product, "Velero");
        assert_eq!(server(&deployment("app", "kanister-operator", 2)).unwrap().product, "Kanister");
        assert_eq!(server(&deployment("component", "velero", 0)), None);
        assert_eq!(server(&deployment("app", "shop", 1)), None);
    }

    #[test]
    fn veleros_node_agents_count_by_label_or_by_name_and_ours_never() {
        let way_out = "`kubectl -n velero delete daemonset node-agent` lets this agent work";
        assert_eq!(set("node-agent", json!({}), 1).as_deref(), Some(way_out));
        assert!(set("restic", json!({ "component": "velero" }), 2).is_some());
        assert_eq!(set("node-agent", json!({ "component": "velero" }), 0), None);
        let ours = json!({ "component": "velero", "app.kubernetes.io/part-of": "plimsoll" });
        assert_eq!(set("plimsoll-agent", ours, 1), None);
        assert_eq!(set("logs", json!({ "app": "logs" }), 1), None);
    }

    #[test]
    fn our_own_server_is_no_peer_though_it_is_marked_as_a_velero() {
        let mut ours = deployment("component", "velero", 1);
        ours.labels_mut().insert(labels::PART_OF.into(), labels::PART_OF_PLIMSOLL.into());
        assert_eq!(server(&ours), None);
    }
}
