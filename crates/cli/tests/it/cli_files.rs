//! Files that the command line downloads (logs, contents, lists of items), and requests that it sends to the server.

use http::Method;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually};
use crate::cli_verbs::run_ok;
use crate::commands::run;

async fn backed_up(home: &Home<'_>, name: &str) {
    let shop = home.bed.ns("shop");
    run_ok(home, &["backup", "create", name, "--include-namespaces", &shop, "--wait"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_printed_once_it_is_complete_and_followed_before() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    bed.application("shop", 30).await;
    home.backup("b", json!({ "includedNamespaces": ["shop"] })).await;
    let (code, _, err) = run(&home, &["backup", "logs", "b"]).await;
    assert!(code == Some(1) && err.contains("plimsoll backup logs b --follow"), "{err}");
    let mut following = home.command(&["logs", "backup/b", "-f"]);
    following.stdout(std::process::Stdio::piped());
    let following = following.spawn().unwrap();
    let _server = home.server();
    let followed = following.wait_with_output().await.unwrap();
    let log = run_ok(&home, &["backup", "logs", "b"]).await;
    assert!(log.lines().count() > 0 && log.lines().all(|line| line.starts_with("time=\"20")), "{log}");
    assert_eq!(String::from_utf8(followed.stdout).unwrap(), log);
    home.restore("r", json!({ "backupName": "none" })).await;
    home.ended("Restore", "r").await;
    let (code, _, err) = run(&home, &["restore", "logs", "r"]).await;
    assert!(code == Some(1) && err.contains("failed validation and has no log"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_waiting_restore_can_be_read() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 9).await;
    bed.application("gone", 3).await;
    run_ok(&home, &["backup", "create", "b", "--include-namespaces", "shop,gone", "--wait"]).await;
    bed.hold_namespace("held").await;
    run_ok(&home, &["restore", "create", "r", "--from-backup", "b", "--namespace-mappings", "gone:held"]).await;
    eventually("the operation shows the end of the log", async || {
        let found = home.find("Operation", "restore-r").await.unwrap_or_default();
        found["status"]["log"]["text"].as_str().is_some_and(|text| text.contains("skipped"))
    })
    .await;
    let text = run_ok(&home, &["describe", "restore/r"]).await;
    assert!(text.contains("held") && text.contains("Estimated total items to be restored"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_equals_the_file_in_the_location_and_is_never_partial() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 30).await;
    backed_up(&home, "b").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("b.tar.gz");
    let path = file.display().to_string();
    let text = run_ok(&home, &["backup", "download", "b", "-o", &path]).await;
    assert!(text.contains("backup/b downloaded to"), "{text}");
    let stored = std::fs::read(home.bucket.join("backups/b/b.tar.gz")).unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), stored);
    std::fs::write(&file, "mine").unwrap();
    let (code, _, err) = run(&home, &["backup", "download", "b", "-o", &path]).await;
    assert!(code == Some(1) && err.contains("--force"), "{err}");
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    run_ok(&home, &["backup", "download", "b", "-o", &path, "--force"]).await;
    assert_eq!(std::fs::read(&file).unwrap(), stored);
    std::fs::remove_file(home.bucket.join("backups/b/b.tar.gz")).unwrap();
    let (code, _, err) = run(&home, &["backup", "download", "b", "-o", &path, "--force"]).await;
    assert!(code == Some(1) && err.contains("no such file"), "{err}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_download_resumes_at_its_offset() {
    require!(cache::program("versitygw"));
    let bed = Bed::local().await;
    let (_store, proxy, home) = bed.home_on_proxied_s3("home").await;
    let _server = home.server();
    bed.application("shop", 30).await;
    backed_up(&home, "b").await;
    let tarball = || Requests::with_method(Method::GET).containing("backups/b/b.tar.gz");
    let cut = proxy.inject(tarball().first(2), Fault::TruncateResponse(1000));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.tar.gz").display().to_string();
    run_ok(&home, &["backup", "download", "b", "-o", &path]).await;
    assert_eq!(cut.hits(), 2);
    drop(cut);
    assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(home.bucket.join("backups/b/b.tar.gz")).unwrap());
    let refused = proxy.inject(tarball(), Fault::Status(403));
    let (code, _, err) = run(&home, &["backup", "download", "b", "-o", &path, "--force"]).await;
    assert!(code == Some(1) && err.contains("403") && !err.contains("X-Amz-Signature"), "{err}");
    drop(refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn details_list_every_item_with_its_result() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 6).await;
    bed.application("other", 3).await;
    run_ok(&home, &["backup", "create", "b", "--include-namespaces", "shop,other", "--wait"]).await;
    let text = run_ok(&home, &["backup", "describe", "b", "--details"]).await;
    for part in ["Results by namespace:", "shop:", "6 backed up", "Resource List:", "- shop/map-0", "Backup Volumes:"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let restore = ["restore", "create", "r", "--from-backup", "b", "--include-namespaces", "shop", "--wait"];
    run_ok(&home, &restore).await;
    // The record of an operation ends after the Restore.
    eventually("the reasons are recorded", async || {
        home.get("Operation", "restore-r").await["status"]["reasons"].as_array().is_some_and(|all| !all.is_empty())
    })
    .await;
    let text = run_ok(&home, &["restore", "describe", "r", "--details"]).await;
    for part in
        ["Total items to be restored:", "Items restored:", "Items skipped:", "Items failed:", "(the backup holds 11)"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    for part in ["Reasons:", "skipped: ", "- shop/map-0(skipped)"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let facts: Value =
        serde_json::from_str(&run_ok(&home, &["restore", "describe", "r", "--details", "-o", "json"]).await).unwrap();
    let skipped: u64 =
        facts["reasons"].as_array().unwrap().iter().map(|reason| reason["count"].as_u64().unwrap()).sum();
    assert_eq!(json!(skipped), facts["progress"]["skipped"]);
    assert_eq!(facts["notes"], Value::Null, "{facts:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_backup_deletes_its_files() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 3).await;
    backed_up(&home, "one").await;
    backed_up(&home, "two").await;
    let text = run_ok(&home, &["backup", "delete", "one", "--confirm", "--wait"]).await;
    assert!(text.contains("backup/one deleted"), "{text}");
    assert!(!home.bucket.join("backups/one/velero-backup.json").exists());
    assert_eq!(run_ok(&home, &["get", "backups", "-o", "name"]).await, "two\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_reports_its_version_and_its_absence_is_named() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let (code, _, err) = run(&home, &["version", "--timeout", "1s"]).await;
    assert!(code == Some(1) && err.contains("no server answered in namespace home"), "{err}");
    let _server = home.server();
    let text = run_ok(&home, &["version", "--timeout", "1m"]).await;
    assert!(text.contains("Client:") && text.contains("Version:  v1.18"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_restore_shows_the_action_for_every_item_and_changes_no_objects() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 9).await;
    backed_up(&home, "b").await;
    let dry = ["restore", "create", "r", "--from-backup", "b", "--dry-run"];
    let facts: Value = serde_json::from_str(&run_ok(&home, &[&dry[..], &["-o", "json"]].concat()).await).unwrap();
    assert_eq!((&facts["total"], &facts["counts"]["equal"]), (&json!(10), &json!(10)), "{facts:#}");
    let text = run_ok(&home, &[&dry[..], &["--namespace-mappings", "shop:copy"]].concat()).await;
    assert!(text.contains("would be created:     10"), "{text}");
    assert!(text.contains("Namespaces that would be created:\n  copy"), "{text}");
    assert_eq!(run_ok(&home, &["get", "restores", "-o", "name"]).await, "");
}
