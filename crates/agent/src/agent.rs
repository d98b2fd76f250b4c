//! The agent of one node: its Lease, its slots, and a controller for each kind of transfer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, ResourceExt};
use plimsoll_api::velero::v1::{PodVolumeBackup, PodVolumeRestore, TransferPhase};
use plimsoll_api::velero::v2alpha1::{DataDownload, DataUpload};
use plimsoll_engine::Error;
use plimsoll_operations::peers::Component;
use plimsoll_operations::{WatchBackoff, peers};
use plimsoll_volumes::transfer::{Transfer, TransferError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::decide::{Decision, Observed, Placement, decide, placement};
use crate::lease::AgentLease;
use crate::restore_wait;
use crate::run::{end_before_start, failed_attempts, run};
use crate::services::AgentServices;
use crate::settings::AgentSettings;

/// How often a transfer of this node that has not ended is reconciled without an event.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// The agent of one node.
pub struct Agent {
    services: Arc<AgentServices>,
    /// The transfers that this process runs, by uid.
    active: Mutex<HashMap<String, CancellationToken>>,
    /// Their tasks, aborted with the agent.
    tasks: Mutex<JoinSet<()>>,
}

impl Agent {
    /// An agent, not yet running.
    pub fn new(client: Client, settings: AgentSettings) -> Arc<Self> {
        let services = Arc::new(AgentServices::new(client, settings));
        Arc::new(Self { services, active: Mutex::default(), tasks: Mutex::default() })
    }

    /// Runs until `stop`. Running transfers stop with it, and the next agent resumes them.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) -> Result<(), Error> {
        let settings = &self.services.settings;
        let lease = AgentLease::new(self.services.client.clone(), settings);
        let begin = async {
            peers::wait_until_absent(&self.services.client, &settings.namespace, Component::Agent).await?;
            lease.acquire().await
        };
        tokio::select! {
            begun = begin => begun?,
            () = stop.cancelled() => return Ok(()),
        }
        // A container that was killed left its movers' secrets to this one.
        plimsoll_mover::remove_stale_directories();
        info!("agent of node {} at work, {} transfers at a time", settings.node, settings.concurrency);
        let answer = tokio::select! {
            () = self.control::<PodVolumeBackup>() => Ok(()),
            () = self.control::<PodVolumeRestore>() => Ok(()),
            () = restore_wait::release_waiting_pods(&self.services) => Ok(()),
            () = self.control::<DataUpload>() => Ok(()),
            () = self.control::<DataDownload>() => Ok(()),
            () = self.services.caches.evict_when_idle() => Ok(()),
            () = lease.keep_renewed() => Ok(()),
            peer = peers::wait_for_peer(&self.services.client, &settings.namespace, Component::Agent) => {
                Err(Error::Fenced(format!("{peer} serves namespace {} now", settings.namespace)))
            }
            () = stop.cancelled() => Ok(()),
        };
        // Dropped, not cancelled: the next agent resumes them.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        lease.release().await;
        answer
    }

    async fn control<T: Transfer>(self: &Arc<Self>) {
        let api: Api<T> = Api::namespaced(self.services.client.clone(), &self.services.settings.namespace);
        let controller = Controller::new(api, watcher::Config::default());
        let store = controller.store();
        let here = watcher::Config::default().fields(&format!("spec.nodeName={}", self.services.settings.node));
        let of_pod = {
            let store = store.clone();
            move |pod: Pod| transfers_of_pod(&store, &pod)
        };
        controller
            .watches(Api::<Pod>::all(self.services.client.clone()), here, of_pod)
            .trigger_backoff(WatchBackoff::default())
            .run(
                move |object, agent| reconcile(object, agent, store.clone()),
                |_, error, _| {
                    warn!("reconciling a transfer: {error}");
                    Action::requeue(Duration::from_secs(2))
                },
                Arc::clone(self),
            )
            .for_each(|_| async {})
            .await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start<T: Transfer>(self: &Arc<Self>, object: T) {
        let uid = object.uid().unwrap_or_default();
        let cancel = CancellationToken::new();
        // A running transfer keeps the token that stops it.
        match self.lock().entry(uid.clone()) {
            Entry::Occupied(_) => return,
            Entry::Vacant(free) => drop(free.insert(cancel.clone())),
        }
        let active = ActiveTransfer { agent: Arc::clone(self), uid };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let name = object.name_any();
            if let Err(error) = run(Arc::clone(&active.agent.services), object, cancel).await {
                warn!("{} {name}: {error}", T::kind(&()));
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        });
    }
}

