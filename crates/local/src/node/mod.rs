//! The node: claims become directories, workloads pods, and pods processes of this machine.
//!
//! ```text
//! a change that is_concern ──> pass: claims, workloads, pods ──> a task for each pod ──> its status
//! ```
//! A pass looks at everything and does what is missing, so a change that is seen twice, or late, does no harm.

mod claim;
mod downward_api;
mod environment;
mod namespace;
mod payload;
mod pod;
mod reference;
mod sandbox;
mod snapshot;
mod stream;
mod unavailable;
mod volume;
mod workload;

use crate::{
    Core, Error,
    delete::Propagation,
    failure::Failure,
    key::{Key, Span},
    object::{is_terminating, now, text},
    target::Query,
};
use pod::{Run, items};
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
pub const NAME: &str = "local";
/// The address of the node and of all its pods: they share this machine's network.
const ADDRESS: &str = "127.0.0.1";
/// Who makes its volumes.
const PROVISIONER: &str = "plimsoll.dev/directory";

/// What is run, and where.
pub(crate) struct Node {
    directory: PathBuf,
    /// What every container finds in its environment.
    environment: Vec<(String, String)>,
    /// By uid of the pod.
    runs: Mutex<BTreeMap<String, Arc<Run>>>,
}

fn key_of(resource: &str, object: &Value) -> Key {
    Key::new(&resource.into(), text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a change of such an object is a reason to look at everything.
fn is_concern(key: &Key) -> bool {
    let listed = ["pods", "persistentvolumeclaims", "persistentvolumes", "jobs.batch", "deployments.apps"];
    let resource = &*key.resource;
    listed.contains(&resource)
        || resource.ends_with("sets.apps")
        || snapshot::is_concern(resource)
        || namespace::is_concern(key)
}

pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Conditions that hold or not; one that stays as it was keeps its time.
fn conditions(object: &Value, states: &[(&str, bool)]) -> Value {
    let condition = |(kind, holds): &(&str, bool)| {
        let status = if *holds { "True" } else { "False" };
        let same = items(object, "/status/conditions").find(|old| old["type"] == *kind && old["status"] == status);
        same.cloned().unwrap_or_else(|| json!({"type": kind, "status": status, "lastTransitionTime": now()}))
    };
    states.iter().map(condition).collect()
}

/// Removes a directory with what is in it; what cannot be removed now is found by the next pass.
async fn remove(path: &Path) {
    if let Err(error) = tokio::fs::remove_dir_all(path).await
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot remove a directory");
    }
}

/// Starts the node over a directory, or says what the system refuses.
pub(crate) async fn start(core: &Arc<Core>, directory: &Path, environment: Vec<(String, String)>) -> Result<(), Error> {
    let pods = directory.join("pods");
    // Secrets of pods are files below.
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(pods.join("probe"));
    made.map_err(|source| Error::file(&pods, source))?;
    let plan = sandbox::Plan {
        root: pods.join("probe"),
        log: "/dev/null".into(),
        work: "/".to_owned(),
        command: vec!["true".to_owned()],
        ..sandbox::Plan::default()
    };
    sandbox::Cell::start(&plan).await.map_err(|why| Error::Sandbox(why.to_string()))?.wait().await;
    let node = Node { directory: directory.to_owned(), environment, runs: Mutex::default() };
    if core.node.set(node).is_err() {
        return Ok(());
    }
    let refused = |failure: Failure| Error::Refused(failure.message);
    for class in [claim::default_class(), snapshot::storage_class()] {
        core.make("storageclasses.storage.k8s.io", class).await.map_err(refused)?;
    }
    core.make(snapshot::CLASSES, snapshot::class()).await.map_err(refused)?;
    let labels = json!({"kubernetes.io/hostname": NAME, "kubernetes.io/os": "linux"});
    core.make("nodes", json!({"metadata": {"name": NAME, "labels": labels}})).await.map_err(refused)?;
    let mut capacity = json!({"pods": "110"});
    for resource in ["cpu", "memory"] {
        if let Some(quantity) = downward_api::allocatable(resource) {
            capacity[resource] = json!(quantity);
        }
    }
    core.alter(&key_of("nodes", &json!({"metadata": {"name": NAME}})), move |node| {
        node["status"] = json!({
            "conditions": conditions(node, &[("Ready", true)]), "capacity": capacity, "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": NAME}],
            "nodeInfo": {"kubeletVersion": concat!("plimsoll-", env!("CARGO_PKG_VERSION")), "operatingSystem": "linux",
                "architecture": std::env::consts::ARCH},
        });
    })
    .await
    .map_err(refused)?;
    // Side by side: a thousand workloads do not keep a pod from starting.
    tokio::spawn(follow(Arc::clone(core), Part::Pods));
    tokio::spawn(follow(Arc::clone(core), Part::Workloads));
    Ok(())
}

