//! An in-process cluster with a pod, the directory of its volume, and agents whose movers do what a script says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use plimsoll_agent::{Agent, AgentSettings};
use plimsoll_api::velero::v1::{BackupStorageLocation, PodVolumeBackup};
use plimsoll_engine::Error;
use plimsoll_local::fixtures::open_api;
use plimsoll_mover::{BackupOutcome, MoverCommand, MoverError, Outcome};
use plimsoll_progress::{Clock, Frame, Operation, Total, Trees, Unit};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub const NAMESPACE: &str = "velero";
/// The namespace of the pod.
pub const SHOP: &str = "shop";
pub const NODE: &str = "node-1";
const EVENTUALLY_TIMEOUT: Duration = Duration::from_mins(1);

/// What a mover does after it has read its job. It runs in the directory of the test bed, beside the files that
/// [`TestBed::new`] writes.
pub mod script {
    /// Reports 3 of 10 bytes, and succeeds once the test has created the file `go`.
    pub const WAIT_FOR_GO: &str = "cat frame; until [ -e go ]; do sleep 0.02; done; cat backed-up";
    /// The same, but the transfer `other` need not wait.
    pub const WAIT_FOR_GO_UNLESS_OTHER: &str = r#"case "$job" in
        *'"name":"other"'*) ;; *) until [ -e go ]; do sleep 0.02; done;; esac; cat backed-up"#;
    /// Reports 3 of 10 bytes, and ends when it is cancelled.
    pub const WAIT_FOR_CANCEL: &str = "cat frame; read cancel; exit 1";
    /// Is killed the first time.
    pub const CRASH_ONCE: &str = "[ -e crashed ] || { touch crashed; kill -9 $$; }; cat backed-up";
    /// Cannot open the repository.
    pub const FAIL: &str = "cat wrong-password; exit 1";
}

