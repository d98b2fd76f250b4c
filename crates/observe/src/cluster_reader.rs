//! Reads the cluster with the user's own rights. A resource that may not be read is recorded, never an error.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client};

use crate::cluster_state::ClusterState;
use crate::evidence::namespaces_of;
use crate::kind::Kind;
use crate::object::Object;
use crate::transfer::Transfer;

/// Pods outside the server's namespace that are read.
const MAX_PODS: usize = 40;
/// Events of a namespace that are read.
const MAX_EVENTS: u32 = 500;
/// Requests at the same time.
const MAX_CONCURRENT_REQUESTS: usize = 6;

/// The scope of a read.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The namespace in which the server keeps its objects.
    pub namespace: String,
}

/// Reads objects; never writes.
#[derive(Clone)]
pub struct ClusterReader {
    client: Client,
    scope: Scope,
}

/// The result of one list request.
pub(crate) enum ListResult {
    Objects(Kind, Vec<Object>),
    Missing(String, String),
}

impl ClusterReader {
    /// A reader with this client, which has the user's rights.
    pub fn new(client: Client, scope: Scope) -> Self {
        Self { client, scope }
    }

    /// Reads operations and evidence once.
    pub async fn read(&self) -> ClusterState {
        let mut cluster = ClusterState::new(&self.scope.namespace, self.now().await);
        let lists =
            stream::iter(Kind::CUSTOM).map(|kind| self.list_custom(kind)).buffer_unordered(MAX_CONCURRENT_REQUESTS);
        let lists: Vec<ListResult> = lists.collect().await;
        for found in lists {
            insert_list(&mut cluster, found);
        }
        self.read_evidence(&mut cluster).await;
        cluster
    }

    /// The time by the API server's clock, which set the timestamps of the objects. The local clock may differ by minutes.
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

    /// The API of a kind: ActionSets may be in any namespace, the others are in the server's.
    pub(crate) async fn api_of(&self, kind: Kind) -> Api<DynamicObject> {
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

    async fn list_custom(&self, kind: Kind) -> ListResult {
        let api = self.api_of(kind).await;
        list(&api, kind, &ListParams::default()).await
    }

    /// Reads the evidence that explains the operations of a state, and adds it.
    pub async fn read_evidence(&self, cluster: &mut ClusterState) {
        let (open_transfers, open_actions) = (has_open_transfers(cluster), has_open_actions(cluster));
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
        let lists: Vec<ListResult> = lists.buffered(MAX_CONCURRENT_REQUESTS).collect().await;
        for found in lists {
            merge_list(cluster, found);
        }
        self.read_namespaces(cluster).await;
        self.read_target_pods(cluster).await;
        self.read_events(cluster).await;
    }

    async fn list_evidence(&self, kind: Kind, namespace: Option<String>) -> ListResult {
        let resource = kind.resource();
        let api = match &namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        // Outside the server's namespace only Kanister's pods matter.
        let parameters = match (kind, namespace) {
            (Kind::Pod, None) => ListParams::default().labels("createdBy=kanister"),
            _ => ListParams::default(),
        };
        list(&api, kind, &parameters).await
    }

    async fn read_namespaces(&self, cluster: &mut ClusterState) {
        let restores = cluster.all(Kind::Restore).iter().filter(|restore| !is_ended(restore));
        let names: BTreeSet<String> =
            restores.flat_map(|restore| namespaces_of(restore, cluster)).take(MAX_PODS).collect();
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &Kind::Namespace.resource());
        for name in names {
            get(&api, Kind::Namespace, &name, cluster, &format!("namespace {name}")).await;
        }
    }