/// What a pass is about.
#[derive(Clone, Copy)]
enum Part {
    Pods,
    Workloads,
}

/// Passes, whenever something that concerns the node has changed. When the API is closed all pods end with this.
async fn follow(core: Arc<Core>, part: Part) {
    let (mut latest, mut listener) = (core.database.history.subscribe(), core.listener.subscribe());
    let mut tasks = JoinSet::new();
    loop {
        let seen = *latest.borrow_and_update();
        if seen == u64::MAX {
            return;
        }
        while tasks.try_join_next().is_some() {}
        let outcomes = match part {
            Part::Pods => {
                vec![
                    namespace::reconcile(&core).await,
                    snapshot::reconcile(&core).await,
                    claim::reconcile(&core).await,
                    core.run_pods(&mut tasks).await,
                ]
            }
            Part::Workloads => vec![workload::reconcile(&core).await],
        };
        let failed = outcomes.into_iter().find_map(Result::err);
        if let Some(failure) = &failed {
            tracing::warn!(error = failure.message, "the node will try again");
        }
        let retry = Duration::from_secs(if failed.is_some() { 1 } else { 3600 });
        let concerned = async {
            while latest.changed().await.is_ok() {
                let changes = core.database.history.after(seen, usize::MAX).unwrap_or_default();
                let closed = *latest.borrow() == u64::MAX || changes.is_empty();
                if closed || changes.iter().any(|event| is_concern(&event.key)) {
                    return;
                }
            }
        };
        // Each of them is a reason for another pass.
        tokio::select! {
            () = concerned => {}
            _ = listener.changed() => {}
            () = tokio::time::sleep(retry) => {}
        }
    }
}

impl Core {
    /// All objects of a built-in kind.
    fn all(&self, resource: &str) -> Result<Vec<Value>, Failure> {
        let rows = self.database.snapshot()?.scan(&Span::of(resource, None))?;
        rows.map(|row| Ok(serde_json::from_slice(row?.1.value())?)).collect()
    }

    /// Those in one namespace.
    fn all_in(&self, resource: &str, namespace: &str) -> Result<Vec<Value>, Failure> {
        let rows = self.database.snapshot()?.scan(&Span::of(resource, Some(namespace)))?;
        rows.map(|row| Ok(serde_json::from_slice(row?.1.value())?)).collect()
    }

    pub(crate) fn read(&self, resource: &str, namespace: &str, name: &str) -> Result<Option<Value>, Failure> {
        let stored = self.database.snapshot()?.get(&Key::new(&resource.into(), namespace, name))?;
        Ok(stored.map(|stored| serde_json::from_slice(&stored)).transpose()?)
    }

    /// Creates an object unless it is there.
    async fn make(&self, resource: &str, object: Value) -> Result<(), Failure> {
        let kind = self.registry().find_resource(resource).ok_or_else(Failure::no_such_path)?;
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        match self.create(kind, namespace, object.to_string().as_bytes(), &Query::default()).await {
            Err(failure) if failure.code != 409 => Err(failure),
            _ => Ok(()),
        }
    }

