//! The functions that move and look after the data of volumes: on the embedded cluster, with the real restic and a real S3 server.

use std::path::PathBuf;

use plimsoll_testkit::peers::s3::SECRET_KEY;
use plimsoll_testkit::peers::{S3Program, S3Server};
use serde_json::{Value, json};

use crate::actions::{Seen, claim, ended, make, message, profile, shell, state, volume_of};
use crate::bed::{Bed, Home, eventually};

const KEY: &str = "a key of its own";

/// Two pods with a claim each, and one claim that nobody mounts.
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
    let set = ended(home, &name, &mut Seen::default()).await;
    assert_eq!(state(&set), "complete", "{}\n{}", message(&set), home.log());
    let action = &set["status"]["actions"][0];
    let phases = action["phases"].as_array().unwrap();
    let named = phases.iter().map(|phase| (phase["name"].as_str().unwrap().to_owned(), phase.clone()));
    (named.collect::<serde_json::Map<_, _>>().into(), action["artifacts"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_of_several_pods_and_of_a_lone_claim_comes_back_and_its_backups_are_looked_after() {
    let bed = Bed::local_with_pods().await;
    let s3 = S3Server::start(S3Program::Versity, "127.0.0.1").unwrap();
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
    assert_eq!(phases["saveAll"]["progress"]["estimatedUploadSizeB"], both, "{:#}", phases["saveAll"]);
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
    assert_eq!(phases["copy"]["progress"]["estimatedUploadSizeB"], size);
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
