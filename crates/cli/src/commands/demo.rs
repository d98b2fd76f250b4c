//! `plimsoll demo`: the main job, for real, on this machine.
//!
//! A local cluster, an application, a backup, a disaster, a restore; and each time the server is killed in the middle. What was
//! there before is compared with what is there afterwards, object by object.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::args::names::{Kind, Reference};
use crate::args::{Demo, Global};
use crate::exit::Outcome;
use crate::subjects;
use crate::{connect, output, wait};

const NAMESPACE: &str = "velero";
const APPLICATION: &str = "shop";

/// Shows it. Everything it starts ends with it.
pub async fn run(options: Demo) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let directory = tempfile::tempdir().context("no temporary directory")?;
    let mut stage = Stage::set(directory.path()).await?;
    say(1, "a local cluster is up, with a server beside it");
    make_application(&stage.client, options.objects).await?;
    let before = remember(&stage.client).await?;
    say(2, &format!("the application {APPLICATION} has {} objects", before.len()));

    say(3, "a backup; the server is killed in the middle");
    stage
        .create(&json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": "demo" },
        "spec": { "includedNamespaces": [APPLICATION] } }))
        .await?;
    stage.survive(&Reference { kind: Kind::Backup, name: "demo".into() }).await?;

    say(4, &format!("the disaster: namespace {APPLICATION} is deleted"));
    delete_application(&stage.client).await?;

    say(5, "the restore; the server is killed in the middle");
    stage
        .create(&json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": { "name": "demo" },
        "spec": { "backupName": "demo" } }))
        .await?;
    stage.survive(&Reference { kind: Kind::Restore, name: "demo".into() }).await?;

    let after = remember(&stage.client).await?;
    compare(&before, &after)?;
    say(6, &format!("all {} objects are back, equal to what they were ({:.1?})", after.len(), started.elapsed()));
    if options.stay {
        output::line(format!("\nlook around: export KUBECONFIG={}\nCtrl-C ends it", stage.kubeconfig.display()));
        super::server::stop_on_signal()?.cancelled().await;
    }
    stage.strike().await;
    Ok(Outcome::Success)
}

fn say(step: u32, text: &str) {
    output::line(format!("[{step}/6] {text}"));
}

/// The cluster and the server, as processes of their own: only those can be killed.
struct Stage {
    client: Client,
    kubeconfig: PathBuf,
    cluster: Child,
    server: Child,
    scratch: PathBuf,
}

impl Stage {
    async fn set(directory: &Path) -> anyhow::Result<Self> {
        let mut cluster = this_program()?
            .args(["local", "--no-server", "--data-dir"])
            .arg(directory.join("cluster"))
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the local cluster")?;
        let kubeconfig = announced_kubeconfig(&mut cluster).await?;
        let global =
            Global { kubeconfig: Some(kubeconfig.clone()), context: None, namespace: NAMESPACE.into(), log: None };
        let client = connect::client(&global).await?;
        let scratch = directory.join("scratch");
        let server = start_server(&kubeconfig, &scratch)?;
        Ok(Self { client, kubeconfig, cluster, server, scratch })
    }

    async fn create(&self, object: &Value) -> anyhow::Result<()> {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let types = object.types.clone().context("an object without a type")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &resource);
        api.create(&PostParams::default(), &object).await.context("cannot create it")?;
        Ok(())
    }

    /// Waits for the end of it, with its picture; kills the server once it has begun, and starts another one.
    async fn survive(&mut self, reference: &Reference) -> anyhow::Result<()> {
        let client = self.client.clone();
        let waiting = wait::until_ended(&client, NAMESPACE, reference, None);
        let (outcome, killed) = tokio::join!(waiting, self.kill_in_the_middle(reference));
        let note = killed?;
        ensure!(outcome? == Outcome::Success, "{} {} did not succeed", reference.kind.word(), reference.name);
        output::line(format!("      {note}"));
        Ok(())
    }

    async fn kill_in_the_middle(&mut self, reference: &Reference) -> anyhow::Result<String> {
        let at = loop {
            let seen = subjects::read(&self.client, NAMESPACE, reference).await?;
            if let Some(outcome) = seen.outcome() {
                return Ok(format!("it was over ({outcome:?}) before the server could be killed"));
            }
            if seen.phase() == "InProgress" && (reference.kind == Kind::Backup || seen.items().settled() > 0) {
                break seen.items().settled();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        self.server.kill().await.context("cannot kill the server")?;
        self.server = start_server(&self.kubeconfig, &self.scratch)?;
        Ok(format!("the server was killed at {at} items; another one took over and finished"))
    }

    async fn strike(mut self) {
        let _ = self.server.kill().await;
        let _ = self.cluster.kill().await;
    }
}

fn this_program() -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.kill_on_drop(true).stdin(Stdio::null()).env("PLIMSOLL_LOG", "error").env_remove("KUBECONFIG");
    Ok(command)
}

