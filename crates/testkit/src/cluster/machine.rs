//! The node and the control plane as processes that can be started, killed, paused and partitioned.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::component::Component;
use super::{NODE, settings};
use crate::cache;
use crate::enclosure::{Addresses, Enclosure, Lifetime, run};
use crate::image::{self, Image};
use crate::process::Process;
use crate::wait::{WAIT_TIMEOUT, until, until_blocking};

const START_TIMEOUT: Duration = Duration::from_mins(2);

/// A running node with its control plane.
#[derive(Debug)]
pub struct Machine {
    enclosure: Enclosure,
}

/// The record of `make cluster-up` by which later processes find its cluster.
#[derive(Debug, Serialize, Deserialize)]
struct ClusterRecord {
    slot: u8,
    init: Process,
}

impl Machine {
    pub(super) fn start(lifetime: Lifetime) -> Result<Self> {
        let machine = Self { enclosure: Enclosure::start(lifetime, settings::write)? };
        machine.start_all().with_context(|| machine.log_tails())?;
        if lifetime == Lifetime::Free {
            let left = ClusterRecord { slot: machine.enclosure.slot(), init: machine.enclosure.init() };
            fs::write(record_file(), serde_json::to_vec(&left)?)?;
        }
        Ok(machine)
    }

    pub(super) fn find_running() -> Option<Self> {
        let left: ClusterRecord = serde_json::from_slice(&fs::read(record_file()).ok()?).ok()?;
        Enclosure::attach(left.slot, left.init).map(|enclosure| Self { enclosure })
    }

    pub(super) fn end(mut self) -> Result<()> {
        self.enclosure.end()?;
        // Only the recorded one can be shut down by another process than the one that started it.
        if Self::find_running().is_none() {
            let _ = fs::remove_file(record_file());
        }
        Ok(())
    }

    /// Its directory: settings, logs, volumes.
    pub fn directory(&self) -> PathBuf {
        self.enclosure.directory()
    }

    /// Its addresses. Pods reach a server of the test at [`Addresses::host`].
    pub fn addresses(&self) -> Addresses {
        self.enclosure.addresses()
    }

    /// The first process of its namespaces.
    pub fn init(&self) -> Process {
        self.enclosure.init()
    }

