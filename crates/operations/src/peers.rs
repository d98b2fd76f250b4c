//! One controller for one custom resource: beside a running Velero or Kanister, we only observe.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::labels;
use plimsoll_engine::Error;
use tracing::{info, warn};

/// How often peers are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The same for an agent that works. There may be thousands of them, and each check is two requests.
const AGENT_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Labels by which their installers mark the servers. Ours has the first too: by it the `velero` command line finds a server.
const SERVER_LABELS: [(&str, &str, &str); 3] = [
    ("Velero", "component", "velero"),
    ("Kanister", "app.kubernetes.io/name", "kanister-operator"),
    ("Kanister", "app", "kanister-operator"),
];
/// The name of Velero's node agents; their labels depend on the chart.
const NODE_AGENTS: [&str; 2] = ["node-agent", "node-agent-windows"];

/// Which of our programs must not work beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
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
    /// The next step so that ours may run.
    fn remedy(&self, namespace: &str, component: Component) -> String {
        match (self.kind, component) {
            ("daemonset", _) => {
                format!("`kubectl -n {namespace} delete daemonset {}` lets this agent work", self.name)
            }
            (_, Component::Server) => "scale it to 0 to let this server lead".to_owned(),
            (_, Component::Agent) => "scale it to 0 to let this agent work".to_owned(),
        }
    }
}

/// Waits until no peer runs in the namespace, and logs what it waits for.
pub async fn wait_until_absent(client: &Client, namespace: &str, component: Component) -> Result<(), Error> {
    let mut reported = None;
    loop {
        match find_peer(client, namespace, component).await {
            Ok(None) => {
                if reported.is_some() {
                    let next = if component == Component::Server { "starting leader election" } else { "starting" };
                    info!("no other server is left in namespace {namespace}: {next}");
                }
                return Ok(());
            }
            Ok(found) if found != reported => {
                if let Some(peer) = &found {
                    let remedy = peer.remedy(namespace, component);
                    info!("observing only: {peer} serves namespace {namespace}; {remedy}");
                }
                reported = found;
            }
            Ok(_) => {}
            Err(error) if error.is_retryable() => warn!("failed to look for other servers: {error}"),
            Err(error) => return Err(error),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until a peer runs in the namespace.
pub async fn wait_for_peer(client: &Client, namespace: &str, component: Component) -> Peer {
    let interval = if component == Component::Agent { AGENT_POLL_INTERVAL } else { POLL_INTERVAL };
    loop {
        tokio::time::sleep(interval).await;
        if let Ok(Some(peer)) = find_peer(client, namespace, component).await {
            return peer;
        }
    }
}

async fn find_peer(client: &Client, namespace: &str, component: Component) -> Result<Option<Peer>, Error> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let found = api.list(&ListParams::default()).await.map_err(|e| Error::api("list deployments", e))?;
    match found.items.iter().find_map(server) {
        None if component == Component::Agent => node_agents(client, namespace).await,
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
    let (product, ..) = SERVER_LABELS.iter().find(|(_, key, value)| ready && marked(key, value))?;
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
        node_agent(&serde_json::from_value(set).unwrap()).map(|peer| peer.remedy("velero", Component::Agent))
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
        let remedy = "`kubectl -n velero delete daemonset node-agent` lets this agent work";
        assert_eq!(set("node-agent", json!({}), 1).as_deref(), Some(remedy));
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
