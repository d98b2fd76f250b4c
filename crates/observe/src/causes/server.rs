//! Whether there is anybody to do the work.

use plimsoll_progress::view::duration_text;

use super::{Cause, Certainty, pod};
use crate::evidence::{Pulse, pulse};
use crate::kind::Kind;
use crate::object::{Object, time};
use crate::world::World;

/// What is wrong with the server that serves this object.
pub(super) fn causes(object: &Object, world: &World) -> Vec<Cause> {
    let mut found: Vec<Cause> = restarted(object, world).into_iter().collect();
    match pulse(world) {
        Pulse::Alive => {}
        Pulse::Silent { since, how } => found.push(
            silent(world, &how).through(format!("no sign of life of the server for {}: {how}", duration_text(since))),
        ),
        Pulse::Unknown => found.extend(down(world)),
    }
    found
}

/// The pods of the server.
pub(super) fn pods(world: &World) -> impl Iterator<Item = &Object> {
    let marked = |pod: &&Object| pod.label("deploy") == "velero" || pod.label("app.kubernetes.io/name") == "velero";
    let agent = |pod: &&Object| pod.label("name") == "node-agent" || pod.label("role") == "node-agent";
    let here = world.all(Kind::Pod).iter().filter(|pod| pod.namespace() == world.namespace);
    here.filter(move |pod| marked(pod) && !agent(pod))
}

fn deployment(world: &World) -> Option<&Object> {
    let here = world.all(Kind::Deployment).iter().filter(|deployment| deployment.namespace() == world.namespace);
    // Ours is marked so too, and may stand beside it.
    let marked = |it: &Object| it.label("component") == "velero" && it.label("app.kubernetes.io/part-of") != "plimsoll";
    here.into_iter().find(|it| it.name() == "velero" || marked(it))
}

fn look(world: &World) -> String {
    format!("kubectl -n {} get deployments,pods", world.namespace)
}

fn logs(world: &World) -> String {
    format!("kubectl -n {} logs deployment/velero --tail 50", world.namespace)
}

/// It has been silent for too long: its deployment may tell why.
fn silent(world: &World, _how: &str) -> Cause {
    down(world).unwrap_or_else(|| {
        let text = "the server runs, but gives no sign of life: it hangs, is cut off, or is starved";
        let restart = format!("kubectl -n {} rollout restart deployment/velero", world.namespace);
        Cause::new("ServerSilent", Certainty::Likely, text)
            .then(logs(world))
            .then(format!("{restart}  # whatever runs then is marked Failed by Velero"))
    })
}

fn down(world: &World) -> Option<Cause> {
    let namespace = &world.namespace;
    if !world.has_seen(Kind::Deployment) {
        return None;
    }
    let Some(deployment) = deployment(world) else {
        let text =
            format!("there is no Velero server in namespace {namespace}: nobody works on what is asked for here");
        return Some(Cause::new("ServerMissing", Certainty::Likely, text).then(look(world)));
    };
    let ready = deployment.number("/status/readyReplicas").unwrap_or(0);
    if deployment.number("/spec/replicas") == Some(0) {
        let text = format!("the server is scaled to 0: deployment {namespace}/{}", deployment.name());
        let up = format!("kubectl -n {namespace} scale deployment/{} --replicas 1", deployment.name());
        return Some(Cause::new("ServerStopped", Certainty::Certain, text).then(up));
    }
    if ready > 0 {
        return None;
    }
    let trouble = pods(world).find_map(|server| pod::trouble(server, world));
    let text = format!("the server is not ready: deployment {namespace}/{}", deployment.name());
    Some(match trouble {
        Some(trouble) => Cause { reason: "ServerNotReady", text: format!("{text}; {}", trouble.text), ..trouble },
        None => Cause::new("ServerNotReady", Certainty::Certain, text).then(look(world)),
    })
}

/// A server that was started again since has forgotten what it was doing; Velero marks that as failed, at its start.
fn restarted(object: &Object, world: &World) -> Option<Cause> {
    let since = object.time("/status/startTimestamp")?;
    let ends = pods(world).flat_map(|pod| pod.list("/status/containerStatuses").iter().map(move |it| (pod, it)));
    let (pod, end) = ends
        .map(|(pod, status)| (pod, &status["lastState"]["terminated"]))
        .find(|(_, end)| end.get("finishedAt").and_then(time).is_some_and(|at| at > since))?;
    let reason = end["reason"].as_str().unwrap_or("Error");
    let ago = end.get("finishedAt").and_then(time).map(|at| duration_text(world.age(at))).unwrap_or_default();
    let name = if reason == "OOMKilled" { "ServerOutOfMemory" } else { "ServerRestarted" };
    let text = format!("the server ended {ago} ago ({reason}) and was started again: what it was doing is lost");
    let cause = Cause::new(name, Certainty::Certain, text).because(format!("{} has restarted", pod::called(pod)));
    let memory = format!("kubectl -n {} set resources deployment/velero --limits memory=2Gi", world.namespace);
    Some(if reason == "OOMKilled" { cause.then(memory) } else { cause.then(logs(world) + " --previous") })
}
