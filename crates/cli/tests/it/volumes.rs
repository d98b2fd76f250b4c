//! Backup and restore of volume data: pods write files, and every file is restored unchanged.

use plimsoll_testkit::peers::S3Server;
use plimsoll_testkit::peers::s3::SECRET_KEY;
use plimsoll_testkit::{cache, require};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, eventually, phase, terminate_server};
use crate::planted::restored_file;
use crate::pod_volumes::{Application, agent, agent_log, server, transfer, unpacked};

async fn round_trip(home: &Home<'_>, application: &Application<'_>, mover: &str) {
    let (_server, agent) = (server(home, mover, &[]), agent(home, &[], &[]));
    let before = application.files().await;
    let settings = json!({ "parallelFilesUpload": 3 });
    home.backup("b", json!({ "includedNamespaces": [application.namespace], "uploaderConfig": settings })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(
        phase(&backup),
        "Completed",
        "{mover}: {}\n{}\n{}",
        home.messages("b", "errors"),
        home.log(),
        agent_log(home)
    );
    check_backup(home, application, &backup, mover).await;
    application.lose().await;
    let settings = json!({ "parallelFilesDownload": 2, "writeSparseFiles": false });
    home.restore("r", json!({ "backupName": "b", "uploaderConfig": settings })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{mover}: {restore:#}\n{}\n{}", home.log(), agent_log(home));
    check_restore(home, application, &restore).await;
    eventually("the pod runs with its data", async || application.is_running().await).await;
    assert_eq!(application.files().await, before, "{mover}");
    terminate_server(agent).await;
    check_logs(home, mover).await;
}

async fn check_backup(home: &Home<'_>, application: &Application<'_>, backup: &Value, mover: &str) {
    let uploader = if mover == "kopia" { "kopia" } else { "restic" };
    let found = transfer(home, "PodVolumeBackup", "data").await.unwrap();
    let pod = application.pod().await.unwrap();
    assert_eq!(found["metadata"]["labels"]["velero.io/backup-name"], "b");
    assert_eq!(found["metadata"]["labels"]["velero.io/backup-uid"], backup["metadata"]["uid"]);
    assert_eq!(found["metadata"]["annotations"]["velero.io/pvc-name"], "data");
    assert_eq!(found["metadata"]["ownerReferences"][0]["kind"], "Backup");
    let spec = &found["spec"];
    assert_eq!((&spec["uploaderType"], &spec["node"]), (&json!(uploader), &json!("local")), "{found:#}");
    assert_eq!(spec["pod"]["uid"], pod["metadata"]["uid"]);
    assert_eq!(spec["tags"]["backup"], "b");
    assert_eq!(spec["uploaderSettings"], json!({ "ParallelFilesUpload": "3" }), "{found:#}");
    assert_eq!(spec["tags"]["pvc-uid"], found["metadata"]["labels"]["velero.io/pvc-uid"]);
    let status = &found["status"];
    assert_eq!(
        (&status["phase"], &status["progress"]["bytesDone"]),
        (&json!("Completed"), &status["progress"]["totalBytes"])
    );
    assert!(status["progress"]["totalBytes"].as_u64().unwrap() > 1_000_000, "{status:#}");
    assert_eq!(status["plimsoll"]["percent"], "100.00", "{status:#}");
    assert!(status["snapshotID"].as_str().is_some_and(|id| id.len() >= 8), "{status:#}");
    let kept = unpacked(home, "backups/b/b-podvolumebackups.json.gz");
    assert_eq!(kept.as_array().unwrap().len(), 2, "{kept:#}");
    let infos = unpacked(home, "backups/b/b-volumeinfo.json.gz");
    let info = infos.as_array().unwrap().iter().find(|info| info["pvcName"] == "data").unwrap();
    assert_eq!((&info["backupMethod"], &info["result"]), (&json!("PodVolumeBackup"), &json!("succeeded")), "{info:#}");
    assert_eq!(info["pvbInfo"]["uploaderType"], uploader, "{info:#}");
}

async fn check_restore(home: &Home<'_>, application: &Application<'_>, restore: &Value) {
    let found = transfer(home, "PodVolumeRestore", "data").await.unwrap();
    let labels = &found["metadata"]["labels"];
    assert_eq!(labels["velero.io/restore-uid"], restore["metadata"]["uid"]);
    assert_eq!(labels["velero.io/pvc-uid"], application.claim().await["metadata"]["uid"], "{labels}");
    let settings = json!({ "ParallelFilesDownload": "2", "WriteSparseFiles": "false" });
    assert_eq!(found["spec"]["uploaderSettings"], settings, "{found:#}");
    let status = &found["status"];
    assert_eq!(
        (&status["phase"], &status["progress"]["bytesDone"]),
        (&json!("Completed"), &status["progress"]["totalBytes"])
    );
    let infos = unpacked(home, "restores/r/r-volumeinfo.json.gz");
    assert_eq!(infos.as_array().unwrap().len(), 2, "{infos:#}");
}

/// The credentials of the repository and the store are in no log, neither plain nor in base64.
async fn check_logs(home: &Home<'_>, mover: &str) {
    let secret = home.get("Secret", "velero-repo-credentials").await;
    let encoded = secret["data"]["repository-password"].as_str().unwrap();
    let password = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, encoded).unwrap();
    let password = String::from_utf8(password).unwrap();
    let (server, agent) = (home.log(), agent_log(home));
    assert!(!password.is_empty() && !server.is_empty() && agent.contains("at work"), "{mover}: {server}\n{agent}");
    for secret in [password.as_str(), encoded, SECRET_KEY] {
        assert!(!server.contains(secret) && !agent.contains(secret), "{mover}: a secret stands in the log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mover_restores_every_file_of_a_volume() {
    require!(cache::program("kopia"));
    let bed = Bed::local_with_pods().await;
    let store = S3Server::start("127.0.0.1").unwrap();
    let first = async {
        let (home, application) = (bed.home("home-a").await, Application::start(&bed, "built-in", 3_000_000).await);
        round_trip(&home, &application, "built-in").await;
    };
    let second = async {
        let home = bed.home_on_s3("home-b", &store, store.endpoint()).await;
        let application = Application::start(&bed, "kopia", 3_000_000).await;
        round_trip(&home, &application, "kopia").await;
    };
    let third = async {
        let (home, application) = (bed.home("home-c").await, Application::start(&bed, "restic", 3_000_000).await);
        round_trip(&home, &application, "restic").await;
    };
    tokio::join!(first, second, third);
}

/// The volumes whose files a backup has.
pub async fn volumes_of(home: &Home<'_>, backup: &str) -> Vec<String> {
    let all = home.list("PodVolumeBackup").await.into_iter().map(|one| json!(one));
    let of_it = all.filter(|one| one["metadata"]["labels"]["velero.io/backup-name"] == backup);
    let mut names: Vec<_> = of_it.map(|one| one["spec"]["volume"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_and_annotations_select_the_volumes_to_back_up() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    let policy = |condition: &str, action: &str| format!("- conditions: {condition}\n  action: {{type: {action}}}\n");
    let (claims, empty) = ("{capacity: '0,10Gi'}", "{volumeTypes: [emptyDir]}");
    for (name, on_claims, on_empty) in [("claims", "fs-backup", "skip"), ("empty", "skip", "fs-backup")] {
        let rules = policy(empty, on_empty) + &policy(claims, on_claims);
        let rules = format!("version: v1\nvolumePolicies:\n{rules}");
        home.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
            "data": { "rules.yaml": rules } }))
            .await
            .unwrap();
    }
    // The annotation of the pod names both: a policy takes precedence.
    for (name, expected) in [("claims", "data"), ("empty", "scratch")] {
        let policy = json!({ "kind": "configmap", "name": name });
        home.backup(name, json!({ "includedNamespaces": [application.namespace], "resourcePolicy": policy })).await;
        let backup = home.ended("Backup", name).await;
        assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages(name, "errors"), agent_log(&home));
        assert_eq!(volumes_of(&home, name).await, [expected], "{name}");
    }
    let infos = unpacked(&home, "backups/empty/empty-volumeinfo.json.gz");
    let skipped = infos.as_array().unwrap().iter().find(|info| info["pvcName"] == "data").unwrap();
    assert_eq!((&skipped["skipped"], &skipped["skippedReason"]), (&json!(true), &json!("skipped due to policy")));

    application.annotate("backup.velero.io/backup-volumes-excludes", "scratch").await;
    let all = json!({ "includedNamespaces": [application.namespace], "defaultVolumesToFsBackup": true });
    home.backup("all", all).await;
    assert_eq!(phase(&home.ended("Backup", "all").await), "Completed", "{}", home.messages("all", "errors"));
    assert_eq!(volumes_of(&home, "all").await, ["data"]);
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_pod_does_not_wait_if_a_later_restore_has_no_data() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    home.backup("first", json!({ "includedNamespaces": [application.namespace] })).await;
    assert_eq!(phase(&home.ended("Backup", "first").await), "Completed", "{}", agent_log(&home));
    application.lose().await;
    home.restore("first", json!({ "backupName": "first" })).await;
    assert_eq!(phase(&home.ended("Restore", "first").await), "Completed", "{}", agent_log(&home));
    let pod = application.pod().await.unwrap();
    assert_eq!(pod["spec"]["initContainers"][0]["name"], "restore-wait", "{pod:#}");

    // Now the pod brings along a container that waits for the first restore.
    application.annotate("backup.velero.io/backup-volumes", "").await;
    home.backup("bare", json!({ "includedNamespaces": [application.namespace] })).await;
    assert_eq!(phase(&home.ended("Backup", "bare").await), "Completed", "{}", home.messages("bare", "errors"));
    assert_eq!(volumes_of(&home, "bare").await, Vec::<String>::new());
    application.annotate("backup.velero.io/backup-volumes", "data,scratch").await;
    home.backup("full", json!({ "includedNamespaces": [application.namespace] })).await;
    assert_eq!(phase(&home.ended("Backup", "full").await), "Completed", "{}", home.messages("full", "errors"));
    // Nothing to restore, and nothing that shall be.
    for (backup, spec) in [("bare", json!({})), ("full", json!({ "restorePVs": false }))] {
        application.lose().await;
        let mut spec = spec;
        spec["backupName"] = json!(backup);
        home.restore(backup, spec).await;
        let restore = home.ended("Restore", backup).await;
        assert_eq!(phase(&restore), "Completed", "{backup}: {restore:#}\n{}", home.log());
        eventually("the pod runs without its data", async || application.is_running().await).await;
        let pod = application.pod().await.unwrap();
        assert!(pod["spec"]["initContainers"].is_null(), "{backup}: {pod:#}");
        let named = unpacked(&home, &format!("restores/{backup}/restore-{backup}-results.gz")).to_string();
        assert_eq!(named.contains("restorePVs is false"), backup == "full", "{named}");
    }
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_excludes_claims_writes_no_data_into_existing_ones() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}", agent_log(&home));
    let scratch = std::fs::read(application.directory("scratch").await.unwrap().join("noise")).unwrap();
    application.lose_pod().await;
    let live = application.directory("data").await.unwrap().join("hello");
    std::fs::write(&live, "written since").unwrap();

    let spec = json!({ "backupName": "b", "excludedResources": ["persistentvolumeclaims"] });
    home.restore("r", spec).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}\n{}", home.log(), agent_log(&home));
    eventually("the pod runs", async || application.is_running().await).await;
    assert_eq!(std::fs::read_to_string(&live).unwrap(), "written since");
    let back = std::fs::read(application.directory("scratch").await.unwrap().join("noise")).unwrap();
    assert!(back == scratch, "the pod's own volume comes back with it");
    let results = unpacked(&home, "restores/r/restore-r-results.gz").to_string();
    let expected = format!("the files of volume {}/writer/data are not restored", application.namespace);
    assert!(results.contains(&expected) && results.contains("leaves persistentvolumeclaims out"), "{results}");
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_configures_the_restore_wait_container_and_invalid_values_are_warnings() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    assert_eq!(phase(&home.ended("Backup", "b").await), "Completed", "{}", agent_log(&home));
    home.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "waiting",
        "labels": { "velero.io/plugin-config": "", "velero.io/pod-volume-restore": "RestoreItemAction" } },
        "data": { "image": "velero/velero-restore-helper:v1.15.2", "cpuLimit": "200m", "memRequest": "64Mi",
            "secCtx": "runAsUser: 0\nreadOnlyRootFilesystem: true\n" } }))
        .await
        .unwrap();
    application.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}\n{}", home.log(), agent_log(&home));
    let results = unpacked(&home, "restores/r/restore-r-results.gz");
    let words =
        "item action velero.io/pod-volume-restore: image \\\"velero/velero-restore-helper:v1.15.2\\\" of the ConfigMap";
    assert!(results["warnings"].to_string().contains(words), "{results:#}");
    let pod = application.pod().await.unwrap();
    let waits = &pod["spec"]["initContainers"][0];
    assert!(waits["image"].as_str().unwrap().starts_with("plimsoll"), "{waits:#}");
    assert_eq!(
        waits["resources"],
        json!({ "requests": { "cpu": "100m", "memory": "64Mi" },
        "limits": { "cpu": "200m", "memory": "128Mi" } })
    );
    assert_eq!(waits["securityContext"], json!({ "runAsUser": 0, "readOnlyRootFilesystem": true }));
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_volume_is_restored_empty_without_a_warning() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    application.empty_pod("void").await;
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages("b", "errors"), agent_log(&home));
    let empty = transfer(&home, "PodVolumeBackup", "void").await.unwrap();
    assert_eq!((phase(&empty), &empty["status"]["snapshotID"]), ("Completed", &json!("")), "{empty:#}");
    assert_eq!(empty["status"]["progress"], json!({ "totalBytes": 0, "bytesDone": 0 }), "{empty:#}");
    application.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}", home.log());
    assert!(restore["status"]["warnings"].as_u64().unwrap_or(0) == 0, "{restore:#}\n{}", home.log());
    for pod in ["void", "writer"] {
        eventually("the pod runs", async || application.runs(pod).await).await;
    }
    terminate_server(agent).await;
}

