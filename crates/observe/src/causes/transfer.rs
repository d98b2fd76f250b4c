//! Problems of a volume transfer.

use std::time::Duration;

use plimsoll_progress::view::duration_text;

use super::{Cause, Certainty, location, plugin, pod, repository};
use crate::cluster_state::ClusterState;
use crate::evidence::{ServerProduct, server_product, shorten};
use crate::kind::Kind;
use crate::object::Object;
use crate::overview::operation_of;
use crate::transfer::{Transfer, TransferEnd};

/// Velero writes the progress of a transfer every ten seconds.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// Problems of the unfinished transfers of an operation.
pub(super) fn causes_of_all(object: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let open = Transfer::of(object, cluster).into_iter().filter(|transfer| !transfer.is_ended());
    open.flat_map(|transfer| causes_of_one(transfer, cluster)).collect()
}

/// Problems of a transfer, or why it failed.
pub(super) fn causes(object: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let transfer = Transfer { object };
    match transfer.end() {
        Some(TransferEnd::Failed | TransferEnd::Cancelled) => return vec![failed(transfer)],
        Some(TransferEnd::Done) => return Vec::new(),
        None => {}
    }
    let mut found = causes_of_one(transfer, cluster);
    found.extend(super::server::causes(object, cluster));
    if object.kind().is_plugin_volume() {
        return found;
    }
    found.extend(location::named(object.some_text("/spec/backupStorageLocation"), false, object.namespace(), cluster));
    found.extend(repository::causes_of_transfer(transfer, cluster));
    found
}

/// Why a transfer failed or was cancelled.
pub(super) fn failed(transfer: Transfer<'_>) -> Cause {
    let object = transfer.object;
    let message = shorten(object.some_text("/status/message").unwrap_or("no message"));
    let cancelled = transfer.end() == Some(TransferEnd::Cancelled);
    let reason = if cancelled { "TransferCanceled" } else { "TransferFailed" };
    let text = format!("volume {} ended {}: {message}", transfer.label(), object.phase());
    Cause::new(reason, Certainty::Certain, text).with_command(get_command(object))
}

/// The command that shows the whole object.
pub(super) fn get_command(object: &Object) -> String {
    format!("kubectl -n {} get {} {} -o yaml", object.namespace(), object.kind().kubectl(), object.name())
}

fn causes_of_one(transfer: Transfer<'_>, cluster: &ClusterState) -> Vec<Cause> {
    let object = transfer.object;
    if object.kind().is_plugin_volume() {
        return vec![plugin::cause(transfer, cluster)];
    }
    let since = duration_text(object.created().map(|then| cluster.age(then)).unwrap_or_default());
    let link = format!("{} ({}) has been {} for {since}", object.reference(), transfer.label(), object.phase());
    let mut found: Vec<Cause> = node(transfer, cluster).into_iter().collect();
    match object.phase() {
        "New" | "" => found.extend(not_accepted(transfer, cluster)),
        "Accepted" | "Prepared" | "InProgress" | "Canceling" => found.extend(agent(transfer, cluster)),
        _ => {}
    }
    found.extend(mover(transfer, cluster));
    found.extend(retrying(transfer, cluster));
    if found.is_empty() {
        found.extend(queued(transfer, cluster).or_else(|| silent(transfer, cluster)));
    }
    found.into_iter().map(|cause| cause.with_context(link.clone())).collect()
}

/// The node of the volume.
fn node(transfer: Transfer<'_>, cluster: &ClusterState) -> Option<Cause> {
    let name = transfer.node()?;
    let Some(node) = cluster.find(Kind::Node, "", name) else {
        let gone = cluster.was_read(Kind::Node);
        let text = format!("node {name}, on which the volume is, no longer exists");
        return gone.then(|| Cause::new("NodeGone", Certainty::Certain, text).with_command("kubectl get nodes"));
    };
    let mut conditions = node.list("/status/conditions").iter();
    let ready = conditions.find(|condition| condition["type"] == "Ready")?;
    let message = shorten(ready["message"].as_str().unwrap_or_default());
    let text = format!("node {name} is not ready: {message}");
    (ready["status"] != "True").then(|| {
        Cause::new("NodeNotReady", Certainty::Certain, text).with_command(format!("kubectl describe node {name}"))
    })
}

