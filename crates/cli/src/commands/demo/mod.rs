//! `plimsoll demo`: the main job, for real, on this machine.
//!
//! A local cluster whose pods are processes, an application with a database, a backup, a disaster, a restore, an action of a
//! blueprint, and a transfer that is made to hang; the server is killed in the middle of both the backup and the restore. What
//! was there before is compared with what is there afterwards, object by object and file by file.

mod application;
mod environment;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;

use self::application::{APPLICATION, Application, DATABASE};
use self::environment::DemoEnvironment;
use crate::args::Demo;
use crate::args::names::{Reference, ResourceKind};
use crate::exit::Outcome;
use crate::{output, subjects};

/// Shows it. Everything it starts ends with it.
pub async fn run(options: Demo) -> anyhow::Result<Outcome> {
    let directory = tempfile::tempdir().context("no temporary directory")?;
    let mut steps = StepPrinter { started: Instant::now(), step: 0 };
    let environment = DemoEnvironment::start(directory.path()).await?;
    steps.print_step("started a local cluster whose pods are processes of this machine, a server and a node agent");
    steps.detail(format!("dashboard: {}", environment.dashboard()));
    let played = Box::pin(run_steps(&mut steps, &environment, &options)).await;
    if played.is_ok() && options.stay {
        output::line(format!("\nthe cluster keeps running: export KUBECONFIG={}", environment.kubeconfig.display()));
        output::line(format!("then run `plimsoll top`, or open {}; Ctrl-C stops it", environment.dashboard()));
        super::server::stop_on_signal()?.cancelled().await;
    }
    environment.shut_down().await;
    played.map(|()| Outcome::Success)
}

async fn run_steps(steps: &mut StepPrinter, environment: &DemoEnvironment, options: &Demo) -> anyhow::Result<()> {
    let bytes = options.megabytes << 20;
    let application = Application::new(environment.client.clone(), environment.directory.clone());
    steps.print_step(&format!(
        "create an application: namespace {APPLICATION} with {} objects and a database",
        options.objects
    ));
    application.create_all(options.objects, bytes).await?;
    let before = application.state().await?;
    steps.detail(format!(
        "{} objects, {} files of the database, {} MiB",
        before.objects.len(),
        before.files.len(),
        before.bytes >> 20
    ));

    steps.print_step("back it up; kill the server during the backup");
    let backup = Reference { kind: ResourceKind::Backup, name: "demo".into() };
    environment
        .create("velero.io/v1", "Backup", "demo", json!({ "spec": { "includedNamespaces": [APPLICATION] } }))
        .await?;
    steps.detail(environment.wait_while_killing_server(&backup).await?);

    steps.print_step(&format!("delete namespace {APPLICATION} with its volume"));
    application.delete().await?;

    steps.print_step("restore it; kill the server during the restore");
    let restore = Reference { kind: ResourceKind::Restore, name: "demo".into() };
    environment.create("velero.io/v1", "Restore", "demo", json!({ "spec": { "backupName": "demo" } })).await?;
    steps.detail(environment.wait_while_killing_server(&restore).await?);
    application.wait_until_running().await?;
    let after = application.state().await?;
    before.compare(&after)?;
    let checksum = application::short(&after.checksum());
    steps.detail(format!(
        "all {} objects and all files are restored unchanged: sha256 {checksum}… before and after",
        after.objects.len()
    ));

    steps.print_step("run an action of a blueprint that imports orders into the database");
    import(steps, environment, bytes).await?;

    steps.print_step("back it up again and stall the transfer until the stall is detected and explained");
    stall(steps, environment).await?;
    output::line(format!("\ndone in {:.0?}: all data restored", steps.started.elapsed()));
    Ok(())
}

/// The messages of the demo, with the time of each.
struct StepPrinter {
    started: Instant,
    step: u32,
}

const STEPS: u32 = 7;

impl StepPrinter {
    fn print_step(&mut self, text: &str) {
        self.step += 1;
        let (step, at) = (self.step, self.started.elapsed().as_secs());
        output::line(format!("\n[{step}/{STEPS}] {at:>3} s  {text}"));
    }