/// A home with the bucket of another one as location `name`, beside its own location.
async fn home_with_bucket_of<'a>(bed: &'a Bed, of: &Home<'_>, name: &str) -> Home<'a> {
    let home = bed.home(&format!("beside-{}", of.namespace)).await;
    let bucket = of.bucket.display().to_string();
    home.create(json!({ "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation", "metadata": { "name": name },
        "spec": { "provider": "directory", "objectStorage": { "bucket": bucket }, "backupSyncPeriod": "1s" } }))
        .await
        .unwrap();
    home
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_restored_in_a_cluster_whose_location_has_another_name() {
    let bed = Bed::local_with_pods().await;
    let (there, application) = (bed.home("there").await, Application::start(&bed, "shop", 100_000).await);
    let here = home_with_bucket_of(&bed, &there, "cluster-a").await;
    for home in [&there, &here] {
        home.create_secret("velero-repo-credentials", "repository-password", "shared").await;
    }
    let before = application.files().await;
    let (first, first_agent) = (server(&there, "built-in", &[]), agent(&there, &[], &[]));
    there.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    let backup = there.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{}\n{}", there.messages("b", "errors"), agent_log(&there));
    assert_eq!(backup["spec"]["storageLocation"], "default");
    terminate_server(first).await;
    terminate_server(first_agent).await;
    application.lose().await;

    let (_server, agent) = (server(&here, "built-in", &[]), agent(&here, &[], &[]));
    eventually("the backup is synced", async || here.find("Backup", "b").await.is_some()).await;
    here.restore("r", json!({ "backupName": "b" })).await;
    let restore = here.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "Completed", "{restore:#}\n{}\n{}", here.log(), agent_log(&here));
    eventually("the pod runs with its data", async || application.is_running().await).await;
    assert_eq!(application.files().await, before);
    let found = transfer(&here, "PodVolumeRestore", "data").await.unwrap();
    assert_eq!(found["spec"]["backupStorageLocation"], "cluster-a", "{found:#}");
    let repositories: Vec<_> = here.list("BackupRepository").await.into_iter().map(|one| one.metadata.name).collect();
    assert_eq!(repositories, [Some("shop-cluster-a-restic".to_owned())]);
    assert!(!here.bucket.join("restic").exists(), "nothing is made in its own bucket");
    terminate_server(agent).await;
}

