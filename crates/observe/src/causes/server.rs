//! Whether there is anybody to do the work.

use plimsoll_progress::view::duration_text;

use super::{Cause, Certainty, pod};
use crate::evidence::{Maker, Pulse, has_operations, maker, pulse, servers_deployment};
use crate::kind::Kind;
use crate::object::{Object, time};
use crate::world::World;

/// What is wrong with the server that serves this object.
pub(super) fn causes(object: &Object, world: &World) -> Vec<Cause> {
    let mut found: Vec<Cause> = restarted(object, world).into_iter().collect();
    match pulse(world) {
        Pulse::Alive => {}
        Pulse::Silent { since, how } => found
            .push(silent(world).through(format!("no sign of life of the server for {}: {how}", duration_text(since)))),
        Pulse::Unknown => found.extend(down(world)),
    }
    found
}

/// The pods of the server.
fn pods(world: &World) -> impl Iterator<Item = &Object> {
    let maker = maker(world);
    let here = world.all(Kind::Pod).iter().filter(|pod| pod.namespace() == world.namespace);
    here.filter(move |pod| maker.runs(pod))
}

fn look(world: &World) -> String {
    format!("kubectl -n {} get deployments,pods", world.namespace)
}

/// The server's Deployment, as `kubectl` calls it.
fn called(world: &World) -> String {
    let found = servers_deployment(world).map(|(_, deployment)| deployment.name());
    format!("deployment/{}", found.unwrap_or_else(|| maker(world).deployment()))
}

/// The command that shows what the server says.
pub(super) fn logs(world: &World) -> String {
    format!("kubectl -n {} logs {}", world.namespace, called(world))
}

/// It has been silent for too long: its deployment may tell why.
fn silent(world: &World) -> Cause {
    down(world).unwrap_or_else(|| {
        let text = "the server runs, but gives no sign of life: it hangs, is cut off, or is starved";
        let after = match maker(world) {
            Maker::Velero => "whatever runs then is marked Failed by Velero",
            Maker::Plimsoll => "whatever runs then is taken up where it was",
        };
        Cause::new("ServerSilent", Certainty::Likely, text).then(format!("{} --tail 50", logs(world))).then(format!(
            "kubectl -n {} rollout restart {}  # {after}",
            world.namespace,
            called(world)
        ))
    })
}

/// No server of anybody's serves the namespace, as far as can be seen.
pub fn server_missing(world: &World) -> Option<Cause> {
    let absent = world.has_seen(Kind::Deployment) && servers_deployment(world).is_none();
    (absent && pulse(world) != Pulse::Alive).then(|| missing(world))
}

/// Whose server was meant is known only if ours has worked here before.
fn missing(world: &World) -> Cause {
    let namespace = &world.namespace;
    let cause = |who: &str| {
        let text = format!("{who} in namespace {namespace}: nobody works on what is asked for here");
        Cause::new("ServerMissing", Certainty::Likely, text)
    };
    if has_operations(world) {
        return cause("there is no Plimsoll server").then(look(world));
    }
    cause("neither Plimsoll nor Velero has a ready server")
        .then("kubectl get deployments -A | grep -E 'plimsoll|velero'  # if it is elsewhere: plimsoll -n NAMESPACE")
        .then(format!("plimsoll -n {namespace} install --help  # if there is none yet"))
}

fn down(world: &World) -> Option<Cause> {
    let namespace = &world.namespace;
    if !world.has_seen(Kind::Deployment) {
        return None;
    }
    let Some((_, deployment)) = servers_deployment(world) else { return Some(missing(world)) };
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

/// A server that was started again since has forgotten what it was doing; Velero marks that as failed, at its start. Ours takes it
/// up again, so that alone explains nothing unless it keeps happening.
fn restarted(object: &Object, world: &World) -> Option<Cause> {
    let since = object.time("/status/startTimestamp")?;
    let ends = pods(world).flat_map(|pod| pod.list("/status/containerStatuses").iter().map(move |it| (pod, it)));
    let (pod, end) = ends
        .map(|(pod, status)| (pod, &status["lastState"]["terminated"]))
        .find(|(_, end)| end.get("finishedAt").and_then(time).is_some_and(|at| at > since))?;
    let reason = end["reason"].as_str().unwrap_or("Error");
    let ago = end.get("finishedAt").and_then(time).map(|at| duration_text(world.age(at))).unwrap_or_default();
    let name = if reason == "OOMKilled" { "ServerOutOfMemory" } else { "ServerRestarted" };
    let (certainty, fate) = match maker(world) {
        Maker::Velero => (Certainty::Certain, "what it was doing is lost"),
        Maker::Plimsoll => (Certainty::Possible, "it takes up what it was doing"),
    };
    let text = format!("the server ended {ago} ago ({reason}) and was started again: {fate}");
    let cause = Cause::new(name, certainty, text).because(format!("{} has restarted", pod::called(pod)));
    let memory = format!("kubectl -n {} set resources {} --limits memory=2Gi", world.namespace, called(world));
    Some(cause.then(if reason == "OOMKilled" { memory } else { format!("{} --tail 50 --previous", logs(world)) }))
}