    async fn remove(&self, key: &Key, object: &Value) -> Result<(), Failure> {
        self.delete_quietly(key, text(object, "/metadata/uid"), Propagation::Background).await
    }

    /// An event about a pod; said once.
    async fn tell(&self, pod: &Value, refusal: &Failure) {
        let metadata = &pod["metadata"];
        let reason = if refusal.reason == "ContainerCreating" { "FailedMount" } else { "Failed" };
        let name =
            format!("{}.{}", text(pod, "/metadata/name"), workload::hash(&json!([metadata["uid"], refusal.message])));
        let event = json!({
            "metadata": {"name": name, "namespace": metadata["namespace"]}, "type": "Warning",
            "reason": reason, "message": refusal.message, "source": {"component": NAME}, "count": 1,
            "firstTimestamp": now(), "lastTimestamp": now(),
            "involvedObject": {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"],
                "namespace": metadata["namespace"], "uid": metadata["uid"]},
        });
        if let Err(failure) = self.make("events", event).await {
            tracing::debug!(error = failure.message, "an event was refused");
        }
    }

    /// Starts the pods that are due, ends those that are to go, and forgets those that are gone.
    async fn run_pods(self: &Arc<Self>, tasks: &mut JoinSet<()>) -> Result<(), Failure> {
        let Some(node) = self.node.get() else { return Ok(()) };
        let pods = self.all("pods")?;
        for pod in &pods {
            let (key, uid) = (key_of("pods", pod), text(pod, "/metadata/uid"));
            let run = lock(&node.runs).get(uid).cloned();
            match (run, text(pod, "/spec/nodeName")) {
                (None, "") if !is_terminating(pod) => {
                    self.alter(&key, |pod| pod["spec"]["nodeName"] = json!(NAME)).await?;
                }
                (Some(run), _) if is_terminating(pod) => {
                    run.stop(pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or_default());
                }
                (None, NAME) if is_terminating(pod) => self.clear(&key, uid).await,
                (None, NAME) if !is_finished(pod) => {
                    let run = Arc::new(Run::new(self, key, pod, node.directory.join("pods").join(uid)));
                    lock(&node.runs).insert(uid.to_owned(), Arc::clone(&run));
                    tasks.spawn(Arc::clone(self).see_through(run, uid.to_owned()));
                }
                _ => {}
            }
        }
        let there: HashSet<&str> = pods.iter().map(|pod| text(pod, "/metadata/uid")).collect();
        lock(&node.runs).iter().filter(|(uid, _)| !there.contains(uid.as_str())).for_each(|(_, run)| run.stop(0));
        for left in node.directory.join("pods").read_dir().into_iter().flatten().flatten() {
            let uid = left.file_name().to_string_lossy().into_owned();
            let known = there.contains(uid.as_str()) || lock(&node.runs).contains_key(&uid);
            if !known {
                remove(&left.path()).await;
            }
        }
        Ok(())
    }

    async fn see_through(self: Arc<Self>, run: Arc<Run>, uid: String) {
        let stopped = run.run().await;
        if stopped {
            self.clear(&run.key, &uid).await;
        }
        self.node.get().map(|node| lock(&node.runs).remove(&uid));
    }

    /// Nothing of this pod runs any more: its directory goes, and if it waits for that, so does the object.
    async fn clear(&self, key: &Key, uid: &str) {
        if let Some(node) = self.node.get() {
            remove(&node.directory.join("pods").join(uid)).await;
        }
        let uid = uid.to_owned();
        let release = move |pod: &mut Value| {
            if text(pod, "/metadata/uid") == uid && is_terminating(pod) {
                pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            }
        };
        if let Err(failure) = self.alter(key, release).await {
            tracing::warn!(pod = key.name, error = failure.message, "cannot let go of a pod");
        }
    }
}
