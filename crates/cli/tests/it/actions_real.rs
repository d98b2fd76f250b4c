//! Blueprints on a real cluster: files with restic, and a database through pipes and our own `kando`.

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use plimsoll_testkit::cache::{program, system_program};
use plimsoll_testkit::cluster::Machine;
use plimsoll_testkit::image::Image;
use plimsoll_testkit::peers::S3Server;
use plimsoll_testkit::require;
use serde_json::{Value, json};

use crate::actions::{
    ProgressWatch, ask, ended, make, message, profile, round_trip_files, state, time_log_blueprint, time_logger,
};
use crate::actions_database::{blueprint, database, round_trip_rows};
use crate::bed::Bed;

/// What applications and tasks run in: a shell, restic, a database, and a `kando` that is not ours.
const APPLICATION: &str = "plimsoll.test/application:1";
/// Our own program, at the path it has here.
const TOOLS: &str = "plimsoll.test/tools:1";
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

fn load_images(machine: &Machine, folder: &Path) {
    let own = folder.join("kando");
    std::fs::write(&own, "#!/bin/sh\necho this is the kando of the image >&2\nexit 9\n").unwrap();
    let mut application = Image::busybox(APPLICATION)
        .with_file(&own, "/usr/local/bin/kando")
        .with_file(CERTIFICATES, CERTIFICATES)
        .with_file("/etc/passwd", "/etc/passwd")
        .with_file("/usr/share/mysql/english/errmsg.sys", "/usr/share/mysql/english/errmsg.sys")
        .with_program(program("restic").unwrap(), "/usr/bin/restic")
        .unwrap();
    for (name, path) in
        [("bash", "bash"), ("mariadbd", "mariadbd"), ("mariadb", "mariadb"), ("mariadb-dump", "mysqldump")]
    {
        application = application.with_program(system_program(name).unwrap(), format!("/usr/bin/{path}")).unwrap();
    }
    machine.load_image(&application).unwrap();
    let ours = env!("CARGO_BIN_EXE_plimsoll");
    machine.load_image(&Image::busybox(TOOLS).with_program(ours, ours).unwrap()).unwrap();
}

/// The files of a database that has never run.
fn install_database(data: &Path) {
    let mut install = Command::new("mariadb-install-db");
    install.args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal"]);
    let installed = install.arg(format!("--datadir={}", data.display())).output().unwrap();
    assert!(installed.status.success(), "{installed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_a_database_are_restored_by_blueprints() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let machine = require!(cluster.machine());
    require!(program("versitygw").and(program("restic")));
    require!(system_program("mariadbd").and(system_program("mariadb-dump")));
    let bed = Bed::real(cluster).await;
    load_images(machine, bed.directory.path());
    let s3 = S3Server::start(&machine.addresses().host()).unwrap();
    let bucket = s3.create_bucket("kanister").unwrap();
    let home = bed.home("home").await;
    let arguments = ["--lease-duration", "15s", "--tools-image", TOOLS];
    let _server = home.server_through(&bed.kubeconfig, &arguments, &[]);
    profile(&home, &s3, "kanister").await;

    let files = cluster.volume(&home.namespace, "time-log").await.unwrap();
    time_logger(&home, APPLICATION).await;
    make(&home, "Blueprint", "time-log", time_log_blueprint(APPLICATION)).await;
    let rows = cluster.volume(&home.namespace, "mysql").await.unwrap();
    install_database(&rows.directory().join("data"));
    database(&home, APPLICATION).await;
    make(&home, "Blueprint", "mysql", blueprint(APPLICATION)).await;
    round_trip_files(&home, &bucket, files.directory()).await;
    round_trip_rows(&home, &bucket, rows.directory()).await;

    // Its author may keep the image's own, which is another one.
    let own = json!({ "func": "KubeTask", "name": "own", "args": { "image": APPLICATION, "command": ["kando", "output", "a", "b"],
        "podAnnotations": { "plimsoll.dev/own-kando": "true" } } });
    make(&home, "Blueprint", "own", json!({ "actions": { "act": { "phases": [own] } } })).await;
    ask(&home, "own", "own", &["act"]).await;
    let set = ended(&home, "own", &mut ProgressWatch::default()).await;
    assert_eq!(state(&set), "failed");
    assert!(message(&set).contains("this is the kando of the image"), "{}", message(&set));
    bed.clear().await;
}

/// Pod Security's level `restricted` demands this of every container, and a quota that they have limits.
fn restricted() -> Value {
    json!({ "name": "container",
        "securityContext": { "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 1000,
            "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" } },
        "resources": { "limits": { "cpu": "500m", "memory": "256Mi" } } })
}

