//! Problems of a pod.

use std::time::Duration;

use plimsoll_progress::view::duration_text;
use serde_json::Value;

use super::{Cause, Certainty};
use crate::cluster_state::ClusterState;
use crate::evidence::{event_text, last_event, shorten};
use crate::object::Object;

/// A pod that has not started for this long is reported.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const IMAGE_REASONS: [&str; 5] =
    ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"];
const START_REASONS: [&str; 5] =
    ["CreateContainerError", "CreateContainerConfigError", "RunContainerError", "StartError", "ContainerCannotRun"];
const VOLUME_REASONS: [&str; 3] = ["FailedMount", "FailedAttachVolume", "FailedMapVolume"];

/// The first problem of a pod, if it has one.
pub(super) fn find_problem(pod: &Object, cluster: &ClusterState) -> Option<Cause> {
    let found = unschedulable(pod)
        .or_else(|| containers(pod))
        .or_else(|| phase_problem(pod))
        .or_else(|| slow_start(pod, cluster))?;
    let (namespace, name) = (pod.namespace(), pod.name());
    let event = last_event("Pod", namespace, name, cluster).map(|event| event_text(event, cluster));
    Some(found.with_optional_evidence(event).with_command(format!("kubectl -n {namespace} describe pod {name}")))
}

/// `pod namespace/name`.
pub(super) fn display_name(pod: &Object) -> String {
    format!("pod {}/{}", pod.namespace(), pod.name())
}

fn unschedulable(pod: &Object) -> Option<Cause> {
    let conditions = pod.list("/status/conditions").iter();
    let refused = conditions.into_iter().find(|it| it["type"] == "PodScheduled" && it["status"] == "False")?;
    let message = shorten(refused["message"].as_str().unwrap_or("no message from the scheduler"));
    let text = format!("{} cannot be scheduled: {message}", display_name(pod));
    Some(Cause::new("PodUnschedulable", Certainty::Certain, text))
}

fn containers(pod: &Object) -> Option<Cause> {
    let init = pod.list("/status/initContainerStatuses").iter().map(|status| ("init container", status));
    let main = pod.list("/status/containerStatuses").iter().map(|status| ("container", status));
    init.chain(main).find_map(|(word, status)| container(pod, word, status))
}

fn container(pod: &Object, word: &str, status: &Value) -> Option<Cause> {
    let which = format!("{word} {} of {}", status["name"].as_str().unwrap_or_default(), display_name(pod));
    let logs = format!(
        "kubectl -n {} logs {} -c {} --previous",
        pod.namespace(),
        pod.name(),
        status["name"].as_str().unwrap_or_default()
    );
    let waiting = &status["state"]["waiting"];
    let reason = waiting["reason"].as_str().unwrap_or_default();
    let message = shorten(waiting["message"].as_str().unwrap_or_default());
    let died = [&status["state"]["terminated"], &status["lastState"]["terminated"]];
    let died = died.into_iter().find(|end| end["exitCode"].as_i64().is_some_and(|code| code != 0));
    let starts = || died.filter(|end| START_REASONS.contains(&end["reason"].as_str().unwrap_or_default()));
    let kind = |init: &'static str, main: &'static str| if word == "container" { main } else { init };
    if IMAGE_REASONS.contains(&reason) {
        let image = status["image"].as_str().unwrap_or_default();
        let text = format!("image {image} of {which} cannot be pulled: {}", first_non_empty(&message, reason));
        return Some(Cause::new("ImagePullFailed", Certainty::Certain, text));
    }
    if START_REASONS.contains(&reason) || (reason != "PodInitializing" && starts().is_some()) {
        let why = starts().and_then(|end| end["message"].as_str()).map(shorten).unwrap_or(message);
        let text = format!("{which} cannot start: {}", first_non_empty(&why, reason));
        return Some(Cause::new(kind("InitContainerCannotStart", "ContainerCannotStart"), Certainty::Certain, text));
    }
    let running = status["state"].get("running").is_some_and(|state| !state.is_null());
    let died = died.filter(|_| !running && reason != "ContainerCreating")?;
    let (end, code) = (died["reason"].as_str().unwrap_or("Error"), died["exitCode"].as_i64().unwrap_or(0));
    let restarts = status["restartCount"].as_u64().unwrap_or(0);
    let text = format!("{which} keeps failing: {end}, exit code {code}, {restarts} restarts");
    let text = if restarts == 0 { format!("{which} failed: {end}, exit code {code}") } else { text };
    let text = if end == "OOMKilled" { format!("{text}; it needs more memory than its limit") } else { text };
    Some(Cause::new(kind("InitContainerFailing", "ContainerFailing"), Certainty::Certain, text).with_command(logs))
}

fn first_non_empty<'t>(text: &'t str, other: &'t str) -> &'t str {
    if text.is_empty() { other } else { text }
}

fn phase_problem(pod: &Object) -> Option<Cause> {
    if pod.text("/status/phase") == "Failed" {
        let (reason, message) = (pod.text("/status/reason"), shorten(pod.text("/status/message")));
        let text = format!(
            "{} has failed: {}",
            display_name(pod),
            first_non_empty(&message, first_non_empty(reason, "no reason is given"))
        );
        return Some(Cause::new("PodFailed", Certainty::Certain, text));
    }
    pod.is_terminating().then(|| {
        let text = format!("{} is stuck in deletion", display_name(pod));
        Cause::new("PodTerminating", Certainty::Likely, text)
    })
}

fn slow_start(pod: &Object, cluster: &ClusterState) -> Option<Cause> {
    let age = cluster.age(pod.created()?);
    if pod.text("/status/phase") != "Pending" || age < START_TIMEOUT {
        return None;
    }
    let event = last_event("Pod", pod.namespace(), pod.name(), cluster);
    let reason = event.map(|event| event.text("/reason")).unwrap_or_default();
    let message = event.map(|event| shorten(event.text("/message"))).unwrap_or_default();
    let which = display_name(pod);
    Some(if VOLUME_REASONS.contains(&reason) {
        Cause::new("VolumeNotMounted", Certainty::Certain, format!("{which} cannot mount its volumes: {message}"))
    } else if reason == "FailedCreatePodSandBox" {
        Cause::new("PodSandboxFailed", Certainty::Certain, format!("the node cannot set up {which}: {message}"))
    } else {
        let text = format!("{which} has been starting for {}", duration_text(age));
        Cause::new("PodNotStarted", Certainty::Likely, text)
    })
}
