//! The real `velero` command line against our server.

use plimsoll_testkit::peers::S3Server;
use serde_json::json;

use crate::bed::{Bed, Home, eventually, on_both_clusters, phase};

on_both_clusters! {
    the_velero_command_line_shows_the_version_and_the_built_in_plugins,
    velero_reads_a_backup_from_a_directory,
    velero_reads_a_backup_from_an_object_store,
    the_velero_command_line_creates_reads_and_deletes_a_restore,
    the_velero_command_line_creates_and_pauses_a_schedule,
    a_download_from_a_directory_needs_an_address,
    a_link_to_a_missing_file_is_a_404_and_a_modified_link_is_rejected,
}

async fn the_velero_command_line_shows_the_version_and_the_built_in_plugins(bed: &Bed) {
    plimsoll_testkit::require!(plimsoll_testkit::cache::program("velero"));
    let home = bed.home("home").await;
    let _server = home.server();
    let version = home.velero(&["version"]).await;
    assert!(version.contains("Version: v1.18.3-plimsoll."), "{version}");
    assert!(!version.contains("WARNING"), "{version}");
    let plugins = home.velero(&["plugin", "get"]).await;
    for (name, kind) in [
        ("velero.io/aws", "ObjectStore"),
        ("plimsoll.dev/directory", "ObjectStore"),
        ("velero.io/pod", "BackupItemAction"),
        ("velero.io/service", "RestoreItemAction"),
        ("velero.io/csi-pvc-backupper", "BackupItemActionV2"),
        ("velero.io/csi-pvc-restorer", "RestoreItemActionV2"),
        ("velero.io/csi-volumesnapshotcontent-delete", "DeleteItemAction"),
    ] {
        assert!(plugins.lines().any(|line| line.contains(name) && line.contains(kind)), "{plugins}");
    }
    eventually("the location is checked", async || {
        phase(&home.get("BackupStorageLocation", "default").await) == "Available"
    })
    .await;
    let locations = home.velero(&["backup-location", "get"]).await;
    assert!(locations.contains("default") && locations.contains("Available"), "{locations}");
    assert!(home.events("BackupStorageLocation", "default").await.contains(&"Available".to_owned()));
}

async fn velero_reads_a_backup_from_a_directory(bed: &Bed) {
    plimsoll_testkit::require!(plimsoll_testkit::cache::program("velero"));
    read_everything(bed, &bed.home("home").await).await;
}

async fn velero_reads_a_backup_from_an_object_store(bed: &Bed) {
    plimsoll_testkit::require!(plimsoll_testkit::cache::program("velero"));
    let store = S3Server::start("127.0.0.1").unwrap();
    read_everything(bed, &bed.home_on_s3_by_default("home", &store).await).await;
}

async fn read_everything(bed: &Bed, home: &Home<'_>) {
    let _server = home.server();
    let shop = bed.ns("shop");
    bed.application("shop", 9).await;
    let created = home.velero(&["backup", "create", "b", "--include-namespaces", &shop, "--wait"]).await;
    assert!(created.contains("completed with status: Completed"), "{created}");
    let list = home.velero(&["backup", "get"]).await;
    assert!(list.lines().any(|line| line.starts_with("b ") && line.contains("Completed")), "{list}");
    let described = home.velero(&["backup", "describe", "b", "--details"]).await;
    assert!(described.contains("Phase:  Completed") && described.contains("v1/ConfigMap:"), "{described}");
    assert!(!described.contains("<error"), "{described}");
    let log = home.velero(&["backup", "logs", "b"]).await;
    assert_eq!(log, unpacked(&home.bucket.join("backups/b/b-logs.gz")));
    home.velero(&["backup", "download", "b"]).await;
    let file = bed.directory.path().join("b-data.tar.gz");
    assert_eq!(std::fs::read(&file).unwrap(), std::fs::read(home.bucket.join("backups/b/b.tar.gz")).unwrap());
    std::fs::remove_file(file).unwrap();
}

async fn the_velero_command_line_creates_reads_and_deletes_a_restore(bed: &Bed) {
    plimsoll_testkit::require!(plimsoll_testkit::cache::program("velero"));
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 9).await;
    let before = bed.contents("shop").await;
    home.velero(&["backup", "create", "b", "--include-namespaces", &bed.ns("shop"), "--wait"]).await;
    let mapping = format!("{}:{}", bed.ns("shop"), bed.ns("copy"));
    let arguments = ["restore", "create", "r", "--from-backup", "b", "--namespace-mappings", &mapping, "--wait"];
    let created = home.velero(&arguments).await;
    assert!(created.contains("completed with status: Completed"), "{created}\n{}", home.log());
    assert_eq!(bed.contents("copy").await, before);
    let list = home.velero(&["restore", "get"]).await;
    assert!(list.lines().any(|line| line.starts_with("r ") && line.contains("Completed")), "{list}");
    let described = home.velero(&["restore", "describe", "r", "--details"]).await;
    assert!(described.contains("Completed") && described.contains("v1/ConfigMap:"), "{described}");
    assert!(!described.contains("<error"), "{described}");
    let log = home.velero(&["restore", "logs", "r"]).await;
    assert_eq!(log, unpacked(&home.bucket.join("restores/r/restore-r-logs.gz")));
    home.velero(&["restore", "delete", "r", "--confirm"]).await;
    eventually("the restore is gone", async || home.find("Restore", "r").await.is_none()).await;
    assert!(!home.bucket.join("restores/r/restore-r-logs.gz").exists());
}

