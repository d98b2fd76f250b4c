//! Agents and movers that are killed in the middle cost time, never data.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::bed::{Bed, Home, dismiss, eventually, phase};
use crate::killed::dismiss_if_alive;
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

/// Looks often: what is waited for does not last.
async fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), wait).await.unwrap_or_else(|_| panic!("not within a minute: {what}"));
}

async fn attempts(home: &Home<'_>, kind: &str) -> u64 {
    let found = transfer(home, kind, "data").await.unwrap_or(Value::Null);
    found["metadata"]["annotations"]["plimsoll.dev/attempts"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Bytes in packs. More than the small volume has, so that it is the large one that is on its way.
fn packed(home: &Home<'_>, namespace: &str) -> u64 {
    let data = home.bucket.join("restic").join(namespace).join("data");
    let folders = data.read_dir().into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| folder.path().read_dir().into_iter().flatten().flatten());
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// Kills the mover once `begun` holds, then the agent once the transfer has been taken up again. Another agent is returned.
async fn kill_both(home: &Home<'_>, mut first: Child, kind: &str, mut begun: impl FnMut() -> bool) -> Child {
    soon("a mover is in the middle of its work", || begun() && !movers_of(&first).is_empty()).await;
    movers_of(&first).into_iter().for_each(kill);
    eventually("the transfer was taken up again", async || attempts(home, kind).await >= 2).await;
    first.kill().await.unwrap();
    let second = agent(home, &["--concurrency", "1"], &[]);
    eventually("the next agent took it up", async || attempts(home, kind).await >= 3).await;
    second
}

fn restic(home: &Home<'_>, namespace: &str, password: &str, arguments: &[&str]) -> String {
    let mut command = std::process::Command::new(plimsoll_testkit::cache::program("restic").unwrap());
    let repository = home.bucket.join("restic").join(namespace);
    let output = command.arg("--no-cache").args(arguments).env("RESTIC_REPOSITORY", repository);
    let output = output.env("RESTIC_PASSWORD", password).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "restic {arguments:?}: {text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_mover_and_a_killed_agent_cost_no_byte_in_either_direction() {
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    home.create_secret("velero-repo-credentials", "repository-password", "correct horse").await;
    let application = Application::start(&bed, "shop", BYTES).await;
    let before = application.files().await;
    let _server = server_of(&home, "built-in", &[]);
    let first = agent(&home, &["--concurrency", "1"], &[]);
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    let second = kill_both(&home, first, "PodVolumeBackup", || packed(&home, &application.namespace) > 4 << 20).await;
    let backup = home.ended("Backup", "b").await;
    let said = || format!("{}\n{}\n{}", home.messages("b", "errors"), home.log(), agent_log(&home));
    assert_eq!(phase(&backup), "Completed", "{}", said());
    let checked = restic(&home, &application.namespace, "correct horse", &["check", "--read-data"]);
    assert!(checked.contains("no errors were found"), "{checked}");

    application.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let volumes = bed.directory.path().join("cluster/volumes");
    let arrived = || {
        let claims = volumes.read_dir().into_iter().flatten().flatten();
        claims.into_iter().any(|claim| claim.path().join("deep/noise").exists())
    };
    let third = kill_both(&home, second, "PodVolumeRestore", arrived).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}\n{}", home.log(), agent_log(&home));
    eventually("the pod runs with its data", async || application.is_running().await).await;
    assert_eq!(application.files().await, before);
    dismiss(third).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_dies_before_or_after_any_of_its_writes_is_followed_by_one_that_ends_the_transfer() {
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
        dismiss(next).await;
    }
    let living = agent(&home, &[], &[]);
    dismiss(server).await;
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
        dismiss_if_alive(next).await;
    }
    dismiss(living).await;
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
        dismiss(next).await;
        application.lose().await;
    }
}
