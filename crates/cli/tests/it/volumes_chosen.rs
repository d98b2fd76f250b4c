//! Which volumes are backed up, as in Velero, and how the plan lists them.

use serde_json::json;

use crate::bed::{Bed, Home, phase, plimsoll, terminate_server};
use crate::cli_verbs::run_ok;
use crate::pod_volumes::{Application, agent, agent_log, server};
use crate::volumes::volumes_of;

/// The lines of a plan, by the pod and the volume that they are about.
async fn planned(home: &Home<'_>, application: &Application<'_>, more: &[&str]) -> impl Fn(&str) -> String + use<> {
    let plan = ["backup", "create", "x", "--dry-run", "--include-namespaces", &application.namespace];
    let text = run_ok(home, &[&plan[..], more].concat()).await;
    let namespace = application.namespace.clone();
    move |volume: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{namespace}/{volume} ")));
        line.unwrap_or_default().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_without_a_volume_setting_uses_the_default_of_the_server() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    application.annotate("backup.velero.io/backup-volumes", "").await;
    let nothing = planned(&home, &application, &[]).await;
    assert_eq!(nothing("writer/data"), "", "there is no server yet");
    let server = server(&home, "built-in", &["--default-volumes-to-fs-backup"]);
    let agent = agent(&home, &[], &[]);
    for (name, said, expected) in [("silent", None, true), ("never", Some(false), false)] {
        let spec = json!({ "includedNamespaces": [application.namespace], "defaultVolumesToFsBackup": said });
        home.backup(name, spec).await;
        let backup = home.ended("Backup", name).await;
        assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages(name, "errors"), agent_log(&home));
        assert_eq!(backup["spec"]["defaultVolumesToFsBackup"], expected, "{backup:#}");
        let volumes: &[&str] = if expected { &["data", "scratch"] } else { &[] };
        assert_eq!(volumes_of(&home, name).await, volumes, "{name}");
    }
    let silent = planned(&home, &application, &[]).await;
    assert!(
        silent("writer/data").contains("fs-backup") && silent("writer/scratch").contains("fs-backup"),
        "{}",
        silent("writer/data")
    );
    assert_eq!(planned(&home, &application, &["--default-volumes-to-fs-backup=false"]).await("writer/data"), "");
    terminate_server(agent).await;
    terminate_server(server).await;
}

#[tokio::test]
async fn the_installer_enables_backups_of_all_volumes_and_requires_agents() {
    let install = ["install", "--dry-run", "--no-crds", "-o", "json", "--default-volumes-to-fs-backup"];
    let argued = plimsoll().args(install).output().await.unwrap();
    assert!(argued.status.success(), "{}", String::from_utf8_lossy(&argued.stderr));
    assert!(String::from_utf8_lossy(&argued.stdout).contains("\"--default-volumes-to-fs-backup=true\""));
    let alone = plimsoll().args(install).arg("--use-node-agent=false").output().await.unwrap();
    assert!(!alone.status.success());
    assert!(String::from_utf8_lossy(&alone.stderr).contains("--default-volumes-to-fs-backup needs the node agents"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_excluded_claims_are_excluded_and_the_plan_shows_the_reason() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    let plan = planned(&home, &application, &["--exclude-resources", "pvc"]).await;
    assert!(plan("writer/scratch").contains("fs-backup"), "{}", plan("writer/scratch"));
    let why = "persistentvolumeclaims are not included in the backup";
    assert!(plan("writer/data").contains("skipped") && plan("writer/data").contains(why), "{}", plan("writer/data"));
    let spec =
        json!({ "includedNamespaces": [application.namespace], "excludedResources": ["persistentvolumeclaims"] });
    home.backup("b", spec).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages("b", "errors"), agent_log(&home));
    assert_eq!(volumes_of(&home, "b").await, ["scratch"]);
    terminate_server(agent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_no_container_mounts_is_a_warning_and_is_not_transferred() {
    let bed = Bed::local_with_pods().await;
    let (home, application) = (bed.home("home").await, Application::start(&bed, "shop", 100_000).await);
    application.half_mounted_pod("half").await;
    let (_server, agent) = (server(&home, "built-in", &[]), agent(&home, &[], &[]));
    let plan = planned(&home, &application, &["--default-volumes-to-fs-backup"]).await;
    assert!(
        plan("half/early").contains("fs-backup") && plan("half/used").contains("fs-backup"),
        "{}",
        plan("half/used")
    );
    let why = "no container of its pod mounts it";
    assert!(plan("half/unused").contains("skipped") && plan("half/unused").contains(why), "{}", plan("half/unused"));
    let spec = json!({ "includedNamespaces": [application.namespace], "defaultVolumesToFsBackup": true });
    home.backup("b", spec).await;
    let backup = home.ended("Backup", "b").await;
    assert_eq!(phase(&backup), "Completed", "{}\n{}", home.messages("b", "errors"), agent_log(&home));
    assert_eq!(volumes_of(&home, "b").await, ["data", "early", "scratch", "used"]);
    let warnings = home.messages("b", "warnings");
    assert_eq!(backup["status"]["warnings"], 1, "{warnings}");
    let line = format!("the files of volume {}/half/unused are not backed up: {why}", application.namespace);
    assert!(warnings.contains(&line), "{warnings}");
    terminate_server(agent).await;
}
