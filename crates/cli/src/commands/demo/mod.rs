//! `plimsoll demo`: the main job, for real, on this machine.
//!
//! A local cluster whose pods are processes, an application with a database, a backup, a disaster, a restore, an action of a
//! blueprint, and a transfer that is made to hang; the server is killed in the middle of both the backup and the restore. What
//! was there before is compared with what is there afterwards, object by object and file by file.

mod application;
mod stage;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;

use self::application::{APPLICATION, Application, DATABASE};
use self::stage::Stage;
use crate::args::Demo;
use crate::args::names::{Kind, Reference};
use crate::exit::Outcome;
use crate::{output, subjects};

/// Shows it. Everything it starts ends with it.
pub async fn run(options: Demo) -> anyhow::Result<Outcome> {
    let directory = tempfile::tempdir().context("no temporary directory")?;
    let mut story = Story { started: Instant::now(), step: 0 };
    let stage = Stage::set(directory.path()).await?;
    story.say("started a local cluster whose pods are processes of this machine, a server and a node agent");
    story.detail(format!("dashboard: {}", stage.dashboard()));
    let played = Box::pin(play(&mut story, &stage, &options)).await;
    if played.is_ok() && options.stay {
        output::line(format!("\nthe cluster keeps running: export KUBECONFIG={}", stage.kubeconfig.display()));
        output::line(format!("then run `plimsoll top`, or open {}; Ctrl-C stops it", stage.dashboard()));
        super::server::stop_on_signal()?.cancelled().await;
    }
    stage.strike().await;
    played.map(|()| Outcome::Success)
}

async fn play(story: &mut Story, stage: &Stage, options: &Demo) -> anyhow::Result<()> {
    let bytes = options.megabytes << 20;
    let application = Application::new(stage.client.clone(), stage.directory.clone());
    story.say(&format!(
        "create an application: namespace {APPLICATION} with {} objects and a database",
        options.objects
    ));
    application.make(options.objects, bytes).await?;
    let before = application.remember().await?;
    story.detail(format!(
        "{} objects, {} files of the database, {} MiB",
        before.objects.len(),
        before.files.len(),
        before.bytes >> 20
    ));

    story.say("back it up; kill the server during the backup");
    let backup = Reference { kind: Kind::Backup, name: "demo".into() };
    stage.create("velero.io/v1", "Backup", "demo", json!({ "spec": { "includedNamespaces": [APPLICATION] } })).await?;
    story.detail(stage.survive(&backup).await?);

    story.say(&format!("delete namespace {APPLICATION} with its volume"));
    application.delete().await?;

    story.say("restore it; kill the server during the restore");
    let restore = Reference { kind: Kind::Restore, name: "demo".into() };
    stage.create("velero.io/v1", "Restore", "demo", json!({ "spec": { "backupName": "demo" } })).await?;
    story.detail(stage.survive(&restore).await?);
    application.wait_until_running().await?;
    let after = application.remember().await?;
    before.compare(&after)?;
    let checksum = application::short(&after.checksum());
    story.detail(format!(
        "all {} objects and all files are restored unchanged: sha256 {checksum}… before and after",
        after.objects.len()
    ));

    story.say("run an action of a blueprint that imports orders into the database");
    import(story, stage, bytes).await?;

    story.say("back it up again and stall the transfer until the stall is detected and explained");
    stall(story, stage).await?;
    output::line(format!("\ndone in {:.0?}: all data restored", story.started.elapsed()));
    Ok(())
}

/// What is told, and when.
struct Story {
    started: Instant,
    step: u32,
}

const STEPS: u32 = 7;

impl Story {
    fn say(&mut self, text: &str) {
        self.step += 1;
        let (step, at) = (self.step, self.started.elapsed().as_secs());
        output::line(format!("\n[{step}/{STEPS}] {at:>3} s  {text}"));
    }