/// KubeTask, MultiContainerRun, KubeExec and Wait, as in the official blueprints.
fn shapes(namespace: &str) -> Value {
    let line = |text: &str| json!(["sh", "-c", text]);
    let phase = |name: &str, func: &str, mut args: Value| {
        args["namespace"] = json!(namespace);
        json!({ "name": name, "func": func, "args": args })
    };
    let shared = json!({ "initImage": APPLICATION, "initCommand": line("echo seven >/tmp/word"),
        "backgroundImage": APPLICATION, "backgroundCommand": line("mkfifo /tmp/pipe; cat /tmp/word >/tmp/pipe"),
        "outputImage": APPLICATION, "outputCommand": line("until [ -p /tmp/pipe ]; do sleep 0.1; done; kando output word $(cat /tmp/pipe)") });
    let condition = json!({ "condition": "{{ if and (eq \"{$.status.phase}\" \"Running\") (eq \"{$.status.containerStatuses[].ready}\" \"true\") }}true{{ end }}",
        "objectReference": { "apiVersion": "v1", "group": "", "resource": "pods", "name": "db-0", "namespace": namespace } });
    let wait =
        json!({ "name": "wait", "func": "Wait", "args": { "timeout": "60s", "conditions": { "anyOf": [condition] } } });
    json!({ "actions": { "act": { "phases": [
        phase("task", "KubeTask", json!({ "image": APPLICATION, "command": line("kando output user $(id -u)") })),
        phase("shared", "MultiContainerRun", shared),
        wait,
        phase("exec", "KubeExec", json!({ "pod": "db-0", "command": line("echo '###Phase-output###: {\"key\":\"user\",\"value\":\"'$(id -u)'\"}'") })),
    ] } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_shape_of_phase_runs_in_a_restricted_namespace_with_a_quota() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let machine = require!(cluster.machine());
    require!(program("restic"));
    require!(system_program("mariadbd").and(system_program("mariadb-dump")));
    let bed = Bed::real(cluster).await;
    load_images(machine, bed.directory.path());
    let home = bed.home("home").await;
    let _server = home.server_through(&bed.kubeconfig, &["--lease-duration", "15s", "--tools-image", TOOLS], &[]);
    let namespace = &home.namespace;
    let enforce = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces: Api<Namespace> = Api::all(bed.client.clone());
    namespaces.patch(namespace, &PatchParams::default(), &Patch::Merge(enforce)).await.unwrap();
    let quotas: Api<ResourceQuota> = Api::namespaced(bed.client.clone(), namespace);
    let quota =
        json!({ "metadata": { "name": "all" }, "spec": { "hard": { "limits.cpu": "8", "limits.memory": "4Gi" } } });
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let mut container = restricted();
    (container["name"], container["image"], container["command"]) =
        (json!("db"), json!(APPLICATION), json!(["sleep", "10000"]));
    make(&home, "Pod", "db-0", json!({ "spec": { "containers": [container] } })).await;
    make(&home, "Blueprint", "shapes", shapes(namespace)).await;
    let object = json!({ "kind": "Namespace", "name": namespace, "namespace": namespace });
    let action = json!({ "name": "act", "blueprint": "shapes", "object": object, "podOverride": { "containers": [restricted()] } });
    make(&home, "ActionSet", "set", json!({ "spec": { "actions": [action] } })).await;
    let set = ended(&home, "set", &mut ProgressWatch::default()).await;
    assert_eq!(state(&set), "complete", "{}\n{}", message(&set), home.log());
    let output = |phase: usize, key: &str| set["status"]["actions"][0]["phases"][phase]["output"][key].clone();
    assert_eq!(
        (output(0, "user"), output(1, "word"), output(3, "user")),
        (json!("1000"), json!("seven"), json!("1000"))
    );
    bed.clear().await;
}
