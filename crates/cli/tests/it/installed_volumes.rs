//! Volume data of real pods, moved by the agents of a real installation: on an S3 server beside Velero's node agent, and in a
//! directory.

use std::path::Path;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use plimsoll_testkit::cluster::NODE;
use plimsoll_testkit::peers::{PlimsollInPods, S3Server, VeleroInPods};
use plimsoll_testkit::pod::PodHandle;
use plimsoll_testkit::{cache, require};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::bed::{Bed, Home, create_namespace, eventually, phase};

const FILL: &str = "cd /data && mkdir -p a/b && echo hello > a/b/hello && ln -s a/b/hello link && ln a/b/hello second && \
    for i in $(seq 1 40); do head -c $((i * 997)) /dev/urandom > a/file-$i; done; head -c 3000000 /dev/urandom > big; \
    chmod 600 big; chown 1234:1234 a/file-1; sync";
const SUMS: &str = "cd /data && find . -type f | sort | xargs sha256sum && find . | sort | xargs stat -c '%n %a %u %g %F' && \
    readlink link";

pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_plimsoll"))
}

/// A pod with one volume, which it fills; and the sums of all files in it.
pub async fn fill(client: &Client, namespace: &str, source: Value) -> String {
    let mut volume = source;
    volume["name"] = json!("data");
    let manifest = json!({
        "metadata": { "name": "db" },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "main", "image": plimsoll_testkit::image::shell(), "imagePullPolicy": "Never",
                "command": ["sh", "-c", "trap exit TERM; sleep 2147483647 & wait"],
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }],
            "volumes": [volume],
        },
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(manifest).unwrap()).await.unwrap();
    let pod = running(client, namespace).await;
    let filled = pod.exec(["sh", "-ec", FILL]).await.unwrap();
    assert!(filled.success, "{filled:?}");
    let sums = sums(client, namespace).await;
    assert!(sums.contains("./big") && sums.contains("a/b/hello"), "{sums}");
    sums
}

async fn running(client: &Client, namespace: &str) -> PodHandle {
    let pod = PodHandle::find(client, namespace, "db");
    pod.ready().await.unwrap();
    pod
}

/// Checksums, modes, owners and targets.
pub async fn sums(client: &Client, namespace: &str) -> String {
    let listed = running(client, namespace).await.exec(["sh", "-ec", SUMS]).await.unwrap();
    assert!(listed.success, "{listed:?}");
    listed.stdout
}

fn backup_of<'a>(name: &'a str, namespace: &'a str) -> [&'a str; 7] {
    ["backup", "create", name, "--include-namespaces", namespace, "--default-volumes-to-fs-backup", "--wait"]
}

pub fn restore_of<'a>(name: &'a str, backup: &'a str, mapping: &'a str) -> [&'a str; 8] {
    ["restore", "create", name, "--from-backup", backup, "--namespace-mappings", mapping, "--wait"]
}

pub fn expect(ours: &PlimsollInPods, done: anyhow::Result<String>) -> String {
    done.unwrap_or_else(|error| panic!("{error:#}\n{}", ours.logs()))
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_restored_completely_from_plimsoll_and_velero_agents() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let machine = require!(cluster.machine());
    require!(VeleroInPods::preflight());
    for program in ["versitygw", "kopia"] {
        require!(cache::program(program));
    }
    let bed = Bed::real(cluster).await;
    let store = S3Server::start(&machine.addresses().host()).unwrap();
    let bucket = store.create_bucket("volumes").unwrap();
    let shop = bed.ns("shop");
    create_namespace(&bed.client, &shop).await;
    let before = fill(&bed.client, &shop, json!({ "emptyDir": {} })).await;

    // Data that Velero's node agent stored is restored by Plimsoll's agent.
    let velero = VeleroInPods::install(cluster, store.endpoint(), "volumes").await.unwrap();
    velero.cli(backup_of("theirs", &shop)).unwrap();
    // Velero's well-known password is used only on request in a namespace that never had Velero.
    let arguments =
        ["--server-argument=--backup-sync-period=2s", "--server-argument=--adopt-default-repository-password"];
    let ours = PlimsollInPods::install(cluster, program(), store.endpoint(), "volumes", &arguments).await.unwrap();
    let home = Home { bed: &bed, namespace: ours.namespace().to_owned(), bucket };
    eventually("Velero's backup is synced", async || home.find("Backup", "theirs").await.is_some()).await;
    let from_velero = bed.ns("from-velero");
    expect(&ours, ours.cli(restore_of("r1", "theirs", &format!("{shop}:{from_velero}"))));
    assert_eq!(sums(&bed.client, &from_velero).await, before, "{}", ours.logs());

    // What our agent stores: with kopia by itself, because there are kopia repositories.
    expect(&ours, ours.cli(backup_of("ours", &shop)));
    check_backup(&home, &ours, &shop).await;
    let from_ours = bed.ns("from-ours");
    expect(&ours, ours.cli(restore_of("r2", "ours", &format!("{shop}:{from_ours}"))));
    assert_eq!(sums(&bed.client, &from_ours).await, before, "{}", ours.logs());

    velero_restores(&home, &velero, &shop, &before).await;
    let logs = ours.logs();
    assert!(!logs.contains("forbidden"), "{logs}");
    bed.clear().await;
}

