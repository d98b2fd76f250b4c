//! A Kubernetes cluster under the tests: started here, left running by `make cluster-up`, or somebody else's.

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
pub use machine::{CutOff, Machine, Paused};

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
    // Before the machine: it ends first.
    csi: OnceCell<Csi>,
    machine: Option<Machine>,
}

/// The cluster that all tests of this process share.
///
/// In this order: the one that `PLIMSOLL_TEST_KUBECONFIG` names, the one that `make cluster-up` left running, or one that is
/// started now and ends with this process.
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
        if let Some(cluster) = Self::left_running() {
            return Ok(cluster);
        }
        Self::preflight()?;
        // A machine that has everything and still cannot start a cluster is broken, which no skip may hide.
        #[expect(clippy::panic, reason = "there is no test to run without its cluster, and this is not a skip")]
        Self::start(Lifetime::Bound).map_err(|error| -> Unavailable { panic!("the cluster does not start: {error:?}") })
    }

    /// Says what this machine lacks to run a cluster.
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

    /// Starts one and waits until its node is ready.
    pub fn start(lifetime: Lifetime) -> Result<Self> {
        Ok(Self::of(Machine::start(lifetime)?))
    }

    /// The one that `make cluster-up` started, if it still runs.
    pub fn left_running() -> Option<Self> {
        Machine::left_running().map(Self::of)
    }

    fn of(machine: Machine) -> Self {
        Self { kubeconfig: machine.directory().join("kubeconfig"), csi: OnceCell::new(), machine: Some(machine) }
    }

    /// The file that `kubectl` and other programs need.
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

    /// A client. Each test has its own: a client belongs to the runtime that made it, and that ends with its test.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// Runs kubectl, of the cluster's own version; an error holds what it printed.
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

    /// Volumes with snapshots: started beside the cluster when they are first asked for, for all tests of this process.
    pub async fn csi(&self) -> Result<&Csi, Unavailable> {
        self.machine()?;
        Csi::preflight()?;
        // As with the cluster itself: what is there and does not start is broken.
        #[expect(clippy::panic, reason = "there is no test to run without it, and this is not a skip")]
        let start = || async { Csi::start(self).await.unwrap_or_else(|error| panic!("CSI does not start: {error:?}")) };
        Ok(self.csi.get_or_init(start).await)
    }

    /// Ends it, and waits until nothing of it is left.
    pub fn end(self) -> Result<()> {
        drop(self.csi);
        self.machine.map_or(Ok(()), Machine::end)
    }
}
