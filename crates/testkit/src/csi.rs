//! Volume snapshots on the real cluster: the snapshot controller and its sidecar, and a small CSI driver for tests.
//!
//! ```text
//! VolumeSnapshot ──► snapshot-controller ──► VolumeSnapshotContent ──► csi-snapshotter ──socket──┐
//! PersistentVolumeClaim ──► provisioner (here) ──────────────────────────────────────────────────┼─► Driver: directories, copies
//! pod ──► kubelet ──plugins_registry──► registrar (here) ─────────────────────────────socket─────┘
//! ```
//! Controller and sidecar are child processes; driver, registrar and provisioner are threads of the test process, because
//! a test can rely only on its own program. Mounts are made in the namespaces of the node and end with them.

mod directories;
mod driver;
mod provisioner;
mod services;
mod wire;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::CSINode;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::cache;
use crate::child_process::ChildProcess;
use crate::cluster::{Cluster, Machine, NODE};
use crate::skip::Unavailable;
use crate::wait;
use directories::Directories;
use driver::{Driver, FAULT, FAULT_BUSY, FAULT_REJECT, READY_AFTER};
use provisioner::Provisioner;
use services::listen;

/// The driver's name.
pub const DRIVER: &str = "csi.plimsoll.test";

/// A storage class with immediate binding, and the snapshot class whose snapshots are ready immediately.
pub const CLASS: &str = "plimsoll-csi";
/// A storage class with `WaitForFirstConsumer`.
pub const WAITING_CLASS: &str = "plimsoll-csi-waiting";
/// A snapshot class whose snapshots stay when their objects are deleted.
pub const RETAIN_CLASS: &str = "plimsoll-csi-retained";
/// A storage class and a snapshot class for which the driver always returns an error.
pub const FAILING_CLASS: &str = "plimsoll-csi-refused";
/// A snapshot class for which the driver returns `Unavailable` on the first request.
pub const BUSY_CLASS: &str = "plimsoll-csi-busy";
/// A snapshot class whose snapshots take five seconds to be ready.
pub const SLOW_CLASS: &str = "plimsoll-csi-slow";

/// Programs that `hack/install csi` builds.
const PROGRAMS: [&str; 2] = ["snapshot-controller", "csi-snapshotter"];
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// Everything that makes volumes and snapshots of [`DRIVER`] work. Ends when it is dropped.
#[derive(Debug)]
pub struct Csi {
    driver: Arc<Driver>,
    sockets: [PathBuf; 2],
    runtime: Option<Runtime>,
    sidecars: Vec<ChildProcess>,
}

impl Csi {
    /// Reports what this machine lacks for it.
    pub fn preflight() -> Result<(), Unavailable> {
        for program in PROGRAMS {
            cache::program(program)?;
        }
        if definitions().is_dir() {
            return Ok(());
        }
        Err(Unavailable::new("the snapshot API", "its definitions are not installed: run `hack/install csi`"))
    }

    /// Starts it for a cluster, and waits until the kubelet has registered the driver.
    pub(crate) async fn start(cluster: &Cluster) -> Result<Self> {
        let machine = cluster.machine()?;
        let client = cluster.client().await?;
        apply_definitions(cluster)?;
        create_classes(&client).await?;
        let mut this = Self::start_driver(machine, cluster.config().await?)?;
        for program in PROGRAMS {
            this.sidecars.push(start_sidecar(program, cluster.kubeconfig(), &this.sockets[0])?);
        }
        let known = wait::until("the kubelet to know the driver", START_TIMEOUT, || async {
            anyhow::Ok((this.driver.is_registered() && is_driver_registered(&client).await?).then_some(()))
        });
        known.await.with_context(|| this.logs())?;
        Ok(this)
    }

    fn start_driver(machine: &Machine, config: kube::Config) -> Result<Self> {
        let (kubelet, root) = (machine.directory().join("kubelet"), machine.directory().join("csi"));
        let driver = Arc::new(Driver::new(Directories::create(&root)?, machine.init()));
        let sockets =
            [socket_in(&kubelet.join("plugins").join(DRIVER))?, socket_in(&kubelet.join("plugins_registry"))?];
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let this = Self { driver, sockets, runtime: Some(runtime), sidecars: Vec::new() };
        this.serve(config)?;
        Ok(this)
    }

    fn serve(&self, config: kube::Config) -> Result<()> {
        let runtime = self.runtime.as_ref().context("it has ended")?;
        // Sockets belong to the runtime in which they are created.
        let _context = runtime.enter();
        runtime.spawn(listen(self.driver.services(), &self.sockets[0])?);
        runtime.spawn(listen(self.driver.registrar(&self.sockets[0]), &self.sockets[1])?);
        let driver = Arc::clone(&self.driver);
        runtime.spawn(async move {
            if let Ok(client) = Client::try_from(config) {
                Provisioner::new(client, driver).run().await;
            }
        });
        Ok(())
    }

    /// The files of a volume, by the `volumeHandle` of its PersistentVolume.
    pub fn volume_directory(&self, handle: &str) -> Option<PathBuf> {
        driver::volume_directory(&self.driver, handle)
    }

    /// The snapshots of the driver, by the `snapshotHandle` of their VolumeSnapshotContents.
    pub fn snapshots(&self) -> Vec<String> {
        let found = self.driver.directories().snapshots().unwrap_or_default();
        found.into_iter().map(|(id, _)| id).collect()
    }

