//! The functions that move and manage volume data, on the embedded cluster with restic and an S3 server.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use plimsoll_testkit::peers::S3Server;
use plimsoll_testkit::peers::s3::SECRET_KEY;
use serde_json::{Value, json};

use crate::actions::{ProgressWatch, assert_uploaded, claim, ended, make, message, profile, shell, state, volume_of};
use crate::bed::{Bed, Home, eventually};

const KEY: &str = "a key of its own";

/// Two pods with a claim each, and one claim that no pod mounts.
async fn prepare(home: &Home<'_>) {
    claim(home, "lone").await;
    make(
        home,
        "StatefulSet",
        "db",
        json!({ "spec": { "replicas": 2, "serviceName": "db", "podManagementPolicy": "Parallel",
        "selector": { "matchLabels": { "app": "db" } },
        "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }],
        "template": { "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [
            { "name": "db", "image": "any", "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
              "command": shell("seq 5000 > /data/numbers; echo $HOSTNAME > /data/name; exec sleep 10000") }] } } } }),
    )
    .await;
    eventually("the pods run", async || home.get("StatefulSet", "db").await["status"]["readyReplicas"] == 2).await;
}

fn phase(func: &str, name: &str, mut args: Value) -> Value {
    if func != "CheckRepository" {
        args["namespace"] = json!("{{ .StatefulSet.Namespace }}");
    }
    json!({ "func": func, "name": name, "args": args })
}

fn blueprint() -> Value {
    let output = |phase: &str, key: &str| format!("{{{{ .Phases.{phase}.Output.{key} }}}}");
    let artifact = |name: &str, key: &str| format!("{{{{ .ArtifactsIn.{name}.KeyValue.{key} }}}}");
    json!({ "actions": {
        "backup": {
            "outputArtifacts": {
                "all": { "keyValue": { "info": output("saveAll", "BackupAllInfo") } },
                "copy": { "keyValue": { "id": output("copy", "backupID"), "tag": output("copy", "backupTag"),
                    "place": output("copy", "backupArtifactLocation") } },
            },
            "phases": [
                phase("PrepareData", "prepare", json!({ "image": "any", "volumes": { "lone": "/lone" }, "failOnError": true,
                    "command": shell("seq 3000 > /lone/file; mkdir /lone/deep; ln -s ../file /lone/deep/link") })),
                phase("BackupDataAll", "saveAll", json!({ "container": "db", "includePath": "/data", "backupArtifactPrefix": "repo/all" })),
                phase("CopyVolumeData", "copy", json!({ "image": "any", "volume": "lone", "dataArtifactPrefix": "repo/copy", "encryptionKey": KEY })),
                phase("BackupDataStats", "stats", json!({ "image": "any", "backupArtifactPrefix": output("copy", "backupArtifactLocation"),
                    "backupID": output("copy", "backupID"), "encryptionKey": KEY })),
                phase("CheckRepository", "good", json!({ "image": "any", "backupArtifactPrefix": "repo/copy", "encryptionKey": KEY })),
                phase("CheckRepository", "wrong", json!({ "image": "any", "backupArtifactPrefix": "repo/copy", "encryptionKey": "another" })),
                phase("CheckRepository", "absent", json!({ "image": "any", "backupArtifactPrefix": "repo/nothing" })),
            ],
        },
        "restore": { "phases": [
            phase("RestoreDataAll", "loadAll", json!({ "image": "any", "backupArtifactPrefix": "data/repo/all", "backupInfo": artifact("all", "info") })),
            phase("RestoreData", "loadCopy", json!({ "image": "any", "volumes": { "lone": "/mnt/vol_data/lone" }, "encryptionKey": KEY,
                "backupArtifactPrefix": artifact("copy", "place"), "backupTag": artifact("copy", "tag") })),
        ] },
        "delete": { "phases": [
            phase("DeleteDataAll", "dropAll", json!({ "image": "any", "backupArtifactPrefix": "data/repo/all", "backupInfo": artifact("all", "info"), "reclaimSpace": true })),
            phase("DeleteData", "dropCopy", json!({ "image": "any", "backupArtifactPrefix": artifact("copy", "place"), "backupTag": artifact("copy", "tag"),
                "encryptionKey": KEY, "reclaimSpace": "true" })),
        ] },
    } })
}

