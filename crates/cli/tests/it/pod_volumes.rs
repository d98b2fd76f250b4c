//! Pods that write files into directories, and helpers to inspect them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::bed::{Bed, Home, create_namespace, eventually, phase, plimsoll};

/// What the pod's script writes, unless it has been written before; `$SIZE` bytes of noise.
const SCRIPT: &str = "[ -e /data/done ] || { mkdir /data/deep; head -c $SIZE /dev/urandom > /data/deep/noise; \
    echo hello > /data/hello; ln -s hello /data/link; ln /data/hello /data/second; : > /data/empty; chmod 600 /data/empty; \
    head -c 200000 /dev/urandom > /scratch/noise; touch /data/done; }; trap exit TERM; sleep 2147483647 & wait";

/// The programs of the test kit, in front of those of the machine.
pub fn path() -> String {
    format!("{}:{}", plimsoll_testkit::cache::directory().join("bin").display(), std::env::var("PATH").unwrap())
}

/// A server that moves volumes with this mover.
pub fn server(home: &Home<'_>, mover: &str, more: &[&str]) -> Child {
    volume_server(home, mover, more, &[])
}

/// The same, with more environment.
pub fn volume_server(home: &Home<'_>, mover: &str, more: &[&str], environment: &[(&str, &str)]) -> Child {
    let arguments = ["--uploader-type", mover, "--restore-helper-program", env!("CARGO_BIN_EXE_plimsoll")];
    let arguments = [&arguments, more].concat();
    let path = path();
    let environment = [&[("PATH", path.as_str())], environment].concat();
    home.server_through(&home.bed.kubeconfig, &arguments, &environment)
}

/// The agent of the one node.
pub fn agent(home: &Home<'_>, more: &[&str], environment: &[(&str, &str)]) -> Child {
    agent_command(plimsoll(), home, &home.bed.kubeconfig).args(more).envs(environment.iter().copied()).spawn().unwrap()
}

/// The same, reaching the cluster through another kubeconfig.
pub fn agent_through(home: &Home<'_>, kubeconfig: &Path) -> Child {
    agent_command(plimsoll(), home, kubeconfig).spawn().unwrap()
}

/// The same for which a directory, with what is in it, lies on a small file system.
pub fn agent_on_a_small_disk(home: &Home<'_>, directory: &Path, size: &str) -> Child {
    let small = home.bed.directory.path().join("small");
    std::fs::create_dir_all(&small).unwrap();
    let mount = format!(
        "mount -t tmpfs -o size={size} small \"$1\" && cp -a \"$2/.\" \"$1\" && mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.kill_on_drop(true).stdin(Stdio::null()).args(["--mount", "sh", "-c", &mount, "sh"]);
    command.args([small.as_path(), directory]).arg(env!("CARGO_BIN_EXE_plimsoll"));
    agent_command(command, home, &home.bed.kubeconfig).spawn().unwrap()
}

fn agent_command(mut command: Command, home: &Home<'_>, kubeconfig: &Path) -> Command {
    let log = home.bed.directory.path().join(format!("agent-{}.log", home.namespace));
    let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
    command
        .args(["agent", "--node", "local", "--pod", "agent", "--namespace", &home.namespace, "--kubeconfig"])
        .arg(kubeconfig)
        .arg("--pods-directory")
        .arg(home.bed.directory.path().join("cluster/pods"))
        .arg("--cache-dir")
        .arg(home.bed.directory.path().join("cache"))
        .env("PATH", path())
        .stderr(log);
    command
}

pub fn agent_log(home: &Home<'_>) -> String {
    std::fs::read_to_string(home.bed.directory.path().join(format!("agent-{}.log", home.namespace))).unwrap_or_default()
}

/// An application: a namespace with a claim, and a pod that fills it and a volume of its own.
pub struct Application<'a> {
    bed: &'a Bed,
    pub namespace: String,
}

