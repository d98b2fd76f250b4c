//! Why an action does not go on.

use plimsoll_progress::view::duration_text;
use serde_json::Value;

use super::{Cause, Certainty, pod, server};
use crate::evidence::{Maker, event_text, last_event, maker, short};
use crate::kind::Kind;
use crate::object::Object;
use crate::overview::operation_of;
use crate::world::World;

/// What keeps an ActionSet, or made it fail.
pub(super) fn causes(set: &Object, world: &World) -> Vec<Cause> {
    let describe = format!("kubectl -n {} describe actionsets.cr.kanister.io {}", set.namespace(), set.name());
    match set.text("/status/state") {
        "complete" => Vec::new(),
        "failed" => {
            let message = short(set.some_text("/status/error/message").unwrap_or("it failed, and no reason is given"));
            let event =
                last_event("ActionSet", set.namespace(), set.name(), world).map(|event| event_text(event, world));
            let at = phases(set).find(|phase| phase["state"] == "failed").and_then(|phase| phase["name"].as_str());
            let text = at.map(|name| format!("phase {name} failed: {message}")).unwrap_or(message);
            vec![Cause::new("ActionFailed", Certainty::Certain, text).and(event).then(describe)]
        }
        "running" => running(set, world, &describe),
        _ => pending(set, world, &describe),
    }
}

fn phases(set: &Object) -> impl Iterator<Item = &Value> {
    let actions = set.list("/status/actions").iter();
    actions.flat_map(|action| action["phases"].as_array().into_iter().flatten().chain(action.get("deferPhase")))
}

/// Whether our own server works on this: it has an Operation, or our server is the one that serves its namespace.
fn is_ours(set: &Object, world: &World) -> bool {
    let serves = || {
        let peer = deployments(world).any(|it| it.namespace() == set.namespace() && is_ready(it));
        set.namespace() == world.namespace && maker(world) == Maker::Plimsoll && !peer
    };
    operation_of(set, world).is_some() || serves()
}

/// What is wrong with whoever has to work on it.
fn controller(set: &Object, world: &World) -> Vec<Cause> {
    if is_ours(set, world) { server::causes(set, world) } else { down(world).into_iter().collect() }
}

fn is_ready(deployment: &Object) -> bool {
    deployment.number("/status/readyReplicas").unwrap_or(0) > 0
}

/// The pods of the controller: by the names and labels that its charts use.
fn controllers(world: &World) -> impl Iterator<Item = &Object> {
    let marked = |pod: &&Object| {
        ["app", "app.kubernetes.io/name", "component"].iter().any(|key| pod.label(key).contains("kanister"))
            && pod.label("createdBy") != "kanister"
    };
    world.all(Kind::Pod).iter().filter(marked)
}

fn deployments(world: &World) -> impl Iterator<Item = &Object> {
    let named = |it: &&Object| {
        it.name().contains("kanister")
            || it.label("app").contains("kanister")
            || it.label("app.kubernetes.io/name").contains("kanister")
    };
    world.all(Kind::Deployment).iter().filter(named)
}

fn down(world: &World) -> Option<Cause> {
    // It may be in any namespace: one that may not be looked into may have it.
    let unseen = world.unseen.iter().any(|unseen| unseen.what == Kind::Deployment.plural());
    let seen = world.has_seen(Kind::Deployment) && !unseen;
    if deployments(world).any(is_ready) {
        return None;
    }
    let Some(deployment) = deployments(world).next() else {
        let text = "no Kanister controller was found: nobody works on actions";
        return seen.then(|| {
            Cause::new("ControllerMissing", Certainty::Likely, text).then("kubectl get deployments -A | grep kanister")
        });
    };
    let place = format!("{}/{}", deployment.namespace(), deployment.name());
    let text = format!("the Kanister controller is not ready: deployment {place}");
    let trouble = controllers(world).find_map(|it| pod::trouble(it, world));
    let text = trouble.map(|trouble| format!("{text}; {}", trouble.text)).unwrap_or(text);
    let look = format!("kubectl -n {} get deployments,pods", deployment.namespace());
    Some(Cause::new("ControllerNotReady", Certainty::Certain, text).then(look))
}

fn pending(set: &Object, world: &World, describe: &str) -> Vec<Cause> {
    let mut found = controller(set, world);
    let age = world.age(set.created().unwrap_or(world.now));
    if found.is_empty() && age.as_secs() >= 30 {
        let text = format!("the controller has not taken it up for {}", duration_text(age));
        found.push(Cause::new("NotTakenUp", Certainty::Possible, text).then(describe));
    }
    found
}

fn running(set: &Object, world: &World, describe: &str) -> Vec<Cause> {
    let (ours, mut found) = (is_ours(set, world), controller(set, world));
    // Ours takes up what was running, and its tree says which phase is quiet.
    found.extend(stranded(set, world, describe).filter(|_| !ours));
    found.extend(task_pods(set, world));
    let phase = phases(set).find(|phase| phase["state"] == "running").and_then(|phase| phase["name"].as_str());
    if let Some(phase) = phase.filter(|_| found.is_empty() && !ours) {
        let text = format!("phase {phase} is at work, and its function says nothing before it has ended");
        found.push(Cause::new("QuietPhase", Certainty::Possible, text).orderly().then(describe));
    }
    found
}

/// A controller that was started again takes up only what is pending: what was running stays so for ever.
fn stranded(set: &Object, world: &World, describe: &str) -> Option<Cause> {
    let began = set.created()?;
    let started = |pod: &Object| {
        pod.time("/status/containerStatuses/0/state/running/startedAt").or_else(|| pod.time("/status/startTime"))
    };
    let newest = controllers(world).filter_map(|pod| Some((pod, started(pod)?))).max_by_key(|(_, at)| *at)?;
    let last_word = set.last_write().unwrap_or(began);
    let (pod, at) = newest;
    (at > began && at > last_word).then(|| {
        let text = format!(
            "the controller was started again {} ago, and does not take up what was running",
            duration_text(world.age(at))
        );
        Cause::new("ControllerRestarted", Certainty::Certain, text)
            .because(format!("{} is younger than the last word about this", pod::called(pod)))
            .then(format!(
                "kubectl -n {} delete actionsets.cr.kanister.io {}  # and create it anew",
                set.namespace(),
                set.name()
            ))
            .then(describe)
    })
}

/// The pods that its functions run.
fn task_pods(set: &Object, world: &World) -> Vec<Cause> {
    let began = set.created();
    let mine = world.all(Kind::Pod).iter().filter(|pod| pod.label("createdBy") == "kanister" && pod.created() >= began);
    mine.filter_map(|it| pod::trouble(it, world)).collect()
}