    /// A command that runs in the namespaces of the components.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        self.enclosure.command(program)
    }

    /// Loads an image into the node.
    pub fn load_image(&self, image: &Image) -> Result<()> {
        let file = tempfile::NamedTempFile::new_in(self.directory())?;
        image.write(file.path())?;
        let mut import = self.command(cache::system_program("ctr")?);
        import.args(["--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io", "images", "import"]);
        run(import.arg(file.path())).with_context(|| format!("failed to load image {}", image.name()))
    }

    /// The process of a component.
    pub fn process(&self, component: Component) -> Result<Process> {
        let text =
            fs::read(self.process_file(component)).with_context(|| format!("{} was not started", component.name()))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// The log of a component.
    pub fn log(&self, component: Component) -> String {
        fs::read_to_string(self.log_file(component)).unwrap_or_default()
    }

    /// Kills a component with SIGKILL and waits until it has exited.
    pub fn kill(&self, component: Component) -> Result<()> {
        self.process(component)?.kill()
    }

    /// Starts a killed component without waiting until it is ready; only containerd is waited for, because the kubelet
    /// exits without it.
    pub fn start_component(&self, component: Component) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_file(component))?;
        let mut command = self.command(component.program()?);
        command.args(component.arguments(self.addresses(), &self.directory()));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut entry =
            command.spawn().with_context(|| format!("failed to enter the namespaces for {}", component.name()))?;
        let parent = Process::find(entry.id()).context("nsenter ended at once")?;
        let what = format!("the process of {}", component.name());
        let child = until_blocking(what, WAIT_TIMEOUT, || parent.children().into_iter().next());
        // It must be waited for, or it would become a zombie when the component is killed.
        std::thread::spawn(move || entry.wait());
        fs::write(self.process_file(component), serde_json::to_vec(&child?)?)?;
        if component == Component::Containerd { self.wait_for_containerd() } else { Ok(()) }
    }

    fn wait_for_containerd(&self) -> Result<()> {
        // A path into the mount namespace.
        let socket = format!("/proc/{}/root/run/containerd/containerd.sock", self.init().id());
        until_blocking("containerd", START_TIMEOUT, || UnixStream::connect(&socket).ok()).map(|_| ())
    }

    /// Stops a component with SIGSTOP until the result is dropped: it keeps its connections and does not respond.
    pub fn pause(&self, component: Component) -> Result<PausedComponent> {
        let process = self.process(component)?;
        process.signal(Signal::STOP)?;
        let what = format!("{} to stop", component.name());
        until_blocking(what, WAIT_TIMEOUT, || process.is_stopped().then_some(()))?;
        Ok(PausedComponent(process))
    }

    /// Drops the packets of a component until the result is dropped, on open connections too.
    ///
    /// A client of the API server loses the API server; the API server and etcd lose their clients. Containerd is reached
    /// through a socket, not over the network: pause it instead.
    pub fn partition(&self, component: Component) -> Result<NetworkPartition<'_>> {
        let rule = match component {
            Component::ApiServer => vec!["--protocol", "tcp", "--destination-port", "6443"],
            _ => vec!["--destination", component.address()],
        };
        self.drop_packets(&[("INPUT", rule)])
    }

    /// Drops the packets of a pod, by its address.
    pub fn partition_pod(&self, address: &str) -> Result<NetworkPartition<'_>> {
        let (from, to) = (vec!["--source", address], vec!["--destination", address]);
        // Bridged packets between pods pass the filter too: the kernel hands them over by default.
        self.drop_packets(&[("INPUT", from.clone()), ("FORWARD", from), ("FORWARD", to)])
    }

    fn drop_packets(&self, rules: &[(&str, Vec<&str>)]) -> Result<NetworkPartition<'_>> {
        let words =
            |(chain, rule): &(&str, Vec<&str>)| [chain].into_iter().chain(rule).map(|&w| w.to_owned()).collect();
        let rules: Vec<Vec<String>> = rules.iter().map(words).collect();
        let cut = NetworkPartition { machine: self, rules };
        cut.rules.iter().try_for_each(|rule| self.packet_filter("--insert", rule))?;
        Ok(cut)
    }

    fn packet_filter(&self, action: &str, rule: &[String]) -> Result<()> {
        let mut filter = self.command(cache::system_program("iptables")?);
        run(filter.args(["--wait", action]).args(rule).args(["--jump", "DROP"]))
    }

    fn start_all(&self) -> Result<()> {
        fs::create_dir_all(self.directory().join("processes"))?;
        for component in [Component::Etcd, Component::ApiServer, Component::Containerd] {
            self.start_component(component)?;
        }
        image::built_in().iter().try_for_each(|image| self.load_image(image))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(self.wait_for_client())?;
        for component in [Component::ControllerManager, Component::Scheduler, Component::Kubelet, Component::KubeProxy]
        {
            self.start_component(component)?;
        }
        runtime.block_on(wait_for_node(client))
    }

    async fn wait_for_client(&self) -> Result<Client> {
        crate::install_crypto();
        let file = Kubeconfig::read_from(self.directory().join("kubeconfig"))?;
        let client = Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?;
        until("the API server", START_TIMEOUT, || async {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            anyhow::Ok(Some(client.request_text(request).await?))
        })
        .await?;
        Ok(client)
    }

    fn process_file(&self, component: Component) -> PathBuf {
        self.directory().join("processes").join(component.name())
    }

    fn log_file(&self, component: Component) -> PathBuf {
        self.directory().join("log").join(component.name())
    }

    /// The last lines of every log, for errors: the directory with the logs is removed.
    fn log_tails(&self) -> String {
        let tail = |component: Component| {
            let log = self.log(component);
            let lines: Vec<&str> = log.lines().rev().take(8).collect();
            format!("--- {}\n{}\n", component.name(), lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        Component::ALL.map(tail).concat()
    }
}

/// A stopped component, which continues when this is dropped.
#[derive(Debug)]
pub struct PausedComponent(Process);

impl Drop for PausedComponent {
    fn drop(&mut self) {
        let _ = self.0.signal(Signal::CONT);
    }
}

/// Packets are dropped until this is dropped.
#[derive(Debug)]
pub struct NetworkPartition<'a> {
    machine: &'a Machine,
    rules: Vec<Vec<String>>,
}

impl Drop for NetworkPartition<'_> {
    fn drop(&mut self) {
        for rule in &self.rules {
            let _ = self.machine.packet_filter("--delete", rule);
        }
    }
}

fn record_file() -> PathBuf {
    cache::directory().join("run/left-running.json")
}

/// Waits until the node is ready and untainted: pods are not scheduled on a tainted node.
async fn wait_for_node(client: Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client);
    until("the node to be ready", START_TIMEOUT, || async {
        let node = nodes.get_opt(NODE).await?;
        anyhow::Ok(node.filter(is_ready).map(|_| ()))
    })
    .await
}

fn is_ready(node: &Node) -> bool {
    let tainted = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).is_some_and(|taints| !taints.is_empty());
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    !tainted && conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
