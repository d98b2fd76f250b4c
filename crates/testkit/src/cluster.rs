//! A Kubernetes cluster for the tests: started here, running from `make cluster-up`, or an external one.

mod certificates;
mod component;
mod machine;
mod settings;

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::OnceCell;

pub use component::Component;
pub use machine::{Machine, NetworkPartition, PausedComponent};

use crate::csi::Csi;
use crate::enclosure::Lifetime;
use crate::namespace::Namespace;
use crate::skip::Unavailable;
use crate::volume::Volume;

/// The name of the only node.
pub const NODE: &str = "plimsoll";

/// A cluster that tests can use.
#[derive(Debug)]
pub struct Cluster {
    kubeconfig: PathBuf,
    // Declared before the machine: it is dropped first.
    csi: OnceCell<Csi>,
    machine: Option<Machine>,
}

/// The cluster that all tests of this process share.
///
/// In this order: the cluster of `PLIMSOLL_TEST_KUBECONFIG`, the one from `make cluster-up`, or a new one that ends with
/// this process.
pub async fn cluster() -> Result<&'static Cluster, Unavailable> {
    static SHARED: OnceLock<Result<Cluster, Unavailable>> = OnceLock::new();
    let start = || SHARED.get_or_init(Cluster::find_or_start).as_ref().map_err(Clone::clone);
    tokio::task::spawn_blocking(start).await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

impl Cluster {
    fn find_or_start() -> Result<Self, Unavailable> {
        crate::skip::unless_fast("a real cluster")?;
        if let Some(path) = env::var_os("PLIMSOLL_TEST_KUBECONFIG") {
            return Ok(Self { kubeconfig: path.into(), csi: OnceCell::new(), machine: None });
        }
        if let Some(cluster) = Self::find_running() {
            return Ok(cluster);
        }
        Self::preflight()?;
        // A machine that has all programs but cannot start a cluster is broken; that must not become a skip.
        #[expect(clippy::panic, reason = "there is no test to run without its cluster, and this is not a skip")]
        Self::start(Lifetime::Bound).map_err(|error| -> Unavailable { panic!("the cluster does not start: {error:?}") })
    }

    /// Reports what this machine lacks to run a cluster.
    pub fn preflight() -> Result<(), Unavailable> {
        crate::skip::unless_fast("a real cluster")?;
        if !rustix::process::geteuid().is_root() {
            return Err(Unavailable::new("a real cluster", "namespaces and mounts need root"));
        }
        for component in Component::ALL {
            component.program()?;
        }
        for program in ["bash", "unshare", "nsenter", "ip", "iptables", "runc", "ctr", "busybox"] {
            crate::cache::system_program(program)?;
        }
        Ok(())
    }

    /// Starts a cluster and waits until its node is ready.
    pub fn start(lifetime: Lifetime) -> Result<Self> {
        Ok(Self::of(Machine::start(lifetime)?))
    }

    /// The cluster from `make cluster-up`, if it runs.
    pub fn find_running() -> Option<Self> {
        Machine::find_running().map(Self::of)
    }

    fn of(machine: Machine) -> Self {
        Self { kubeconfig: machine.directory().join("kubeconfig"), csi: OnceCell::new(), machine: Some(machine) }
    }

    /// The kubeconfig for `kubectl` and other programs.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The connection settings.
    pub async fn config(&self) -> Result<Config> {
        crate::install_crypto();
        let file = Kubeconfig::read_from(&self.kubeconfig)
            .with_context(|| format!("failed to read {}", self.kubeconfig.display()))?;
        Ok(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
    }

    /// A client. Each test has its own: a client belongs to the runtime that created it, which ends with its test.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// Runs the kubectl of the cluster's version; an error contains its output.
    pub fn kubectl<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String> {
        let mut command = Command::new(crate::cache::program("kubectl")?);
        let output = command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments).output()?;
        if !output.status.success() {
            bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// A namespace that is deleted when the test ends.
    pub async fn namespace(&self, prefix: &str) -> Result<Namespace> {
        Namespace::create(self.config().await?, prefix).await
    }

    /// A volume whose files this machine can see, and a claim for it.
    pub async fn volume(&self, namespace: &str, claim: &str) -> Result<Volume> {
        let folder = self.machine()?.directory().join("volumes");
        Volume::create(self.config().await?, &folder, namespace, claim).await
    }

    /// The machine below the cluster: its images, its programs, its network.
    pub fn machine(&self) -> Result<&Machine, Unavailable> {
        let reason = "PLIMSOLL_TEST_KUBECONFIG names a cluster whose node is not ours";
        self.machine.as_ref().ok_or_else(|| Unavailable::new("the node", reason))
    }

    /// The CSI driver with snapshots: started on first use, for all tests of this process.
    pub async fn csi(&self) -> Result<&Csi, Unavailable> {
        self.machine()?;
        Csi::preflight()?;
        // As with the cluster itself, a failed start is an error, not a skip.
        #[expect(clippy::panic, reason = "there is no test to run without it, and this is not a skip")]
        let start = || async { Csi::start(self).await.unwrap_or_else(|error| panic!("CSI does not start: {error:?}")) };
        Ok(self.csi.get_or_init(start).await)
    }

    /// Shuts it down, and waits until nothing of it is left.
    pub fn end(self) -> Result<()> {
        drop(self.csi);
        self.machine.map_or(Ok(()), Machine::end)
    }
}
