//! What is the matter with a pod.

use std::time::Duration;

use plimsoll_progress::view::duration_text;
use serde_json::Value;

use super::{Cause, Certainty};
use crate::evidence::{event_text, last_event, short};
use crate::object::Object;
use crate::world::World;

/// A pod that has not started for this long is worth a word.
const SLOW_START: Duration = Duration::from_secs(30);
const NO_IMAGE: [&str; 5] =
    ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"];
const NO_START: [&str; 5] =
    ["CreateContainerError", "CreateContainerConfigError", "RunContainerError", "StartError", "ContainerCannotRun"];
const NO_VOLUME: [&str; 3] = ["FailedMount", "FailedAttachVolume", "FailedMapVolume"];

/// The first thing that is wrong with it, if anything is.
pub(super) fn trouble(pod: &Object, world: &World) -> Option<Cause> {
    let found = unschedulable(pod).or_else(|| containers(pod)).or_else(|| state(pod)).or_else(|| slow(pod, world))?;
    let (namespace, name) = (pod.namespace(), pod.name());
    let event = last_event("Pod", namespace, name, world).map(|event| event_text(event, world));
    Some(found.and(event).then(format!("kubectl -n {namespace} describe pod {name}")))
}

/// How to call it.
pub(super) fn called(pod: &Object) -> String {
    format!("pod {}/{}", pod.namespace(), pod.name())
}

fn unschedulable(pod: &Object) -> Option<Cause> {
    let conditions = pod.list("/status/conditions").iter();
    let refused = conditions.into_iter().find(|it| it["type"] == "PodScheduled" && it["status"] == "False")?;
    let message = short(refused["message"].as_str().unwrap_or("the scheduler does not say why"));
    let text = format!("{} cannot be scheduled: {message}", called(pod));
    Some(Cause::new("PodUnschedulable", Certainty::Certain, text))
}

fn containers(pod: &Object) -> Option<Cause> {
    let init = pod.list("/status/initContainerStatuses").iter().map(|status| ("init container", status));
    let main = pod.list("/status/containerStatuses").iter().map(|status| ("container", status));
    init.chain(main).find_map(|(word, status)| container(pod, word, status))
}

fn container(pod: &Object, word: &str, status: &Value) -> Option<Cause> {
    let which = format!("{word} {} of {}", status["name"].as_str().unwrap_or_default(), called(pod));
    let logs = format!(
        "kubectl -n {} logs {} -c {} --previous",
        pod.namespace(),
        pod.name(),
        status["name"].as_str().unwrap_or_default()
    );
    let waiting = &status["state"]["waiting"];
    let reason = waiting["reason"].as_str().unwrap_or_default();
    let message = short(waiting["message"].as_str().unwrap_or_default());
    let died = [&status["state"]["terminated"], &status["lastState"]["terminated"]];
    let died = died.into_iter().find(|end| end["exitCode"].as_i64().is_some_and(|code| code != 0));
    let starts = || died.filter(|end| NO_START.contains(&end["reason"].as_str().unwrap_or_default()));
    let kind = |init: &'static str, main: &'static str| if word == "container" { main } else { init };
    if NO_IMAGE.contains(&reason) {
        let image = status["image"].as_str().unwrap_or_default();
        let text = format!("image {image} of {which} cannot be had: {}", or(&message, reason));
        return Some(Cause::new("ImageMissing", Certainty::Certain, text));
    }
    if NO_START.contains(&reason) || (reason != "PodInitializing" && starts().is_some()) {
        let why = starts().and_then(|end| end["message"].as_str()).map(short).unwrap_or(message);
        let text = format!("{which} cannot start: {}", or(&why, reason));
        return Some(Cause::new(kind("InitContainerCannotStart", "ContainerCannotStart"), Certainty::Certain, text));
    }
    let running = status["state"].get("running").is_some_and(|state| !state.is_null());
    let died = died.filter(|_| !running && reason != "ContainerCreating")?;
    let (end, code) = (died["reason"].as_str().unwrap_or("Error"), died["exitCode"].as_i64().unwrap_or(0));
    let restarts = status["restartCount"].as_u64().unwrap_or(0);
    let text = format!("{which} ends again and again: {end}, exit code {code}, {restarts} restarts");
    let text = if restarts == 0 { format!("{which} failed: {end}, exit code {code}") } else { text };
    let text = if end == "OOMKilled" { format!("{text}; it needs more memory than its limit") } else { text };
    Some(Cause::new(kind("InitContainerFails", "ContainerFails"), Certainty::Certain, text).then(logs))
}

fn or<'t>(text: &'t str, other: &'t str) -> &'t str {
    if text.is_empty() { other } else { text }
}

fn state(pod: &Object) -> Option<Cause> {
    if pod.text("/status/phase") == "Failed" {
        let (reason, message) = (pod.text("/status/reason"), short(pod.text("/status/message")));
        let text = format!("{} has failed: {}", called(pod), or(&message, or(reason, "no reason is given")));
        return Some(Cause::new("PodFailed", Certainty::Certain, text));
    }
    pod.is_leaving().then(|| {
        let text = format!("{} is being deleted and does not go", called(pod));
        Cause::new("PodLeaving", Certainty::Likely, text)
    })
}

fn slow(pod: &Object, world: &World) -> Option<Cause> {
    let age = world.age(pod.created()?);
    if pod.text("/status/phase") != "Pending" || age < SLOW_START {
        return None;
    }
    let event = last_event("Pod", pod.namespace(), pod.name(), world);
    let reason = event.map(|event| event.text("/reason")).unwrap_or_default();
    let message = event.map(|event| short(event.text("/message"))).unwrap_or_default();
    let which = called(pod);
    Some(if NO_VOLUME.contains(&reason) {
        Cause::new("VolumeNotMounted", Certainty::Certain, format!("{which} does not get its volumes: {message}"))
    } else if reason == "FailedCreatePodSandBox" {
        Cause::new("PodSandboxFails", Certainty::Certain, format!("the node cannot set up {which}: {message}"))
    } else {
        let text = format!("{which} has been starting for {}", duration_text(age));
        Cause::new("PodNotStarted", Certainty::Likely, text)
    })
}
