//! Reading the cluster with the reader's own rights. What may not be read is said, never an error.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client};

use crate::evidence::namespaces_of;
use crate::kind::Kind;
use crate::object::Object;
use crate::transfer::Transfer;
use crate::world::World;

/// So many pods outside the server's namespace are looked at.
const MOST_PODS: usize = 40;
/// So many events of a namespace are looked at.
const MOST_EVENTS: u32 = 500;
/// So many requests at a time.
const AT_A_TIME: usize = 6;

/// Where to look.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The namespace in which the server keeps its objects.
    pub namespace: String,
}

/// Reads, and only reads.
#[derive(Clone)]
pub struct Gatherer {
    client: Client,
    scope: Scope,
}

/// What came of one list.
pub(crate) enum Found {
    Objects(Kind, Vec<Object>),
    Missing(String, String),
}

impl Gatherer {
    /// With this client, which has the reader's rights.
    pub fn new(client: Client, scope: Scope) -> Self {
        Self { client, scope }
    }

    /// Everything, once: operations and what explains them.
    pub async fn gather(&self) -> World {
        let mut world = World::new(&self.scope.namespace, self.now().await);
        let lists = stream::iter(Kind::CUSTOM).map(|kind| self.list_custom(kind)).buffer_unordered(AT_A_TIME);
        let lists: Vec<Found> = lists.collect().await;
        for found in lists {
            enter(&mut world, found);
        }
        self.evidence(&mut world).await;
        world
    }

    /// The time by the API server's clock, which is the one that the objects tell: the reader's own may differ by minutes.
    pub async fn now(&self) -> Timestamp {
        let here = Timestamp::now();
        let Ok(request) = http::Request::get("/version").body(kube::client::Body::empty()) else { return here };
        let asked = tokio::time::timeout(Duration::from_secs(10), self.client.send(request)).await;
        let Ok(Ok(response)) = asked else { return here };
        let date = response.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()).map_or(here, |date| date.timestamp())
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.scope.namespace
    }

    /// Access to a kind: actions may be in any namespace, the rest is where the server is.
    pub(crate) async fn custom(&self, kind: Kind) -> Api<DynamicObject> {
        let resource = kind.resource();
        let here = Api::namespaced_with(self.client.clone(), &self.scope.namespace, &resource);
        if kind != Kind::ActionSet {
            return here;
        }
        let everywhere: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let refused =
            matches!(&everywhere.list(&ListParams::default().limit(1)).await, Err(error) if code(error) == 403);
        if refused { here } else { everywhere }
    }

    async fn list_custom(&self, kind: Kind) -> Found {
        let api = self.custom(kind).await;
        list(&api, kind, &ListParams::default()).await
    }

    /// Reads what explains the operations in this world, and puts it in.
    pub async fn evidence(&self, world: &mut World) {
        let (open_transfers, open_actions) = (has_open_transfers(world), has_open_actions(world));
        let mut wanted: Vec<(Kind, Option<String>)> = [Kind::Deployment, Kind::DaemonSet, Kind::Pod]
            .map(|kind| (kind, Some(self.scope.namespace.clone())))
            .to_vec();
        if open_actions {
            wanted.extend([(Kind::Deployment, None), (Kind::Pod, None)]);
        }
        if open_transfers {
            wanted.push((Kind::Node, None));
        }
        let lists = stream::iter(wanted).map(|(kind, namespace)| self.list_evidence(kind, namespace));
        let lists: Vec<Found> = lists.buffered(AT_A_TIME).collect().await;
        for found in lists {
            merge(world, found);
        }
        self.namespaces(world).await;
        self.target_pods(world).await;
        self.events(world).await;
    }

    async fn list_evidence(&self, kind: Kind, namespace: Option<String>) -> Found {
        let resource = kind.resource();
        let api = match &namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        // Only what belongs to Kanister is of interest elsewhere.
        let parameters = match (kind, namespace) {
            (Kind::Pod, None) => ListParams::default().labels("createdBy=kanister"),
            _ => ListParams::default(),
        };
        list(&api, kind, &parameters).await
    }

    async fn namespaces(&self, world: &mut World) {
        let restores = world.all(Kind::Restore).iter().filter(|restore| !is_ended(restore));
        let names: BTreeSet<String> =
            restores.flat_map(|restore| namespaces_of(restore, world)).take(MOST_PODS).collect();
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &Kind::Namespace.resource());
        for name in names {
            get(&api, Kind::Namespace, &name, world, &format!("namespace {name}")).await;
        }
    }

    /// The pods whose volumes are on their way.
    async fn target_pods(&self, world: &mut World) {
        let kinds = [Kind::PodVolumeBackup, Kind::PodVolumeRestore];
        let open = kinds.iter().flat_map(|kind| world.all(*kind)).map(|object| Transfer { object });
        let pods: BTreeSet<(String, String)> = open
            .filter(|transfer| !transfer.is_ended())
            .filter_map(|transfer| transfer.pod())
            .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
            .take(MOST_PODS)
            .collect();
        for (namespace, name) in pods {
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &Kind::Pod.resource());
            get(&api, Kind::Pod, &name, world, &format!("pod {namespace}/{name}")).await;
        }
    }

    /// What was said about the pods that do not run.
    async fn events(&self, world: &mut World) {
        let waiting = |pod: &&Object| matches!(pod.text("/status/phase"), "Pending" | "Failed" | "Unknown");
        let namespaces: BTreeSet<String> =
            world.all(Kind::Pod).iter().filter(waiting).map(|pod| pod.namespace().to_owned()).collect();
        let failed = world.all(Kind::ActionSet).iter().filter(|set| set.text("/status/state") == "failed");
        let namespaces: BTreeSet<String> =
            namespaces.into_iter().chain(failed.map(|set| set.namespace().to_owned())).collect();
        for namespace in namespaces.iter().take(MOST_PODS) {
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &Kind::Event.resource());
            merge(world, list(&api, Kind::Event, &ListParams::default().limit(MOST_EVENTS)).await);
        }
    }
}

