//! Velero's plugins at work: item actions, work in the background, a location behind a plugin.

use std::path::PathBuf;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use plimsoll_testkit::peers::S3Server;
use plimsoll_testkit::wait::WAIT_TIMEOUT;
use plimsoll_testkit::{Unavailable, cache, require};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::bed::{Bed, Home, eventually, phase};
use crate::killed::{has_no_open_operations, terminate_if_running};

/// A plugin directory with these programs in it.
fn directory_with(bed: &Bed, programs: &[&str]) -> Result<PathBuf, Unavailable> {
    let directory = bed.directory.path().join("plugins");
    std::fs::create_dir_all(&directory).unwrap();
    for name in programs {
        let program = cache::program(name)?;
        let _ = std::os::unix::fs::symlink(program, directory.join(name));
    }
    Ok(directory)
}

fn server(home: &Home<'_>, directory: &std::path::Path, environment: &[(&str, &str)]) -> Child {
    let mut all = vec![("PLIMSOLL_PLUGIN_DIR", directory.to_str().unwrap())];
    all.extend(environment);
    home.server_with("3s", &all)
}

async fn config_map(bed: &Bed, namespace: &str, name: &str, labels: &[(&str, &str)], annotations: &[(&str, &str)]) {
    let map = |pairs: &[(&str, &str)]| Some(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: map(labels),
        annotations: map(annotations),
        ..ObjectMeta::default()
    };
    let object = ConfigMap { metadata, ..ConfigMap::default() };
    let api: Api<ConfigMap> = Api::namespaced(bed.client.clone(), namespace);
    api.create(&PostParams::default(), &object).await.unwrap();
}

fn unpacked(path: &std::path::Path) -> Value {
    let content = std::process::Command::new("gzip").arg("-dc").arg(path).output().unwrap();
    serde_json::from_slice(&content.stdout).unwrap()
}

/// Changes an item that is to be read again, while its backup waits for the work that began with it; then lets that end.
async fn change_item_during_wait(bed: &Bed, home: &Home<'_>, namespace: &str, gate: &std::path::Path) {
    eventually("the backup waits for plugins", async || {
        phase(&home.get("Backup", "b").await).starts_with("WaitingForPluginOperations")
    })
    .await;
    let api: Api<ConfigMap> = Api::namespaced(bed.client.clone(), namespace);
    let patch = Patch::Merge(json!({ "data": { "changed": "later" } }));
    api.patch("gated", &PatchParams::default(), &patch).await.unwrap();
    std::fs::write(gate, "open").unwrap();
}

const ASK: &str = "test.plimsoll.dev/ask";

