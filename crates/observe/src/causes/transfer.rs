//! Why the data of a volume does not move.

use std::time::Duration;

use plimsoll_progress::view::duration_text;

use super::{Cause, Certainty, location, plugin, pod, repository};
use crate::evidence::{Maker, maker, short};
use crate::kind::Kind;
use crate::object::Object;
use crate::overview::operation_of;
use crate::transfer::{End, Transfer};
use crate::world::World;

/// Velero writes every ten seconds how far a transfer is.
const SILENCE: Duration = Duration::from_secs(30);

/// What keeps the unfinished transfers of an operation.
pub(super) fn all(object: &Object, world: &World) -> Vec<Cause> {
    let open = Transfer::of(object, world).into_iter().filter(|transfer| !transfer.is_ended());
    open.flat_map(|transfer| one(transfer, world)).collect()
}

/// What keeps a transfer, or made it fail.
pub(super) fn causes(object: &Object, world: &World) -> Vec<Cause> {
    let transfer = Transfer { object };
    match transfer.end() {
        Some(End::Failed | End::Cancelled) => return vec![failed(transfer)],
        Some(End::Done) => return Vec::new(),
        None => {}
    }
    let mut found = one(transfer, world);
    found.extend(super::server::causes(object, world));
    if object.kind().is_plugins() {
        return found;
    }
    found.extend(location::named(object.some_text("/spec/backupStorageLocation"), false, object.namespace(), world));
    found.extend(repository::of(transfer, world));
    found
}

/// How a transfer ended badly.
pub(super) fn failed(transfer: Transfer<'_>) -> Cause {
    let object = transfer.object;
    let message = short(object.some_text("/status/message").unwrap_or("no message"));
    let cancelled = transfer.end() == Some(End::Cancelled);
    let reason = if cancelled { "TransferCanceled" } else { "TransferFailed" };
    let text = format!("volume {} ended {}: {message}", transfer.label(), object.phase());
    Cause::new(reason, Certainty::Certain, text).then(get(object))
}

/// The command that shows all that is written about it.
pub(super) fn get(object: &Object) -> String {
    format!("kubectl -n {} get {} {} -o yaml", object.namespace(), object.kind().kubectl(), object.name())
}

fn one(transfer: Transfer<'_>, world: &World) -> Vec<Cause> {
    let object = transfer.object;
    if object.kind().is_plugins() {
        return vec![plugin::cause(transfer, world)];
    }
    let since = duration_text(object.created().map(|then| world.age(then)).unwrap_or_default());
    let link = format!("{} ({}) has been {} for {since}", object.reference(), transfer.label(), object.phase());
    let mut found: Vec<Cause> = node(transfer, world).into_iter().collect();
    match object.phase() {
        "New" | "" => found.extend(not_taken_up(transfer, world)),
        "Accepted" | "Prepared" | "InProgress" | "Canceling" => found.extend(agent(transfer, world)),
        _ => {}
    }
    found.extend(mover(transfer, world));
    found.extend(tried_again(transfer, world));
    if found.is_empty() {
        found.extend(turn(transfer, world).or_else(|| silent(transfer, world)));
    }
    found.into_iter().map(|cause| cause.through(link.clone())).collect()
}

/// The node it must be done on.
fn node(transfer: Transfer<'_>, world: &World) -> Option<Cause> {
    let name = transfer.node()?;
    let Some(node) = world.find(Kind::Node, "", name) else {
        let gone = world.has_seen(Kind::Node);
        let text = format!("node {name}, on which the volume is, does not exist any more");
        return gone.then(|| Cause::new("NodeGone", Certainty::Certain, text).then("kubectl get nodes"));
    };
    let mut conditions = node.list("/status/conditions").iter();
    let ready = conditions.find(|condition| condition["type"] == "Ready")?;
    let message = short(ready["message"].as_str().unwrap_or_default());
    let text = format!("node {name} is not ready: {message}");
    (ready["status"] != "True")
        .then(|| Cause::new("NodeNotReady", Certainty::Certain, text).then(format!("kubectl describe node {name}")))
}

/// Nobody has taken it up: the pod that it waits for, or the node agent.
fn not_taken_up(transfer: Transfer<'_>, world: &World) -> Vec<Cause> {
    let target = target(transfer, world);
    // A restore is taken up only once its pod waits for it; before that the node agent has nothing to do with it.
    if transfer.object.kind() == Kind::PodVolumeRestore && !target.is_empty() {
        return target;
    }
    agent(transfer, world).into_iter().chain(target).collect()
}

fn target(transfer: Transfer<'_>, world: &World) -> Vec<Cause> {
    let Some((namespace, name)) = transfer.pod() else { return Vec::new() };
    match world.find(Kind::Pod, namespace, name) {
        Some(pod) => pod::trouble(pod, world).into_iter().collect(),
        None if looked_for(namespace, name, world) => {
            let text = format!("pod {namespace}/{name}, whose volume it is, does not exist any more");
            vec![Cause::new("PodGone", Certainty::Certain, text).then(format!("kubectl -n {namespace} get pods"))]
        }
        None => Vec::new(),
    }
}

/// Whether a pod that is not there was looked for.
fn looked_for(namespace: &str, name: &str, world: &World) -> bool {
    let what = format!("pod {namespace}/{name}");
    world.has_seen(Kind::Pod) && !world.unseen.iter().any(|unseen| unseen.what == what || unseen.what == "pods")
}

/// The DaemonSet of our own agents, and the mark of their pods.
const OUR_AGENT: &str = "plimsoll-agent";

