//! Backups and restores that are deleted, with all that belongs to them and nothing else.

use std::path::Path;

use futures::{StreamExt, stream};
use plimsoll_testkit::wait::WAIT_TIMEOUT;
use serde_json::json;

use crate::bed::{Bed, Home, eventually, on_both_clusters, phase, terminate_server};
use crate::killed::{has_no_open_operations, kill_points, name_of, terminate_if_running};

on_both_clusters! {
    a_backup_is_deleted_with_its_files_and_its_restores,
    a_deletion_that_fails_reports_the_reason_and_deletes_no_data,
    a_deletion_killed_at_any_point_resumes,
    deleting_a_restore_deletes_its_files,
}

/// Every file below a directory.
fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path.display().to_string()) }
    }
    found
}

async fn ask_to_delete(home: &Home<'_>, name: &str, backup: &str) {
    home.create(json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "metadata": { "name": name },
        "spec": { "backupName": backup } }))
        .await
        .unwrap();
}

/// A home with backups `b` and `other`, and a restore of `b`.
async fn filled<'a>(bed: &'a Bed, name: &str, target: &str) -> Home<'a> {
    let home = bed.home(name).await;
    let server = home.server();
    for backup in ["b", "other"] {
        home.backup(backup, json!({ "includedNamespaces": [bed.ns("shop")] })).await;
        assert_eq!(phase(&home.ended("Backup", backup).await), "Completed", "{}", home.log());
    }
    home.restore("r", json!({ "backupName": "b", "namespaceMapping": { bed.ns("shop"): bed.ns(target) } })).await;
    assert_eq!(phase(&home.ended("Restore", "r").await), "Completed", "{}", home.log());
    eventually("all records are closed", async || has_no_open_operations(&home).await).await;
    terminate_server(server).await;
    home
}

async fn is_gone(home: &Home<'_>) -> bool {
    home.find("Backup", "b").await.is_none()
        && home.find("Restore", "r").await.is_none()
        && home.list("DeleteBackupRequest").await.is_empty()
}

async fn a_backup_is_deleted_with_its_files_and_its_restores(bed: &Bed) {
    plimsoll_testkit::require!(plimsoll_testkit::cache::program("velero"));
    bed.application("shop", 9).await;
    let home = filled(bed, "home", "copy").await;
    let others = files(&home.bucket.join("backups/other"));
    assert!(!files(&home.bucket.join("restores/r")).is_empty());
    let _server = home.server();
    let answer = home.velero(&["backup", "delete", "b", "--confirm"]).await;
    assert!(answer.contains("submitted successfully"), "{answer}");
    eventually("the backup is deleted", async || is_gone(&home).await).await;
    assert_eq!(files(&home.bucket), others, "everything else is still there");
    assert!(home.find("Backup", "other").await.is_some());
    let events = home.events("Backup", "b").await;
    assert!(["Deleting", "Deleted"].iter().all(|reason| events.contains(&(*reason).to_owned())), "{events:?}");
    eventually("the record goes with its request", async || {
        home.list("Operation").await.iter().all(|operation| operation.data["spec"]["verb"] != "delete")
    })
    .await;
}

async fn a_deletion_that_fails_reports_the_reason_and_deletes_no_data(bed: &Bed) {
    bed.application("shop", 3).await;
    let home = filled(bed, "home", "copy").await;
    let before = files(&home.bucket);
    let _server = home.server();
    let refused = async |name: &str, backup: &str, expected: &str| {
        ask_to_delete(&home, name, backup).await;
        eventually("the request is processed", async || {
            home.find("DeleteBackupRequest", name).await.is_some_and(|request| phase(&request) == "Processed")
        })
        .await;
        let request = home.get("DeleteBackupRequest", name).await;
        let errors = request["status"]["errors"].to_string();
        assert!(errors.contains(expected), "{errors}");
        eventually("an Event says so", async || !home.events("DeleteBackupRequest", name).await.is_empty()).await;
    };
    refused("missing", "nonesuch", "backup not found").await;
    home.patch("BackupStorageLocation", "default", json!({ "spec": { "accessMode": "ReadOnly" } })).await;
    refused("read-only", "b", "currently in read-only mode").await;
    home.patch("BackupStorageLocation", "default", json!({ "spec": { "accessMode": "ReadWrite" } })).await;
    home.patch("Backup", "b", json!({ "spec": { "storageLocation": "elsewhere" } })).await;
    refused("no-location", "b", "backup storage location elsewhere not found").await;
    assert_eq!(phase(&home.get("Backup", "b").await), "Completed");
    assert_eq!(files(&home.bucket), before);
}

async fn a_deletion_killed_at_any_point_resumes(bed: &Bed) {
    bed.application("shop", 6).await;
    let model = filled(bed, "model", "copy-model").await;
    let trace = bed.directory.path().join("trace-deletion");
    ask_to_delete(&model, "d", "b").await;
    let server = model.server_with("1m", &[("PLIMSOLL_KILL_TRACE", trace.to_str().unwrap())]);
    eventually("the backup is deleted", async || is_gone(&model).await).await;
    terminate_server(server).await;
    let left = files(&model.bucket.join("backups/other")).len();
    let points = kill_points(&std::fs::read_to_string(trace).unwrap());
    for expected in
        ["deletion.mark.before:1", "object.delete.after:1", "restore.files.before:1", "deletion.record.after:1"]
    {
        assert!(points.iter().any(|point| point == expected), "{points:?}");
    }
    stream::iter(points)
        .map(|point| async move {
            let home = filled(bed, &name_of(&point), &format!("copy-{}", name_of(&point))).await;
            ask_to_delete(&home, "d", "b").await;
            let mut server = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", &point)]);
            let status = tokio::time::timeout(WAIT_TIMEOUT, server.wait()).await;
            assert!(!status.unwrap_or_else(|_| panic!("{point} was not passed")).unwrap().success());
            let next = home.server_with_short_lease(&[]);
            eventually(&format!("the deletion resumes after {point}"), async || is_gone(&home).await).await;
            assert_eq!(files(&home.bucket).len(), left, "killed at {point}");
            eventually(&format!("nothing is left open after {point}"), async || has_no_open_operations(&home).await)
                .await;
            terminate_if_running(next).await;
        })
        .buffer_unordered(4)
        .collect::<Vec<()>>()
        .await;
}

async fn deleting_a_restore_deletes_its_files(bed: &Bed) {
    bed.application("shop", 3).await;
    let home = filled(bed, "home", "copy").await;
    home.delete("Restore", "r").await;
    assert!(home.find("Restore", "r").await.is_some(), "it is held until its files are gone");
    let _server = home.server();
    eventually("the restore is gone", async || home.find("Restore", "r").await.is_none()).await;
    assert_eq!(files(&home.bucket.join("restores")), Vec::<String>::new());
    assert!(home.find("Backup", "b").await.is_some());
    assert!(!files(&home.bucket.join("backups/b")).is_empty());
}
