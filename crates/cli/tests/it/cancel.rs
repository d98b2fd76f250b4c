//! Cancel ends what runs and what waits.

use std::process::Stdio;
use std::time::Duration;

use plimsoll_testkit::Stopwatch;
use plimsoll_testkit::wait::WAIT_TIMEOUT;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::bed::{Bed, eventually, on_both_clusters, phase};

on_both_clusters! {
    a_running_restore_is_cancelled_within_seconds_and_reports_the_reason,
    a_cancelled_backup_leaves_nothing_in_the_location,
    a_queued_restore_names_the_restore_ahead_and_can_be_cancelled,
}

async fn a_running_restore_is_cancelled_within_seconds_and_reports_the_reason(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 300).await;
    home.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    home.ended("Backup", "b").await;
    // A namespace that never goes away keeps the restore waiting for as long as we need.
    bed.hold_namespace("held").await;
    home.restore("r", json!({ "backupName": "b", "namespaceMapping": { bed.ns("shop"): bed.ns("held") } })).await;
    eventually("the restore waits for the namespace", async || {
        let operation =
            home.list("Operation").await.into_iter().find(|o| o.metadata.name.as_deref() == Some("restore-r"));
        operation.is_some_and(|o| {
            o.data["status"]["tree"]
                .to_string()
                .contains(&format!("waiting for the deletion of namespace {}", bed.ns("held")))
        })
    })
    .await;
    let asked = Stopwatch::start();
    let cancel = home.command(&["cancel", "restore/r", "--wait"]).output().await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert_eq!(cancel.status.code(), Some(0), "{}", String::from_utf8_lossy(&cancel.stderr));
    let restore = home.get("Restore", "r").await;
    assert_eq!((phase(&restore), restore["status"]["failureReason"].as_str()), ("Failed", Some("Cancelled")));
    eventually("the operation says so too", async || {
        home.get("Operation", "restore-r").await["status"]["state"] == "Cancelled"
    })
    .await;
}

async fn a_cancelled_backup_leaves_nothing_in_the_location(bed: &Bed) {
    let home = bed.home("home").await;
    bed.application("shop", 9).await;
    home.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    // The server dies in the middle, the user cancels, and the next server has to clean up.
    let mut server = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", "file.after")]);
    tokio::time::timeout(WAIT_TIMEOUT, server.wait()).await.unwrap().unwrap();
    assert!(home.bucket.join("backups/b/b.tar.gz").exists());
    let cancel = home.command(&["cancel", "backup/b"]).output().await.unwrap();
    assert_eq!(cancel.status.code(), Some(0), "{}", String::from_utf8_lossy(&cancel.stderr));
    let _next = home.server();
    let backup = home.ended("Backup", "b").await;
    assert_eq!((phase(&backup), backup["status"]["failureReason"].as_str()), ("Failed", Some("Cancelled")));
    assert!(!home.bucket.join("backups/b/b.tar.gz").exists(), "what it left is removed");
    assert!(!home.bucket.join("backups/b/velero-backup.json").exists());
}

async fn a_queued_restore_names_the_restore_ahead_and_can_be_cancelled(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 9).await;
    home.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    home.ended("Backup", "b").await;
    bed.hold_namespace("held").await;
    home.restore("first", json!({ "backupName": "b", "namespaceMapping": { bed.ns("shop"): bed.ns("held") } })).await;
    eventually("the first one runs", async || phase(&home.get("Restore", "first").await) == "InProgress").await;
    home.restore("second", json!({ "backupName": "b" })).await;
    eventually("the second one names the restore ahead", async || {
        let operation =
            home.list("Operation").await.into_iter().find(|o| o.metadata.name.as_deref() == Some("restore-second"));
        operation.is_some_and(|o| o.data["status"]["tree"].to_string().contains("queued behind restore first"))
    })
    .await;
    let cancel = home.command(&["cancel", "restore/second", "--wait"]).output().await.unwrap();
    assert_eq!(cancel.status.code(), Some(0), "{}", String::from_utf8_lossy(&cancel.stderr));
    assert_eq!(phase(&home.get("Restore", "first").await), "InProgress", "the first one is not touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_a_wait_and_not_the_backup() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let mut command = home.command(&["backup", "create", "b", "--wait"]);
    let mut waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stdout.take().unwrap()).lines();
    // No server runs: it would wait for ever.
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("backup b: New"));
    let process = Pid::from_raw(waiting.id().unwrap().cast_signed()).unwrap();
    kill_process(process, Signal::INT).unwrap();
    let output = tokio::time::timeout(WAIT_TIMEOUT, waiting.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert_eq!(said, "interrupted: backup/b continues; follow it with `plimsoll watch backup/b`\n");
    assert!(home.find("Operation", "backup-b").await.is_none(), "nothing cancels it");
}
