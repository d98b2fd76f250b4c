//! The standard load of the benchmarks: many small objects in many namespaces.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::wait;

/// The label that all objects of the load carry.
pub const LABEL: &str = "plimsoll.test/load";

const KINDS: [(&str, &str, usize); 6] = [
    ("/api/v1", "configmaps", 40),
    ("/api/v1", "secrets", 20),
    ("/api/v1", "serviceaccounts", 10),
    ("/apis/apps/v1", "deployments", 10),
    ("/apis/rbac.authorization.k8s.io/v1", "roles", 10),
    ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", 10),
];

/// A number of namespaces with a hundred objects each.
#[derive(Debug, Clone)]
pub struct Load {
    prefix: String,
    namespaces: usize,
}

/// A number of objects and the time for them.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Objects.
    pub count: usize,
    /// The time they took.
    pub time: Duration,
}

impl Rate {
    /// Objects a second.
    #[expect(clippy::cast_precision_loss, reason = "a benchmark's counts are small")]
    pub fn per_second(self) -> f64 {
        self.count as f64 / self.time.as_secs_f64()
    }
}

impl Load {
    /// The standard load has 100 namespaces; tests use fewer.
    pub fn new(prefix: impl Into<String>, namespaces: usize) -> Self {
        Self { prefix: prefix.into(), namespaces }
    }

    /// The names of its namespaces.
    pub fn namespaces(&self) -> Vec<String> {
        (0..self.namespaces).map(|number| format!("{}-{number:03}", self.prefix)).collect()
    }

    /// Creates everything with this number of concurrent requests. The namespaces themselves are not counted.
    pub async fn create(&self, client: &Client, clients: usize) -> Result<Rate> {
        for name in self.namespaces() {
            let body = json!({"metadata": {"name": name, "labels": {LABEL: self.prefix}}});
            post(client, "/api/v1/namespaces".into(), &body).await?;
        }
        let work: Vec<(String, Value)> =
            self.namespaces().iter().flat_map(|namespace| self.objects(namespace)).collect();
        let (work, next) = (Arc::new(work), Arc::new(AtomicUsize::new(0)));
        let started = Instant::now();
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..clients {
            let (client, work, next) = (client.clone(), Arc::clone(&work), Arc::clone(&next));
            workers.spawn(async move {
                while let Some((path, body)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    post(&client, path.clone(), body).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(worker) = workers.join_next().await {
            worker??;
        }
        Ok(Rate { count: work.len(), time: started.elapsed() })
    }

    /// Adds a second field manager to every object, which a restore has to write separately.
    pub async fn add_second_field_manager(&self, client: &Client, clients: usize) -> Result<()> {
        let paths: Vec<String> =
            self.namespaces().iter().flat_map(|namespace| self.objects(namespace)).map(path_of).collect();
        let work = futures::stream::iter(paths).map(|path| async move {
            let body = json!({"metadata": {"annotations": {"plimsoll.test/owner": "second"}}});
            let request = Request::patch(format!("{path}?fieldManager=second"))
                .header("content-type", "application/merge-patch+json")
                .body(serde_json::to_vec(&body)?)?;
            client.request::<Value>(request).await.with_context(|| format!("failed to change {path}"))?;
            anyhow::Ok(())
        });
        work.buffer_unordered(clients).try_collect().await
    }

    /// Lists all objects of these kinds in the whole cluster, 500 at a time, one request after the other.
    pub async fn list(client: &Client) -> Result<Rate> {
        let (started, mut count) = (Instant::now(), 0);
        for (group, resource, _) in KINDS {
            let mut token = String::new();
            loop {
                let path = format!("{group}/{resource}?limit=500&labelSelector={LABEL}&continue={token}");
                let page: Value = client.request(Request::get(path).body(Vec::new())?).await?;
                count += page["items"].as_array().context("a list without items")?.len();
                page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
                if token.is_empty() {
                    break;
                }
            }
        }
        Ok(Rate { count, time: started.elapsed() })
    }

    /// Deletes everything and waits until it is deleted.
    pub async fn delete(&self, client: &Client) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        for name in self.namespaces() {
            let _ = namespaces.delete(&name, &DeleteParams::default()).await;
        }
        let ours = ListParams::default().labels(&format!("{LABEL}={}", self.prefix));
        let gone = || async { namespaces.list(&ours).await.map(|left| left.items.is_empty().then_some(())) };
        wait::until("the load's namespaces to go", Duration::from_mins(10), gone).await
    }

    fn objects(&self, namespace: &str) -> Vec<(String, Value)> {
        let object = |group: &str, resource: &str, number: usize| {
            let mut body = content(resource, number);
            body["metadata"] = json!({
                "name": format!("{}-{number:02}", resource.trim_end_matches('s')),
                "labels": {LABEL: self.prefix, "app": format!("app-{}", number % 5)},
            });
            (format!("{group}/namespaces/{namespace}/{resource}"), body)
        };
        KINDS.iter().flat_map(|(group, resource, count)| (0..*count).map(move |n| object(group, resource, n))).collect()
    }
}

fn path_of((collection, body): (String, Value)) -> String {
    format!("{collection}/{}", body["metadata"]["name"].as_str().unwrap_or_default())
}

fn content(resource: &str, number: usize) -> Value {
    match resource {
        "configmaps" => json!({"data": {"settings": "key: value # padding\n".repeat(115)}}),
        "secrets" => json!({"stringData": {"password": format!("not so secret {number}")}}),
        "deployments" => {
            let labels = json!({"app": format!("deployment-{number}")});
            let container = json!({"name": "main", "image": crate::image::BUSYBOX, "command": ["sleep", "3600"]});
            let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
            json!({"spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}})
        }
        "roles" => json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]}),
        "rolebindings" => json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("role-{number:02}")},
            "subjects": [{"kind": "ServiceAccount", "name": format!("serviceaccount-{number:02}")}],
        }),
        _ => json!({}),
    }
}

async fn post(client: &Client, path: String, body: &Value) -> Result<()> {
    let request = Request::post(&path).header("content-type", "application/json").body(serde_json::to_vec(body)?)?;
    client
        .request::<Value>(request)
        .await
        .with_context(|| format!("failed to create {} in {path}", body["metadata"]["name"]))?;
    Ok(())
}
