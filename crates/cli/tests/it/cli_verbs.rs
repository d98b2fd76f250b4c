//! The verbs that every kind has, on the embedded cluster.

use std::process::Stdio;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::bed::{Bed, Home, eventually, plimsoll};
use crate::commands::run;

/// Runs a command that must succeed and returns its output.
pub async fn run_ok(home: &Home<'_>, arguments: &[&str]) -> String {
    let (code, out, err) = run(home, arguments).await;
    assert_eq!(code, Some(0), "{arguments:?}: {out}{err}");
    out
}

async fn names(home: &Home<'_>, kind: &str) -> Vec<String> {
    let text = run_ok(home, &["get", kind, "-o", "name"]).await;
    text.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_are_created_shown_paused_and_deleted() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    for (name, team) in [("daily", "shop"), ("weekly", "shop"), ("other", "none")] {
        let label = format!("team={team}");
        let create = ["schedule", "create", name, "--schedule", "0 1 * * *", "--ttl", "24h", "--labels", &label];
        run_ok(&home, &[&create[..], &["--include-namespaces", "shop", "--annotations", "why=because"]].concat()).await;
    }
    let (code, _, err) = run(&home, &["schedule", "create", "daily", "--schedule", "@daily"]).await;
    assert!(code == Some(1) && err.contains("(AlreadyExists): schedules.velero.io \"daily\" already exists"), "{err}");
    let text = run_ok(&home, &["schedule", "get", "-l", "team=shop", "-L", "team"]).await;
    assert!(text.contains("daily") && text.contains("TEAM") && !text.contains("other"), "{text}");
    run_ok(&home, &["schedule", "pause", "-l", "team=shop", "--skip-immediately", "true"]).await;
    let daily = home.get("Schedule", "daily").await;
    assert_eq!((&daily["spec"]["paused"], &daily["spec"]["skipImmediately"]), (&json!(true), &json!(true)));
    assert_eq!(home.get("Schedule", "other").await["spec"]["paused"], Value::Null);
    let text = run_ok(&home, &["schedule", "describe", "daily"]).await;
    for line in ["Paused:    true", "Schedule:  0 1 * * *", "    Included:  shop", "TTL:  24h0m0s", "why=because"] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    run_ok(&home, &["schedule", "unpause", "daily"]).await;
    let described = run_ok(&home, &["describe", "schedules", "-o", "json"]).await;
    let described: Value = serde_json::from_str(&described).unwrap();
    assert_eq!(described.as_array().unwrap().len(), 3);
    assert_eq!((&described[0]["name"], &described[0]["paused"]), (&json!("daily"), &json!(false)));
    run_ok(&home, &["delete", "schedules", "--selector", "team=shop", "--confirm", "--wait"]).await;
    assert_eq!(names(&home, "schedules").await, ["other"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_created_from_a_schedule_equals_a_scheduled_one() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 6).await;
    run_ok(
        &home,
        &["schedule", "create", "daily", "--schedule", "@yearly", "--include-namespaces", "shop", "--paused"],
    )
    .await;
    let text = run_ok(&home, &["backup", "create", "--from-schedule", "daily", "--wait"]).await;
    assert!(text.contains("backup daily-20") && text.contains("Completed, 7 of 7 items"), "{text}");
    let text = run_ok(&home, &["describe", "schedule/daily"]).await;
    assert!(text.contains("Backups:\n  daily-20"), "{text}");
    let (code, _, err) =
        run(&home, &["backup", "create", "--from-schedule", "daily", "--include-namespaces", "other"]).await;
    assert!(code == Some(2) && err.contains("takes filters and settings from the schedule"), "{err}");
    let (code, _, err) = run(&home, &["backup", "create", "--from-schedule", "hourly"]).await;
    assert!(code == Some(1) && err.contains("schedules.velero.io \"hourly\" not found"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_one_default_location_and_deleting_a_location_deletes_its_backup_objects() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 3).await;
    let bucket = home.bed.directory.path().join("second");
    std::fs::create_dir_all(&bucket).unwrap();
    let bucket = bucket.display().to_string();
    run_ok(
        &home,
        &["backup-location", "create", "second", "--provider", "directory", "--bucket", &bucket, "--default"],
    )
    .await;
    let text = run_ok(&home, &["location", "get", "--default", "-o", "name"]).await;
    assert_eq!(text.trim(), "second");
    eventually("the location is checked", async || {
        run_ok(&home, &["describe", "bsl/second"]).await.contains("Available")
    })
    .await;
    run_ok(&home, &["backup", "create", "b", "--include-namespaces", "shop", "--wait"]).await;
    let text = run_ok(&home, &["backup-location", "describe", "second"]).await;
    assert!(text.contains("Backups:") && text.contains(&bucket), "{text}");
    run_ok(&home, &["location", "set", "default", "--default", "--credential", "cloud=key"]).await;
    assert_eq!(home.get("BackupStorageLocation", "second").await["spec"]["default"], json!(false));
    assert_eq!(home.get("BackupStorageLocation", "default").await["spec"]["credential"]["name"], json!("cloud"));
    run_ok(&home, &["backup-location", "delete", "second", "--confirm"]).await;
    assert_eq!(names(&home, "backups").await, Vec::<String>::new());
    assert!(std::path::Path::new(&bucket).join("backups/b/velero-backup.json").exists(), "files stay");
}

async fn run_with_answer(home: &Home<'_>, arguments: &[&str], answer: &str) -> Option<i32> {
    let mut child = home.command(arguments).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(answer.as_bytes()).await.unwrap();
    child.wait().await.unwrap().code()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_needs_confirmation() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    home.restore("r", json!({ "backupName": "none" })).await;
    assert_eq!(run_with_answer(&home, &["restore", "delete", "r"], "").await, Some(2));
    assert_eq!(run_with_answer(&home, &["restore", "delete", "r"], "n\n").await, Some(0));
    assert_eq!(run_with_answer(&home, &["restore", "delete"], "y\n").await, Some(2));
    assert_eq!(run_with_answer(&home, &["restore", "delete", "r", "--all"], "y\n").await, Some(2));
    assert_eq!(names(&home, "restores").await, ["r"]);
    assert_eq!(run_with_answer(&home, &["restore", "delete", "r"], "Y\n").await, Some(0));
    assert_eq!(names(&home, "restores").await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_printed_as_objects_or_tables() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    home.restore("one", json!({ "backupName": "b" })).await;
    home.restore("two", json!({ "backupName": "b", "labelSelector": { "matchLabels": { "a": "b" } } })).await;
    let list: Value = serde_json::from_str(&run_ok(&home, &["restore", "get", "-o", "json"]).await).unwrap();
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("RestoreList"), 2));
    assert_eq!(list["items"][0]["kind"], "Restore");
    let one: Value = serde_json::from_str(&run_ok(&home, &["get", "restore/one", "-o", "json"]).await).unwrap();
    assert_eq!((&one["kind"], &one["metadata"]["name"]), (&json!("Restore"), &json!("one")));
    assert!(run_ok(&home, &["get", "restore", "one", "-o", "yaml"]).await.contains("kind: Restore"));
    let table = run_ok(&home, &["restore", "get"]).await;
    assert!(table.starts_with("NAME  BACKUP  STATUS") && table.contains("a=b") && table.contains("<none>"), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_counts_the_items_of_a_backup_and_creates_no_objects() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    bed.application("shop", 9).await;
    let plan = [
        "backup",
        "create",
        "x",
        "--include-namespaces",
        "shop",
        "--include-resources",
        "configmaps,secrets",
        "--dry-run",
    ];
    let text = run_ok(&home, &plan).await;
    for part in ["Namespaces:  1: shop", "configmaps", "secrets", "About 7 items"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let json: Value = serde_json::from_str(&run_ok(&home, &[&plan[..], &["-o", "json"]].concat()).await).unwrap();
    assert_eq!((&json["expectedItems"], &json["namespaces"]), (&json!(7), &json!(["shop"])));
    assert_eq!(names(&home, "backups").await, Vec::<String>::new());
}

/// A pod that runs on a node, with one volume.
async fn pod(home: &Home<'_>, name: &str, node: &str, volume: Value) {
    let mut volume = volume;
    volume["name"] = json!("data");
    home.create(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": { "nodeName": node,
        "containers": [{ "name": "main", "image": "shell", "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }],
        "volumes": [volume] } }))
        .await
        .unwrap();
    let running = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    home.api("Pod").patch_status(name, &PatchParams::default(), &running).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_shows_the_action_for_every_volume_and_names_refused_ones() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let nodes: Api<Node> = Api::all(bed.client.clone());
    for os in ["linux", "windows"] {
        let node = json!({ "metadata": { "name": os, "labels": { "kubernetes.io/os": os } } });
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }
    home.create(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "device" },
        "spec": { "accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "volumeName": "v",
            "resources": { "requests": { "storage": "1Gi" } } } }))
        .await
        .unwrap();
    pod(&home, "good", "linux", json!({ "emptyDir": {} })).await;
    pod(&home, "block", "linux", json!({ "persistentVolumeClaim": { "claimName": "device" } })).await;
    pod(&home, "foreign", "windows", json!({ "emptyDir": {} })).await;
    let plan = ["backup", "create", "x", "--include-namespaces", "home", "--default-volumes-to-fs-backup", "--dry-run"];
    let text = run_ok(&home, &plan).await;
    let line = |pod: &str| text.lines().find(|line| line.starts_with(&format!("home/{pod}/data"))).unwrap_or(&text);
    assert!(line("good").contains("fs-backup"), "{text}");
    assert!(line("block").contains("refused") && line("block").contains("claim device is a block device"), "{text}");
    assert!(line("foreign").contains("refused") && line("foreign").contains("node windows runs Windows"), "{text}");
    let json: Value = serde_json::from_str(&run_ok(&home, &[&plan[..], &["-o", "json"]].concat()).await).unwrap();
    let methods: Vec<&str> =
        json["volumes"].as_array().unwrap().iter().map(|one| one["method"].as_str().unwrap()).collect();
    assert_eq!(methods.iter().filter(|method| **method == "refused").count(), 2, "{json:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_lines_of_json_and_the_last_one_has_the_exit_code() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    let _server = home.server();
    bed.application("shop", 30).await;
    let text = run_ok(&home, &["backup", "create", "b", "--include-namespaces", "shop", "--events", "json"]).await;
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().all(|event| event["version"] == 1 && event["operation"] == "backup-b"), "{text}");
    let last = events.last().unwrap();
    assert_eq!((&last["state"], &last["exitCode"]), (&json!("Succeeded"), &json!(0)));
    assert_eq!((&last["done"], &last["total"], &last["percent"]), (&json!(31), &json!(31), &json!("100.00")));
    let refused = ["backup", "create", "refused", "--storage-location", "none", "--events", "json"];
    let (code, out, _) = run(&home, &refused).await;
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!((code, &last["state"], &last["exitCode"]), (Some(6), &json!("Refused"), &json!(6)));
    assert!(last["validationErrors"][0].as_str().unwrap().contains("none"), "{last}");
}

#[tokio::test]
async fn the_cli_reference_is_up_to_date() {
    let output = plimsoll().arg("reference").env_remove("VELERO_NAMESPACE").output().await.unwrap();
    let fresh = String::from_utf8(output.stdout).unwrap();
    let written = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md")).unwrap();
    assert!(fresh == written, "docs/reference/cli.md is not fresh: run `make generate` and commit the result");
}
