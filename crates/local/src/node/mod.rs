//! The embedded node: volumes are directories, and pods are processes of this machine.
//!
//! ```text
//! relevant change ──> reconcile claims, workloads, pods ──> a task for each pod ──> its status
//! ```
//! Each reconciliation reads all objects, so it is idempotent and needs no single change.

mod claim;
mod config_source;
mod downward_api;
mod environment;
mod log;
mod namespace;
mod payload;
mod pod;
mod sandbox;
mod snapshot;
mod stream;
mod unavailable;
mod volume;
mod workload;

use crate::{
    Core, Error,
    delete::Propagation,
    key::{Key, KeyRange},
    object::{is_terminating, now, text},
    request::Query,
    status_error::StatusError,
};
use pod::{PodRunner, items};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashSet},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::task::JoinSet;

/// The name of the one node.
pub const NODE_NAME: &str = "local";
/// The address of the node and of all its pods: they share this machine's network.
const NODE_ADDRESS: &str = "127.0.0.1";
/// The provisioner of its volumes.
const PROVISIONER: &str = "plimsoll.dev/directory";

/// The state of the node.
pub(crate) struct Node {
    directory: PathBuf,
    /// Variables that every container gets.
    environment: Vec<(String, String)>,
    /// By uid of the pod.
    runners: Mutex<BTreeMap<String, Arc<PodRunner>>>,
}

fn key_of(resource: &str, object: &Value) -> Key {
    Key::new(&resource.into(), text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a change of this object requires a reconciliation.
fn is_relevant(key: &Key) -> bool {
    let listed = ["pods", "persistentvolumeclaims", "persistentvolumes", "jobs.batch", "deployments.apps"];
    let resource = &*key.resource;
    listed.contains(&resource)
        || resource.ends_with("sets.apps")
        || snapshot::is_relevant(resource)
        || namespace::is_relevant(key)
}

pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Conditions with a status; an unchanged one keeps its transition time.
fn conditions(object: &Value, states: &[(&str, bool)]) -> Value {
    let condition = |(kind, is_true): &(&str, bool)| {
        let status = if *is_true { "True" } else { "False" };
        let same = items(object, "/status/conditions").find(|old| old["type"] == *kind && old["status"] == status);
        same.cloned().unwrap_or_else(|| json!({"type": kind, "status": status, "lastTransitionTime": now()}))
    };
    states.iter().map(condition).collect()
}

/// Removes a directory recursively; the next reconciliation retries what cannot be removed.
async fn remove_directory(path: &Path) {
    if let Err(error) = tokio::fs::remove_dir_all(path).await
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot remove a directory");
    }
}

/// Starts the node with a data directory.
pub(crate) async fn start(core: &Arc<Core>, directory: &Path, environment: Vec<(String, String)>) -> Result<(), Error> {
    let pods = directory.join("pods");
    // Secrets of pods are files below.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(pods.join("probe"));
    made.map_err(|source| Error::file(&pods, source))?;
    let config = sandbox::SandboxConfig {
        root: pods.join("probe"),
        log: "/dev/null".into(),
        working_directory: "/".to_owned(),
        command: vec!["true".to_owned()],
        ..sandbox::SandboxConfig::default()
    };
    sandbox::Sandbox::start(&config).await.map_err(|error| Error::Sandbox(error.to_string()))?.wait().await;
    let node = Node { directory: directory.to_owned(), environment, runners: Mutex::default() };
    if core.node.set(node).is_err() {
        return Ok(());
    }
    let setup_error = |failure: StatusError| Error::Setup(failure.message);
    for class in [claim::default_storage_class(), snapshot::storage_class()] {
        core.create_if_absent("storageclasses.storage.k8s.io", class).await.map_err(setup_error)?;
    }
    core.create_if_absent(snapshot::CLASSES, snapshot::snapshot_class()).await.map_err(setup_error)?;
    let labels = json!({"kubernetes.io/hostname": NODE_NAME, "kubernetes.io/os": "linux"});
    core.create_if_absent("nodes", json!({"metadata": {"name": NODE_NAME, "labels": labels}}))
        .await
        .map_err(setup_error)?;
    let mut capacity = json!({"pods": "110"});
    for resource in ["cpu", "memory"] {
        if let Some(quantity) = downward_api::allocatable(resource) {
            capacity[resource] = json!(quantity);
        }
    }
    core.modify(&key_of("nodes", &json!({"metadata": {"name": NODE_NAME}})), move |node| {
        node["status"] = json!({
            "conditions": conditions(node, &[("Ready", true)]), "capacity": capacity, "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": NODE_ADDRESS}, {"type": "Hostname", "address": NODE_NAME}],
            "nodeInfo": {"kubeletVersion": concat!("plimsoll-", env!("CARGO_PKG_VERSION")), "operatingSystem": "linux",
                "architecture": std::env::consts::ARCH},
        });
    })
    .await
    .map_err(setup_error)?;
    // In parallel: a thousand workloads must not delay the start of a pod.
    tokio::spawn(run_reconcile_loop(Arc::clone(core), ReconcileScope::Pods));
    tokio::spawn(run_reconcile_loop(Arc::clone(core), ReconcileScope::Workloads));
    Ok(())
}