/// Writes into the files of a backup that the backup of a volume failed.
fn mark_volume_failed(home: &Home<'_>, backup: &str, volume: &str, message: &str) {
    let path = format!("backups/{backup}/{backup}-podvolumebackups.json.gz");
    let mut all = unpacked(home, &path);
    let one = all.as_array_mut().unwrap().iter_mut().find(|one| one["spec"]["volume"] == volume).unwrap();
    one["status"] = json!({ "phase": "Failed", "message": message });
    let packed = plimsoll_archive::codec::gzip_json(&all).unwrap();
    std::fs::write(home.bucket.join(path), packed).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_without_a_claim_whose_backup_failed_is_an_error_of_the_restore() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages("b", "errors"), agent_log(&home));
    mark_volume_failed(&home, "b", "scratch", "RepositoryFull: failed to write to repository");
    application.lose().await;
    home.restore("r", json!({ "backupName": "b" })).await;
    let restore = home.ended("Restore", "r").await;
    assert_eq!(phase(&restore), "PartiallyFailed", "{restore:#}\n{}", home.log());
    let errors = restored_file(&home, "r", "results.gz")["errors"].to_string();
    let words =
        "volume shop/writer/scratch is not restored: its backup failed: RepositoryFull: failed to write to repository";
    assert!(errors.contains(words) && restore["status"]["errors"] == 1, "{errors}\n{restore:#}");
    eventually("the pod runs with what there is", async || application.is_running().await).await;
    assert!(application.directory("data").await.unwrap().join("done").exists());
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_with_a_conflicting_name_gets_another_name() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    // As namespace "x" and location "y-default" could have made it.
    let taken = format!("{}-default-restic", application.namespace);
    home.create(json!({ "apiVersion": "velero.io/v1", "kind": "BackupRepository", "metadata": { "name": taken },
        "spec": { "volumeNamespace": "another", "backupStorageLocation": "default", "repositoryType": "restic",
            "maintenanceFrequency": "1h0m0s" } }))
        .await
        .unwrap();
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    home.backup("b", json!({ "includedNamespaces": [application.namespace] })).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages("b", "errors"), home.log());
    let all = home.list("BackupRepository").await.into_iter().map(|one| json!(one));
    let own: Vec<Value> = all.filter(|one| one["spec"]["volumeNamespace"] == application.namespace.as_str()).collect();
    assert_eq!(own.len(), 1, "{own:#?}");
    assert!(own[0]["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(&format!("{taken}-"))), "{own:#?}");
    terminate_server(agent).await;
}