    /// Reads the pods whose volumes are being transferred.
    async fn read_target_pods(&self, cluster: &mut ClusterState) {
        let kinds = [Kind::PodVolumeBackup, Kind::PodVolumeRestore];
        let open = kinds.iter().flat_map(|kind| cluster.all(*kind)).map(|object| Transfer { object });
        let pods: BTreeSet<(String, String)> = open
            .filter(|transfer| !transfer.is_ended())
            .filter_map(|transfer| transfer.pod())
            .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
            .take(MAX_PODS)
            .collect();
        for (namespace, name) in pods {
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &Kind::Pod.resource());
            get(&api, Kind::Pod, &name, cluster, &format!("pod {namespace}/{name}")).await;
        }
    }

    /// Reads the events of namespaces with pods that do not run.
    async fn read_events(&self, cluster: &mut ClusterState) {
        let waiting = |pod: &&Object| matches!(pod.text("/status/phase"), "Pending" | "Failed" | "Unknown");
        let namespaces: BTreeSet<String> =
            cluster.all(Kind::Pod).iter().filter(waiting).map(|pod| pod.namespace().to_owned()).collect();
        let failed = cluster.all(Kind::ActionSet).iter().filter(|set| set.text("/status/state") == "failed");
        let namespaces: BTreeSet<String> =
            namespaces.into_iter().chain(failed.map(|set| set.namespace().to_owned())).collect();
        for namespace in namespaces.iter().take(MAX_PODS) {
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &Kind::Event.resource());
            merge_list(cluster, list(&api, Kind::Event, &ListParams::default().limit(MAX_EVENTS)).await);
        }
    }
}

async fn list(api: &Api<DynamicObject>, kind: Kind, parameters: &ListParams) -> ListResult {
    match api.list(parameters).await {
        Ok(list) => {
            ListResult::Objects(kind, list.items.into_iter().filter_map(|object| to_object(kind, &object)).collect())
        }
        // A cluster without the kind has no objects of it.
        Err(error) if code(&error) == 404 => ListResult::Objects(kind, Vec::new()),
        Err(error) => ListResult::Missing(kind.plural().to_owned(), describe_error(&error)),
    }
}

async fn get(api: &Api<DynamicObject>, kind: Kind, name: &str, cluster: &mut ClusterState, what: &str) {
    match api.get_opt(name).await {
        Ok(Some(object)) => to_object(kind, &object).into_iter().for_each(|object| cluster.add(object)),
        Ok(None) => {}
        Err(error) => cluster.add_unread(what, describe_error(&error)),
    }
}

/// The object as JSON.
pub(crate) fn to_object(kind: Kind, object: &DynamicObject) -> Option<Object> {
    serde_json::to_value(object).ok().map(|value| Object::new(kind, value))
}

fn insert_list(cluster: &mut ClusterState, found: ListResult) {
    match found {
        ListResult::Objects(kind, objects) => cluster.put(kind, objects),
        ListResult::Missing(what, why) => cluster.add_unread(what, why),
    }
}

/// Adds to the objects that were read before.
fn merge_list(cluster: &mut ClusterState, found: ListResult) {
    match found {
        ListResult::Objects(kind, objects) if cluster.was_read(kind) => {
            for object in objects {
                cluster.add(object);
            }
        }
        found => insert_list(cluster, found),
    }
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

/// Why a resource could not be read, in few words.
pub(crate) fn describe_error(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => "forbidden to this user".to_owned(),
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

fn is_ended(object: &Object) -> bool {
    matches!(object.phase(), "Completed" | "PartiallyFailed" | "Failed" | "FailedValidation")
}

fn has_open_transfers(cluster: &ClusterState) -> bool {
    let kinds = [Kind::PodVolumeBackup, Kind::PodVolumeRestore, Kind::DataUpload, Kind::DataDownload];
    kinds.iter().flat_map(|kind| cluster.all(*kind)).any(|object| !Transfer { object }.is_ended())
}

fn has_open_actions(cluster: &ClusterState) -> bool {
    cluster.all(Kind::ActionSet).iter().any(|set| !matches!(set.text("/status/state"), "complete" | "failed"))
}
