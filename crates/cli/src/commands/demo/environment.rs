//! The cluster, the server and the node agent, as processes of their own: only those can be killed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use plimsoll_api::velero::v1::PodVolumeBackup;
use plimsoll_progress_stream::AccessToken;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::args::Global;
use crate::args::names::Reference;
use crate::exit::Outcome;
use crate::subjects;
use crate::{connect, wait};

/// The namespace of the server and its objects.
pub const NAMESPACE: &str = "velero";
/// So long it may take until the first items are counted.
const FIRST_ITEMS_TIMEOUT: Duration = Duration::from_secs(3);

/// Everything that runs.
pub struct DemoEnvironment {
    pub client: Client,
    pub kubeconfig: PathBuf,
    pub directory: PathBuf,
    cluster: Child,
    server: SupervisedProcess,
    agent: Child,
    dashboard: String,
}

/// A process that is started again whenever it has ended, as Kubernetes would do it.
struct SupervisedProcess {
    kills: mpsc::Sender<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl SupervisedProcess {
    fn start(begin: impl Fn() -> anyhow::Result<Child> + Send + 'static) -> Self {
        let (kills, mut asked) = mpsc::channel::<oneshot::Sender<()>>(1);
        let task = tokio::spawn(async move {
            while let Ok(mut process) = begin() {
                tokio::select! {
                    _ = process.wait() => tokio::time::sleep(Duration::from_millis(200)).await,
                    Some(killed) = asked.recv() => {
                        let _ = process.kill().await;
                        let _ = killed.send(());
                    }
                }
            }
        });
        Self { kills, task }
    }

    /// Kills it. The next one begins at once.
    async fn kill(&self) -> anyhow::Result<()> {
        let (killed, done) = oneshot::channel();
        self.kills.send(killed).await.context("the server could not be started again")?;
        done.await.context("the server could not be killed")
    }
}

impl Drop for SupervisedProcess {
    fn drop(&mut self) {
        // The process ends with its supervisor.
        self.task.abort();
    }
}

impl DemoEnvironment {
    /// Starts it below a directory.
    pub async fn start(directory: &Path) -> anyhow::Result<Self> {
        let mut cluster = this_program()?
            .args(["local", "--no-server", "--run-pods", "--data-dir"])
            .arg(directory.join("cluster"))
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the local cluster")?;
        let kubeconfig = announced_kubeconfig(&mut cluster).await?;
        let global =
            Global { kubeconfig: Some(kubeconfig.clone()), context: None, namespace: NAMESPACE.into(), log: None };
        let client = connect::client(&global).await?;
        let address = free_address()?;
        let token =
            AccessToken::read_or_create(&client, NAMESPACE).await.context("cannot create the dashboard's token")?;
        let (config, place) = (kubeconfig.clone(), directory.to_owned());
        let server = SupervisedProcess::start(move || start_server(&config, &place, address));
        let agent = start_agent(&kubeconfig, directory)?;
        let dashboard = format!("http://{address}/#token={}", token.reveal());
        Ok(Self { client, kubeconfig, directory: directory.to_owned(), cluster, server, agent, dashboard })
    }

    /// The URL of the dashboard, which does not depend on the leader.
    pub fn dashboard(&self) -> &str {
        &self.dashboard
    }

