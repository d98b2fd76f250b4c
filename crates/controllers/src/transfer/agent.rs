//! The agent of one node: its Lease, its slots, and a controller for each kind of transfer.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::path::PathBuf;
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
use plimsoll_mover::{Kind, Launch};
use plimsoll_operations::peers::Component;
use plimsoll_operations::{EventRecorder, peers};
use plimsoll_progress::Trees;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::again;
use super::cache::Caches;
use super::decide::{Decision, Observed, Place, decide};
use super::error::TransferError;
use super::kind::{Transfer, place};
use super::lease::AgentLease;
use super::report::Running;
use super::run::{end_unbegun, run, vain_attempts};
use crate::Error;

/// How often a transfer of this node that has not ended is looked at, whatever is heard of it.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// How an agent is set up.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The namespace of the transfers.
    pub namespace: String,
    /// The node it works for.
    pub node: String,
    /// The same after a restart of the same pod, another one's otherwise.
    pub identity: String,
    /// The kubelet's directory of pods.
    pub pods_directory: PathBuf,
    /// How many transfers run at the same time.
    pub concurrency: usize,
    /// How often other movers are asked how far they are; our own tells four times as often.
    pub progress_interval: Duration,
    /// What is worth keeping between two transfers.
    pub cache: Option<PathBuf>,
    /// How many bytes that may take between transfers, for all repositories together.
    pub cache_limit: u64,
    /// What starts a mover.
    pub launch: Launch,
    /// The program restic, if it is not the one in `PATH`.
    pub restic: Option<PathBuf>,
    /// The program kopia, if it is not the one in `PATH`.
    pub kopia: Option<PathBuf>,
    /// Where the trees of its transfers are shown, by their uid.
    pub trees: Trees,
    /// Where others can read those trees.
    pub progress_address: Option<SocketAddr>,
}

impl AgentSettings {
    pub(super) fn program(&self, kind: Kind) -> Option<PathBuf> {
        match kind {
            Kind::BuiltIn => None,
            Kind::Restic => self.restic.clone(),
            Kind::Kopia => self.kopia.clone(),
        }
    }
}

/// The agent of one node.
pub struct Agent {
    pub(super) client: Client,
    pub(super) settings: AgentSettings,
    pub(super) slots: Arc<Semaphore>,
    pub(super) events: EventRecorder,
    pub(super) caches: Caches,
    /// Transfers in the whole cluster, as far as the watches tell.
    pub(super) running: Running,
    /// What this process works on, by uid.
    at_work: Mutex<HashMap<String, CancellationToken>>,
    /// The same, to be dropped with the agent.
    tasks: Mutex<JoinSet<()>>,
}

impl Agent {
    /// An agent, not yet running.
    pub fn new(client: Client, settings: AgentSettings) -> Arc<Self> {
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(settings.concurrency.max(1))),
            events: EventRecorder::new(client.clone(), &settings.namespace, &settings.identity),
            running: Running::start(),
            caches: Caches::new(settings.cache.clone(), settings.cache_limit),
            at_work: Mutex::default(),
            tasks: Mutex::default(),
            client,
            settings,
        })
    }

    /// Runs until `stop`. Transfers that are at work then stop with it, and the next agent takes them up again.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) -> Result<(), Error> {
        let settings = &self.settings;
        let lease = AgentLease::new(self.client.clone(), settings);
        let begin = async {
            peers::wait_until_absent(&self.client, &settings.namespace, Component::Agent).await?;
            lease.take().await
        };
        tokio::select! {
            begun = begin => begun?,
            () = stop.cancelled() => return Ok(()),
        }
        // A container that was killed left its movers' secrets to this one.
        plimsoll_mover::sweep();
        info!("agent of node {} at work, {} transfers at a time", settings.node, settings.concurrency);
        let answer = tokio::select! {
            () = self.control::<PodVolumeBackup>() => Ok(()),
            () = self.control::<PodVolumeRestore>() => Ok(()),
            () = again::let_go_on(&self) => Ok(()),
            () = self.control::<DataUpload>() => Ok(()),
            () = self.control::<DataDownload>() => Ok(()),
            () = self.caches.keep_small() => Ok(()),
            () = lease.keep() => Ok(()),
            peer = peers::wait_for_peer(&self.client, &settings.namespace, Component::Agent) => {
                Err(Error::Fenced(format!("{peer} serves namespace {} now", settings.namespace)))
            }
            () = stop.cancelled() => Ok(()),
        };
        // Dropped, not cancelled: whoever comes next goes on with them.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        lease.release().await;
        answer
    }

    async fn control<T: Transfer>(self: &Arc<Self>) {
        let api: Api<T> = Api::namespaced(self.client.clone(), &self.settings.namespace);
        let controller = Controller::new(api, watcher::Config::default());
        let store = controller.store();
        let here = watcher::Config::default().fields(&format!("spec.nodeName={}", self.settings.node));
        let of_pod = {
            let store = store.clone();
            move |pod: Pod| waiting_for(&store, &pod)
        };
        controller
            .watches(Api::<Pod>::all(self.client.clone()), here, of_pod)
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
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start<T: Transfer>(self: &Arc<Self>, object: T) {
        let uid = object.uid().unwrap_or_default();
        let cancel = CancellationToken::new();
        // Who is at work on it keeps the token that stops it.
        match self.lock().entry(uid.clone()) {
            Entry::Occupied(_) => return,
            Entry::Vacant(free) => drop(free.insert(cancel.clone())),
        }
        let at_work = AtWork { agent: Arc::clone(self), uid };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let name = object.name_any();
            if let Err(error) = run(Arc::clone(&at_work.agent), object, cancel).await {
                warn!("{} {name}: {error}", T::kind(&()));
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        });
    }
}