/// No agent has accepted it: the pod that it waits for, or the node agent.
fn not_accepted(transfer: Transfer<'_>, cluster: &ClusterState) -> Vec<Cause> {
    let target = target(transfer, cluster);
    // A restore is accepted only once its pod waits for it; before that the node agent has nothing to do.
    if transfer.object.kind() == Kind::PodVolumeRestore && !target.is_empty() {
        return target;
    }
    agent(transfer, cluster).into_iter().chain(target).collect()
}

fn target(transfer: Transfer<'_>, cluster: &ClusterState) -> Vec<Cause> {
    let Some((namespace, name)) = transfer.pod() else { return Vec::new() };
    match cluster.find(Kind::Pod, namespace, name) {
        Some(pod) => pod::find_problem(pod, cluster).into_iter().collect(),
        None if is_absent(namespace, name, cluster) => {
            let text = format!("pod {namespace}/{name}, whose volume it is, no longer exists");
            vec![
                Cause::new("PodGone", Certainty::Certain, text)
                    .with_command(format!("kubectl -n {namespace} get pods")),
            ]
        }
        None => Vec::new(),
    }
}

/// Whether a pod is known not to exist.
fn is_absent(namespace: &str, name: &str, cluster: &ClusterState) -> bool {
    let what = format!("pod {namespace}/{name}");
    cluster.was_read(Kind::Pod) && !cluster.unseen.iter().any(|unseen| unseen.what == what || unseen.what == "pods")
}

/// The DaemonSet of our own agents, and the label value of their pods.
const OUR_AGENT: &str = "plimsoll-agent";

fn agents(cluster: &ClusterState) -> impl Iterator<Item = &Object> {
    let marked = |pod: &&Object| {
        let (name, role, ours) = (pod.label("name"), pod.label("role"), pod.label("app.kubernetes.io/name"));
        name == "node-agent" || role == "node-agent" || ours == OUR_AGENT
    };
    cluster.all(Kind::Pod).iter().filter(|pod| pod.namespace() == cluster.namespace).filter(marked)
}

/// The node agent of the volume's node.
fn agent(transfer: Transfer<'_>, cluster: &ClusterState) -> Option<Cause> {
    // Our own server knows its agents by their Leases, wherever they run, and reports a missing one itself.
    let parent = transfer.parent().and_then(|(kind, name)| cluster.find(kind, transfer.object.namespace(), name));
    let ours = parent.is_some_and(|parent| operation_of(parent, cluster).is_some());
    if ours || !cluster.was_read(Kind::Pod) || !cluster.was_read(Kind::DaemonSet) {
        return None;
    }
    let namespace = &cluster.namespace;
    let list = format!("kubectl -n {namespace} get daemonsets,pods -l name=node-agent -o wide");
    let agents_of = |it: &Object| it.name().starts_with("node-agent") || it.name() == OUR_AGENT;
    let installed = cluster.all(Kind::DaemonSet).iter().any(|it| it.namespace() == *namespace && agents_of(it));
    if !installed && agents(cluster).next().is_none() {
        let text = format!("there is no node agent in namespace {namespace}: volume data is not moved");
        return Some(Cause::new("NodeAgentNotInstalled", Certainty::Certain, text).with_command(list));
    }
    let node = transfer.node().or_else(|| {
        let (namespace, name) = transfer.pod()?;
        cluster.find(Kind::Pod, namespace, name)?.some_text("/spec/nodeName")
    })?;
    let Some(agent) = agents(cluster).find(|pod| pod.text("/spec/nodeName") == node) else {
        let text = format!("there is no node agent on node {node}, where the volume is");
        return Some(Cause::new("NodeAgentMissing", Certainty::Certain, text).with_command(list));
    };
    let ready = |condition: &serde_json::Value| condition["type"] == "Ready" && condition["status"] == "True";
    if agent.list("/status/conditions").iter().any(ready) {
        return None;
    }
    let text = format!("the node agent on node {node} is not ready: {}", pod::display_name(agent));
    let problem = pod::find_problem(agent, cluster);
    Some(match problem {
        Some(problem) => Cause { reason: "NodeAgentNotReady", text: format!("{text}; {}", problem.text), ..problem },
        None => Cause::new("NodeAgentNotReady", Certainty::Certain, text).with_command(list),
    })
}

