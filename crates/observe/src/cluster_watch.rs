//! Watches on the operations, and periodic reads of the evidence that explains them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster_reader::{ClusterReader, to_object};
use crate::cluster_state::ClusterState;
use crate::kind::Kind;
use crate::object::Object;

/// How often a new state is published.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// How often evidence is read.
const EVIDENCE_INTERVAL: Duration = Duration::from_secs(5);
/// The first state is published after this time, even if some lists have not returned.
const FIRST_STATE_TIMEOUT: Duration = Duration::from_secs(10);
const EVIDENCE: [Kind; 6] = [Kind::Pod, Kind::Event, Kind::Node, Kind::Namespace, Kind::Deployment, Kind::DaemonSet];

type Names = (String, String);

#[derive(Default)]
struct WatchedObjects {
    objects: BTreeMap<Kind, BTreeMap<Names, Object>>,
    errors: BTreeMap<Kind, String>,
}

type Shared = Arc<Mutex<WatchedObjects>>;

/// Watches the cluster for as long as it lives.
pub struct ClusterWatch {
    states: watch::Receiver<Option<Arc<ClusterState>>>,
    _work: JoinSet<()>,
}

impl ClusterWatch {
    /// Starts to watch.
    pub fn start(reader: &ClusterReader) -> Self {
        let shared = Shared::default();
        let mut work = JoinSet::new();
        for kind in Kind::CUSTOM {
            let (reader, shared) = (reader.clone(), Arc::clone(&shared));
            work.spawn(async move { watch_kind(reader.api_of(kind).await, kind, shared).await });
        }
        let (sender, states) = watch::channel(None);
        work.spawn(publish(reader.clone(), shared, sender));
        Self { states, _work: work }
    }

    /// The next state, about a second after the last.
    pub async fn next(&mut self) -> Option<Arc<ClusterState>> {
        self.states.changed().await.ok()?;
        self.states.borrow_and_update().clone()
    }
}

async fn watch_kind(api: Api<DynamicObject>, kind: Kind, shared: Shared) {
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut fresh = BTreeMap::new();
    while let Some(event) = events.next().await {
        let mut watched = shared.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Ok(event) => {
                watched.errors.remove(&kind);
                apply_event(&mut watched, &mut fresh, kind, event);
            }
            Err(error) => {
                let absent =
                    matches!(&error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404);
                if absent {
                    watched.objects.entry(kind).or_default();
                } else {
                    watched.errors.insert(kind, describe(&error));
                }
            }
        }
    }
}

fn describe(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            crate::cluster_reader::describe_error(error)
        }
        error => error.to_string(),
    }
}

fn apply_event(
    watched: &mut WatchedObjects,
    fresh: &mut BTreeMap<Names, Object>,
    kind: Kind,
    event: watcher::Event<DynamicObject>,
) {
    let names = |object: &DynamicObject| (object.namespace().unwrap_or_default(), object.name_any());
    match event {
        watcher::Event::Init => fresh.clear(),
        watcher::Event::InitApply(object) => fresh.extend(to_object(kind, &object).map(|seen| (names(&object), seen))),
        watcher::Event::InitDone => {
            watched.objects.insert(kind, std::mem::take(fresh));
        }
        watcher::Event::Apply(object) => {
            let seen = to_object(kind, &object).map(|seen| (names(&object), seen));
            watched.objects.entry(kind).or_default().extend(seen);
        }
        watcher::Event::Delete(object) => {
            watched.objects.entry(kind).or_default().remove(&names(&object));
        }
    }
}

/// Publishes a state every second.
async fn publish(reader: ClusterReader, shared: Shared, sender: watch::Sender<Option<Arc<ClusterState>>>) {
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < FIRST_STATE_TIMEOUT && !is_complete(&shared) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ahead = clock_difference(&reader).await;
    let (mut last_state, mut last_read): (Option<ClusterState>, Option<tokio::time::Instant>) = (None, None);
    loop {
        let mut cluster = current_state(&reader, &shared, ahead);
        if last_read.is_none_or(|read| read.elapsed() >= EVIDENCE_INTERVAL) {
            reader.read_evidence(&mut cluster).await;
            cluster.now = now(ahead);
            last_read = Some(tokio::time::Instant::now());
        } else if let Some(last) = &last_state {
            carry_over(last, &mut cluster);
        }
        last_state = Some(cluster.clone());
        if sender.send(Some(Arc::new(cluster))).is_err() {
            return;
        }
        tokio::time::sleep(PUBLISH_INTERVAL).await;
    }
}

fn carry_over(last: &ClusterState, cluster: &mut ClusterState) {
    for kind in EVIDENCE.into_iter().filter(|kind| last.was_read(*kind)) {
        cluster.put(kind, last.all(kind).to_vec());
    }
    let custom: BTreeSet<&str> = Kind::CUSTOM.iter().map(|kind| kind.plural()).collect();
    let evidence = last.unseen.iter().filter(|unseen| !custom.contains(unseen.what.as_str()));
    evidence.for_each(|unseen| cluster.add_unread(&unseen.what, &unseen.why));
}

fn is_complete(shared: &Shared) -> bool {
    let watched = shared.lock().unwrap_or_else(PoisonError::into_inner);
    Kind::CUSTOM.iter().all(|kind| watched.objects.contains_key(kind) || watched.errors.contains_key(kind))
}

async fn clock_difference(reader: &ClusterReader) -> SignedDuration {
    let there = reader.now().await;
    let difference = there.duration_since(Timestamp::now());
    // The header has whole seconds: a smaller difference is none.
    if difference.abs() > SignedDuration::from_secs(2) { difference } else { SignedDuration::ZERO }
}

fn now(ahead: SignedDuration) -> Timestamp {
    let here = Timestamp::now();
    here.checked_add(ahead).unwrap_or(here)
}

fn current_state(reader: &ClusterReader, shared: &Shared, ahead: SignedDuration) -> ClusterState {
    let watched = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cluster = ClusterState::new(reader.namespace(), now(ahead));
    for (kind, objects) in &watched.objects {
        cluster.put(*kind, objects.values().cloned().collect());
    }
    for (kind, reason) in &watched.errors {
        cluster.add_unread(kind.plural(), reason);
    }
    cluster
}