/// Runs an action with artifacts to its end; the phases by name.
async fn run(home: &Home<'_>, action: &str, artifacts: &Value) -> (Value, Value) {
    let object = json!({ "kind": "StatefulSet", "name": "db", "namespace": home.namespace });
    let action = json!({ "name": action, "blueprint": "data", "object": object, "artifacts": artifacts,
        "profile": { "name": "s3", "namespace": home.namespace } });
    let name = action["name"].as_str().unwrap().to_owned();
    make(home, "ActionSet", &name, json!({ "spec": { "actions": [action] } })).await;
    let set = ended(home, &name, &mut ProgressWatch::default()).await;
    assert_eq!(state(&set), "complete", "{}\n{}", message(&set), home.log());
    let action = &set["status"]["actions"][0];
    let phases = action["phases"].as_array().unwrap();
    let named = phases.iter().map(|phase| (phase["name"].as_str().unwrap().to_owned(), phase.clone()));
    (named.collect::<serde_json::Map<_, _>>().into(), action["artifacts"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_of_pods_and_of_an_unmounted_claim_is_restored_and_its_snapshots_are_maintained() {
    let bed = Bed::local_with_pods().await;
    let s3 = S3Server::start("127.0.0.1").unwrap();
    let bucket = s3.create_bucket("data").unwrap();
    let home = bed.home("home").await;
    let _server = home.server();
    profile(&home, &s3, "data").await;
    prepare(&home).await;
    make(&home, "Blueprint", "data", blueprint()).await;
    let (first, second) = (volume_of(&home, "data-db-0").await, volume_of(&home, "data-db-1").await);
    eventually("their data is there", async || first.join("name").exists() && second.join("name").exists()).await;
    let numbers = std::fs::read(first.join("numbers")).unwrap();

    let (phases, artifacts) = run(&home, "backup", &json!({})).await;
    let lone = volume_of(&home, "lone").await;
    let size = std::fs::metadata(lone.join("file")).unwrap().len();
    let infos: Value = serde_json::from_str(phases["saveAll"]["output"]["BackupAllInfo"].as_str().unwrap()).unwrap();
    for pod in ["db-0", "db-1"] {
        assert_eq!(infos[pod]["PodName"], pod, "{infos:#}");
        assert_eq!(infos[pod]["BackupID"].as_str().map(str::len), Some(8), "{infos:#}");
        assert!(bucket.join("repo/all").join(pod).join("config").exists());
    }
    let both = 2 * (numbers.len() as u64 + 5);
    assert_uploaded(&phases["saveAll"], both);
    let copy = &phases["copy"]["output"];
    assert_eq!(
        (&copy["backupRoot"], &copy["backupArtifactLocation"]),
        (&json!("/mnt/vol_data/lone"), &json!("data/repo/copy"))
    );
    assert_eq!(
        (&copy["fileCount"], &copy["version"]),
        (&json!("1"), &json!("v0.0.0")),
        "a file; restic counts no links"
    );
    assert_uploaded(&phases["copy"], size);
    let stats = &phases["stats"]["output"];
    assert_eq!((&stats["mode"], &stats["size"]), (&json!("restore-size"), &copy["size"]), "{stats:#}");
    let checked = |name: &str| {
        let output = &phases[name]["output"];
        (
            output["passwordIncorrect"].as_str().unwrap().to_owned(),
            output["repoUnavailable"].as_str().unwrap().to_owned(),
        )
    };
    let said = |password: bool, absent: bool| (password.to_string(), absent.to_string());
    assert_eq!(checked("good"), said(false, false));
    assert_eq!(checked("wrong"), said(true, false));
    assert_eq!(checked("absent"), said(false, true));

    for volume in [&first, &second] {
        std::fs::remove_file(volume.join("name")).unwrap();
        std::fs::write(volume.join("numbers"), "lost").unwrap();
    }
    std::fs::remove_dir_all(lone.join("deep")).unwrap();
    std::fs::write(lone.join("file"), "lost").unwrap();
    let (phases, _) = run(&home, "restore", &artifacts).await;
    for (volume, pod) in [(&first, "db-0\n"), (&second, "db-1\n")] {
        assert_eq!(std::fs::read_to_string(volume.join("name")).unwrap(), pod);
        assert_eq!(std::fs::read(volume.join("numbers")).unwrap(), numbers);
    }
    assert_eq!(std::fs::metadata(lone.join("file")).unwrap().len(), size);
    assert_eq!(std::fs::read_link(lone.join("deep/link")).unwrap(), PathBuf::from("../file"));
    assert_eq!(phases["loadAll"]["progress"]["sizeDownloadedB"], both, "{:#}", phases["loadAll"]);

    let snapshots = |repository: &str| bucket.join(repository).join("snapshots").read_dir().map_or(0, Iterator::count);
    assert_eq!((snapshots("repo/all/db-0"), snapshots("repo/copy")), (1, 1));
    let (phases, _) = run(&home, "delete", &artifacts).await;
    assert_eq!((snapshots("repo/all/db-0"), snapshots("repo/all/db-1"), snapshots("repo/copy")), (0, 0, 0));
    for name in ["dropAll", "dropCopy"] {
        let freed = phases[name]["output"]["spaceFreed"].as_str().unwrap();
        assert!(freed.ends_with(" B") && freed != "0 B", "{name}: {freed}");
    }
    assert!(!home.log().contains(SECRET_KEY) && !home.log().contains(KEY), "a secret stands in the log");
    eventually("only the application's pods are left", async || home.list("Pod").await.len() == 2).await;
}

/// A restic that takes its time and foretells nonsense; it ends well once a file is there. What it was called with is kept.
const SLOW: &str = r#"#!/bin/sh
{ tr '\0' ' ' < /proc/$$/cmdline; echo; [ -z "$AWS_SECRET_ACCESS_KEY" ] || echo it has the key; } >> /app/calls
case "$*" in *backup*) ;; *) exit 0 ;; esac
sent=0
until [ -e /app/enough ]; do
  sent=$((sent + 20000))
  echo '{"message_type":"status","total_bytes":9000000,"bytes_done":'$sent',"seconds_remaining":86400}'
  sleep 0.2
done
echo '{"message_type":"summary","snapshot_id":"0123456789","total_files_processed":1,"total_bytes_processed":9000000,"data_added":5}'
"#;

/// One pod with one claim: a container that has our program, one that has nothing, one that has a slow restic.
pub async fn bare_pod(home: &Home<'_>) {
    claim(home, "data").await;
    let directory = home.bed.directory.path();
    let (nothing, slow) = (directory.join("nothing"), directory.join("slow"));
    std::fs::write(&nothing, "").unwrap();
    if !slow.exists() {
        std::fs::write(&slow, SLOW).unwrap();
        std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let file = |name: &str, path: &Path| json!({ "name": name, "hostPath": { "path": path } });
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    let container = |name: &str, files: [Value; 2]| {
        let mounts = [vec![json!({ "name": "data", "mountPath": "/app", "subPath": "sub" })], files.to_vec()].concat();
        json!({ "name": name, "image": "any", "command": shell("exec sleep 10000"), "volumeMounts": mounts })
    };
    let hidden = || mount("nothing", "/usr/local/bin/restic");
    make(
        home,
        "Pod",
        "app",
        json!({ "spec": {
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }, file("nothing", &nothing),
            file("slow", &slow), file("own", Path::new(env!("CARGO_BIN_EXE_plimsoll")))],
        "containers": [
            container("own", [mount("nothing", "/usr/bin/restic"), mount("own", "/usr/local/bin/plimsoll")]),
            container("bare", [mount("nothing", "/usr/bin/restic"), hidden()]),
            container("slow", [mount("slow", "/usr/bin/restic"), hidden()]),
        ],
    } }),
    )
    .await;
    eventually("the pod runs", async || home.get("Pod", "app").await["status"]["phase"] == "Running").await;
}

