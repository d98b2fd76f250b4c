//! Releases pods that wait although their restore has ended. After the restart of a node or the death of a sandbox all init
//! containers run again, long after the restore, and the wait container has removed its markers. A wait container that was killed
//! while it removed them waits forever for the first of them. The agent creates the markers again. Agents of two installations
//! may do so on one node, the second after the container has ended: leftover markers are removed once it has.

mod waiting_container;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use plimsoll_api::labels;
use plimsoll_api::velero::v1::PodVolumeRestore;
use plimsoll_engine::Error;
use plimsoll_operations::WatchBackoff;
use plimsoll_volumes::transfer::TransferError;
use plimsoll_volumes::transfer::restore_wait::{cannot_wait, has_waited};
use tracing::{info, warn};

use self::waiting_container::{WaitingContainer, restore_wait_of, volumes_of};
use crate::directory;
use crate::restore_marker::RestoreMarker;
use crate::services::AgentServices;

/// How often waiting pods are checked. The obstacle to their release may cause no event of the pod.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// A pod that still waits this long after its release is released again: another pod with the same volume may have removed the
/// marker.
const RELEASE_INTERVAL: Duration = Duration::from_secs(10);

/// Watches the pods of this node. Runs until it is dropped.
pub(crate) async fn release_waiting_pods(services: &AgentServices) {
    let here = watcher::Config::default().fields(&format!("spec.nodeName={}", services.settings.node));
    let pods = watcher(Api::<Pod>::all(services.client.clone()), here).backoff(WatchBackoff::default());
    let mut pods = std::pin::pin!(pods);
    let mut waiting = WaitingPods::default();
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    loop {
        tokio::select! {
            event = pods.next() => match event {
                Some(Ok(event)) => waiting.handle_event(event),
                Some(Err(_)) => continue,
                None => return,
            },
            _ = ticks.tick(), if !waiting.waiting.is_empty() => {}
        }
        waiting.release_all(services).await;
    }
}

/// The pods of this node that wait.
#[derive(Default)]
struct WaitingPods {
    /// By uid.
    waiting: BTreeMap<String, Pod>,
    /// By uid: how often the container had been started when it was released, and the time of that.
    released: BTreeMap<String, (i32, Instant)>,
    /// Released pods whose wait container has ended.
    continued: Vec<Pod>,
}

impl WaitingPods {
    fn handle_event(&mut self, event: watcher::Event<Pod>) {
        match event {
            watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => self.update(pod),
            watcher::Event::Delete(pod) => self.forget(&pod.uid().unwrap_or_default()),
            // A new list follows.
            watcher::Event::Init => self.waiting.clear(),
            watcher::Event::InitDone => {}
        }
    }

    fn update(&mut self, pod: Pod) {
        let uid = pod.uid().unwrap_or_default();
        if WaitingContainer::of(&pod).is_some() {
            self.waiting.insert(uid, pod);
            return;
        }
        let was_released = self.released.contains_key(&uid);
        self.forget(&uid);
        if was_released && has_waited(&pod) {
            self.continued.push(pod);
        }
    }

    fn forget(&mut self, uid: &str) {
        self.waiting.remove(uid);
        self.released.remove(uid);
    }

    async fn release_all(&mut self, services: &AgentServices) {
        for pod in std::mem::take(&mut self.continued) {
            remove_leftover_markers(services, &pod).await;
        }
        for (uid, pod) in &self.waiting {
            let Some(waiting) = WaitingContainer::of(pod) else { continue };
            let released = self.released.get(uid).filter(|(restarts, _)| *restarts == waiting.restarts);
            if released.is_some_and(|(_, at)| at.elapsed() < RELEASE_INTERVAL) {
                continue;
            }
            if release_pod(services, pod, &waiting, released.is_some()).await {
                self.released.insert(uid.clone(), (waiting.restarts, Instant::now()));
            }
        }
    }
}

/// Releases a pod. Returns whether that succeeded.
async fn release_pod(services: &AgentServices, pod: &Pod, waiting: &WaitingContainer<'_>, was_released: bool) -> bool {
    let path = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    match try_release(services, pod, waiting).await {
        Ok(ReleaseResult::Already) if was_released => {}
        Ok(ReleaseResult::Already | ReleaseResult::Now) => {
            info!("pod {path} was restarted after its restore: signalled that the data of its volumes is restored");
        }
        Ok(ReleaseResult::NotYet) => return false,
        Err(error) => {
            warn!("pod {path} waits for data that is restored, and cannot be signalled: {error}");
            return false;
        }
    }
    true
}

enum ReleaseResult {
    /// Its data may not be there.
    NotYet,
    Now,
    Already,
}

async fn try_release(
    services: &AgentServices,
    pod: &Pod,
    waiting: &WaitingContainer<'_>,
) -> Result<ReleaseResult, TransferError> {
    if !waiting.had_waited && !has_all_data(services, pod, waiting).await? {
        return Ok(ReleaseResult::NotYet);
    }
    // All are checked before the first is created: after the last one the container ends and removes all of them.
    let mut missing = Vec::new();
    for volume in waiting.volumes() {
        let place = directory::find(&services.client, &services.settings.pods_directory, pod, volume).await?;
        let marker = RestoreMarker::new(&place, waiting.restore);
        if !marker.exists().await? {
            missing.push((volume, marker));
        }
    }
    let result = if missing.is_empty() { ReleaseResult::Already } else { ReleaseResult::Now };
    for (volume, marker) in missing {
        marker.create().await?.map_err(|error| TransferError::Handshake {
            volume: volume.to_owned(),
            pod: pod.name_any(),
            cause: error.to_string(),
        })?;
    }
    Ok(result)
}

