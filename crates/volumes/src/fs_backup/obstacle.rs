//! Obstacles of a transfer.

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::velero::VolumeTransfer;
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeRestore, TransferPhase};
use plimsoll_engine::Error;

use super::agent_heartbeat::AgentHeartbeats;
use crate::transfer::restore_wait::cannot_wait;
use crate::transfer::{RESTORE_WAIT, Transfer};

/// Something that a transfer waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// A stable reason.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Its allowed duration.
    pub lasts: ObstacleDuration,
}

/// As in the status of the transfer.
impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// The allowed duration of an obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObstacleDuration {
    /// For as long as the whole transfer may take.
    AnyTime,
    /// For as long as anything in the cluster is waited for.
    AWhile,
    /// No longer.
    Over,
}

/// A transfer that an obstacle may block.
pub trait BlockableTransfer: Transfer {
    /// The current obstacle, if there is one.
    fn obstacle(
        &self,
        client: &Client,
        agents: &mut AgentHeartbeats,
    ) -> impl Future<Output = Result<Option<Obstacle>, Error>> + Send;
}

impl BlockableTransfer for PodVolumeBackup {
    async fn obstacle(&self, _: &Client, agents: &mut AgentHeartbeats) -> Result<Option<Obstacle>, Error> {
        let doing = self.summary().and_then(|summary| summary.doing.clone());
        of_agent(Transfer::node(self).unwrap_or_default(), &self.phase(), doing.as_deref(), agents).await
    }
}

impl BlockableTransfer for PodVolumeRestore {
    async fn obstacle(&self, client: &Client, agents: &mut AgentHeartbeats) -> Result<Option<Obstacle>, Error> {
        if let Some(node) = Transfer::node(self) {
            let doing = self.summary().and_then(|summary| summary.doing.clone());
            let obstacle = of_agent(node, &self.phase(), doing.as_deref(), agents).await?;
            // Its data was moved and it has not ended: its pod cannot see the marker.
            if obstacle.is_some() || !self.annotations().contains_key(labels::DATA_MOVEMENT_RESULT) {
                return Ok(obstacle);
            }
        }
        let wanted = Transfer::pod(self);
        let (namespace, name) = (wanted.namespace.unwrap_or_default(), wanted.name.unwrap_or_default());
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let pod = pods.get_opt(&name).await.map_err(|e| Error::api(format!("read pod {namespace}/{name}"), e))?;
        let path = format!("{namespace}/{name}");
        let Some(pod) = pod.filter(|pod| wanted.uid.is_none() || pod.uid() == wanted.uid) else {
            return Ok(Some(Obstacle {
                reason: "PodGone",
                message: format!("pod {path} is gone"),
                lasts: ObstacleDuration::Over,
            }));
        };
        if Transfer::node(self).is_some() {
            return Ok(wait_container_obstacle(&path, &pod));
        }
        if Self::is_pod_ready(&pod) {
            let node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
            return of_agent(&node, &TransferPhase::New, None, agents).await;
        }
        Ok(Some(of_pod(&path, &pod, last_warning(client, &pod).await.as_deref())))
    }
}