async fn list(api: &Api<DynamicObject>, kind: Kind, parameters: &ListParams) -> Found {
    match api.list(parameters).await {
        Ok(list) => Found::Objects(kind, list.items.into_iter().filter_map(|object| raw(kind, &object)).collect()),
        // A cluster that has no such kind has no such objects.
        Err(error) if code(&error) == 404 => Found::Objects(kind, Vec::new()),
        Err(error) => Found::Missing(kind.plural().to_owned(), why(&error)),
    }
}

async fn get(api: &Api<DynamicObject>, kind: Kind, name: &str, world: &mut World, what: &str) {
    match api.get_opt(name).await {
        Ok(Some(object)) => raw(kind, &object).into_iter().for_each(|object| world.add(object)),
        Ok(None) => {}
        Err(error) => world.miss(what, why(&error)),
    }
}

/// The object as JSON.
pub(crate) fn raw(kind: Kind, object: &DynamicObject) -> Option<Object> {
    serde_json::to_value(object).ok().map(|value| Object::new(kind, value))
}

fn enter(world: &mut World, found: Found) {
    match found {
        Found::Objects(kind, objects) => world.put(kind, objects),
        Found::Missing(what, why) => world.miss(what, why),
    }
}

/// Adds to what is there already.
fn merge(world: &mut World, found: Found) {
    match found {
        Found::Objects(kind, objects) if world.has_seen(kind) => {
            for object in objects {
                world.add(object);
            }
        }
        found => enter(world, found),
    }
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

/// Why something could not be read, in few words.
pub(crate) fn why(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => "forbidden to this user".to_owned(),
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

fn is_ended(object: &Object) -> bool {
    matches!(object.phase(), "Completed" | "PartiallyFailed" | "Failed" | "FailedValidation")
}

fn has_open_transfers(world: &World) -> bool {
    let kinds = [Kind::PodVolumeBackup, Kind::PodVolumeRestore, Kind::DataUpload, Kind::DataDownload];
    kinds.iter().flat_map(|kind| world.all(*kind)).any(|object| !Transfer { object }.is_ended())
}

fn has_open_actions(world: &World) -> bool {
    world.all(Kind::ActionSet).iter().any(|set| !matches!(set.text("/status/state"), "complete" | "failed"))
}