    /// The snapshots of one volume, by its `volumeHandle`.
    pub fn snapshots_of(&self, volume: &str) -> Vec<String> {
        let found = self.driver.directories().snapshots().unwrap_or_default();
        found.into_iter().filter(|(_, facts)| facts.volume == volume).map(|(id, _)| id).collect()
    }

    /// The logs of controller and sidecar, for failed tests.
    pub fn logs(&self) -> String {
        let tail = |(program, process): (&str, &ChildProcess)| {
            let log = process.log();
            let lines: Vec<&str> = log.lines().rev().take(30).collect();
            format!("--- {program}\n{}\n", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        PROGRAMS.into_iter().zip(&self.sidecars).map(tail).collect()
    }
}

impl Drop for Csi {
    fn drop(&mut self) {
        // The sidecar would exit with the driver; stopping it first keeps its log free of errors.
        self.sidecars.clear();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        // The kubelet unregisters the driver when this socket ends.
        for socket in &self.sockets {
            let _ = fs::remove_file(socket);
        }
    }
}

/// Creates a claim of 64 MiB in a class, from a VolumeSnapshot of the same namespace if one is named.
pub async fn claim(client: &Client, namespace: &str, name: &str, class: &str, snapshot: Option<&str>) -> Result<()> {
    let mut claim = json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "64Mi"}},
    }});
    if let Some(snapshot) = snapshot {
        claim["spec"]["dataSource"] =
            json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot});
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    Ok(())
}

fn definitions() -> PathBuf {
    cache::directory().join("crds/snapshot.storage.k8s.io")
}

fn apply_definitions(cluster: &Cluster) -> Result<()> {
    let folder = definitions().display().to_string();
    cluster.kubectl(["apply", "--server-side", "--force-conflicts", "--filename", &folder])?;
    let wait = ["wait", "--for=condition=Established", "--timeout=60s", "--filename", &folder];
    cluster.kubectl(wait).map(|_| ())
}

async fn create_classes(client: &Client) -> Result<()> {
    let storage = |name: &str, binding: &str, parameters: Value| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": DRIVER, "reclaimPolicy": "Delete", "volumeBindingMode": binding, "parameters": parameters})
    };
    let snapshots = |name: &str, policy: &str, parameters: Value| {
        json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": name},
            "driver": DRIVER, "deletionPolicy": policy, "parameters": parameters})
    };
    let mut usual = snapshots(CLASS, "Delete", json!({}));
    // Tells a backup tool which of several classes to use.
    usual["metadata"]["labels"] = json!({"velero.io/csi-volumesnapshot-class": "true"});
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
        "spec": {"attachRequired": false, "podInfoOnMount": false, "volumeLifecycleModes": ["Persistent"]}});
    let all = [
        driver,
        storage(CLASS, "Immediate", json!({})),
        storage(WAITING_CLASS, "WaitForFirstConsumer", json!({})),
        storage(FAILING_CLASS, "Immediate", json!({FAULT: FAULT_REJECT})),
        usual,
        snapshots(RETAIN_CLASS, "Retain", json!({})),
        snapshots(FAILING_CLASS, "Delete", json!({FAULT: FAULT_REJECT})),
        snapshots(BUSY_CLASS, "Delete", json!({FAULT: FAULT_BUSY})),
        snapshots(SLOW_CLASS, "Delete", json!({READY_AFTER: "5"})),
    ];
    for object in all {
        apply(client, object).await?;
    }
    Ok(())
}

async fn apply(client: &Client, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().context("it has no kind")?;
    let (group, version) = types.api_version.split_once('/').context("it has no group")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let name = object.metadata.name.clone().unwrap_or_default();
    let applied = api.patch(&name, &PatchParams::apply("plimsoll-testkit").force(), &Patch::Apply(&object)).await;
    applied.with_context(|| format!("failed to create {} {name}", types.kind)).map(|_| ())
}

/// Creates the directory. A socket of an earlier run is removed, which ends its registration.
///
/// The name contains an `@` because of our HTTP library: Go clients send the path as host name, in which a `%2F` is only
/// valid before an `@`.
fn socket_in(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let socket = folder.join(format!("csi@{DRIVER}.sock"));
    let _ = fs::remove_file(&socket);
    Ok(socket)
}

fn start_sidecar(program: &str, kubeconfig: &Path, socket: &Path) -> Result<ChildProcess> {
    let mut command = Command::new(cache::program(program)?);
    command.arg(format!("--kubeconfig={}", kubeconfig.display()));
    command.args(["--retry-interval-start=200ms", "--retry-interval-max=2s", "--kube-api-qps=100"]);
    command.args(["--kube-api-burst=200", "--v=4"]);
    if program == "csi-snapshotter" {
        command.arg(format!("--csi-address={}", socket.display()));
    }
    ChildProcess::start(command, crate::peers::unique_directory(program))
}

async fn is_driver_registered(client: &Client) -> Result<bool> {
    let node = Api::<CSINode>::all(client.clone()).get_opt(NODE).await?;
    Ok(node.is_some_and(|node| node.spec.drivers.iter().any(|driver| driver.name == DRIVER)))
}
