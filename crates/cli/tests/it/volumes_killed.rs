//! Agents and movers that are killed in the middle cost time, never data.

use std::path::Path;
use std::time::Duration;

use plimsoll_testkit::wait::WAIT_TIMEOUT;
use plimsoll_testkit::{cache, require};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::bed::{Bed, Home, eventually, is_ended, phase, terminate_server};
use crate::killed::terminate_if_running;
use crate::pod_volumes::{Application, agent, agent_log, server as server_of, transfer, volume_server};

/// Several packs: the first one is stored long before the last one is read.
const BYTES: usize = 96 << 20;

fn parent_of(pid: &str) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The processes that an agent has started.
pub fn movers_of(agent: &Child) -> Vec<u32> {
    let agent = agent.id().unwrap();
    let all = Path::new("/proc").read_dir().unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    all.filter(|pid| parent_of(pid) == Some(agent)).filter_map(|pid| pid.parse().ok()).collect()
}

pub fn kill(process: u32) {
    let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    // It may have ended by itself.
    let _ = kill_process(process, Signal::KILL);
}

/// Polls often: the condition holds only briefly.
async fn soon(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, wait).await.unwrap_or_else(|_| panic!("not within {WAIT_TIMEOUT:?}: {what}"));
}

async fn attempts(home: &Home<'_>, kind: &str) -> u64 {
    let found = transfer(home, kind, "data").await.unwrap_or(Value::Null);
    found["metadata"]["annotations"]["plimsoll.dev/attempts"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Bytes in a repository. More than the small volume has, so that it is the large one that is on its way.
fn stored(folder: &Path) -> u64 {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let of_entry = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => stored(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(of_entry).sum()
}

/// Whether the first bytes of the large file are in some claim.
fn has_arrived(bed: &Bed) -> bool {
    let volumes = bed.directory.path().join("cluster/volumes");
    let claims = volumes.read_dir().into_iter().flatten().flatten();
    claims.into_iter().any(|claim| claim.path().join("deep/noise").exists())
}

/// Kills the mover once `begun` holds, then the agent once the transfer has been resumed. Another agent is returned.
async fn kill_mover_and_agent(home: &Home<'_>, mut first: Child, kind: &str, mut begun: impl FnMut() -> bool) -> Child {
    soon("a mover is in the middle of its work", || begun() && !movers_of(&first).is_empty()).await;
    movers_of(&first).into_iter().for_each(kill);
    eventually("the transfer was taken up again", async || attempts(home, kind).await >= 2).await;
    first.kill().await.unwrap();
    let second = agent(home, &["--concurrency", "1"], &[]);
    eventually("the next agent took it up", async || attempts(home, kind).await >= 3).await;
    second
}

const PASSWORD: &str = "correct horse";

fn run(command: &mut std::process::Command) -> String {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// The program whose format a repository has reads all of it.
fn check_all(mover: &str, repository: &Path) {
    let program = |name: &str| std::process::Command::new(cache::program(name).unwrap());
    if mover != "kopia" {
        let mut check = program("restic");
        check.args(["--no-cache", "--no-lock", "check", "--read-data"]);
        let checked = run(check.env("RESTIC_REPOSITORY", repository).env("RESTIC_PASSWORD", PASSWORD));
        assert!(checked.contains("no errors were found"), "{checked}");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let kopia = |arguments: &[&str]| {
        let mut command = program("kopia");
        command
            .arg("--config-file")
            .arg(home.path().join("config"))
            .args(["--disable-file-logging", "--no-use-keyring"]);
        command.args(arguments).env("KOPIA_PASSWORD", PASSWORD).env("XDG_CACHE_HOME", home.path());
        command
    };
    let mut connect = kopia(&["repository", "connect", "filesystem", "--readonly", "--path"]);
    run(connect.arg(repository));
    run(&mut kopia(&["snapshot", "verify", "--verify-files-percent=100"]));
}

/// Both are killed in the middle of a backup, then in the middle of a restore.
async fn assert_kills_lose_no_data(mover: &str) {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    home.create_secret("velero-repo-credentials", "repository-password", PASSWORD).await;
    let application = Application::start(&bed, "shop", BYTES).await;
    let before = application.files().await;
    let _server = server_of(&home, mover, &[]);
    let first = agent(&home, &["--concurrency", "1"], &[]);
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    let format = if mover == "kopia" { "kopia" } else { "restic" };
    let repository = home.bucket.join(format).join(&application.namespace);
    let second = kill_mover_and_agent(&home, first, "PodVolumeBackup", || stored(&repository) > 4 << 20).await;
    let backup = home.ended("Backup", "b").await;
    let said = || format!("{mover}: {}\n{}\n{}", home.messages("b", "errors"), home.log(), agent_log(&home));
    assert_eq!(phase(&backup), "Completed", "{}", said());
    check_all(mover, &repository);

    application.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let third = kill_mover_and_agent(&home, second, "PodVolumeRestore", || has_arrived(&bed)).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{mover}: {restore:#}\n{}\n{}", home.log(), agent_log(&home));
    eventually("the pod runs with its data", async || application.is_running().await).await;
    assert_eq!(application.files().await, before, "{mover}");
    terminate_server(third).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_mover_or_the_agent_loses_no_data_in_either_direction() {
    assert_kills_lose_no_data("built-in").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_mover_or_the_agent_loses_no_data_with_restic() {
    assert_kills_lose_no_data("restic").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_mover_or_the_agent_loses_no_data_with_kopia() {
    require!(cache::program("kopia"));
    assert_kills_lose_no_data("kopia").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_killed_around_any_write_is_replaced_by_one_that_completes_the_transfer() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let application = Application::start(&bed, "shop", 100_000).await;
    let before = application.files().await;
    let server = server_of(&home, "built-in", &[]);
    for (number, point) in
        ["transfer.begin.before", "transfer.begin.after", "transfer.end.before", "transfer.end.after"]
            .into_iter()
            .enumerate()
    {
        let mut mortal = agent(&home, &[], &[("PLIMSOLL_KILL_AT", point)]);
        let name = format!("b{number}");
        home.backup(&name, json!({ "includedNamespaces": [application.namespace] })).await;
        mortal.wait().await.unwrap();
        let next = agent(&home, &[], &[]);
        let backup = home.ended("Backup", &name).await;
        assert_eq!(phase(&backup), "Completed", "{point}: {}\n{}", home.log(), agent_log(&home));
        terminate_server(next).await;
    }
    let living = agent(&home, &[], &[]);
    terminate_server(server).await;
    for (number, point) in ["volumes.create.before", "volumes.create.after:2"].into_iter().enumerate() {
        let name = format!("s{number}");
        let mut mortal = volume_server(&home, "built-in", &["--lease-duration", "2s"], &[("PLIMSOLL_KILL_AT", point)]);
        home.backup(&name, json!({ "includedNamespaces": [application.namespace] })).await;
        mortal.wait().await.unwrap();
        let next = volume_server(&home, "built-in", &["--lease-duration", "2s"], &[]);
        let backup = home.ended("Backup", &name).await;
        assert_eq!(phase(&backup), "Completed", "{point}: {}\n{}", home.log(), agent_log(&home));
        let made = home.list("PodVolumeBackup").await.into_iter().map(|one| json!(one));
        let made = made.filter(|one| one["metadata"]["labels"]["velero.io/backup-name"] == name.as_str());
        assert_eq!(made.count(), 2, "{point}: nothing is made twice");
        terminate_if_running(next).await;
    }
    terminate_server(living).await;
    let _server = server_of(&home, "built-in", &[]);
    application.lose().await;
    for (number, point) in
        ["transfer.moved.before", "transfer.settle.before", "transfer.settle.after"].into_iter().enumerate()
    {
        let mut mortal = agent(&home, &[], &[("PLIMSOLL_KILL_AT", point)]);
        let name = format!("r{number}");
        home.restore(&name, json!({ "backupName": "b0" })).await;
        mortal.wait().await.unwrap();
        let next = agent(&home, &[], &[]);
        let restore = home.ended("Restore", &name).await;
        assert_eq!(phase(&restore), "Completed", "{point}: {restore:#}\n{}\n{}", home.log(), agent_log(&home));
        eventually("the pod runs with its data", async || application.is_running().await).await;
        assert_eq!(
            application.files().await,
            before,
            "{point}: nothing of the handshake is left\n{}",
            agent_log(&home)
        );
        terminate_server(next).await;
        application.lose().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_resumed_after_its_pod_started_writes_no_data() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let application = Application::start(&bed, "shop", BYTES).await;
    let _server = server_of(&home, "built-in", &[]);
    let mut first = agent(&home, &["--concurrency", "1"], &[]);
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}", agent_log(&home));
    application.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    soon("a mover is in the middle of its work", || has_arrived(&bed) && !movers_of(&first).is_empty()).await;
    first.kill().await.unwrap();
    assert!(!is_ended(&transfer(&home, "PodVolumeRestore", "data").await.unwrap()), "it was too fast to be killed");

    // A user does manually what the agent would have done.
    let restore = home.get("Restore", "r").await;
    for volume in ["data", "scratch"] {
        let folder = application.directory(volume).await.unwrap().join(".velero");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(restore["metadata"]["uid"].as_str().unwrap()), "").unwrap();
    }
    eventually("the pod runs", async || application.is_running().await).await;
    let file = application.directory("data").await.unwrap().join("deep/noise");
    std::fs::write(&file, "of today").unwrap();

    let second = agent(&home, &["--concurrency", "1"], &[]);
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "PartiallyFailed", "{restore:#}\n{}", agent_log(&home));
    let failed = transfer(&home, "PodVolumeRestore", "data").await.unwrap();
    let message = failed["status"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("PodNotWaiting: pod ") && message.contains("/writer no longer waits"), "{failed:#}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "of today");
    terminate_server(second).await;
}