/// A transfer that this process works on. However that ends, a panic included, somebody may take it up again.
struct AtWork {
    agent: Arc<Agent>,
    uid: String,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.agent.lock().remove(&self.uid);
    }
}

/// The transfers that wait for a pod of this node.
fn waiting_for<T: Transfer>(store: &Store<T>, pod: &Pod) -> Vec<ObjectRef<T>> {
    let uid = pod.uid();
    let waits = |object: &Arc<T>| !object.phase().is_ended() && object.node().is_none() && object.pod().uid == uid;
    store.state().iter().filter(|object| waits(object)).map(|object| ObjectRef::from_obj(object.as_ref())).collect()
}

async fn reconcile<T: Transfer>(object: Arc<T>, agent: Arc<Agent>, store: Store<T>) -> Result<Action, Error> {
    let running = store.state().iter().filter(|object| object.phase() == TransferPhase::InProgress).count();
    agent.running.set(&T::kind(&()), running);
    let seen = observe(object.as_ref(), &agent).await?;
    match decide(&seen) {
        Decision::Leave => {}
        Decision::Run => agent.start(T::clone(&object)),
        Decision::Stop => {
            if let Some(cancel) = agent.lock().get(&object.uid().unwrap_or_default()) {
                cancel.cancel();
            }
        }
        Decision::Cancel => end_unbegun(&agent, object.as_ref(), TransferError::Cancelled).await?,
        Decision::GiveUp => {
            let error = TransferError::GivenUp { attempts: seen.attempts };
            end_unbegun(&agent, object.as_ref(), error).await?;
        }
    }
    Ok(look_again(&seen).map_or_else(Action::await_change, Action::requeue))
}

/// No event may ever tell of a transfer that this process could not take up, or not to its end: it looks by itself.
fn look_again(seen: &Observed) -> Option<Duration> {
    let ours = seen.place == Place::Here && !seen.phase.is_ended();
    ours.then_some(LOOK_EVERY)
}

async fn observe<T: Transfer>(object: &T, agent: &Agent) -> Result<Observed, Error> {
    let phase = object.phase();
    let running_here = agent.lock().contains_key(&object.uid().unwrap_or_default());
    let place = match object.node() {
        _ if running_here || phase.is_ended() => Place::Here,
        Some(node) if node == agent.settings.node => Place::Here,
        Some(_) => Place::Elsewhere,
        None => {
            let wanted = object.pod();
            let pods: Api<Pod> = Api::namespaced(agent.client.clone(), wanted.namespace.as_deref().unwrap_or_default());
            let name = wanted.name.clone().unwrap_or_default();
            let pod = pods.get_opt(&name).await.map_err(|e| Error::api(format!("read pod {name}"), e))?;
            place::<T>(pod.as_ref(), &wanted, &agent.settings.node)
        }
    };
    Ok(Observed {
        phase,
        place,
        running_here,
        cancelled: object.is_cancelled(),
        deleted: object.meta().deletion_timestamp.is_some(),
        attempts: vain_attempts(object),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_of_this_node_that_has_not_ended_is_looked_at_again_without_any_event() {
        let seen = |phase: TransferPhase, place: Place| Observed {
            phase,
            place,
            running_here: false,
            cancelled: false,
            deleted: false,
            attempts: 0,
        };
        assert_eq!(look_again(&seen(TransferPhase::New, Place::Here)), Some(LOOK_EVERY));
        assert_eq!(look_again(&seen(TransferPhase::InProgress, Place::Here)), Some(LOOK_EVERY));
        assert_eq!(look_again(&seen(TransferPhase::Completed, Place::Here)), None);
        assert_eq!(look_again(&seen(TransferPhase::New, Place::Elsewhere)), None);
        assert_eq!(look_again(&seen(TransferPhase::New, Place::NotYet)), None, "its pod tells");
    }
}