/// The objects that a loop reconciles.
#[derive(Clone, Copy)]
enum ReconcileScope {
    Pods,
    Workloads,
}

/// Reconciles after each relevant change. When the API is closed, this returns and all pods end.
async fn run_reconcile_loop(core: Arc<Core>, scope: ReconcileScope) {
    let (mut latest, mut endpoint) = (core.database.history.subscribe(), core.endpoint.subscribe());
    let mut tasks = JoinSet::new();
    loop {
        let seen = *latest.borrow_and_update();
        if seen == u64::MAX {
            return;
        }
        while tasks.try_join_next().is_some() {}
        let outcomes = match scope {
            ReconcileScope::Pods => {
                vec![
                    namespace::reconcile(&core).await,
                    snapshot::reconcile(&core).await,
                    claim::reconcile(&core).await,
                    core.run_pods(&mut tasks).await,
                ]
            }
            ReconcileScope::Workloads => vec![workload::reconcile(&core).await],
        };
        let failed = outcomes.into_iter().find_map(Result::err);
        if let Some(failure) = &failed {
            tracing::warn!(error = failure.message, "reconciliation of the node failed; retrying");
        }
        let retry = Duration::from_secs(if failed.is_some() { 1 } else { 3600 });
        let relevant_change = async {
            while latest.changed().await.is_ok() {
                let changes = core.database.history.after(seen, usize::MAX).unwrap_or_default();
                let closed = *latest.borrow() == u64::MAX || changes.is_empty();
                if closed || changes.iter().any(|event| is_relevant(&event.key)) {
                    return;
                }
            }
        };
        // Each of them requires another reconciliation.
        tokio::select! {
            () = relevant_change => {}
            _ = endpoint.changed() => {}
            () = tokio::time::sleep(retry) => {}
        }
    }
}

impl Core {
    /// All objects of a built-in kind.
    fn list_all(&self, resource: &str) -> Result<Vec<Value>, StatusError> {
        let rows = self.database.snapshot()?.scan(&KeyRange::of(resource, None))?;
        rows.map(|row| Ok(serde_json::from_slice(row?.1.value())?)).collect()
    }

    /// The objects of a built-in kind in one namespace.
    fn list_in(&self, resource: &str, namespace: &str) -> Result<Vec<Value>, StatusError> {
        let rows = self.database.snapshot()?.scan(&KeyRange::of(resource, Some(namespace)))?;
        rows.map(|row| Ok(serde_json::from_slice(row?.1.value())?)).collect()
    }