/// Best effort: a leftover marker is harmless, and the next restore of the volume removes it.
async fn remove_leftover_markers(services: &AgentServices, pod: &Pod) {
    let Some((container, restore)) = restore_wait_of(pod) else { return };
    for volume in volumes_of(container) {
        let Ok(place) = directory::find(&services.client, &services.settings.pods_directory, pod, volume).await else {
            continue;
        };
        let marker = RestoreMarker::new(&place, restore);
        if marker.exists().await.unwrap_or(false) {
            let _ = marker.remove().await;
        }
    }
}

/// Whether all transfers that a pod waits for have completed.
async fn has_all_data(
    services: &AgentServices,
    pod: &Pod,
    waiting: &WaitingContainer<'_>,
) -> Result<bool, TransferError> {
    // A container that crashed a moment ago may crash again, or may be removing its markers now.
    if cannot_wait(pod).is_some() {
        return Ok(false);
    }
    let api: Api<PodVolumeRestore> = Api::namespaced(services.client.clone(), &services.settings.namespace);
    let of_pod = ListParams::default().labels(&format!("{}={}", labels::POD_UID, pod.uid().unwrap_or_default()));
    let transfers = api.list(&of_pod).await.map_err(|error| Error::api("list PodVolumeRestores", error))?;
    Ok(waiting.has_all(&transfers.items))
}

#[cfg(test)]
mod tests {
    use plimsoll_volumes::transfer::RESTORE_WAIT;
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

    fn running() -> Value {
        json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } })
    }

    fn ended(code: i32) -> Value {
        json!({ "terminated": { "exitCode": code } })
    }

    #[test]
    fn only_a_pod_whose_waiting_had_ended_well_or_that_had_run_waits_again() {
        let first = json!({ "state": running() });
        let again = json!({ "state": running(), "lastState": ended(0), "restartCount": 1 });
        let over = json!({ "state": ended(0), "restartCount": 1 });
        let (never, once) = (json!({}), json!({ "lastState": ended(255), "restartCount": 1 }));
        assert!(WaitingContainer::of(&pod(&first, &never)).is_none(), "its data may be on its way");
        assert!(WaitingContainer::of(&pod(&over, &once)).is_none(), "it does not wait");
        let pods = [pod(&again, &never), pod(&first, &once)];
        for waiting in pods.iter().map(|pod| WaitingContainer::of(pod).unwrap()) {
            assert!(waiting.had_waited);
            assert_eq!((waiting.restore, waiting.volumes().collect::<Vec<_>>()), ("uid", vec!["data"]));
        }
    }

    #[test]
    fn a_crashed_container_is_released_again_only_if_all_its_transfers_have_completed() {
        let broken = pod(&json!({ "state": running(), "lastState": ended(1), "restartCount": 1 }), &json!({}));
        let waiting = WaitingContainer::of(&broken).unwrap();
        assert!(!waiting.had_waited);
        let transfer = |restore: &str, volume: &str, phase: &str| -> PodVolumeRestore {
            serde_json::from_value(json!({ "metadata": { "name": volume, "labels": { labels::RESTORE_UID: restore } },
                "spec": { "volume": volume }, "status": { "phase": phase } }))
            .unwrap()
        };
        assert!(waiting.has_all(&[transfer("uid", "data", "Completed")]));
        for other in [
            transfer("uid", "data", "InProgress"),
            transfer("uid", "data", "Failed"),
            transfer("uid", "other", "Completed"),
            transfer("another", "data", "Completed"),
        ] {
            assert!(!waiting.has_all(std::slice::from_ref(&other)), "{other:?}");
        }
        assert!(!waiting.has_all(&[]));
    }

    #[test]
    fn a_pod_that_could_not_be_released_is_checked_until_it_is_gone() {
        let mut waiting = WaitingPods::default();
        let broken = pod(&json!({ "state": running(), "lastState": ended(1), "restartCount": 1 }), &json!({}));
        waiting.handle_event(watcher::Event::Apply(broken.clone()));
        waiting.handle_event(watcher::Event::Apply(broken.clone()));
        assert_eq!(waiting.waiting.len(), 1);
        let released = (broken.uid().unwrap_or_default(), (1, Instant::now()));
        waiting.released.extend([released.clone()]);
        waiting.handle_event(watcher::Event::Apply(pod(&json!({ "state": ended(1), "restartCount": 1 }), &json!({}))));
        assert!(waiting.continued.is_empty(), "it crashed again, and its markers are for the next one");
        waiting.released.extend([released]);
        waiting.handle_event(watcher::Event::Apply(pod(&json!({ "state": ended(0), "restartCount": 1 }), &json!({}))));
        assert_eq!(waiting.continued.len(), 1, "markers of another agent may be left");
        waiting.handle_event(watcher::Event::Apply(broken.clone()));
        waiting.handle_event(watcher::Event::Delete(broken));
        assert!(waiting.waiting.is_empty());
    }
}