/// A transfer that this process runs. However that ends, a panic included, it may be started again.
struct ActiveTransfer {
    agent: Arc<Agent>,
    uid: String,
}

impl Drop for ActiveTransfer {
    fn drop(&mut self) {
        self.agent.lock().remove(&self.uid);
    }
}

/// The transfers that wait for a pod of this node.
fn transfers_of_pod<T: Transfer>(store: &Store<T>, pod: &Pod) -> Vec<ObjectRef<T>> {
    let uid = pod.uid();
    let waits = |object: &Arc<T>| !object.phase().is_ended() && object.node().is_none() && object.pod().uid == uid;
    store.state().iter().filter(|object| waits(object)).map(|object| ObjectRef::from_obj(object.as_ref())).collect()
}

async fn reconcile<T: Transfer>(object: Arc<T>, agent: Arc<Agent>, store: Store<T>) -> Result<Action, Error> {
    let running = store.state().iter().filter(|object| object.phase() == TransferPhase::InProgress).count();
    agent.services.running.set(&T::kind(&()), running);
    let seen = observe(object.as_ref(), &agent).await?;
    match decide(&seen) {
        Decision::Leave => {}
        Decision::Run => agent.start(T::clone(&object)),
        Decision::Stop => {
            if let Some(cancel) = agent.lock().get(&object.uid().unwrap_or_default()) {
                cancel.cancel();
            }
        }
        Decision::Cancel => end_before_start(&agent.services, object.as_ref(), TransferError::Cancelled).await?,
        Decision::GiveUp => {
            let error = TransferError::RetriesExhausted { attempts: seen.attempts };
            end_before_start(&agent.services, object.as_ref(), error).await?;
        }
    }
    Ok(requeue_interval(&seen).map_or_else(Action::await_change, Action::requeue))
}

/// A transfer that this process could not start or end may cause no further event, so it is reconciled again after a while.
fn requeue_interval(seen: &Observed) -> Option<Duration> {
    let ours = seen.place == Placement::Here && !seen.phase.is_ended();
    ours.then_some(POLL_INTERVAL)
}

async fn observe<T: Transfer>(object: &T, agent: &Agent) -> Result<Observed, Error> {
    let phase = object.phase();
    let running_here = agent.lock().contains_key(&object.uid().unwrap_or_default());
    let place = match object.node() {
        _ if running_here || phase.is_ended() => Placement::Here,
        Some(node) if node == agent.services.settings.node => Placement::Here,
        Some(_) => Placement::Elsewhere,
        None => {
            let wanted = object.pod();
            let pods: Api<Pod> =
                Api::namespaced(agent.services.client.clone(), wanted.namespace.as_deref().unwrap_or_default());
            let name = wanted.name.clone().unwrap_or_default();
            let pod = pods.get_opt(&name).await.map_err(|e| Error::api(format!("read pod {name}"), e))?;
            placement::<T>(pod.as_ref(), &wanted, &agent.services.settings.node)
        }
    };
    Ok(Observed {
        phase,
        place,
        running_here,
        cancelled: object.is_cancelled(),
        deleted: object.meta().deletion_timestamp.is_some(),
        attempts: failed_attempts(object),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_of_this_node_that_has_not_ended_is_looked_at_again_without_any_event() {
        let seen = |phase: TransferPhase, place: Placement| Observed {
            phase,
            place,
            running_here: false,
            cancelled: false,
            deleted: false,
            attempts: 0,
        };
        assert_eq!(requeue_interval(&seen(TransferPhase::New, Placement::Here)), Some(POLL_INTERVAL));
        assert_eq!(requeue_interval(&seen(TransferPhase::InProgress, Placement::Here)), Some(POLL_INTERVAL));
        assert_eq!(requeue_interval(&seen(TransferPhase::Completed, Placement::Here)), None);
        assert_eq!(requeue_interval(&seen(TransferPhase::New, Placement::Elsewhere)), None);
        assert_eq!(
            requeue_interval(&seen(TransferPhase::New, Placement::Unknown)),
            None,
            "an event of its pod follows"
        );
    }
}