fn start_server(kubeconfig: &Path, scratch: &Path) -> anyhow::Result<Child> {
    this_program()?
        .args(["server", "--lease-duration", "2s", "--kubeconfig"])
        .arg(kubeconfig)
        .arg("--scratch-dir")
        .arg(scratch)
        .spawn()
        .context("cannot start the server")
}

async fn announced_kubeconfig(cluster: &mut Child) -> anyhow::Result<PathBuf> {
    let stdout = cluster.stdout.take().context("the cluster has no output")?;
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some(path) = line.strip_prefix("export KUBECONFIG=") {
            return Ok(path.into());
        }
    }
    bail!("the local cluster ended before it was ready")
}

fn api(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    if kind == "Namespace" {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), APPLICATION, &resource)
    }
}

const KINDS: [(&str, &str); 4] = [("", "ConfigMap"), ("", "Secret"), ("", "ServiceAccount"), ("apps", "Deployment")];

async fn make_application(client: &Client, objects: u32) -> anyhow::Result<()> {
    let namespace = serde_json::from_value(
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": APPLICATION } }),
    )?;
    api(client, "", "Namespace").create(&PostParams::default(), &namespace).await?;
    stream::iter(0..objects)
        .map(|number| async move {
            let (group, kind) = KINDS[number as usize % KINDS.len()];
            let object = serde_json::from_value(object(kind, number))?;
            api(client, group, kind).create(&PostParams::default(), &object).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(32)
        .try_collect::<()>()
        .await
        .context("cannot make the application")
}

fn object(kind: &str, number: u32) -> Value {
    let name = format!("{}-{number}", kind.to_lowercase());
    let metadata = json!({ "name": name, "labels": { "app": APPLICATION, "shard": (number % 7).to_string() } });
    let text = format!("setting {number} of the shop\n").repeat(40);
    match kind {
        "ConfigMap" => json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, "data": { "settings": text } }),
        "Secret" => json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, "data": { "token": "c2VjcmV0" } }),
        "Deployment" => json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {
            "replicas": 0, "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": { "containers": [{ "name": "web", "image": "web:1" }] } } } }),
        _ => json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata }),
    }
}

/// Everything of the application, without what any new object gets of its own.
async fn remember(client: &Client) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for (group, kind) in KINDS {
        for found in api(client, group, kind).list(&ListParams::default()).await? {
            let mut object = serde_json::to_value(&found)?;
            object["metadata"] = json!({ "labels": found.labels().iter()
                .filter(|(key, _)| !key.starts_with("velero.io/")).collect::<BTreeMap<_, _>>() });
            all.insert(format!("{kind}/{}", found.name_any()), object);
        }
    }
    Ok(all)
}

fn compare(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> anyhow::Result<()> {
    let missing: Vec<_> = before.keys().filter(|name| !after.contains_key(*name)).take(5).collect();
    ensure!(missing.is_empty(), "not restored, among others: {missing:?}");
    let different: Vec<_> = before.iter().filter(|(name, object)| after.get(*name) != Some(object)).take(5).collect();
    ensure!(different.is_empty(), "restored differently, among others: {different:?}");
    ensure!(before.len() == after.len(), "{} objects too many", after.len() - before.len());
    Ok(())
}

async fn delete_application(client: &Client) -> anyhow::Result<()> {
    let namespaces = api(client, "", "Namespace");
    namespaces.delete(APPLICATION, &DeleteParams::default()).await.context("cannot delete the namespace")?;
    while namespaces.get_opt(APPLICATION).await?.is_some() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
