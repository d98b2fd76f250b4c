//! The node and the control plane as processes: started, killed, paused, cut off.

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

const LIMIT: Duration = Duration::from_mins(2);

/// A running node with its control plane.
#[derive(Debug)]
pub struct Machine {
    enclosure: Enclosure,
}

/// What `make cluster-up` writes down so that later processes find its cluster.
#[derive(Debug, Serialize, Deserialize)]
struct LeftRunning {
    slot: u8,
    init: Process,
}

impl Machine {
    pub(super) fn start(lifetime: Lifetime) -> Result<Self> {
        let machine = Self { enclosure: Enclosure::start(lifetime, settings::write)? };
        machine.start_all().with_context(|| machine.log_tails())?;
        if lifetime == Lifetime::Free {
            let left = LeftRunning { slot: machine.enclosure.slot(), init: machine.enclosure.init() };
            fs::write(note(), serde_json::to_vec(&left)?)?;
        }
        Ok(machine)
    }

    pub(super) fn left_running() -> Option<Self> {
        let left: LeftRunning = serde_json::from_slice(&fs::read(note()).ok()?).ok()?;
        Enclosure::attach(left.slot, left.init).map(|enclosure| Self { enclosure })
    }

    pub(super) fn end(mut self) -> Result<()> {
        self.enclosure.end()?;
        // Only the noted one is ever ended by another process than the one that started it.
        if Self::left_running().is_none() {
            let _ = fs::remove_file(note());
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

    /// A command that will run beside the components, in their namespaces.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        self.enclosure.command(program)
    }

    /// Makes an image known to the node.
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

    /// What a component has printed.
    pub fn log(&self, component: Component) -> String {
        fs::read_to_string(self.log_file(component)).unwrap_or_default()
    }

    /// Kills a component, as a crash would, and waits until it is gone.
    pub fn kill(&self, component: Component) -> Result<()> {
        self.process(component)?.kill()
    }

    /// Starts a component that was killed. It takes up its work by itself, in its own time; only containerd is waited for,
    /// because a kubelet that does not find it gives up.
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
        // Somebody has to wait for it, or it would stay a zombie after the component has been killed.
        std::thread::spawn(move || entry.wait());
        fs::write(self.process_file(component), serde_json::to_vec(&child?)?)?;
        if component == Component::Containerd { self.containerd_answers() } else { Ok(()) }
    }

    fn containerd_answers(&self) -> Result<()> {
        // The way into a mount namespace from outside.
        let socket = format!("/proc/{}/root/run/containerd/containerd.sock", self.init().id());
        until_blocking("containerd", LIMIT, || UnixStream::connect(&socket).ok()).map(|_| ())
    }

    /// Stops a component until the result is dropped: it keeps its connections and answers nobody.
    pub fn pause(&self, component: Component) -> Result<Paused> {
        let process = self.process(component)?;
        process.signal(Signal::STOP)?;
        let what = format!("{} to stop", component.name());
        until_blocking(what, WAIT_TIMEOUT, || process.is_stopped().then_some(()))?;
        Ok(Paused(process))
    }

    /// Cuts a component off until the result is dropped: its packets vanish, on open connections too.
    ///
    /// A client of the API server loses the API server; the API server and etcd lose their clients. Containerd is reached
    /// through a socket, not over the network: pause it instead.
    pub fn cut_off(&self, component: Component) -> Result<CutOff<'_>> {
        let rule = match component {
            Component::ApiServer => vec!["--protocol", "tcp", "--destination-port", "6443"],
            _ => vec!["--destination", component.address()],
        };
        self.drop_packets(&[("INPUT", rule)])
    }

    /// Cuts a pod off from everything, by its address.
    pub fn cut_off_pod(&self, address: &str) -> Result<CutOff<'_>> {
        let (from, to) = (vec!["--source", address], vec!["--destination", address]);
        // Bridged packets between pods pass the filter too: the kernel hands them over by default.
        self.drop_packets(&[("INPUT", from.clone()), ("FORWARD", from), ("FORWARD", to)])
    }

    fn drop_packets(&self, rules: &[(&str, Vec<&str>)]) -> Result<CutOff<'_>> {
        let words =
            |(chain, rule): &(&str, Vec<&str>)| [chain].into_iter().chain(rule).map(|&w| w.to_owned()).collect();
        let rules: Vec<Vec<String>> = rules.iter().map(words).collect();
        let cut = CutOff { machine: self, rules };
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
        let client = runtime.block_on(self.answering_client())?;
        for component in [Component::ControllerManager, Component::Scheduler, Component::Kubelet, Component::KubeProxy]
        {
            self.start_component(component)?;
        }
        runtime.block_on(node_ready(client))
    }

    async fn answering_client(&self) -> Result<Client> {
        crate::install_crypto();
        let file = Kubeconfig::read_from(self.directory().join("kubeconfig"))?;
        let client = Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?;
        until("the API server", LIMIT, || async {
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

    /// The last lines of every log: the directory, and with it the logs, is gone when somebody reads the error.
    fn log_tails(&self) -> String {
        let tail = |component: Component| {
            let log = self.log(component);
            let lines: Vec<&str> = log.lines().rev().take(8).collect();
            format!("--- {}\n{}\n", component.name(), lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        Component::ALL.map(tail).concat()
    }
}

/// A stopped component, which goes on when this is dropped.
#[derive(Debug)]
pub struct Paused(Process);

impl Drop for Paused {
    fn drop(&mut self) {
        let _ = self.0.signal(Signal::CONT);
    }
}

/// Something that is cut off until this is dropped.
#[derive(Debug)]
pub struct CutOff<'a> {
    machine: &'a Machine,
    rules: Vec<Vec<String>>,
}

impl Drop for CutOff<'_> {
    fn drop(&mut self) {
        for rule in &self.rules {
            let _ = self.machine.packet_filter("--delete", rule);
        }
    }
}

fn note() -> PathBuf {
    cache::directory().join("run/left-running.json")
}

/// Ready, and no longer tainted: until the taint has gone, pods are not scheduled.
async fn node_ready(client: Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client);
    until("the node to be ready", LIMIT, || async {
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