/// The error of a failed item operation is in the results, in the log, and in the description.
async fn assert_failed_operation_is_explained(home: &Home<'_>, kind: &str, name: &str) {
    let output = async |arguments: &[&str]| {
        let output = home.command(arguments).output().await.unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let described = output(&[kind, "describe", name, "--details"]).await;
    let error = described.lines().find_map(|line| line.trim().strip_prefix("Operation Error:")).map(str::trim);
    let error = error.unwrap_or_else(|| panic!("no error of an operation in\n{described}"));
    let explains = |line: &str| line.contains("operation ") && line.contains(error);
    assert!(described.lines().any(explains), "among the errors:\n{described}");
    let log = output(&[kind, "logs", name]).await;
    assert!(log.lines().any(|line| line.contains("level=error") && explains(line)), "{error}\n{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn item_actions_of_plugins_see_backup_restore_and_deletion() {
    let bed = Bed::local().await;
    let directory = require!(directory_with(&bed, &["velero-test-plugin"]));
    let home = bed.home("home").await;
    let gate = bed.directory.path().join("gate");
    let _server = server(&home, &directory, &[("VELERO_TEST_GATE", gate.to_str().unwrap())]);
    let shop = bed.application("shop", 3).await;
    config_map(&bed, &shop, "gated", &[("slow", "gate")], &[]).await;
    config_map(&bed, &shop, "marked", &[("mark", "yes")], &[(ASK, "warn")]).await;
    config_map(&bed, &shop, "refused", &[("mark", "yes")], &[(ASK, "refuse")]).await;
    config_map(&bed, &shop, "skipped", &[("mark", "yes")], &[(ASK, "skip")]).await;
    config_map(&bed, &shop, "slow", &[("slow", "well")], &[]).await;
    config_map(&bed, &shop, "failing", &[("slow", "fail")], &[]).await;
    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    change_item_during_wait(&bed, &home, &shop, &gate).await;
    let backup = home.ended("Backup", "b").await;
    let gated = home.archived_object("b", &format!("resources/configmaps/namespaces/{shop}/gated.json"));
    assert_eq!(gated["data"]["changed"], "later", "it is read again once its work has ended: {gated:#}");

    let path = format!("resources/configmaps/namespaces/{shop}/marked.json");
    let marked = home.archived_object("b", &path);
    assert_eq!(marked["metadata"]["annotations"]["test.plimsoll.dev/backup"], "b", "{marked:#}");
    assert!(!home.archived("b").iter().any(|name| name.ends_with("/refused.json")));
    let errors = home.messages("b", "errors");
    assert!(errors.contains("plugin test.plimsoll.dev/mark: BackupItemAction.Execute: no  [31mwish"), "{errors}");
    assert!(home.messages("b", "warnings").contains("something  [31modd"), "{}", home.messages("b", "warnings"));
    let status = &backup["status"];
    assert_eq!((phase(&backup), &status["errors"]), ("PartiallyFailed", &json!(2)), "{status:#}\n{}", home.log());
    let counts = ["Attempted", "Completed", "Failed"].map(|word| status[format!("backupItemOperations{word}")].clone());
    assert_eq!(counts, [json!(3), json!(2), json!(1)], "{status:#}");
    let operations = unpacked(&home.bucket.join("backups/b/b-itemoperations.json.gz"));
    let phases: Vec<_> = operations.as_array().unwrap().iter().map(|one| &one["status"]["phase"]).collect();
    assert!(phases.contains(&&json!("Completed")) && phases.contains(&&json!("Failed")), "{operations:#}");

    assert_failed_operation_is_explained(&home, "backup", "b").await;

    bed.delete_namespace("shop").await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_failed_operation_is_explained(&home, "restore", "r").await;
    let api: Api<ConfigMap> = Api::namespaced(bed.client.clone(), &shop);
    let restored = api.get("marked").await.unwrap().metadata.annotations.unwrap();
    assert_eq!(restored["test.plimsoll.dev/restore"], "r");
    assert!(api.get_opt("skipped").await.unwrap().is_none(), "the action left it out");
    let counts = &restore["status"];
    assert_eq!(
        (&counts["restoreItemOperationsAttempted"], &counts["restoreItemOperationsFailed"]),
        (&json!(3), &json!(1)),
        "{restore:#}"
    );

    let listed = home.command(&["plugin", "get"]).output().await.unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let offered =
        listed.lines().any(|line| line.contains("test.plimsoll.dev/slow") && line.contains("BackupItemActionV2"));
    assert!(offered, "{listed}");

    home.create(json!({ "apiVersion": "velero.io/v1", "kind": "DeleteBackupRequest", "metadata": { "name": "d" },
        "spec": { "backupName": "b" } }))
        .await
        .unwrap();
    eventually("the backup is gone", async || home.find("Backup", "b").await.is_none()).await;
    let cleaned = format!("cleaning up after {shop}/marked of backup b");
    assert!(home.log().contains(&cleaned), "{}", home.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_killed_while_it_waits_for_plugins_cancels_their_operations_and_restarts() {
    let bed = Bed::local().await;
    let directory = require!(directory_with(&bed, &["velero-test-plugin"]));
    let shop = bed.application("shop", 3).await;
    config_map(&bed, &shop, "slow", &[("slow", "well")], &[]).await;
    for point in ["operation.begun.after", "status.waiting.after"] {
        let home = bed.home(&point.replace('.', "-")).await;
        home.backup("b", json!({ "includedNamespaces": [shop] })).await;
        let mut killed = server(&home, &directory, &[("PLIMSOLL_KILL_AT", point)]);
        tokio::time::timeout(WAIT_TIMEOUT, killed.wait()).await.unwrap().unwrap();
        let next = server(&home, &directory, &[]);
        let backup = home.ended("Backup", "b").await;
        assert_eq!(phase(&backup), "Completed", "{point}: {backup:#}\n{}", home.log());
        assert_eq!(backup["status"]["backupItemOperationsCompleted"], 1, "{backup:#}");
        eventually("everything is tidy", async || has_no_open_operations(&home).await).await;
        terminate_if_running(next).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_location_of_the_aws_plugin_stores_and_restores_a_backup() {
    let bed = Bed::local().await;
    let directory = require!(directory_with(&bed, &["velero-plugin-for-aws"]));
    require!(cache::program("versitygw"));
    let s3 = S3Server::start("127.0.0.1").unwrap();
    let home = bed.home_on_s3("home", &s3, s3.endpoint()).await;
    let config = json!({ "plimsoll.dev/object-store-plugin": "true" });
    home.patch("BackupStorageLocation", "default", json!({ "spec": { "config": config } })).await;
    let _server = server(&home, &directory, &[]);
    let shop = bed.application("shop", 9).await;
    let before = bed.contents("shop").await;
    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}", home.log());
    bed.delete_namespace("shop").await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", home.log());
    assert_eq!(bed.contents("shop").await, before);
    let plugin = home.log().contains("velero-plugin-for-aws: ObjectStore velero.io/aws");
    assert!(plugin, "{}", home.log());
}

/// Runs our command line; returns what it printed. Fails if that fails.
async fn ours(home: &Home<'_>, arguments: &[&str]) -> String {
    let output = home.command(arguments).output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The Deployment of our installer, with an image that does not exist. Created, because the embedded cluster does not take
/// what is applied on the server's side.
async fn install(home: &Home<'_>) {
    let printed =
        ours(home, &["install", "--image", "plimsoll:none", "--no-crds", "--dry-run", "--output", "json"]).await;
    let list: Value = serde_json::from_str(&printed).unwrap();
    let server = list["items"].as_array().unwrap().iter().find(|object| object["kind"] == "Deployment").unwrap();
    let api: Api<Deployment> = Api::namespaced(home.bed.client.clone(), &home.namespace);
    api.create(&PostParams::default(), &serde_json::from_value(server.clone()).unwrap()).await.unwrap();
}

/// The images that bring plugins to the installed server, and where they and the server see them.
async fn plugins_of_the_server(home: &Home<'_>) -> Vec<String> {
    let api: Api<Deployment> = Api::namespaced(home.bed.client.clone(), &home.namespace);
    let pod = json!(api.get("plimsoll").await.unwrap().spec.template.spec);
    let mounts = |container: &Value| {
        let all = container["volumeMounts"].as_array().into_iter().flatten();
        let plugins = all.filter(|mount| mount["name"] == "plugins");
        plugins.map(|mount| mount["mountPath"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let volumes = pod["volumes"].as_array().unwrap().iter().filter(|volume| volume["name"] == "plugins").count();
    assert_eq!((volumes, mounts(&pod["containers"][0])), (1, vec!["/plugins".to_owned()]), "{pod:#}");
    let brought = pod["initContainers"].as_array().into_iter().flatten();
    brought
        .map(|container| {
            assert_eq!(mounts(container), ["/target"], "{pod:#}");
            container["image"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_is_added_to_an_installation_and_removed() {
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    install(&home).await;
    ours(&home, &["plugin", "add", "registry.example/team/one:1"]).await;
    assert_eq!(plugins_of_the_server(&home).await, ["registry.example/team/one:1"]);
    ours(&home, &["plugin", "remove", "team-one"]).await;
    assert!(plugins_of_the_server(&home).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_velero_command_line_adds_plugins_to_our_installation_and_removes_them() {
    require!(cache::program("velero"));
    let bed = Bed::local().await;
    let home = bed.home("home").await;
    install(&home).await;
    home.velero(&["plugin", "add", "registry.example/team/one:1", "--confirm"]).await;
    ours(&home, &["plugin", "add", "registry.example/team/two:1"]).await;
    let mut brought = plugins_of_the_server(&home).await;
    brought.sort_unstable();
    assert_eq!(brought, ["registry.example/team/one:1", "registry.example/team/two:1"], "each knows the other's");
    home.velero(&["plugin", "remove", "registry.example/team/two:1"]).await;
    ours(&home, &["plugin", "remove", "registry.example/team/one:1"]).await;
    assert!(plugins_of_the_server(&home).await.is_empty());
}

/// A pod that writes into a claim, which all pods of its namespace see, what its hooks do.
async fn create_logging_pod(bed: &Bed, namespace: &str, name: &str, related: &str, pre: &str) {
    let note = |what: &str| json!(["sh", "-c", format!("{what}; echo {name} >> /notes/lines")]).to_string();
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "mark": "yes" },
        "annotations": { "test.plimsoll.dev/related": related,
            "pre.hook.backup.velero.io/command": note(&format!("{pre}; printf 'pre ' >> /notes/lines")),
            "post.hook.backup.velero.io/command": note("printf 'post ' >> /notes/lines") } },
        "spec": { "containers": [{ "name": "main", "image": "none", "command": ["sleep", "3600"],
            "volumeMounts": [{ "name": "notes", "mountPath": "/notes" }] }],
            "volumes": [{ "name": "notes", "persistentVolumeClaim": { "claimName": "notes" } }] } });
    let api: Api<Pod> = Api::namespaced(bed.client.clone(), namespace);
    api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    eventually("the pod runs", async || phase(&json!(api.get(name).await.unwrap())) == "Running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_one_item_block_are_backed_up_between_the_hooks_of_all() {
    let bed = Bed::local_with_pods().await;
    let directory = require!(directory_with(&bed, &["velero-test-plugin"]));
    let home = bed.home("home").await;
    let shop = bed.application("shop", 3).await;
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "notes" },
        "spec": { "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "1Gi" } } } });
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(bed.client.clone(), &shop);
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    // Through another item of the backup; related items that do not exist are skipped.
    let related = [("test.plimsoll.dev/related", "pods/b,pods/absent")];
    config_map(&bed, &shop, "bridge", &[("mark", "yes")], &related).await;
    create_logging_pod(&bed, &shop, "a", "configmaps/bridge", "true").await;
    create_logging_pod(&bed, &shop, "b", "", "sleep 1").await;
    let _server = server(&home, &directory, &[]);
    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}\n{}", home.messages("b", "errors"), home.log());
    let volume = claims.get("notes").await.unwrap().spec.unwrap().volume_name.unwrap();
    let notes = std::fs::read_to_string(bed.volume(&volume).await.join("lines")).unwrap();
    assert_eq!(notes.lines().collect::<Vec<_>>(), ["pre a", "pre b", "post a", "post b"]);
    let archived = home.archived("b");
    for name in ["a", "b"] {
        assert!(archived.iter().any(|path| path.ends_with(&format!("/pods/namespaces/{shop}/{name}.json"))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_action_is_a_quiet_task_that_names_its_plugin() {
    let bed = Bed::local().await;
    let directory = require!(directory_with(&bed, &["velero-test-plugin"]));
    let home = bed.home("home").await;
    let _server = server(&home, &directory, &[]);
    let shop = bed.application("shop", 3).await;
    config_map(&bed, &shop, "stuck", &[("mark", "yes")], &[(ASK, "hang")]).await;
    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    let mut node = Value::Null;
    eventually("the task is there", async || {
        let operation = home.find("Operation", "backup-b").await.unwrap_or_default();
        let nodes = operation["status"]["tree"]["nodes"].as_array().cloned().unwrap_or_default();
        node = nodes.into_iter().find(|node| node["name"] == "item action test.plimsoll.dev/mark").unwrap_or_default();
        !node.is_null()
    })
    .await;
    assert_eq!((&node["quiet"], &node["item"]), (&json!(true), &json!(format!("{shop}/stuck"))), "{node:#}");
    assert!(node["stall"].is_null(), "it answers its health check: {node:#}");
    let cancel = home.command(&["cancel", "backup/b", "--wait"]).output().await.unwrap();
    assert_eq!(cancel.status.code(), Some(0), "{}", String::from_utf8_lossy(&cancel.stderr));
}