/// The obstacle of a transfer whose agent is busy or does not respond. The agent's own report has priority.
async fn of_agent(
    node: &str,
    phase: &TransferPhase,
    doing: Option<&str>,
    agents: &mut AgentHeartbeats,
) -> Result<Option<Obstacle>, Error> {
    if let Some(missed_heartbeat) = agents.missed_heartbeat(node).await? {
        let lasts = if missed_heartbeat.over { ObstacleDuration::Over } else { ObstacleDuration::AnyTime };
        return Ok(Some(Obstacle { reason: missed_heartbeat.reason, message: missed_heartbeat.message, lasts }));
    }
    let message = match phase {
        TransferPhase::New => format!("for the agent of node {node} to take it up"),
        TransferPhase::Accepted | TransferPhase::Prepared => {
            match doing.and_then(|doing| doing.strip_prefix("waiting ")) {
                Some(doing) => doing.to_owned(),
                None => format!("for its turn on node {node}"),
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(Obstacle { reason: "Queued", message, lasts: ObstacleDuration::AnyTime }))
}

/// Why a pod does not wait for its data yet.
fn of_pod(path: &str, pod: &Pod, warning: Option<&str>) -> Obstacle {
    let status = pod.status.clone().unwrap_or_default();
    let with_warning = |text: String| match warning {
        Some(warning) => format!("{text} ({warning})"),
        None => text,
    };
    if pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_none_or(str::is_empty) {
        let conditions = status.conditions.unwrap_or_default();
        let why = conditions.into_iter().find(|one| one.type_ == "PodScheduled" && one.status == "False");
        let why = why.and_then(|one| one.message).map(|why| format!(": {why}")).unwrap_or_default();
        let message = with_warning(format!("pod {path} is not on a node yet{why}"));
        return Obstacle { reason: "PodNotScheduled", message, lasts: ObstacleDuration::AWhile };
    }
    if matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")) {
        let message = with_warning(format!("pod {path} has ended before its data was there"));
        return Obstacle { reason: "PodEnded", message, lasts: ObstacleDuration::Over };
    }
    if let Some(stuck) = wait_container_obstacle(path, pod) {
        return Obstacle { message: with_warning(stuck.message), ..stuck };
    }
    let message = with_warning(format!("for container {RESTORE_WAIT} of pod {path} to start"));
    Obstacle { reason: "PodStarting", message, lasts: ObstacleDuration::AWhile }
}

/// The obstacle of a pod whose wait container cannot run.
fn wait_container_obstacle(path: &str, pod: &Pod) -> Option<Obstacle> {
    let why = cannot_wait(pod)?;
    let message = format!("container {RESTORE_WAIT} of pod {path} cannot start: {why}");
    let has_failed = pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Failed"));
    Some(Obstacle {
        reason: "InitContainerStuck",
        message,
        lasts: if has_failed { ObstacleDuration::Over } else { ObstacleDuration::AWhile },
    })
}

/// The message of the last Warning event of a pod or a claim. Best effort.
pub async fn last_warning<K: ResourceExt>(client: &Client, object: &K) -> Option<String> {
    let events: Api<Event> = Api::namespaced(client.clone(), &object.namespace()?);
    let about = ListParams::default().fields(&format!("involvedObject.uid={}", object.uid()?));
    let mut found = events.list(&about).await.ok()?.items;
    found.retain(|event| event.type_.as_deref() == Some("Warning"));
    found.sort_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0));
    found.pop().and_then(|event| event.message)
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "what json! makes is given away")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn obstacle(spec: Value, status: Value) -> Obstacle {
        let pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
        of_pod("ns/p", &serde_json::from_value(pod).unwrap(), Some("pull failed"))
    }

    #[test]
    fn a_pod_that_does_not_get_as_far_as_waiting_says_why() {
        let init = |state: Value| {
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "restore-wait", "state": state, "ready": false,
                "image": "", "imageID": "", "restartCount": 0}]})
        };
        let on_node = json!({"nodeName": "n", "containers": []});
        let unscheduled = obstacle(
            json!({"containers": []}),
            json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "no node fits"}]}),
        );
        assert_eq!(unscheduled.message, "pod ns/p is not on a node yet: no node fits (pull failed)");
        let stuck =
            obstacle(on_node.clone(), init(json!({"waiting": {"reason": "ErrImagePull", "message": "denied"}})));
        assert_eq!(stuck.reason, "InitContainerStuck");
        assert_eq!(
            stuck.message,
            "container restore-wait of pod ns/p cannot start: ErrImagePull: denied (pull failed)"
        );
        assert_eq!(
            obstacle(on_node.clone(), init(json!({"waiting": {"reason": "PodInitializing"}}))).reason,
            "PodStarting"
        );
        let crashed = json!({"terminated": {"exitCode": 128, "reason": "StartError", "message": "no such file"}});
        let mut looping = init(json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}));
        looping["initContainerStatuses"][0]["lastState"] = crashed.clone();
        for state in [looping, init(crashed)] {
            let stuck = obstacle(on_node.clone(), state);
            let words = "StartError: no such file";
            assert!(stuck.reason == "InitContainerStuck" && stuck.message.contains(words), "{stuck}");
        }
        let done = json!({"terminated": {"exitCode": 0}});
        assert_eq!(obstacle(on_node.clone(), init(done)).reason, "PodStarting");
        assert_eq!(obstacle(on_node, json!({"phase": "Failed"})).lasts, ObstacleDuration::Over);
    }
}
