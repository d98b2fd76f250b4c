//! Problems of an ActionSet.

use std::time::Duration;

use plimsoll_progress::view::duration_text;
use serde_json::Value;

use super::{Cause, Certainty, pod, server};
use crate::cluster_state::ClusterState;
use crate::evidence::{ServerProduct, event_text, last_action_report, last_event, server_product, shorten};
use crate::kind::Kind;
use crate::object::{self, Object};
use crate::overview::operation_of;

/// Why an ActionSet is stuck or failed.
pub(super) fn causes(set: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let describe = format!("kubectl -n {} describe actionsets.cr.kanister.io {}", set.namespace(), set.name());
    match set.text("/status/state") {
        "complete" => Vec::new(),
        "failed" => {
            let event =
                last_event("ActionSet", set.namespace(), set.name(), cluster).map(|event| event_text(event, cluster));
            vec![failed(set).with_optional_evidence(event).with_command(describe)]
        }
        "running" => running(set, cluster, &describe),
        _ => pending(set, cluster, &describe),
    }
}

/// What Kanister's message says when there is no blueprint.
const NO_BLUEPRINT: &str = "blueprints.cr.kanister.io \"";
/// Parts of messages about a process that the kernel ended for its memory. The second one is the exit code of SIGKILL.
const KILLED_FOR_MEMORY: [(&str, Certainty); 2] =
    [("OOMKilled", Certainty::Certain), ("exit code 137", Certainty::Likely)];
/// A `deferPhase` begins within a moment after the last phase.
const DEFER_PHASE_DELAY: Duration = Duration::from_mins(1);

/// Why it failed, from its message.
fn failed(set: &Object) -> Cause {
    let raw = set.some_text("/status/error/message").unwrap_or("it failed without a reason");
    let message = shorten(raw);
    if let Some(name) = raw.split_once(NO_BLUEPRINT).and_then(|(_, rest)| Some(rest.split_once("\" not found")?.0)) {
        let text = format!("there is no blueprint {name} in namespace {}", set.namespace());
        let look = format!("kubectl -n {} get blueprints.cr.kanister.io", set.namespace());
        return Cause::new("BlueprintMissing", Certainty::Certain, text).with_command(look);
    }
    let at = phases(set).find(|phase| phase["state"] == "failed").and_then(|phase| phase["name"].as_str());
    let phase = at.map_or_else(|| "it".to_owned(), |name| format!("phase {name}"));
    if let Some((_, certainty)) = KILLED_FOR_MEMORY.iter().find(|(part, _)| raw.contains(part)) {
        let text = format!("{phase} was killed, it needs more memory than its limit: {message}");
        return Cause::new("OutOfMemory", *certainty, text);
    }
    let text = at.map(|name| format!("phase {name} failed: {message}")).unwrap_or(message);
    Cause::new("ActionFailed", Certainty::Certain, text)
}

fn phases(set: &Object) -> impl Iterator<Item = &Value> {
    let actions = set.list("/status/actions").iter();
    actions.flat_map(|action| action["phases"].as_array().into_iter().flatten().chain(action.get("deferPhase")))
}

/// Whether our own server runs it: it has an Operation, or our server is the one of its namespace.
fn is_ours(set: &Object, cluster: &ClusterState) -> bool {
    let serves = || {
        let peer = deployments(cluster).any(|it| it.namespace() == set.namespace() && is_ready(it));
        set.namespace() == cluster.namespace && server_product(cluster) == ServerProduct::Plimsoll && !peer
    };
    operation_of(set, cluster).is_some() || serves()
}

/// Problems of the controller that runs it.
fn controller(set: &Object, cluster: &ClusterState) -> Vec<Cause> {
    if is_ours(set, cluster) { server::causes(set, cluster) } else { down(cluster).into_iter().collect() }
}

fn is_ready(deployment: &Object) -> bool {
    deployment.number("/status/readyReplicas").unwrap_or(0) > 0
}

/// The pods of the controller: by the names and labels that its charts use.
fn controllers(cluster: &ClusterState) -> impl Iterator<Item = &Object> {
    let marked = |pod: &&Object| {
        ["app", "app.kubernetes.io/name", "component"].iter().any(|key| pod.label(key).contains("kanister"))
            && pod.label("createdBy") != "kanister"
    };
    cluster.all(Kind::Pod).iter().filter(marked)
}

fn deployments(cluster: &ClusterState) -> impl Iterator<Item = &Object> {
    let named = |it: &&Object| {
        it.name().contains("kanister")
            || it.label("app").contains("kanister")
            || it.label("app.kubernetes.io/name").contains("kanister")
    };
    cluster.all(Kind::Deployment).iter().filter(named)
}

fn down(cluster: &ClusterState) -> Option<Cause> {
    // It may run in a namespace that could not be read.
    let unseen = cluster.unseen.iter().any(|unseen| unseen.what == Kind::Deployment.plural());
    let seen = cluster.was_read(Kind::Deployment) && !unseen;
    if deployments(cluster).any(is_ready) {
        return None;
    }
    let Some(deployment) = deployments(cluster).next() else {
        let text = "no Kanister controller found: ActionSets are not processed";
        return seen.then(|| {
            Cause::new("ControllerMissing", Certainty::Likely, text)
                .with_command("kubectl get deployments -A | grep kanister")
        });
    };
    let place = format!("{}/{}", deployment.namespace(), deployment.name());
    let text = format!("the Kanister controller is not ready: deployment {place}");
    let problem = controllers(cluster).find_map(|it| pod::find_problem(it, cluster));
    let text = problem.map(|problem| format!("{text}; {}", problem.text)).unwrap_or(text);
    let look = format!("kubectl -n {} get deployments,pods", deployment.namespace());
    Some(Cause::new("ControllerNotReady", Certainty::Certain, text).with_command(look))
}

