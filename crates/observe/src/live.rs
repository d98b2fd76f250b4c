//! The world as it changes: watches on the operations, and now and then a look at what explains them.

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

use crate::gather::{Gatherer, raw};
use crate::kind::Kind;
use crate::object::Object;
use crate::world::World;

/// A new world comes this often.
const EVERY: Duration = Duration::from_secs(1);
/// What explains the operations is read this often.
const EVIDENCE_EVERY: Duration = Duration::from_secs(5);
/// The first world comes no later than this, even if not everything has answered.
const FIRST: Duration = Duration::from_secs(10);
const EVIDENCE: [Kind; 6] = [Kind::Pod, Kind::Event, Kind::Node, Kind::Namespace, Kind::Deployment, Kind::DaemonSet];

type Names = (String, String);

#[derive(Default)]
struct Known {
    objects: BTreeMap<Kind, BTreeMap<Names, Object>>,
    troubles: BTreeMap<Kind, String>,
}

type Shared = Arc<Mutex<Known>>;

/// Watches, for as long as it lives.
pub struct Live {
    worlds: watch::Receiver<Option<Arc<World>>>,
    _work: JoinSet<()>,
}

impl Live {
    /// Begins to watch.
    pub fn start(gatherer: &Gatherer) -> Self {
        let shared = Shared::default();
        let mut work = JoinSet::new();
        for kind in Kind::CUSTOM {
            let (gatherer, shared) = (gatherer.clone(), Arc::clone(&shared));
            work.spawn(async move { follow(gatherer.custom(kind).await, kind, shared).await });
        }
        let (sender, worlds) = watch::channel(None);
        work.spawn(publish(gatherer.clone(), shared, sender));
        Self { worlds, _work: work }
    }

    /// The next world, at most a second away.
    pub async fn next(&mut self) -> Option<Arc<World>> {
        self.worlds.changed().await.ok()?;
        self.worlds.borrow_and_update().clone()
    }
}

async fn follow(api: Api<DynamicObject>, kind: Kind, shared: Shared) {
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut fresh = BTreeMap::new();
    while let Some(event) = events.next().await {
        let mut known = shared.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Ok(event) => {
                known.troubles.remove(&kind);
                take(&mut known, &mut fresh, kind, event);
            }
            Err(error) => {
                let absent =
                    matches!(&error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404);
                if absent {
                    known.objects.entry(kind).or_default();
                } else {
                    known.troubles.insert(kind, trouble(&error));
                }
            }
        }
    }
}

fn trouble(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => crate::gather::why(error),
        error => error.to_string(),
    }
}

fn take(known: &mut Known, fresh: &mut BTreeMap<Names, Object>, kind: Kind, event: watcher::Event<DynamicObject>) {
    let names = |object: &DynamicObject| (object.namespace().unwrap_or_default(), object.name_any());
    match event {
        watcher::Event::Init => fresh.clear(),
        watcher::Event::InitApply(object) => fresh.extend(raw(kind, &object).map(|seen| (names(&object), seen))),
        watcher::Event::InitDone => {
            known.objects.insert(kind, std::mem::take(fresh));
        }
        watcher::Event::Apply(object) => {
            let seen = raw(kind, &object).map(|seen| (names(&object), seen));
            known.objects.entry(kind).or_default().extend(seen);
        }
        watcher::Event::Delete(object) => {
            known.objects.entry(kind).or_default().remove(&names(&object));
        }
    }
}

/// Puts worlds together, one a second.
async fn publish(gatherer: Gatherer, shared: Shared, sender: watch::Sender<Option<Arc<World>>>) {
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < FIRST && !is_complete(&shared) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ahead = clock_difference(&gatherer).await;
    let (mut explained, mut read): (Option<World>, Option<tokio::time::Instant>) = (None, None);
    loop {
        let mut world = world(&gatherer, &shared, ahead);
        if read.is_none_or(|read| read.elapsed() >= EVIDENCE_EVERY) {
            gatherer.evidence(&mut world).await;
            world.now = now(ahead);
            read = Some(tokio::time::Instant::now());
        } else if let Some(last) = &explained {
            carry_over(last, &mut world);
        }
        explained = Some(world.clone());
        if sender.send(Some(Arc::new(world))).is_err() {
            return;
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn carry_over(last: &World, world: &mut World) {
    for kind in EVIDENCE.into_iter().filter(|kind| last.has_seen(*kind)) {
        world.put(kind, last.all(kind).to_vec());
    }
    let custom: BTreeSet<&str> = Kind::CUSTOM.iter().map(|kind| kind.plural()).collect();
    let evidence = last.unseen.iter().filter(|unseen| !custom.contains(unseen.what.as_str()));
    evidence.for_each(|unseen| world.miss(&unseen.what, &unseen.why));
}

fn is_complete(shared: &Shared) -> bool {
    let known = shared.lock().unwrap_or_else(PoisonError::into_inner);
    Kind::CUSTOM.iter().all(|kind| known.objects.contains_key(kind) || known.troubles.contains_key(kind))
}

async fn clock_difference(gatherer: &Gatherer) -> SignedDuration {
    let there = gatherer.now().await;
    let difference = there.duration_since(Timestamp::now());
    // The header has whole seconds: a smaller difference is none.
    if difference.abs() > SignedDuration::from_secs(2) { difference } else { SignedDuration::ZERO }
}

fn now(ahead: SignedDuration) -> Timestamp {
    let here = Timestamp::now();
    here.checked_add(ahead).unwrap_or(here)
}

fn world(gatherer: &Gatherer, shared: &Shared, ahead: SignedDuration) -> World {
    let known = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = World::new(gatherer.namespace(), now(ahead));
    for (kind, objects) in &known.objects {
        world.put(*kind, objects.values().cloned().collect());
    }
    for (kind, why) in &known.troubles {
        world.miss(kind.plural(), why);
    }
    world
}