    /// Creates an object beside the server.
    pub async fn create(&self, version: &str, kind: &str, name: &str, fields: Value) -> anyhow::Result<()> {
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
        if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
            object.extend(fields);
        }
        let object: DynamicObject = serde_json::from_value(object)?;
        let types = object.types.clone().context("an object without a type")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &resource);
        api.create(&PostParams::default(), &object).await.with_context(|| format!("cannot create {kind} {name}"))?;
        Ok(())
    }

    /// Waits until a backup or restore has ended, and shows its progress.
    pub async fn wait_for(&self, reference: &Reference) -> anyhow::Result<()> {
        let outcome = wait::follow(&self.client, NAMESPACE, reference, None).await?;
        ensure!(outcome == Outcome::Success, "{} {} did not succeed", reference.kind.word(), reference.name);
        Ok(())
    }

    /// The same; the server is killed once it has begun, and another one started.
    pub async fn wait_while_killing_server(&self, reference: &Reference) -> anyhow::Result<String> {
        let waiting = wait::follow(&self.client, NAMESPACE, reference, None);
        let (outcome, killed) = tokio::join!(waiting, self.kill_in_the_middle(reference));
        let note = killed?;
        ensure!(outcome? == Outcome::Success, "{} {} did not succeed", reference.kind.word(), reference.name);
        Ok(note)
    }

    /// Its transfer stands still until the server is dead: so it cannot be over before, however fast the machine is.
    async fn kill_in_the_middle(&self, reference: &Reference) -> anyhow::Result<String> {
        let mover = self.stop_mover(reference).await?;
        let at = self.items_settled(reference).await?;
        self.server.kill().await?;
        mover.resume()?;
        Ok(format!("the server was killed at {at} items; another one resumed and finished"))
    }

    /// How many items are settled, once some are: the server writes it every second, and until then it seems not to have begun.
    async fn items_settled(&self, reference: &Reference) -> anyhow::Result<u64> {
        let begun = Instant::now();
        loop {
            let settled = subjects::read(&self.client, NAMESPACE, reference).await?.items().settled();
            if settled > 0 || begun.elapsed() > FIRST_ITEMS_TIMEOUT {
                return Ok(settled);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Stops the process of its transfer as soon as there is one.
    pub async fn stop_mover(&self, reference: &Reference) -> anyhow::Result<StoppedProcess> {
        tokio::select! {
            mover = self.appearing_mover() => stop(mover),
            ended = self.ended(reference) => {
                bail!("{reference} was over ({:?}) before anything could happen to its transfer", ended?)
            }
        }
    }

    async fn appearing_mover(&self) -> Pid {
        loop {
            if let Some(mover) = self.mover() {
                return mover;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn ended(&self, reference: &Reference) -> anyhow::Result<Outcome> {
        loop {
            if let Some(outcome) = subjects::read(&self.client, NAMESPACE, reference).await?.outcome() {
                return Ok(outcome);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Resumes a stopped transfer in steps so small that it cannot end, until it shows progress.
    pub async fn until_moving(&self, mover: &StoppedProcess, backup: &str) -> anyhow::Result<()> {
        while !self.is_moving(backup).await? {
            mover.step().await?;
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        Ok(())
    }

    /// Whether a transfer of this backup shows that it has begun to move.
    async fn is_moving(&self, backup: &str) -> anyhow::Result<bool> {
        let api: Api<PodVolumeBackup> = Api::namespaced(self.client.clone(), NAMESPACE);
        let of_backup = kube::api::ListParams::default().labels(&format!("velero.io/backup-name={backup}"));
        let found = api.list(&of_backup).await?;
        let shown = found.items.iter().filter_map(|transfer| transfer.status.as_ref());
        Ok(shown.filter_map(|status| status.plimsoll.as_ref()).any(|summary| summary.task.is_some()))
    }

    /// The process in which the agent has data moved.
    fn mover(&self) -> Option<Pid> {
        let agent = self.agent.id()?;
        let children = std::fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).unwrap_or_default();
        let threads = std::fs::read_dir(format!("/proc/{agent}/task")).ok()?.flatten();
        let all = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let all = all.chain([children]).collect::<Vec<_>>().join(" ");
        let is_mover = |pid: &&str| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split('\0').any(|word| word == "mover")
        };
        let pid = all.split_whitespace().find(is_mover)?.parse().ok()?;
        Pid::from_raw(pid)
    }

    /// Stops the server, the agent and the cluster.
    pub async fn shut_down(mut self) {
        self.server.task.abort();
        let _ = (&mut self.server.task).await;
        let _ = self.agent.kill().await;
        let _ = self.cluster.kill().await;
    }
}

/// A process that does nothing until it is let go. It is let go when this is dropped, too.
pub struct StoppedProcess(Pid);

fn stop(process: Pid) -> anyhow::Result<StoppedProcess> {
    kill_process(process, Signal::STOP).context("cannot stop the transfer's process")?;
    Ok(StoppedProcess(process))
}

impl StoppedProcess {
    /// Resumes it for a moment.
    async fn step(&self) -> anyhow::Result<()> {
        kill_process(self.0, Signal::CONT).context("the transfer's process is gone")?;
        tokio::time::sleep(Duration::from_millis(4)).await;
        kill_process(self.0, Signal::STOP).context("the transfer's process is gone")
    }

    /// Resumes it.
    pub fn resume(self) -> anyhow::Result<()> {
        kill_process(self.0, Signal::CONT).context("the transfer's process is gone")
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

fn this_program() -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.kill_on_drop(true).stdin(Stdio::null()).env("PLIMSOLL_LOG", "error").env_remove("KUBECONFIG");
    Ok(command)
}

/// One that every server of this demo, one after the other, can have.
fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr()?)
}

fn start_server(kubeconfig: &Path, directory: &Path, dashboard: SocketAddr) -> anyhow::Result<Child> {
    this_program()?
        .args(["server", "--lease-duration", "3s", "--uploader-type", "built-in", "--dashboard-address"])
        .arg(dashboard.to_string())
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--scratch-dir")
        .arg(directory.join("scratch"))
        .arg("--restore-helper-program")
        .arg(std::env::current_exe()?)
        .spawn()
        .context("cannot start the server")
}

fn start_agent(kubeconfig: &Path, directory: &Path) -> anyhow::Result<Child> {
    this_program()?
        .args(["agent", "--node", "local", "--pod", "agent", "--namespace", NAMESPACE, "--kubeconfig"])
        .arg(kubeconfig)
        .arg("--pods-directory")
        .arg(directory.join("cluster").join("pods"))
        .args(["--progress-address", "127.0.0.1:0", "--cache-dir"])
        .arg(directory.join("cache"))
        .spawn()
        .context("cannot start the agent")
}

async fn announced_kubeconfig(cluster: &mut Child) -> anyhow::Result<PathBuf> {
    let stdout = cluster.stdout.take().context("the cluster has no output")?;
    let mut lines = BufReader::new(stdout).lines();
    let mut kubeconfig = None;
    while let Some(line) = lines.next_line().await? {
        if let Some(path) = line.strip_prefix("export KUBECONFIG=") {
            kubeconfig = Some(path.into());
        }
        // Only then does it run pods.
        if let Some(kubeconfig) = kubeconfig.take_if(|_| line.starts_with("pods run as")) {
            // It prints more, and would end if its output were closed.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(kubeconfig);
        }
    }
    bail!("the local cluster ended before it was ready: run `plimsoll local --run-pods` to see why")
}