impl<'a> Application<'a> {
    /// Starts it, and waits until the files are there.
    pub async fn start(bed: &'a Bed, name: &str, bytes: usize) -> Self {
        let application = Self { bed, namespace: bed.ns(name) };
        create_namespace(&bed.client, &application.namespace).await;
        application
            .create(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }))
            .await;
        application.create(pod(bytes)).await;
        eventually("the application has written its files", async || {
            application.directory("data").await.is_some_and(|data| data.join("done").exists())
        })
        .await;
        application
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = kube::api::ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
        Api::namespaced_with(self.bed.client.clone(), &self.namespace, &resource)
    }

    async fn create(&self, object: Value) {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let object = serde_json::from_value(object).unwrap();
        self.api(&kind).create(&PostParams::default(), &object).await.unwrap();
    }

    pub async fn pod(&self) -> Option<Value> {
        self.api("Pod").get_opt("writer").await.unwrap().map(|pod| json!(pod))
    }

    /// Gives the pod an annotation.
    pub async fn annotate(&self, key: &str, value: &str) {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { key: value } } }));
        self.api("Pod").patch("writer", &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn claim(&self) -> Value {
        json!(self.api("PersistentVolumeClaim").get("data").await.unwrap())
    }

    pub async fn is_running(&self) -> bool {
        self.pod().await.is_some_and(|pod| phase(&pod) == "Running")
    }

    /// Where a volume of the pod lies.
    pub async fn directory(&self, volume: &str) -> Option<PathBuf> {
        let cluster = self.bed.directory.path().join("cluster");
        if volume == "data" {
            let claim = self.api("PersistentVolumeClaim").get_opt("data").await.unwrap()?;
            let name = claim.data.pointer("/spec/volumeName")?.as_str()?.to_owned();
            return Some(cluster.join("volumes").join(name));
        }
        let uid = self.api("Pod").get_opt("writer").await.unwrap()?.uid()?;
        Some(cluster.join("pods").join(uid).join("volumes/kubernetes.io~empty-dir").join(volume))
    }

    /// Every file of both volumes: its checksum, and its kind, mode and target.
    pub async fn files(&self) -> String {
        let mut all = String::new();
        for volume in ["data", "scratch"] {
            let directory = self.directory(volume).await.unwrap();
            let list = "find . -type f -print0 | sort -z | xargs -0 sha256sum; find . -printf '%P %y %m %l\\n' | sort";
            let mut command = std::process::Command::new("sh");
            let listed = command.args(["-c", list]).current_dir(&directory).stdin(Stdio::null()).output().unwrap();
            assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
            all += &String::from_utf8(listed.stdout).unwrap();
        }
        all
    }

    /// A finished pod with a claim and the backup annotation.
    pub async fn finished_pod(&self, name: &str, claim: &str) {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "annotations": { "backup.velero.io/backup-volumes": "data" } },
            "spec": { "restartPolicy": "Never",
                "containers": [{ "name": "main", "image": "shell", "command": ["true"],
                    "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }],
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }] } });
        self.create(pod).await;
        eventually("the pod has ended", async || {
            phase(&json!(self.api("Pod").get(name).await.unwrap())) == "Succeeded"
        })
        .await;
    }

    /// A pod with an empty claim and the backup annotation.
    pub async fn empty_pod(&self, name: &str) {
        self.create(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }))
            .await;
        let pod = json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "annotations": { "backup.velero.io/backup-volumes": "void" } },
            "spec": { "terminationGracePeriodSeconds": 1,
                "containers": [{ "name": "main", "image": "shell", "command": ["sh", "-c", "trap exit TERM; sleep 2147483647 & wait"],
                    "volumeMounts": [{ "name": "void", "mountPath": "/void" }] }],
                "volumes": [{ "name": "void", "persistentVolumeClaim": { "claimName": name } }] } });
        self.create(pod).await;
        eventually("the pod runs", async || self.runs(name).await).await;
    }

    /// A pod with three volumes of its own: one for its container, one that only its first container has had, and one that is not mounted.
    pub async fn half_mounted_pod(&self, name: &str) {
        let shell = |script: &str, volume: &str| {
            json!({ "name": volume, "image": "shell", "command": ["sh", "-c", script],
                "volumeMounts": [{ "name": volume, "mountPath": "/own" }] })
        };
        let empty = |name: &str| json!({ "name": name, "emptyDir": {} });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": { "terminationGracePeriodSeconds": 1, "initContainers": [shell("echo early > /own/file", "early")],
                "containers": [shell("echo used > /own/file; trap exit TERM; sleep 2147483647 & wait", "used")],
                "volumes": [empty("early"), empty("used"), empty("unused")] } });
        self.create(pod).await;
        eventually("the pod runs", async || self.runs(name).await).await;
    }

    /// Whether a pod of this name runs.
    pub async fn runs(&self, name: &str) -> bool {
        self.api("Pod").get_opt(name).await.unwrap().is_some_and(|pod| phase(&json!(pod)) == "Running")
    }

    /// The pod is gone, its claim is not.
    pub async fn lose_pod(&self) {
        self.api("Pod").delete("writer", &DeleteParams::default()).await.unwrap();
        eventually("the pod is gone", async || self.pod().await.is_none()).await;
    }

    /// Gone with everything it wrote.
    pub async fn lose(&self) {
        let name = self.namespace.strip_prefix(&self.bed.ns("")).unwrap();
        self.bed.delete_namespace(name).await;
    }
}

fn pod(bytes: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "writer", "annotations": { "backup.velero.io/backup-volumes": "data,scratch" } },
        "spec": { "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "main", "image": "shell", "command": ["sh", "-c", SCRIPT],
                "env": [{ "name": "SIZE", "value": bytes.to_string() }],
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }, { "name": "scratch", "mountPath": "/scratch" }] }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }, { "name": "scratch", "emptyDir": {} }] } })
}

/// The transfer of a volume.
pub async fn transfer(home: &Home<'_>, kind: &str, volume: &str) -> Option<Value> {
    let all = home.list(kind).await;
    let found = all.into_iter().find(|one| one.data.pointer("/spec/volume").is_some_and(|name| name == volume));
    found.map(|one| json!(one))
}

/// A file of a backup, unpacked.
pub fn unpacked(home: &Home<'_>, path: &str) -> Value {
    let content = std::process::Command::new("gzip").arg("-dc").arg(home.bucket.join(path)).output().unwrap();
    serde_json::from_slice(&content.stdout).unwrap_or_else(|error| panic!("{path}: {error}"))
}