/// A running agent.
pub struct RunningAgent {
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl RunningAgent {
    /// Stops it, as the end of its pod does.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

pub struct TestBed {
    pub client: Client,
    pub pod: Pod,
    directory: TempDir,
}

impl TestBed {
    /// A cluster with the pod `shop/db` on [`NODE`], its volume `data`, a location and the password of its repositories.
    pub async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let api = open_api(&directory.path().join("cluster"), plimsoll_api::crds(), &[NAMESPACE, SHOP]).await;
        let client = api.client(NAMESPACE);
        let location = json!({ "metadata": { "name": "default" }, "spec": { "provider": "directory",
            "objectStorage": { "bucket": directory.path().join("bucket") } } });
        create(&Api::<BackupStorageLocation>::namespaced(client.clone(), NAMESPACE), location).await;
        let password =
            json!({ "metadata": { "name": "velero-repo-credentials" }, "stringData": { "repository-password": "p" } });
        create(&Api::<Secret>::namespaced(client.clone(), NAMESPACE), password).await;
        let pod = json!({ "metadata": { "name": "db" }, "spec": { "nodeName": NODE,
            "volumes": [{ "name": "data", "emptyDir": {} }],
            "initContainers": [{ "name": "restore-wait", "image": "any", "args": ["restore-uid"],
                "volumeMounts": [{ "name": "data", "mountPath": "/restores/data" }] }],
            "containers": [{ "name": "main", "image": "any" }] } });
        let pod = create(&Api::<Pod>::namespaced(client.clone(), SHOP), pod).await;
        let bed = Self { client, pod, directory };
        std::fs::create_dir_all(bed.volume()).unwrap();
        bed.write("frame", &json!(frame()));
        bed.write("backed-up", &json!({ "outcome": backup_outcome() }));
        bed.write("restored", &json!({ "outcome": Outcome::Restore(plimsoll_mover::RestoreOutcome::default()) }));
        let error = MoverError::WrongPassword { repository: "the repository".into() };
        bed.write("wrong-password", &json!({ "error": error }));
        bed
    }

    /// Starts an agent of [`NODE`].
    pub fn start(&self, identity: &str, script: &str) -> RunningAgent {
        self.start_with(identity, script, |_| {})
    }

    /// The same with other settings.
    pub fn start_with(&self, identity: &str, script: &str, change: impl FnOnce(&mut AgentSettings)) -> RunningAgent {
        let line = format!(
            "cd {}; read -r job; printf '%s\n' \"$job\" > job.$$; mv job.$$ job; {script}",
            self.directory.path().display()
        );
        let mut settings = AgentSettings {
            memory: None,
            namespace: NAMESPACE.to_owned(),
            node: NODE.to_owned(),
            identity: identity.to_owned(),
            pods_directory: self.path("pods"),
            concurrency: 4,
            progress_interval: Duration::from_secs(1),
            cache: None,
            cache_limit: 0,
            launch: MoverCommand { program: "sh".into(), arguments: vec!["-c".into(), line.into()] },
            restic: None,
            kopia: None,
            trees: Trees::default(),
            progress_address: None,
        };
        change(&mut settings);
        let stop = CancellationToken::new();
        let task = tokio::spawn(Agent::new(self.client.clone(), settings).run(stop.clone()));
        RunningAgent { stop, task }
    }

    /// A file or directory beside the cluster's.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// One line of JSON, as movers write it.
    fn write(&self, name: &str, line: &Value) {
        std::fs::write(self.path(name), format!("{line}\n")).unwrap();
    }

    /// Lets the movers that wait for it go on.
    pub fn let_movers_go_on(&self) {
        std::fs::write(self.path("go"), "").unwrap();
    }

    /// The job that the last mover read.
    pub fn job(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("job")).unwrap()).unwrap()
    }

    /// The directory of the pod's volume on its node.
    pub fn volume(&self) -> PathBuf {
        self.path("pods").join(self.pod.uid().unwrap()).join("volumes/kubernetes.io~empty-dir/data")
    }

    pub fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates a PodVolumeBackup of the pod's volume; `more` is merged into it.
    pub async fn back_up(&self, name: &str, more: Value) {
        let mut object = json!({ "metadata": { "name": name }, "spec": { "node": NODE, "volume": "data",
            "pod": { "kind": "Pod", "namespace": SHOP, "name": "db", "uid": self.pod.uid() },
            "backupStorageLocation": "default", "repoIdentifier": "", "uploaderType": "restic" } });
        json_patch::merge(&mut object, &more);
        create(&self.api::<PodVolumeBackup>(), object).await;
    }

    /// A transfer once it fits.
    pub async fn transfer<K>(&self, name: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
        K: DeserializeOwned + serde::Serialize,
    {
        let api = self.api::<K>();
        eventually(&format!("{name} {what}"), async || {
            let object = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
            if fits(&object) { Ok(object) } else { Err(object) }
        })
        .await
    }

    /// A transfer once it has a phase.
    pub async fn in_phase<K>(&self, name: &str, phase: &str) -> Value
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
        K: DeserializeOwned + serde::Serialize,
    {
        self.transfer::<K>(name, &format!("is {phase}"), |object| object["status"]["phase"] == phase).await
    }

    /// Changes the status of the pod, as its kubelet does.
    pub async fn set_pod_status(&self, status: Value) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), SHOP);
        let patch = Patch::Merge(json!({ "status": status }));
        pods.patch_status("db", &PatchParams::default(), &patch).await.unwrap();
    }
}

pub async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

/// 3 of 10 bytes.
fn frame() -> Frame {
    let operation = Operation::new("mover", Clock::system());
    let bytes = operation.root().meter(Unit::Bytes);
    bytes.set_total(Total::Final(10));
    bytes.add(3);
    Frame::full(&operation.snapshot(), 1, 1)
}

fn backup_outcome() -> Outcome {
    let snapshot = Some("5eed".to_owned());
    Outcome::Backup(BackupOutcome { snapshot, bytes: 10, files: 2, added: Some(4), ..BackupOutcome::default() })
}

/// The annotations of an object.
pub fn annotations(object: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(object["metadata"]["annotations"].clone()).unwrap_or_default()
}

/// Waits until a reading succeeds. The failure of the last one is shown.
pub async fn eventually<T>(what: &str, read: impl AsyncFn() -> Result<T, Value>) -> T {
    let begun = Instant::now();
    loop {
        match read().await {
            Ok(value) => return value,
            Err(last) => assert!(begun.elapsed() < EVENTUALLY_TIMEOUT, "never happened: {what}; last: {last:#}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a path exists, or does not.
pub async fn wait_for_path(path: &Path, exists: bool) {
    eventually(&format!("{} exists: {exists}", path.display()), async || {
        if path.exists() == exists { Ok(()) } else { Err(json!(path.exists())) }
    })
    .await;
}