fn pending(set: &Object, cluster: &ClusterState, describe: &str) -> Vec<Cause> {
    let mut found = controller(set, cluster);
    found.extend(controller_in_other_namespace(set, cluster).filter(|_| !is_ours(set, cluster)));
    let age = cluster.age(set.created().unwrap_or(cluster.now));
    if found.is_empty() && age.as_secs() >= 30 {
        let text = format!("the controller has not started it for {}", duration_text(age));
        found.push(Cause::new("NotStarted", Certainty::Possible, text).with_command(describe));
    }
    found
}

fn running(set: &Object, cluster: &ClusterState, describe: &str) -> Vec<Cause> {
    let (ours, mut found) = (is_ours(set, cluster), controller(set, cluster));
    // Our own server resumes what was running, and its tree shows which phase is quiet.
    found.extend(controller_restarted(set, cluster, describe).filter(|_| !ours));
    found.extend(defer_phase_not_started(set, cluster, describe).filter(|_| found.is_empty() && !ours));
    found.extend(task_pods(set, cluster));
    let phase = phases(set).find(|phase| phase["state"] == "running");
    if let Some(phase) = phase.filter(|_| found.is_empty() && !ours) {
        let name = phase["name"].as_str().unwrap_or_default();
        let since = object::time(&phase["progress"]["lastTransitionTime"]);
        let long = since.map(|then| format!(" for {}", duration_text(cluster.age(then)))).unwrap_or_default();
        let text = format!(
            "phase {name} has been running{long}, without a time limit; its function reports nothing until it ends"
        );
        found.push(Cause::new("QuietPhase", Certainty::Possible, text).expected().with_command(describe));
    }
    found
}

/// Kanister writes nothing if the objects of a `deferPhase` cannot be read: the ActionSet runs for ever.
fn defer_phase_not_started(set: &Object, cluster: &ClusterState, describe: &str) -> Option<Cause> {
    let waits = |action: &&Value| {
        let complete = |phase: &Value| phase["state"] == "complete";
        let core = action["phases"].as_array().is_some_and(|phases| phases.iter().all(complete));
        core && action["deferPhase"]["state"] == "pending"
    };
    let action = set.list("/status/actions").iter().find(waits)?;
    let since = cluster.age(last_action_report(set)?);
    let text = format!(
        "all phases of action {} are complete, but its deferPhase {} has not begun for {}: an object that it needs cannot be read",
        action["name"].as_str().unwrap_or_default(),
        action["deferPhase"]["name"].as_str().unwrap_or_default(),
        duration_text(since)
    );
    let cause = Cause::new("DeferPhaseNotStarted", Certainty::Likely, text).with_command(describe);
    (since >= DEFER_PHASE_DELAY).then_some(cause)
}

/// A Kanister processes the ActionSets of its own namespace only.
fn controller_in_other_namespace(set: &Object, cluster: &ClusterState) -> Option<Cause> {
    let ready: Vec<_> = deployments(cluster).filter(|deployment| is_ready(deployment)).collect();
    let other = ready.first().filter(|_| ready.iter().all(|one| one.namespace() != set.namespace()))?;
    let text = format!(
        "the Kanister controller runs in namespace {} and processes only ActionSets there, not in {}",
        other.namespace(),
        set.namespace()
    );
    let look = format!("kubectl -n {} get actionsets.cr.kanister.io", other.namespace());
    Some(Cause::new("ControllerInOtherNamespace", Certainty::Certain, text).with_command(look))
}

/// Kanister's controller resumes only pending ActionSets after a restart: a running one stays as it is.
fn controller_restarted(set: &Object, cluster: &ClusterState, describe: &str) -> Option<Cause> {
    let began = set.created()?;
    let started = |pod: &Object| {
        pod.time("/status/containerStatuses/0/state/running/startedAt").or_else(|| pod.time("/status/startTime"))
    };
    let newest = controllers(cluster).filter_map(|pod| Some((pod, started(pod)?))).max_by_key(|(_, at)| *at)?;
    let last_report = last_action_report(set).unwrap_or(began);
    let (pod, at) = newest;
    (at > began && at > last_report).then(|| {
        let ended = pod.text("/status/containerStatuses/0/lastState/terminated/reason");
        let killed = if ended == "OOMKilled" { "was killed, it needs more memory than its limit; it " } else { "" };
        let text = format!(
            "the controller {killed}restarted {} ago and does not resume what was running",
            duration_text(cluster.age(at))
        );
        Cause::new("ControllerRestarted", Certainty::Certain, text)
            .with_evidence(format!("{} is newer than its last update", pod::display_name(pod)))
            .with_command(format!(
                "kubectl -n {} delete actionsets.cr.kanister.io {}  # then create it again",
                set.namespace(),
                set.name()
            ))
            .with_command(describe)
    })
}

/// The pods that its functions run.
fn task_pods(set: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let began = set.created();
    let mine =
        cluster.all(Kind::Pod).iter().filter(|pod| pod.label("createdBy") == "kanister" && pod.created() >= began);
    mine.filter_map(|it| pod::find_problem(it, cluster)).collect()
}
