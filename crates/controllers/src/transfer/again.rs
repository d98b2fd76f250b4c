//! Pods that wait a second time. A node that was started anew, or a sandbox that died, runs all init containers again, long
//! after the restore; what told the first one that the data is there was taken away by it. The agent tells it again.

use std::collections::BTreeMap;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tracing::{info, warn};

use super::agent::Agent;
use super::directory;
use super::error::TransferError;
use super::handshake::Mark;
use super::kind::RESTORE_WAIT;

/// Where the container that waits has its volumes.
const MOUNTS: &str = "/restores/";

/// Watches the pods of this node. Ends only with whoever drops it.
pub(super) async fn let_go_on(agent: &Agent) {
    let here = watcher::Config::default().fields(&format!("spec.nodeName={}", agent.settings.node));
    let pods = watcher(Api::<Pod>::all(agent.client.clone()), here).default_backoff().applied_objects();
    let mut pods = std::pin::pin!(pods);
    // By uid, how often the container had been started when it was told.
    let mut told: BTreeMap<String, i32> = BTreeMap::new();
    while let Some(pod) = pods.next().await {
        let Ok(pod) = pod else { continue };
        let uid = pod.uid().unwrap_or_default();
        let Some(waiting) = waits_again(&pod) else {
            told.remove(&uid);
            continue;
        };
        if told.insert(uid, waiting.restarts) != Some(waiting.restarts) {
            tell(agent, &pod, &waiting).await;
        }
    }
}

async fn tell(agent: &Agent, pod: &Pod, waiting: &Waiting<'_>) {
    let path = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    match put_all(agent, pod, waiting).await {
        Ok(()) => info!("pod {path} was started anew after its restore: told that the data of its volumes is there"),
        Err(error) => warn!("pod {path} waits for data that is there, and cannot be told: {error}"),
    }
}

async fn put_all(agent: &Agent, pod: &Pod, waiting: &Waiting<'_>) -> Result<(), TransferError> {
    for volume in waiting.volumes() {
        let place = directory::find(&agent.client, &agent.settings.pods_directory, pod, volume).await?;
        Mark::new(&place, waiting.restore).put().map_err(|error| TransferError::Handshake {
            volume: volume.to_owned(),
            pod: pod.name_any(),
            cause: error.to_string(),
        })?;
    }
    Ok(())
}

/// A container that waits though it had waited to the end before.
#[derive(Debug)]
struct Waiting<'p> {
    container: &'p Container,
    restore: &'p str,
    restarts: i32,
}

impl Waiting<'_> {
    fn volumes(&self) -> impl Iterator<Item = &str> {
        let mounts = self.container.volume_mounts.iter().flatten();
        mounts.filter(|mount| mount.mount_path.starts_with(MOUNTS)).map(|mount| mount.name.as_str())
    }
}

fn waits_again(pod: &Pod) -> Option<Waiting<'_>> {
    let status = pod.status.as_ref()?;
    let statuses = status.init_container_statuses.iter().flatten();
    let waits = statuses.into_iter().find(|status| status.name == RESTORE_WAIT)?;
    waits.state.as_ref()?.running.as_ref()?;
    // Either it is known how it ended before, or what comes after it was started once.
    let started = |status: &ContainerStatus| status.restart_count > 0 || status.last_state.iter().any(has_ended);
    let before = waits.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let had_waited =
        before.is_some_and(|ended| ended.exit_code == 0) || status.container_statuses.iter().flatten().any(started);
    let containers = pod.spec.as_ref()?.init_containers.iter().flatten();
    let container = containers.into_iter().find(|container| container.name == RESTORE_WAIT)?;
    let restore = container.args.as_ref()?.last()?;
    had_waited.then_some(Waiting { container, restore, restarts: waits.restart_count })
}

fn has_ended(state: &k8s_openapi::api::core::v1::ContainerState) -> bool {
    state.terminated.is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(waits: &Value, main: &Value) -> Pod {
        let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
        let status = |name: &str, state: &Value| {
            let mut status = json!({ "name": name, "ready": false, "image": "", "imageID": "", "restartCount": 0 });
            for (key, value) in state.as_object().into_iter().flatten() {
                status[key] = value.clone();
            }
            status
        };
        serde_json::from_value(json!({
            "metadata": { "name": "db", "namespace": "shop" },
            "spec": {
                "initContainers": [{ "name": RESTORE_WAIT, "args": ["uid"], "volumeMounts":
                    [mount("data", "/restores/data"), mount("token", "/var/run/secrets/token")] }],
                "containers": [{ "name": "main" }],
            },
            "status": {
                "initContainerStatuses": [status(RESTORE_WAIT, waits)], "containerStatuses": [status("main", main)],
            },
        }))
        .unwrap()
    }

    #[test]
    fn only_a_pod_whose_waiting_had_ended_well_or_that_had_run_waits_again() {
        let running = json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } });
        let ended = |code: i32| json!({ "terminated": { "exitCode": code } });
        let first = json!({ "state": running });
        let again = json!({ "state": running, "lastState": ended(0), "restartCount": 1 });
        let broken = json!({ "state": running, "lastState": ended(1), "restartCount": 1 });
        let over = json!({ "state": ended(0), "restartCount": 1 });
        let (never, once) = (json!({}), json!({ "lastState": ended(255), "restartCount": 1 }));
        assert!(waits_again(&pod(&first, &never)).is_none(), "its data may be on its way");
        assert!(waits_again(&pod(&broken, &never)).is_none(), "it never saw all of its data");
        assert!(waits_again(&pod(&over, &once)).is_none(), "it does not wait");
        let pods = [pod(&again, &never), pod(&first, &once)];
        for waiting in pods.iter().map(|pod| waits_again(pod).unwrap()) {
            assert_eq!((waiting.restore, waiting.volumes().collect::<Vec<_>>()), ("uid", vec!["data"]));
        }
    }
}