async fn check_backup(home: &Home<'_>, ours: &PlimsollInPods, shop: &str) {
    let transfers = home.list("PodVolumeBackup").await;
    let of_ours = |one: &&kube::api::DynamicObject| one.data["spec"]["tags"]["backup"] == "ours";
    let mine = transfers.iter().find(of_ours).unwrap_or_else(|| panic!("{transfers:?}"));
    assert_eq!(mine.data["spec"]["uploaderType"], "kopia");
    let status = &mine.data["status"];
    assert_eq!(status["phase"], "Completed");
    assert_eq!(status["progress"]["bytesDone"], status["progress"]["totalBytes"]);
    let listed = expect(ours, ours.cli(["volume", "get", "--backup", "ours"]));
    assert!(listed.contains("100.00%") && listed.contains(&format!("{shop}/db")), "{listed}");
    let described = expect(ours, ours.cli(["describe", "backup/ours", "--details"]));
    assert!(described.contains("Pod Volume Backups - kopia:"), "{described}");
    assert!(described.contains(&format!("{shop}/db: data")), "{described}");
}

async fn velero_restores(home: &Home<'_>, velero: &VeleroInPods, shop: &str, before: &str) {
    let bed = home.bed;
    let theirs = Home { bed, namespace: velero.namespace().to_owned(), bucket: home.bucket.clone() };
    theirs.patch("BackupStorageLocation", "default", json!({ "spec": { "backupSyncPeriod": "1s" } })).await;
    let synced = || async { Ok::<_, kube::Error>(theirs.find("Backup", "ours").await) };
    let patience = std::time::Duration::from_mins(3);
    plimsoll_testkit::wait::until("our backup to be synced by Velero", patience, synced).await.unwrap();
    let shown = velero.cli(["backup", "describe", "ours", "--details"]).unwrap();
    assert!(shown.contains(&format!("{shop}/db: data")), "{shown}");
    let to_velero = bed.ns("to-velero");
    velero.cli(restore_of("r3", "ours", &format!("{shop}:{to_velero}"))).unwrap();
    assert_eq!(phase(&theirs.get("Restore", "r3").await), "Completed");
    // Velero's own helper leaves its mark in the volume.
    let restored = sums(&bed.client, &to_velero).await;
    let restored: Vec<&str> = restored.lines().filter(|line| !line.contains("./.velero")).collect();
    assert_eq!(restored, before.lines().collect::<Vec<_>>());
}