    #[expect(clippy::unused_self, reason = "what is told is told by the story")]
    fn detail(&self, text: impl AsRef<str>) {
        output::line(format!("             {}", text.as_ref()));
    }
}

/// Two phases: a task in a pod of its own, then a command in the database's container.
async fn import(story: &Story, stage: &Stage, bytes: u64) -> anyhow::Result<()> {
    let fetch = "sleep 1; echo '###Phase-output###: {\"key\":\"rows\",\"value\":\"1200\"}'";
    let load = format!("head -c {} /dev/urandom > /data/tables/orders", bytes / 2);
    let phases = json!([
        { "func": "KubeTask", "name": "fetch", "args": { "image": "any", "command": ["sh", "-c", fetch] } },
        { "func": "KubeExec", "name": "load", "args": { "namespace": APPLICATION, "pod": DATABASE, "container": DATABASE,
            "command": ["sh", "-c", load] } },
    ]);
    let artifacts = json!({ "import": { "keyValue": { "rows": "{{ .Phases.fetch.Output.rows }}" } } });
    let actions = json!({ "import": { "outputArtifacts": artifacts, "phases": phases } });
    stage.create("cr.kanister.io/v1alpha1", "Blueprint", "orders", json!({ "actions": actions })).await?;
    let object = json!({ "kind": "Namespace", "name": APPLICATION, "namespace": APPLICATION });
    let action = json!({ "name": "import", "blueprint": "orders", "object": object });
    stage.create("cr.kanister.io/v1alpha1", "ActionSet", "import", json!({ "spec": { "actions": [action] } })).await?;
    let reference = Reference { kind: Kind::Action, name: "import".into() };
    stage.wait_for(&reference).await?;
    let seen = subjects::read(&stage.client, stage::NAMESPACE, &reference).await?;
    let rows = seen.text("/status/actions/0/artifacts/import/keyValue/rows").unwrap_or_default();
    ensure!(rows == "1200", "the artifact of the action has {rows:?} rows instead of 1200");
    story.detail(format!("its artifact: {rows} rows"));
    Ok(())
}

/// A transfer's process is stopped as a dying disk would stop it, and let go again once the backup says what hangs.
async fn stall(story: &Story, stage: &Stage) -> anyhow::Result<()> {
    let reference = Reference { kind: Kind::Backup, name: "second".into() };
    let spec = json!({ "spec": { "includedNamespaces": [APPLICATION] } });
    stage.create("velero.io/v1", "Backup", "second", spec).await?;
    let (waited, named) = tokio::join!(stage.wait_for(&reference), hang(stage, &reference));
    let named = named?;
    waited?;
    story.detail(named);
    Ok(())
}

async fn hang(stage: &Stage, reference: &Reference) -> anyhow::Result<String> {
    let mover = stage.stop_mover(reference).await?;
    stage.until_moving(&mover, &reference.name).await?;
    let stopped = Instant::now();
    let named = named(stage, reference).await;
    mover.go_on()?;
    let took = stopped.elapsed().as_secs();
    Ok(format!("explained after {took} s: {}; then the transfer was resumed, and the backup completed", named?))
}

async fn named(stage: &Stage, reference: &Reference) -> anyhow::Result<String> {
    loop {
        let seen = subjects::read(&stage.client, stage::NAMESPACE, reference).await?;
        let text = |field: &str| seen.text(&format!("/status/plimsoll/stalled/{field}")).map(str::to_owned);
        if let (Some(task), Some(message)) = (text("task"), text("message")) {
            // Long enough to be seen in the picture.
            tokio::time::sleep(Duration::from_secs(2)).await;
            return Ok(format!("{task}: {message}"));
        }
        ensure!(seen.outcome().is_none(), "the backup ended while its transfer was stalled");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The directory of a volume: what lies in a claim of the application.
fn volume_directory(directory: &Path, volume: &str) -> std::path::PathBuf {
    directory.join("cluster").join("volumes").join(volume)
}
