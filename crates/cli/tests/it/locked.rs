//! A repository that another process has locked: operations that wait for it name the holder.

use std::path::Path;
use std::process::Stdio;

use plimsoll_testkit::{cache, require};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::bed::{Bed, Home, eventually, phase};
use crate::pod_volumes::{Application, agent, agent_log, server};

const PASSWORD: &str = "right";

/// The real restic, which checks a repository so slowly that its lock stays for minutes. It dies with this value.
struct Checker(Child);

impl Checker {
    async fn start(restic: &Path, repository: &Path) -> Self {
        let mut command = Command::new(restic);
        command.arg("--repo").arg(repository).args(["--no-cache", "--limit-download", "1", "check", "--read-data"]);
        command.env("RESTIC_PASSWORD", PASSWORD).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let checker = Self(command.spawn().unwrap());
        let locks = repository.join("locks");
        // restic writes a temporary file first; only a file with the name of its hash is a lock.
        let is_lock =
            |entry: std::io::Result<std::fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name().len() == 64);
        let has_lock = async || std::fs::read_dir(&locks).is_ok_and(|mut all| all.any(is_lock));
        eventually("restic has its lock", has_lock).await;
        checker
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id().unwrap()).unwrap()).unwrap()
    }
}

/// The exit code of `why`, and the cause with this reason, if any.
async fn why(home: &Home<'_>, what: &str, reason: &str) -> (i32, Option<Value>) {
    let output = home.command(&["why", what, "-o", "json"]).output().await.unwrap();
    let explanation: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let causes = explanation["causes"].as_array().cloned().unwrap_or_default();
    (output.status.code().unwrap(), causes.into_iter().find(|cause| cause["reason"] == reason))
}

/// The name of the volume of this backup that is on its way.
async fn volume_of(home: &Home<'_>, backup: &str) -> Option<String> {
    let all = home.list("PodVolumeBackup").await.into_iter().map(|one| json!(one));
    let mut mine = all.filter(|one| one["metadata"]["labels"]["velero.io/backup-name"] == backup);
    mine.find(|one| phase(one) == "InProgress").map(|one| one["metadata"]["name"].as_str().unwrap().to_owned())
}

/// What the volumes of this backup report, and the number of attempts that failed because of a lock.
async fn refused(home: &Home<'_>, backup: &str) -> Option<(String, u32)> {
    let volume = volume_of(home, backup).await?;
    let all = home.list("PodVolumeBackup").await.into_iter().map(|one| json!(one));
    let one = all.into_iter().find(|one| one["metadata"]["name"] == volume.as_str())?;
    let times = one["metadata"]["annotations"]["plimsoll.dev/locked-attempts"].as_str()?.parse().ok()?;
    Some((one["status"]["plimsoll"]["doing"].as_str().unwrap_or_default().to_owned(), times))
}

async fn the_holder_of_the_lock_is_named(mover: &str) {
    let restic = require!(cache::program("restic"));
    let bed = Bed::local_with_pods().await;
    let application = Application::start(&bed, "shop", 100_000).await;
    let home = bed.home("home").await;
    home.create_secret("velero-repo-credentials", "repository-password", PASSWORD).await;
    let (_server, _agent) = (server(&home, mover, &[]), agent(&home, &[], &[]));
    home.backup("first", json!({ "includedNamespaces": [application.namespace] })).await;
    let first = home.ended("Backup", "first").await;
    assert_eq!(phase(&first), "Completed", "{}\n{}", home.messages("first", "errors"), agent_log(&home));

    let repository = home.bucket.join("restic").join(&application.namespace);
    let checker = Checker::start(&restic, &repository).await;
    // A stopped process cannot end before it was seen.
    kill_process(checker.pid(), Signal::STOP).unwrap();
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    let mut of_volume = None;
    eventually("why podvolumebackup/... names the lock", async || {
        let Some(volume) = volume_of(&home, "b").await else { return false };
        let (code, found) = why(&home, &format!("podvolumebackup/{volume}"), "RepositoryLocked").await;
        of_volume = found.filter(|_| code == 7);
        of_volume.is_some()
    })
    .await;
    let mut of_backup = None;
    eventually("why backup/b names the lock", async || {
        let (code, found) = why(&home, "backup/b", "RepositoryLocked").await;
        of_backup = found.filter(|_| code == 7);
        of_backup.is_some()
    })
    .await;
    let (_, before) = refused(&home, "b").await.unwrap();
    eventually("it is refused again, and names the lock all the while", async || {
        let (doing, times) = refused(&home, "b").await.unwrap();
        assert!(doing.starts_with("trying again: RepositoryLocked: "), "{doing:?} after {times} times");
        times > before
    })
    .await;
    let holder = checker.0.id().unwrap().to_string();
    let name = home.list("BackupRepository").await[0].metadata.name.clone().unwrap();
    for cause in [of_volume.unwrap(), of_backup.unwrap()] {
        let text = cause["text"].as_str().unwrap();
        assert!(text.contains("is locked") && text.contains("exclusively") && text.contains(&holder), "{cause:#}");
        assert_eq!(cause["certainty"], "certain", "{cause:#}");
        assert!(cause["next"].to_string().contains(&format!("plimsoll repo unlock {name} ")), "{cause:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_built_in_backup_names_the_holder_of_a_locked_repository() {
    the_holder_of_the_lock_is_named("built-in").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restic_backup_names_the_holder_of_a_locked_repository() {
    the_holder_of_the_lock_is_named("restic").await;
}