/// A volume that any claim may bind to: this cluster has no provisioner.
async fn free_volume(client: &Client, directory: &Path, name: &str) {
    std::fs::create_dir_all(directory).unwrap();
    let on_node = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": [NODE] });
    let volume = json!({ "metadata": { "name": name }, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "", "capacity": { "storage": "5Gi" },
        "local": { "path": directory },
        "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [on_node] }] } } } });
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
}

async fn claim(client: &Client, namespace: &str) {
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "storageClassName": "", "resources": { "requests": { "storage": "5Gi" } } } });
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_claim_is_restored_from_a_directory_shared_by_server_and_agents() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let machine = require!(cluster.machine());
    let bed = Bed::real(cluster).await;
    let shop = bed.ns("shop");
    let folder = machine.directory().join("volumes").join(&shop);
    free_volume(&bed.client, &folder.join("old"), &format!("{shop}-old")).await;
    create_namespace(&bed.client, &shop).await;
    claim(&bed.client, &shop).await;
    let source = json!({ "persistentVolumeClaim": { "claimName": "data" } });
    let before = fill(&bed.client, &shop, source).await;

    let backups = folder.join("backups");
    let ours = PlimsollInPods::install_in_directory(cluster, program(), &backups, &[]).await.unwrap();
    expect(&ours, ours.cli(backup_of("b", &shop)));
    assert_sound(&bed, &ours, &backups.join("restic").join(&shop)).await;

    bed.delete_namespace("shop").await;
    free_volume(&bed.client, &folder.join("new"), &format!("{shop}-new")).await;
    expect(&ours, ours.cli(["restore", "create", "r", "--from-backup", "b", "--wait"]));
    assert_eq!(sums(&bed.client, &shop).await, before, "{}", ours.logs());
    assert!(folder.join("new/big").exists() && !folder.join("new/.velero").exists(), "it is another volume");

    // A restarted node runs all init containers again, restore-wait included.
    end_sandbox(&bed.client, &shop).await;
    // Agents of other installations on this node may have reported it, too.
    eventually("its markers are removed", async || !folder.join("new/.velero").exists()).await;
    assert_eq!(sums(&bed.client, &shop).await, before, "{}", ours.logs());
    let logs = ours.logs();
    assert!(logs.contains("was restarted after its restore"), "{logs}");
    assert!(!logs.contains("forbidden"), "{logs}");

    // The server removes what the agents have written.
    expect(&ours, ours.cli(["backup", "delete", "b", "--confirm", "--wait"]));
    assert_eq!(backups.join("restic").join(&shop).join("snapshots").read_dir().unwrap().count(), 0, "{}", ours.logs());
    bed.clear().await;
    for name in ["old", "new"] {
        let volumes: Api<PersistentVolume> = Api::all(bed.client.clone());
        let _ = volumes.delete(&format!("{shop}-{name}"), &DeleteParams::default()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_restored_through_the_restic_program_and_a_bucket() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let machine = require!(cluster.machine());
    for program in ["versitygw", "restic"] {
        require!(cache::program(program));
    }
    let bed = Bed::real(cluster).await;
    let store = S3Server::start(&machine.addresses().host()).unwrap();
    let bucket = store.create_bucket("restic").unwrap();
    let shop = bed.ns("shop");
    create_namespace(&bed.client, &shop).await;
    let before = fill(&bed.client, &shop, json!({ "emptyDir": {} })).await;
    let wanted = ["--server-argument=--uploader-type=restic"];
    let ours = PlimsollInPods::install(cluster, program(), store.endpoint(), "restic", &wanted).await.unwrap();
    let home = Home { bed: &bed, namespace: ours.namespace().to_owned(), bucket };
    expect(&ours, ours.cli(backup_of("first", &shop)));
    expect(&ours, ours.cli(backup_of("second", &shop)));
    assert_sound(&bed, &ours, &home.bucket.join("restic").join(&shop)).await;
    let transfers = home.list("PodVolumeBackup").await;
    assert_eq!(transfers.len(), 2, "{transfers:?}");
    for transfer in &transfers {
        assert_eq!(transfer.data["spec"]["uploaderType"], "restic");
        let status = &transfer.data["status"];
        assert_eq!(
            (&status["phase"], &status["progress"]["bytesDone"]),
            (&json!("Completed"), &status["progress"]["totalBytes"])
        );
    }

    let copy = bed.ns("copy");
    expect(&ours, ours.cli(restore_of("r", "second", &format!("{shop}:{copy}"))));
    assert_eq!(sums(&bed.client, &copy).await, before, "{}", ours.logs());
    let logs = ours.logs();
    assert!(!logs.contains("forbidden"), "{logs}");
    bed.clear().await;
}

/// Kills everything that runs in the pod, its sandbox included, and waits until it runs anew.
async fn end_sandbox(client: &Client, namespace: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let uid = pods.get("db").await.unwrap().metadata.uid.unwrap();
    let is_of_pod = |path: &Path| {
        let groups = std::fs::read_to_string(path.join("cgroup")).unwrap_or_default();
        groups.contains(&uid) || groups.contains(&uid.replace('-', "_"))
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let own: Vec<i32> =
        processes.filter(|path| is_of_pod(path)).filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect();
    assert!(own.len() >= 2, "its sandbox and its container: {own:?}");
    for process in own {
        // One that ended by itself meanwhile is as good.
        let _ = kill_process(Pid::from_raw(process).unwrap(), Signal::KILL);
    }
    eventually("the pod runs anew", async || {
        let status = pods.get("db").await.unwrap().status.unwrap();
        let main = status.container_statuses.into_iter().flatten().next();
        main.is_some_and(|main| main.restart_count > 0 && main.ready)
    })
    .await;
}

/// restic itself finds nothing wrong with a repository.
async fn assert_sound(bed: &Bed, ours: &PlimsollInPods, repository: &Path) {
    let Ok(restic) = cache::program("restic") else { return };
    let secrets: Api<Secret> = Api::namespaced(bed.client.clone(), ours.namespace());
    let secret = secrets.get("velero-repo-credentials").await.unwrap().data.unwrap();
    let password = String::from_utf8(secret["repository-password"].0.clone()).unwrap();
    let mut command = std::process::Command::new(restic);
    command.args(["--no-cache", "--no-lock", "check", "--read-data"]).env("RESTIC_REPOSITORY", repository);
    let output = command.env("RESTIC_PASSWORD", password).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