/// The pod that moves the data; it has the name of the transfer.
fn mover(transfer: Transfer<'_>, cluster: &ClusterState) -> Option<Cause> {
    let object = transfer.object;
    let pod = cluster.find(Kind::Pod, object.namespace(), object.name())?;
    pod::find_problem(pod, cluster)
        .map(|cause| cause.with_context(format!("{} moves the data", pod::display_name(pod))))
}

/// Reasons of our own agents' retries that do not pass without help.
const BLOCKED: [&str; 3] = ["RepositoryLocked", "RepositoryUnreachable", "RepositoryInitIncomplete"];

/// Our own agent reports in `doing` why it retries.
fn retrying(transfer: Transfer<'_>, cluster: &ClusterState) -> Option<Cause> {
    let said = transfer.object.text("/status/plimsoll/doing").strip_prefix("trying again: ")?;
    let (reason, message) = said.split_once(": ").unwrap_or(("", said));
    let Some(reason) = BLOCKED.into_iter().find(|known| *known == reason) else {
        let text = format!("retrying: {}", shorten(said));
        return Some(
            Cause::new("Retrying", Certainty::Likely, text).expected().with_command(get_command(transfer.object)),
        );
    };
    let cause = Cause::new(reason, Certainty::Certain, shorten(message));
    let name = repository::find_repository(transfer, cluster).map(Object::name);
    Some(match (reason, name) {
        ("RepositoryLocked", Some(name)) => cause
            .with_command(format!("plimsoll repo describe {name} -n {}  # who holds its locks", cluster.namespace))
            .with_command(format!(
                "plimsoll repo unlock {name} -n {}  # removes those whose holder is gone",
                cluster.namespace
            )),
        _ => cause.with_command(get_command(transfer.object)),
    })
}

/// Other transfers that run on the same node.
fn queued(transfer: Transfer<'_>, cluster: &ClusterState) -> Option<Cause> {
    if !matches!(transfer.object.phase(), "New" | "Prepared") {
        return None;
    }
    let ahead = transfer.ahead(cluster)?;
    let on = transfer.node().map(|node| format!(" on node {node}")).unwrap_or_default();
    let text = format!("queued{on}: {} is running, and by default one runs at a time", ahead.reference());
    Some(
        Cause::new("TransferQueued", Certainty::Likely, text)
            .expected()
            .with_command(format!("plimsoll why {}", ahead.reference())),
    )
}

/// Only the silence is known.
fn silent(transfer: Transfer<'_>, cluster: &ClusterState) -> Option<Cause> {
    let silence = transfer.silence(cluster);
    if silence < SILENCE_LIMIT {
        return None;
    }
    let object = transfer.object;
    let since = duration_text(silence);
    let (reason, text) = if object.phase() == "InProgress" {
        let (done, total) = transfer.bytes();
        let of =
            total.value().map(|total| format!(" of {}", plimsoll_progress::view::size_text(total))).unwrap_or_default();
        let at = format!("{}{of}", plimsoll_progress::view::size_text(done));
        ("TransferSilent", format!("volume {} has stood at {at} for {since}", transfer.label()))
    } else {
        (
            "NotStarted",
            format!("volume {} has been {} for {since}, no error reported", transfer.label(), object.phase()),
        )
    };
    let agent = if server_product(cluster) == ServerProduct::Plimsoll { OUR_AGENT } else { "node-agent" };
    let agents = format!("kubectl -n {} logs daemonset/{agent} --tail 50", cluster.namespace);
    Some(Cause::new(reason, Certainty::Likely, text).with_command(get_command(object)).with_command(agents))
}