    #[expect(clippy::unused_self, reason = "messages are printed by the steps")]
    fn detail(&self, text: impl AsRef<str>) {
        output::line(format!("             {}", text.as_ref()));
    }
}

/// Two phases: a task in a pod of its own, then a command in the database's container.
async fn import(steps: &StepPrinter, environment: &DemoEnvironment, bytes: u64) -> anyhow::Result<()> {
    let fetch = "sleep 1; echo '###Phase-output###: {\"key\":\"rows\",\"value\":\"1200\"}'";
    let load = format!("head -c {} /dev/urandom > /data/tables/orders", bytes / 2);
    let phases = json!([
        { "func": "KubeTask", "name": "fetch", "args": { "image": "any", "command": ["sh", "-c", fetch] } },
        { "func": "KubeExec", "name": "load", "args": { "namespace": APPLICATION, "pod": DATABASE, "container": DATABASE,
            "command": ["sh", "-c", load] } },
    ]);
    let artifacts = json!({ "import": { "keyValue": { "rows": "{{ .Phases.fetch.Output.rows }}" } } });
    let actions = json!({ "import": { "outputArtifacts": artifacts, "phases": phases } });
    environment.create("cr.kanister.io/v1alpha1", "Blueprint", "orders", json!({ "actions": actions })).await?;
    let object = json!({ "kind": "Namespace", "name": APPLICATION, "namespace": APPLICATION });
    let action = json!({ "name": "import", "blueprint": "orders", "object": object });
    environment
        .create("cr.kanister.io/v1alpha1", "ActionSet", "import", json!({ "spec": { "actions": [action] } }))
        .await?;
    let reference = Reference { kind: ResourceKind::Action, name: "import".into() };
    environment.wait_for(&reference).await?;
    let subject = subjects::read(&environment.client, environment::NAMESPACE, &reference).await?;
    let rows = subject.text("/status/actions/0/artifacts/import/keyValue/rows").unwrap_or_default();
    ensure!(rows == "1200", "the artifact of the action has {rows:?} rows instead of 1200");
    steps.detail(format!("its artifact: {rows} rows"));
    Ok(())
}

/// A transfer's process is stopped as a dying disk would stop it, and let go again once the backup says what hangs.
async fn stall(steps: &StepPrinter, environment: &DemoEnvironment) -> anyhow::Result<()> {
    let reference = Reference { kind: ResourceKind::Backup, name: "second".into() };
    let spec = json!({ "spec": { "includedNamespaces": [APPLICATION] } });
    environment.create("velero.io/v1", "Backup", "second", spec).await?;
    let (waited, named) = tokio::join!(environment.wait_for(&reference), stall_mover(environment, &reference));
    let named = named?;
    waited?;
    steps.detail(named);
    Ok(())
}

async fn stall_mover(environment: &DemoEnvironment, reference: &Reference) -> anyhow::Result<String> {
    let mover = environment.stop_mover(reference).await?;
    environment.until_moving(&mover, &reference.name).await?;
    let stopped = Instant::now();
    let named = named(environment, reference).await;
    mover.resume()?;
    let took = stopped.elapsed().as_secs();
    Ok(format!("explained after {took} s: {}; then the transfer was resumed, and the backup completed", named?))
}

async fn named(environment: &DemoEnvironment, reference: &Reference) -> anyhow::Result<String> {
    loop {
        let subject = subjects::read(&environment.client, environment::NAMESPACE, reference).await?;
        let text = |field: &str| subject.text(&format!("/status/plimsoll/stalled/{field}")).map(str::to_owned);
        if let (Some(task), Some(message)) = (text("task"), text("message")) {
            // Long enough to be visible.
            tokio::time::sleep(Duration::from_secs(2)).await;
            return Ok(format!("{task}: {message}"));
        }
        ensure!(subject.outcome().is_none(), "the backup ended while its transfer was stalled");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The directory of a volume: what lies in a claim of the application.
fn volume_directory(directory: &Path, volume: &str) -> std::path::PathBuf {
    directory.join("cluster").join("volumes").join(volume)
}
