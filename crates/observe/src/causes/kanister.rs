//! Problems of an ActionSet.

use plimsoll_progress::view::duration_text;
use serde_json::Value;

use super::{Cause, Certainty, pod, server};
use crate::cluster_state::ClusterState;
use crate::evidence::{ServerProduct, event_text, last_event, server_product, shorten};
use crate::kind::Kind;
use crate::object::Object;
use crate::overview::operation_of;

/// Why an ActionSet is stuck or failed.
pub(super) fn causes(set: &Object, cluster: &ClusterState) -> Vec<Cause> {
    let describe = format!("kubectl -n {} describe actionsets.cr.kanister.io {}", set.namespace(), set.name());
    match set.text("/status/state") {
        "complete" => Vec::new(),
        "failed" => {
            let message = shorten(set.some_text("/status/error/message").unwrap_or("it failed without a reason"));
            let event =
                last_event("ActionSet", set.namespace(), set.name(), cluster).map(|event| event_text(event, cluster));
            let at = phases(set).find(|phase| phase["state"] == "failed").and_then(|phase| phase["name"].as_str());
            let text = at.map(|name| format!("phase {name} failed: {message}")).unwrap_or(message);
            vec![
                Cause::new("ActionFailed", Certainty::Certain, text)
                    .with_optional_evidence(event)
                    .with_command(describe),
            ]
        }
        "running" => running(set, cluster, &describe),
        _ => pending(set, cluster, &describe),
    }
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
    found.extend(stranded(set, cluster, describe).filter(|_| !ours));
    found.extend(task_pods(set, cluster));
    let phase = phases(set).find(|phase| phase["state"] == "running").and_then(|phase| phase["name"].as_str());
    if let Some(phase) = phase.filter(|_| found.is_empty() && !ours) {
        let text = format!("phase {phase} is running, and its function reports nothing until it ends");
        found.push(Cause::new("QuietPhase", Certainty::Possible, text).expected().with_command(describe));
    }
    found
}

/// Kanister's controller resumes only pending ActionSets after a restart: a running one stays as it is.
fn stranded(set: &Object, cluster: &ClusterState, describe: &str) -> Option<Cause> {
    let began = set.created()?;
    let started = |pod: &Object| {
        pod.time("/status/containerStatuses/0/state/running/startedAt").or_else(|| pod.time("/status/startTime"))
    };
    let newest = controllers(cluster).filter_map(|pod| Some((pod, started(pod)?))).max_by_key(|(_, at)| *at)?;
    let last_report = set.last_write().unwrap_or(began);
    let (pod, at) = newest;
    (at > began && at > last_report).then(|| {
        let text = format!(
            "the controller restarted {} ago and does not resume what was running",
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