/// Backs up what the options name; the first of its actions also restores it by its tag.
pub fn bare_blueprint() -> Value {
    let save = |name: &str| {
        json!({ "func": "BackupData", "name": name, "args": { "namespace": "{{ .Namespace.Name }}", "pod": "app",
        "container": "{{ .Options.container }}", "includePath": "{{ .Options.path }}", "backupArtifactPrefix": "repo" } })
    };
    let load = json!({ "func": "RestoreData", "name": "load", "args": { "namespace": "{{ .Namespace.Name }}", "image": "any",
        "volumes": { "data": "/app" }, "restorePath": "/", "backupArtifactPrefix": "repo",
        "backupTag": "{{ .Phases.save.Output.backupTag }}" } });
    json!({ "actions": { "backup": { "phases": [save("save"), load] }, "only": { "phases": [save("alone")] } } })
}

/// Data that its containers see at `/app/deep`. Where it lies.
pub async fn fill(home: &Home<'_>) -> PathBuf {
    let volume = volume_of(home, "data").await;
    let deep = volume.join("sub/deep");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("file"), "x".repeat(70_000)).unwrap();
    volume
}

/// Creates an ActionSet for a path of a container.
pub async fn create_bare_action_set(home: &Home<'_>, name: &str, action: &str, container: &str, path: &str) {
    let object = json!({ "kind": "Namespace", "name": home.namespace, "namespace": home.namespace });
    let options = json!({ "container": container, "path": path });
    let action = json!({ "name": action, "blueprint": "bare", "object": object, "options": options,
        "profile": { "name": "s3", "namespace": home.namespace } });
    make(home, "ActionSet", name, json!({ "spec": { "actions": [action] } })).await;
}

/// The agent of the node, after its first heartbeat.
pub async fn agent_at_work(home: &Home<'_>) -> tokio::process::Child {
    let agent = crate::pod_volumes::agent(home, &[], &[]);
    let lease = plimsoll_volumes::transfer::agent_lease::lease_name("local");
    let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> =
        kube::Api::namespaced(home.bed.client.clone(), &home.namespace);
    eventually("the agent is at work", async || leases.get_opt(&lease).await.unwrap().is_some()).await;
    agent
}

