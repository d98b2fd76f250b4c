//! The embedded cluster with a dashboard, and a connection to a browser that can be cut.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plimsoll_local::fixtures::open_api;
use plimsoll_observe::Kind;
use plimsoll_progress::Trees;
use plimsoll_progress_stream::{AccessToken, LeaderClient};
use plimsoll_serve::{Dashboard, DashboardSettings, RunningDashboard};
use plimsoll_testkit::Stopwatch;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub const NAMESPACE: &str = "velero";

pub struct TestBed {
    pub client: Client,
    pub trees: Trees,
    pub transfers: Trees,
    pub token: AccessToken,
    pub dashboard: RunningDashboard,
    api: plimsoll_local::Api,
    _directory: TempDir,
}

/// Its run is always two hours ago: no object can be created in the past.
pub const LATE: &str = "0 3 * * *";

/// Runs every hour.
fn next_run(cron: &str, after: Timestamp) -> Option<Timestamp> {
    if cron == LATE {
        return Some(Timestamp::now() - Duration::from_hours(2));
    }
    let second = after.as_second();
    Timestamp::from_second(second - second.rem_euclid(3600) + 3600).ok()
}

fn settings(token: &AccessToken, allow_changes: bool) -> DashboardSettings {
    DashboardSettings {
        address: ([127, 0, 0, 1], 0).into(),
        token: token.clone().into(),
        open_metrics: true,
        allow_changes,
        namespace: NAMESPACE.to_owned(),
        next_run,
    }
}

impl TestBed {
    pub async fn new(allow_changes: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let api = open_api(directory.path(), plimsoll_api::crds(), &[NAMESPACE]).await;
        let client = api.client(NAMESPACE);
        let (trees, transfers, token) = (Trees::default(), Trees::default(), AccessToken::generate());
        let dashboard = Dashboard::new(client.clone(), settings(&token, allow_changes));
        let dashboard =
            dashboard.with_trees(trees.clone()).with_transfer_trees(transfers.clone()).listen().await.unwrap();
        Self { client, trees, transfers, token, dashboard, api, _directory: directory }
    }

    /// A dashboard that forwards to this one, as `plimsoll ui` does; and its token.
    pub async fn ui(&self, allow_changes: bool) -> (RunningDashboard, AccessToken) {
        let service = json!({ "metadata": { "name": "plimsoll", "namespace": NAMESPACE },
            "spec": { "ports": [{ "name": "dashboard", "port": 8086 }] } });
        let services: Api<Service> = Api::namespaced(self.client.clone(), NAMESPACE);
        let _ = services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await;
        let leader = LeaderClient::find(&self.proxying(), NAMESPACE, Some(self.token.clone())).await.unwrap();
        let token = AccessToken::generate();
        let dashboard = Dashboard::new(self.client.clone(), settings(&token, allow_changes)).with_leader(leader);
        (dashboard.listen().await.unwrap(), token)
    }

    /// A client of an API server whose service proxy reaches this dashboard.
    fn proxying(&self) -> Client {
        const PROXY: &str = "/services/http:plimsoll:dashboard/proxy";
        let (api, address) = (self.api.clone(), self.dashboard.address);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let api = api.clone();
            async move {
                let path = request.uri().path_and_query().unwrap().as_str().to_owned();
                let Some((_, path)) = path.split_once(PROXY) else {
                    return Ok::<_, Infallible>(api.handle(request).await);
                };
                let asked = reqwest::Client::new().request(request.method().clone(), format!("http://{address}{path}"));
                let answer = asked.headers(request.headers().clone()).send().await.unwrap();
                let mut response = Response::builder().status(answer.status());
                response.headers_mut().unwrap().extend(answer.headers().clone());
                let body = Full::new(answer.bytes().await.unwrap()).map_err(|never| match never {}).boxed_unsync();
                Ok(response.body(body).unwrap())
            }
        });
        Client::new(service, NAMESPACE)
    }

    fn resource(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, &kind.resource())
    }

    /// Creates an object; returns its uid.
    pub async fn create(&self, kind: Kind, value: Value) -> String {
        let mut wanted = object(value);
        wanted.types =
            Some(kube::core::TypeMeta { api_version: kind.resource().api_version, kind: kind.resource().kind });
        self.resource(kind).create(&PostParams::default(), &wanted).await.unwrap().metadata.uid.unwrap()
    }

    /// Sets the status of an object that has a status subresource.
    pub async fn set_status(&self, kind: Kind, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.resource(kind).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Changes an object.
    pub async fn patch(&self, kind: Kind, name: &str, patch: Value) {
        self.resource(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// A dashboard of a user who may not read one of the kinds; and its token.
    pub async fn without_right_to(&self, plural: &'static str) -> (RunningDashboard, AccessToken) {
        let api = self.api.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let api = api.clone();
            async move {
                if !request.uri().path().ends_with(plural) {
                    return Ok::<_, Infallible>(api.handle(request).await);
                }
                let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
                    "code": 403, "message": "no", "metadata": {} });
                let body = Full::new(status.to_string().into()).map_err(|never| match never {}).boxed_unsync();
                Ok(Response::builder().status(403).body(body).unwrap())
            }
        });
        let token = AccessToken::generate();
        let dashboard = Dashboard::new(Client::new(service, NAMESPACE), settings(&token, false));
        (dashboard.listen().await.unwrap(), token)
    }

    pub async fn names(&self, kind: Kind) -> Vec<String> {
        let all = self.resource(kind).list(&kube::api::ListParams::default()).await.unwrap();
        all.items.into_iter().filter_map(|object| object.metadata.name).collect()
    }

    pub async fn get(&self, kind: Kind, name: &str) -> Value {
        serde_json::to_value(self.resource(kind).get(name).await.unwrap()).unwrap()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.dashboard.address)
    }
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

/// A connection that can be cut and restored.
pub struct Wire {
    pub address: SocketAddr,
    open: Arc<Mutex<(bool, JoinSet<()>)>>,
}

impl Wire {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(Mutex::new((true, JoinSet::new())));
        let held = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                let mut held = held.lock().unwrap();
                if held.0 {
                    held.1.spawn(async move {
                        let Ok(mut there) = TcpStream::connect(target).await else { return };
                        let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
                    });
                }
            }
        });
        Self { address, open }
    }

    pub fn cut(&self) {
        let mut open = self.open.lock().unwrap();
        open.0 = false;
        open.1.abort_all();
    }

    pub fn restore(&self) {
        self.open.lock().unwrap().0 = true;
    }
}

/// Waits for a condition.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let (begun, limit) = (Stopwatch::start(), Duration::from_mins(1));
    while begun.elapsed() < limit {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within {limit:?}: {what}");
}