fn agents(world: &World) -> impl Iterator<Item = &Object> {
    let marked = |pod: &&Object| {
        let (name, role, ours) = (pod.label("name"), pod.label("role"), pod.label("app.kubernetes.io/name"));
        name == "node-agent" || role == "node-agent" || ours == OUR_AGENT
    };
    world.all(Kind::Pod).iter().filter(|pod| pod.namespace() == world.namespace).filter(marked)
}

/// The node agent that has to do it.
fn agent(transfer: Transfer<'_>, world: &World) -> Option<Cause> {
    // Our own server knows its agents by their Leases, wherever they run, and names one that is missing itself.
    let parent = transfer.parent().and_then(|(kind, name)| world.find(kind, transfer.object.namespace(), name));
    let ours = parent.is_some_and(|parent| operation_of(parent, world).is_some());
    if ours || !world.has_seen(Kind::Pod) || !world.has_seen(Kind::DaemonSet) {
        return None;
    }
    let namespace = &world.namespace;
    let list = format!("kubectl -n {namespace} get daemonsets,pods -l name=node-agent -o wide");
    let agents_of = |it: &Object| it.name().starts_with("node-agent") || it.name() == OUR_AGENT;
    let installed = world.all(Kind::DaemonSet).iter().any(|it| it.namespace() == *namespace && agents_of(it));
    if !installed && agents(world).next().is_none() {
        let text = format!("there is no node agent in namespace {namespace}: nobody moves the data of volumes");
        return Some(Cause::new("NodeAgentNotInstalled", Certainty::Certain, text).then(list));
    }
    let node = transfer.node().or_else(|| {
        let (namespace, name) = transfer.pod()?;
        world.find(Kind::Pod, namespace, name)?.some_text("/spec/nodeName")
    })?;
    let Some(agent) = agents(world).find(|pod| pod.text("/spec/nodeName") == node) else {
        let text = format!("there is no node agent on node {node}, where the volume is");
        return Some(Cause::new("NodeAgentMissing", Certainty::Certain, text).then(list));
    };
    let ready = |condition: &serde_json::Value| condition["type"] == "Ready" && condition["status"] == "True";
    if agent.list("/status/conditions").iter().any(ready) {
        return None;
    }
    let text = format!("the node agent on node {node} is not ready: {}", pod::called(agent));
    let trouble = pod::trouble(agent, world);
    Some(match trouble {
        Some(trouble) => Cause { reason: "NodeAgentNotReady", text: format!("{text}; {}", trouble.text), ..trouble },
        None => Cause::new("NodeAgentNotReady", Certainty::Certain, text).then(list),
    })
}

/// The pod that moves the data; it is called like the transfer.
fn mover(transfer: Transfer<'_>, world: &World) -> Option<Cause> {
    let object = transfer.object;
    let pod = world.find(Kind::Pod, object.namespace(), object.name())?;
    pod::trouble(pod, world).map(|cause| cause.through(format!("{} is to move the data", pod::called(pod))))
}

/// What our own agents say while they try again, and what of it they do not get past by themselves.
const BLOCKED: [&str; 3] = ["RepositoryLocked", "RepositoryUnreachable", "RepositoryInitIncomplete"];

/// Our own agent says in what it does why it has to try again.
fn tried_again(transfer: Transfer<'_>, world: &World) -> Option<Cause> {
    let said = transfer.object.text("/status/plimsoll/doing").strip_prefix("trying again: ")?;
    let (reason, message) = said.split_once(": ").unwrap_or(("", said));
    let Some(reason) = BLOCKED.into_iter().find(|known| *known == reason) else {
        let text = format!("it is tried again: {}", short(said));
        return Some(Cause::new("TriedAgain", Certainty::Likely, text).orderly().then(get(transfer.object)));
    };
    let cause = Cause::new(reason, Certainty::Certain, short(message));
    let name = repository::kept_for(transfer, world).map(Object::name);
    Some(match (reason, name) {
        ("RepositoryLocked", Some(name)) => cause
            .then(format!("plimsoll repo describe {name} -n {}  # who holds its locks", world.namespace))
            .then(format!("plimsoll repo unlock {name} -n {}  # removes those whose holder is gone", world.namespace)),
        _ => cause.then(get(transfer.object)),
    })
}

/// Others that are at work on the same node.
fn turn(transfer: Transfer<'_>, world: &World) -> Option<Cause> {
    if !matches!(transfer.object.phase(), "New" | "Prepared") {
        return None;
    }
    let ahead = transfer.ahead(world)?;
    let on = transfer.node().map(|node| format!(" on node {node}")).unwrap_or_default();
    let text =
        format!("it waits for its turn{on}: {} is at work, and by default there is room for one", ahead.reference());
    Some(
        Cause::new("TransferQueued", Certainty::Likely, text)
            .orderly()
            .then(format!("plimsoll why {}", ahead.reference())),
    )
}

/// Nothing is known but that nothing is heard.
fn silent(transfer: Transfer<'_>, world: &World) -> Option<Cause> {
    let silence = transfer.silence(world);
    if silence < SILENCE {
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
            "NotTakenUp",
            format!("volume {} has been {} for {since}, and nobody says why", transfer.label(), object.phase()),
        )
    };
    let agent = if maker(world) == Maker::Plimsoll { OUR_AGENT } else { "node-agent" };
    let agents = format!("kubectl -n {} logs daemonset/{agent} --tail 50", world.namespace);
    Some(Cause::new(reason, Certainty::Likely, text).then(get(object)).then(agents))
}
