//! Installing the CustomResourceDefinitions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::client::Body;
use kube::{Client, ResourceExt};
use plimsoll_controllers::install_crds;
use serde_json::{Value, json};
use tower::service_fn;

/// An API server that establishes a definition at the second read and serves its kind at the third list, with this answer.
fn slow_server(requests: Arc<Mutex<BTreeMap<String, u32>>>, list: Value) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        let count = {
            let mut requests = requests.lock().unwrap();
            let count = requests.entry(format!("{method} {path}")).or_default();
            *count += 1;
            *count
        };
        let list = list.clone();
        async move {
            let sent = request.into_body().collect_bytes().await?;
            let (code, answer) = match (method.as_str(), path.contains("customresourcedefinitions"), count) {
                ("POST", ..) => (201, serde_json::from_slice(&sent)?),
                ("GET", true, count) => (200, definition(&path, count > 1)),
                ("GET", false, 1) => (404, status(404, "NotFound", "the server could not find the resource")),
                ("GET", false, 2) => (429, status(429, "TooManyRequests", "storage is (re)initializing")),
                _ => (list["code"].as_u64().map_or(200, |code| u16::try_from(code).unwrap_or(500)), list),
            };
            let body = Body::from(serde_json::to_vec(&answer)?);
            Ok::<_, tower::BoxError>(Response::builder().status(code).body(body)?)
        }
    });
    Client::new(service, "velero")
}

fn definition(path: &str, established: bool) -> Value {
    let name = path.rsplit('/').next().unwrap_or_default();
    let crd = plimsoll_api::crds().into_iter().find(|crd| crd.name_any() == name).unwrap();
    let mut value = serde_json::to_value(crd).unwrap();
    let state = if established { "True" } else { "False" };
    value["status"] = json!({ "conditions": [{ "type": "Established", "status": state }],
        "acceptedNames": { "kind": "", "plural": "" }, "storedVersions": [] });
    value
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message })
}

#[tokio::test(start_paused = true)]
async fn installing_ends_when_every_definition_is_established_and_served() {
    let requests = Arc::default();
    let empty = json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": [] });
    install_crds(slow_server(Arc::clone(&requests), empty)).await.unwrap();
    let requests = requests.lock().unwrap();
    for crd in plimsoll_api::crds() {
        for version in crd.spec.versions.iter().filter(|version| version.served) {
            let path = format!("GET /apis/{}/{}/{}", crd.spec.group, version.name, crd.spec.names.plural);
            assert!(requests.get(&path) >= Some(&3), "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn installing_needs_no_permission_to_list_the_kinds() {
    let refused =
        status(403, "Forbidden", "backups.velero.io is forbidden: User \"crds\" cannot list resource \"backups\"");
    install_crds(slow_server(Arc::default(), refused)).await.unwrap();
}