/// Whether nothing is left of the requests to an agent.
pub async fn is_cleaned_up(home: &Home<'_>) -> bool {
    let is_ours = |secret: &kube::api::DynamicObject| secret.metadata.name.as_deref().unwrap().starts_with("phase-");
    home.list("PodVolumeBackup").await.is_empty() && !home.list("Secret").await.iter().any(is_ours)
}

/// Backs up a path of a container, and returns how that ended.
async fn back_up(home: &Home<'_>, name: &str, container: &str, path: &str) -> Value {
    create_bare_action_set(home, name, "backup", container, path).await;
    ended(home, name, &mut ProgressWatch::default()).await
}

async fn logs(home: &Home<'_>, name: &str) -> String {
    let logs = home.command(&["action", "logs", name]).output().await.unwrap();
    String::from_utf8_lossy(&logs.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_restic_the_built_in_program_or_the_node_agent_backs_up() {
    let bed = Bed::local_with_pods().await;
    let s3 = S3Server::start("127.0.0.1").unwrap();
    s3.create_bucket("data").unwrap();
    let home = bed.home("home").await;
    let _server = home.server();
    profile(&home, &s3, "data").await;
    bare_pod(&home).await;
    make(&home, "Blueprint", "bare", bare_blueprint()).await;
    let volume = fill(&home).await;

    let set = back_up(&home, "no-agent", "bare", "/app/deep").await;
    let expected = "has neither plimsoll nor restic, and no agent runs on node local";
    assert!(message(&set).contains(expected), "{}", message(&set));
    let set = back_up(&home, "no-claim", "bare", "/etc").await;
    assert!(message(&set).contains("/etc is not in a claim that a node agent can read"), "{}", message(&set));
    let _agent = agent_at_work(&home).await;
    for (name, container, path, back) in [
        ("own", "own", "/app/deep", "deep/file"),
        ("bare", "bare", "/app/deep", "deep/file"),
        ("own-file", "own", "/app/deep/file", "deep/file"),
        ("bare-file", "bare", "/app/deep/file", "deep/file"),
    ] {
        let set = back_up(&home, name, container, path).await;
        let agent = crate::pod_volumes::agent_log(&home);
        assert_eq!(state(&set), "complete", "{name}: {}\n{}\n{agent}", message(&set), home.log());
        let phase = &set["status"]["actions"][0]["phases"][0];
        let output = (&phase["output"]["fileCount"], &phase["output"]["size"]);
        assert_eq!(output, (&json!("1"), &json!("68.359 KiB")), "{phase:#}");
        assert_uploaded(phase, 70_000);
        // The volume is mounted at another place there: what came back lies where the snapshot has it.
        assert_eq!(std::fs::read_to_string(volume.join(back)).unwrap().len(), 70_000, "{name}");
        std::fs::remove_dir_all(volume.join("deep")).unwrap();
        assert!(!home.log().contains(SECRET_KEY) && !agent.contains(SECRET_KEY), "a secret stands in the log");
    }
    assert!(is_cleaned_up(&home).await, "what the transfers needed is gone");
    assert!(logs(&home, "own").await.contains("using plimsoll in pod"));
    assert!(logs(&home, "bare").await.contains("the agent of node local reads /app/deep"));
    assert_time_left_is_estimated(&home, &volume.join("sub")).await;
}

/// Independent of the estimate of restic. Also checks its command lines, which every user of the node can read.
async fn assert_time_left_is_estimated(home: &Home<'_>, directory: &Path) {
    create_bare_action_set(home, "slow", "only", "slow", "/app/deep").await;
    let progress =
        async || home.get("ActionSet", "slow").await["status"]["actions"][0]["phases"][0]["progress"].clone();
    eventually("a time left is shown", async || {
        let now = progress().await;
        let left = now["estimatedTimeSeconds"].as_u64();
        assert!(left.is_none_or(|left| (1..86_400).contains(&left)), "{now:#}");
        assert!(now["sizeUploadedB"].is_null(), "the uploaded size is not known yet: {now:#}");
        left.is_some()
    })
    .await;
    std::fs::write(directory.join("enough"), "").unwrap();
    let set = ended(home, "slow", &mut ProgressWatch::default()).await;
    assert_eq!(state(&set), "complete", "{}\n{}", message(&set), home.log());
    let last = progress().await;
    assert!(last["estimatedTimeSeconds"].is_null(), "{last:#}");
    assert_eq!((&last["sizeUploadedB"], &last["estimatedUploadSizeB"]), (&json!(5), &json!(9_000_000)));
    let calls = std::fs::read_to_string(directory.join("calls")).unwrap();
    assert!(calls.contains("it has the key") && !calls.contains(SECRET_KEY), "{calls}");
}