    pub(crate) fn read_object(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, StatusError> {
        let stored = self.database.snapshot()?.get(&Key::new(&resource.into(), namespace, name))?;
        Ok(stored.map(|stored| serde_json::from_slice(&stored)).transpose()?)
    }

    /// Creates an object unless it exists.
    async fn create_if_absent(&self, resource: &str, object: Value) -> Result<(), StatusError> {
        let kind = self.registry().find_resource(resource).ok_or_else(StatusError::unknown_path)?;
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        match self.create(kind, namespace, object.to_string().as_bytes(), &Query::default()).await {
            Err(failure) if failure.code != 409 => Err(failure),
            _ => Ok(()),
        }
    }

    async fn delete_exact(&self, key: &Key, object: &Value) -> Result<(), StatusError> {
        self.delete_if_present(key, text(object, "/metadata/uid"), Propagation::Background).await
    }

    /// Records an event about a pod, once for each message.
    async fn record_event(&self, pod: &Value, error: &StatusError) {
        let metadata = &pod["metadata"];
        let reason = if error.reason == "ContainerCreating" { "FailedMount" } else { "Failed" };
        let name =
            format!("{}.{}", text(pod, "/metadata/name"), workload::hash(&json!([metadata["uid"], error.message])));
        let event = json!({
            "metadata": {"name": name, "namespace": metadata["namespace"]}, "type": "Warning",
            "reason": reason, "message": error.message, "source": {"component": NODE_NAME}, "count": 1,
            "firstTimestamp": now(), "lastTimestamp": now(),
            "involvedObject": {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"],
                "namespace": metadata["namespace"], "uid": metadata["uid"]},
        });
        if let Err(failure) = self.create_if_absent("events", event).await {
            tracing::debug!(error = failure.message, "cannot create an event");
        }
    }

    /// Starts new pods, stops terminating ones, and removes the directories of deleted ones.
    async fn run_pods(self: &Arc<Self>, tasks: &mut JoinSet<()>) -> Result<(), StatusError> {
        let Some(node) = self.node.get() else { return Ok(()) };
        let pods = self.list_all("pods")?;
        for pod in &pods {
            let (key, uid) = (key_of("pods", pod), text(pod, "/metadata/uid"));
            let runner = lock(&node.runners).get(uid).cloned();
            match (runner, text(pod, "/spec/nodeName")) {
                (None, "") if !is_terminating(pod) => {
                    self.modify(&key, |pod| pod["spec"]["nodeName"] = json!(NODE_NAME)).await?;
                }
                (Some(runner), _) if is_terminating(pod) => {
                    runner.stop(pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or_default());
                }
                (None, NODE_NAME) if is_terminating(pod) => self.clean_up_pod(&key, uid).await,
                (None, NODE_NAME) if !is_finished(pod) => {
                    // The pod may have finished after it was listed; its runner removes itself after it wrote the status.
                    let Some(pod) = self.current_pod(pod)?.filter(|pod| !is_finished(pod)) else { continue };
                    let runner = Arc::new(PodRunner::new(self, key, &pod, node.directory.join("pods").join(uid)));
                    lock(&node.runners).insert(uid.to_owned(), Arc::clone(&runner));
                    tasks.spawn(Arc::clone(self).run_pod(runner, uid.to_owned()));
                }
                _ => {}
            }
        }
        let existing: HashSet<&str> = pods.iter().map(|pod| text(pod, "/metadata/uid")).collect();
        lock(&node.runners)
            .iter()
            .filter(|(uid, _)| !existing.contains(uid.as_str()))
            .for_each(|(_, runner)| runner.stop(0));
        for directory in node.directory.join("pods").read_dir().into_iter().flatten().flatten() {
            let uid = directory.file_name().to_string_lossy().into_owned();
            let is_known = existing.contains(uid.as_str()) || lock(&node.runners).contains_key(&uid);
            if !is_known {
                remove_directory(&directory.path()).await;
            }
        }
        Ok(())
    }

    async fn run_pod(self: Arc<Self>, runner: Arc<PodRunner>, uid: String) {
        let was_stopped = runner.run().await;
        if was_stopped {
            self.clean_up_pod(&runner.key, &uid).await;
        }
        self.node.get().map(|node| lock(&node.runners).remove(&uid));
        // A deletion that arrived after the last container ended has only stopped the runner.
        let is_deleted = |pod: &Value| text(pod, "/metadata/uid") == uid && is_terminating(pod);
        let stored = self.read_object("pods", &runner.key.namespace, &runner.key.name).ok().flatten();
        if !was_stopped && stored.is_some_and(|pod| is_deleted(&pod)) {
            self.clean_up_pod(&runner.key, &uid).await;
        }
    }

    /// The pod as it is stored now, unless it was deleted.
    fn current_pod(&self, pod: &Value) -> Result<Option<Value>, StatusError> {
        let stored = self.read_object("pods", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"))?;
        Ok(stored.filter(|stored| stored["metadata"]["uid"] == pod["metadata"]["uid"]))
    }

    /// Removes the directory of a stopped pod and, if the pod is terminating, the object.
    async fn clean_up_pod(&self, key: &Key, uid: &str) {
        if let Some(node) = self.node.get() {
            remove_directory(&node.directory.join("pods").join(uid)).await;
        }
        let uid = uid.to_owned();
        let end_grace_period = move |pod: &mut Value| {
            if text(pod, "/metadata/uid") == uid && is_terminating(pod) {
                pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            }
        };
        if let Err(failure) = self.modify(key, end_grace_period).await {
            tracing::warn!(pod = key.name, error = failure.message, "cannot remove a terminated pod");
        }
    }
}