async fn the_velero_command_line_creates_and_pauses_a_schedule(bed: &Bed) {
    plimsoll_testkit::require!(plimsoll_testkit::cache::program("velero"));
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 3).await;
    let shop = bed.ns("shop");
    home.velero(&["schedule", "create", "s", "--schedule", "@every 1s", "--include-namespaces", &shop]).await;
    eventually("a backup of the schedule has ended", async || {
        home.list("Backup").await.iter().any(|backup| backup.data["status"]["phase"] == "Completed")
    })
    .await;
    // It reads and replaces: what the server writes in between is a conflict.
    eventually("it is paused", async || home.try_velero(&["schedule", "pause", "s"]).await.0.success()).await;
    let list = home.velero(&["schedule", "get"]).await;
    let line = list.lines().find(|line| line.starts_with("s ")).unwrap_or_default();
    assert!(line.contains("Enabled") && line.contains("@every 1s") && line.contains("true"), "{list}");
    let refused = home.try_velero(&["schedule", "create", "bad", "--schedule", "0 25 * * *"]).await;
    eventually("an expression that makes no sense is refused by one of the two", async || {
        let found = home.find("Schedule", "bad").await;
        !refused.0.success() || found.is_some_and(|schedule| phase(&schedule) == "FailedValidation")
    })
    .await;
    home.velero(&["schedule", "delete", "s", "--confirm"]).await;
    assert!(home.find("Schedule", "s").await.is_none());
}

fn unpacked(file: &std::path::Path) -> String {
    let mut text = String::new();
    let mut packed = flate2::read::MultiGzDecoder::new(std::fs::File::open(file).unwrap());
    std::io::Read::read_to_string(&mut packed, &mut text).unwrap();
    text
}

async fn a_download_from_a_directory_needs_an_address(bed: &Bed) {
    let home = bed.home("home").await;
    let mut server = crate::bed::plimsoll();
    server.args(["server", "--namespace", &home.namespace, "--kubeconfig"]).arg(&bed.kubeconfig);
    let _server = server.arg("--scratch-dir").arg(bed.directory.path().join("scratch")).spawn().unwrap();
    bed.application("shop", 3).await;
    home.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    home.ended("Backup", "b").await;
    for (name, target, expected) in [
        ("log", json!({ "kind": "BackupLog", "name": "b" }), "--download-url"),
        ("none", json!({ "kind": "RestoreLog", "name": "r" }), "restore r not found"),
    ] {
        home.create(json!({ "apiVersion": "velero.io/v1", "kind": "DownloadRequest", "metadata": { "name": name },
            "spec": { "target": target } }))
            .await
            .unwrap();
        eventually("the request says why there is no link", async || {
            let request = home.get("DownloadRequest", name).await;
            request["status"]["message"].as_str().is_some_and(|message| message.contains(expected))
        })
        .await;
        eventually("an Event says so", async || {
            home.events("DownloadRequest", name).await.contains(&"NoDownload".to_owned())
        })
        .await;
    }
}

/// The status of a GET, without a client's opinion about it.
async fn get(url: &str) -> u16 {
    let (authority, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = tokio::net::TcpStream::connect(authority).await.unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).split_whitespace().nth(1).unwrap().parse().unwrap()
}

async fn a_link_to_a_missing_file_is_a_404_and_a_modified_link_is_rejected(bed: &Bed) {
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 3).await;
    home.backup("b", json!({ "includedNamespaces": [bed.ns("shop")] })).await;
    home.ended("Backup", "b").await;
    let link = async |name: &str, kind: &str| {
        home.create(json!({ "apiVersion": "velero.io/v1", "kind": "DownloadRequest", "metadata": { "name": name },
            "spec": { "target": { "kind": kind, "name": "b" } } }))
            .await
            .unwrap();
        let mut url = String::new();
        eventually("there is a link", async || {
            let request = home.get("DownloadRequest", name).await;
            request["status"]["downloadURL"].as_str().unwrap_or_default().clone_into(&mut url);
            phase(&request) == "Processed"
        })
        .await;
        url
    };
    let contents = link("contents", "BackupContents").await;
    assert_eq!(get(&contents).await, 200);
    assert_eq!(get(&contents.replace("b.tar.gz", "velero-backup.json")).await, 403);
    assert_eq!(get(&contents.replace("expires=", "expires=9")).await, 403);
    assert_eq!(get(&contents.replace("/downloads/", "/elsewhere/")).await, 404);
    assert_eq!(get(&link("snapshots", "CSIBackupVolumeSnapshots").await).await, 404);
}
