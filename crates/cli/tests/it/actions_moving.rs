//! Data that functions move, seen in the ActionSet while it moves: with restic, with a Kopia server, and with `kando` and one.

use std::collections::BTreeMap;

use plimsoll_testkit::peers::kopia::{HOSTNAME, PASSWORD, USERNAME};
use plimsoll_testkit::peers::{KopiaServer, S3Server};
use plimsoll_testkit::{Proxy, cache, require};
use serde_json::{Value, json};

use crate::actions::{
    ProgressWatch, act, claim, is_ended, make, message, profile_at, search_path, shell, state, volume_of,
};
use crate::bed::{Bed, Home, eventually};
use crate::planted::{create, objects};

const SIZE: u64 = 24_000_000;
/// So that each transfer takes several seconds.
const SPEED: u64 = 6_000_000;

/// The `PATH` of containers that find kopia.
fn kopia_path() -> Value {
    search_path(&format!("/usr/local/bin:/usr/bin:/bin:{}", cache::directory().join("bin").display()))
}

/// The pod `db-0` with data that cannot be compressed in its claim `data`. `fill` writes it to /data.
async fn application(home: &Home<'_>, fill: &str) {
    claim(home, "data").await;
    let line = format!("{fill}; touch /data/ready; exec sleep 10000");
    let spec = json!({ "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
        "containers": [{ "name": "db", "image": "any", "command": shell(&line), "env": kopia_path(),
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }] });
    make(home, "Pod", "db-0", json!({ "spec": spec })).await;
    let volume = volume_of(home, "data").await;
    eventually("the data of the application", async || volume.join("ready").exists()).await;
}

fn phase(home: &Home<'_>, name: &str, func: &str, mut args: Value) -> Value {
    args["namespace"] = json!(home.namespace);
    json!({ "name": name, "func": func, "args": args })
}

/// Runs the only action of a blueprint with these phases. Returns, for each of the named phases, the last progress in the ActionSet
/// that was between 0 and 100 percent and had a value in this field.
async fn live_progress(
    home: &Home<'_>,
    phases: Value,
    more: Value,
    fields: &[(&str, &str)],
) -> BTreeMap<String, Value> {
    make(home, "Blueprint", "moving", json!({ "actions": { "act": { "phases": phases } } })).await;
    let object = json!({ "kind": "Namespace", "name": home.namespace, "namespace": home.namespace });
    let mut action = json!({ "name": "act", "blueprint": "moving", "object": object });
    action.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    make(home, "ActionSet", "set", json!({ "spec": { "actions": [action] } })).await;
    let (mut seen, mut live, mut last) = (ProgressWatch::default(), BTreeMap::new(), Value::Null);
    eventually("the set has ended", async || {
        last = home.get("ActionSet", "set").await;
        seen.record(&last);
        for (name, field) in fields {
            let phases = last["status"]["actions"][0]["phases"].as_array();
            let progress = phases.into_iter().flatten().find(|one| one["name"] == *name).map(|one| &one["progress"]);
            let Some(progress) = progress.filter(|progress| progress[*field].is_u64()) else { continue };
            let percent: f64 = progress["progressPercent"].as_str().unwrap().parse().unwrap();
            if percent > 0.0 && percent < 100.0 {
                live.insert((*name).to_owned(), progress.clone());
            }
        }
        is_ended(&last)
    })
    .await;
    assert_eq!(state(&last), "complete", "{}\n{}", message(&last), home.log());
    for (name, field) in fields {
        assert!(
            live.contains_key(*name),
            "{name} was never between 0 and 100 percent with {field}: {:?}\n{last:#}",
            seen.phases
        );
    }
    live
}

#[tokio::test(flavor = "multi_thread")]
async fn restics_backup_copy_and_restore_move_in_the_action_set() {
    // The one of the system may be too old to report the progress of a restore.
    let restic = require!(cache::program("restic"));
    require!(cache::program("versitygw"));
    let path = search_path(&format!("{}:/usr/bin:/bin", restic.parent().unwrap().display()));
    let with_restic = json!({ "containers": [{ "name": "container", "env": path }] });
    let bed = Bed::local_with_pods().await;
    let s3 = S3Server::start("127.0.0.1").unwrap();
    s3.create_bucket("data").unwrap();
    let proxy = Proxy::for_server("127.0.0.1:0", s3.endpoint()).await.unwrap();
    let home = bed.home("home").await;
    let _server = home.server();
    profile_at(&home, &proxy.url(), "data").await;
    application(&home, &format!("head -c {SIZE} /dev/urandom >/data/large")).await;
    proxy.slow_down(Some(SPEED));
    let phases = json!([
        phase(
            &home,
            "save",
            "BackupData",
            json!({ "pod": "db-0", "container": "db", "includePath": "/data", "backupArtifactPrefix": "one" })
        ),
        phase(
            &home,
            "copy",
            "CopyVolumeData",
            json!({ "volume": "data", "dataArtifactPrefix": "two", "image": "any" })
        ),
        phase(
            &home,
            "load",
            "RestoreData",
            json!({ "image": "any", "backupArtifactPrefix": "one", "volumes": { "data": "/data" },
            "restorePath": "/data/restored", "backupIdentifier": "{{ .Phases.save.Output.backupID }}", "podOverride": with_restic })
        ),
    ]);
    let more = json!({ "profile": { "name": "s3", "namespace": home.namespace } });
    let fields = [("save", "estimatedUploadSizeB"), ("copy", "estimatedUploadSizeB"), ("load", "sizeDownloadedB")];
    let live = live_progress(&home, phases, more, &fields).await;
    // All is read long before it is sent: then the percentage is that of the bytes read.
    for name in ["save", "copy"] {
        let estimated = live[name]["estimatedUploadSizeB"].as_u64().unwrap();
        assert!((SIZE..SIZE + 100_000).contains(&estimated), "the files, and at the end what was sent: {live:#?}");
    }
    let load = &live["load"];
    let received = load["sizeDownloadedB"].as_u64().unwrap();
    assert!(received > 0 && received <= SIZE && load["estimatedDownloadSizeB"] == SIZE, "{load:#}");
}

/// The RepositoryServer `backups` of a namespace.
async fn repository_server(home: &Home<'_>, kopia: &KopiaServer) {
    let all = kopia.repository_server(&home.namespace);
    create(home.bed, &all[0]).await;
    let servers = objects(home.bed, "cr.kanister.io/v1alpha1", "RepositoryServer", Some(&home.namespace));
    eventually("the definition is established", async || servers.list(&kube::api::ListParams::default()).await.is_ok())
        .await;
    for object in &all[1..] {
        create(home.bed, object).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_kopia_with_its_server_are_in_the_action_set() {
    require!(cache::program("kopia"));
    let kopia = KopiaServer::start(None).unwrap();
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = home.server();
    repository_server(&home, &kopia).await;
    application(&home, &format!("mkdir /data/files; head -c {SIZE} /dev/urandom >/data/files/large")).await;
    let id = "{{ .Phases.save.Output.backupID }}";
    let save = json!({ "pod": "db-0", "container": "db", "includePath": "/data/files" });
    let load = json!({ "image": "any", "backupIdentifier": id, "restorePath": "/data/restored", "volumes": { "data": "/data" } });
    let line = shell("cmp /data/files/large /data/restored/large");
    let phases = json!([
        phase(&home, "save", "BackupDataUsingKopiaServer", save),
        phase(&home, "load", "RestoreDataUsingKopiaServer", load),
        phase(&home, "compare", "KubeExec", json!({ "pod": "db-0", "container": "db", "command": line })),
        phase(&home, "drop", "DeleteDataUsingKopiaServer", json!({ "image": "any", "backupID": id })),
    ]);
    let containers = json!([{ "name": "container", "env": kopia_path() }]);
    let more = json!({ "repositoryServer": { "name": "backups", "namespace": home.namespace },
        "podOverride": { "containers": containers } });
    live_progress(&home, phases, more, &[]).await;
    // How far it was meanwhile depends on when kopia prints a line: the tests of crates/blueprint slow its server down.
    let set = home.get("ActionSet", "set").await;
    let bytes = |phase: usize, field: &str| {
        set["status"]["actions"][0]["phases"][phase]["progress"][field].as_u64().unwrap_or_default()
    };
    let (uploaded, estimated) = (bytes(0, "sizeUploadedB"), bytes(0, "estimatedUploadSizeB"));
    assert!(uploaded > 0 && uploaded <= estimated && estimated >= SIZE, "{set:#}");
    assert_eq!((bytes(1, "sizeDownloadedB"), bytes(1, "estimatedDownloadSizeB")), (SIZE, SIZE), "{set:#}");
    assert!(kopia.snapshots().unwrap().is_empty());
    assert!(!home.log().contains(PASSWORD), "a secret stands in the log");
}

/// A database dump through a pipe of two containers, as the blueprints `blueprint-v2` of Kanister 0.117 have it.
fn dump_blueprint() -> Value {
    let containers =
        |names: &[&str]| names.iter().map(|name| json!({ "name": name, "env": kopia_path() })).collect::<Vec<_>>();
    let args = |init: &str, background: String, output: String| {
        json!({ "namespace": "{{ .Namespace.Name }}", "podOverride": { "containers": containers(&["background", "output"]) }, "initImage": "any", "initCommand": shell(init),
            "backgroundImage": "any", "backgroundCommand": shell(&background), "outputImage": "any", "outputCommand": shell(&output) })
    };
    let phase = |name: &str, args: Value| json!({ "func": "MultiContainerRun", "name": name, "args": args });
    let fifo = "mkfifo /tmp/data; chmod 666 /tmp/data";
    let profile = "--profile '{{ toJson .Profile }}' --path dump.sql";
    let snapshot = "--kopia-snapshot '{{ .ArtifactsIn.dump.KopiaSnapshot }}'";
    let save = args(
        fifo,
        "seq 100000 >/tmp/data".into(),
        format!("cat /tmp/data | kando location push {profile} --output-name kopiaOutput -"),
    );
    let load = args(
        fifo,
        format!("kando location pull {profile} {snapshot} - >/tmp/data"),
        "sum=$(md5sum </tmp/data); kando output sum ${sum%% *}".into(),
    );
    let drop = json!({ "func": "KubeTask", "name": "drop", "args": { "namespace": "{{ .Namespace.Name }}", "image": "any",
        "podOverride": { "containers": containers(&["container"]) }, "command": shell(&format!("kando location delete {profile} {snapshot}")) } });
    json!({ "actions": {
        "backup": { "outputArtifacts": { "dump": { "kopiaSnapshot": "{{ .Phases.save.Output.kopiaOutput }}" } }, "phases": [phase("save", save)] },
        "restore": { "inputArtifactNames": ["dump"], "phases": [phase("load", load)] },
        "delete": { "inputArtifactNames": ["dump"], "phases": [drop] },
    } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_is_pushed_to_a_kopia_server_restored_and_deleted_by_its_artifact() {
    require!(cache::program("kopia"));
    let kopia = KopiaServer::start(None).unwrap();
    let bed = Bed::local_with_pods().await;
    let home = bed.home("home").await;
    let _server = home.server_through(&bed.kubeconfig, &["--lease-duration", "15s", "--tools-image", "plimsoll"], &[]);
    make(&home, "Secret", "kopia", json!({ "stringData": { "password": PASSWORD, "cert": kopia.certificate() } }))
        .await;
    let key = |key: &str| json!({ "key": key, "secret": { "name": "kopia", "namespace": home.namespace } });
    let server = json!({ "username": USERNAME, "hostname": HOSTNAME, "userPassphrase": key("password"), "tlsCert": key("cert") });
    let location = json!({ "type": "kopia", "endpoint": format!("https://127.0.0.1:{}", kopia.port()) });
    let credential = json!({ "type": "kopia", "kopiaServerSecret": server });
    make(&home, "Profile", "kopia", json!({ "location": location, "credential": credential })).await;
    make(&home, "Blueprint", "dump", dump_blueprint()).await;
    let namespace = home.namespace.as_str();
    let backup = act(
        &home,
        &["--action", "backup", "--blueprint", "dump", "--namespacetargets", namespace, "--profile", "kopia"],
    )
    .await;
    let artifact = &backup["status"]["actions"][0]["artifacts"]["dump"]["kopiaSnapshot"];
    let snapshot: Value = serde_json::from_str(artifact.as_str().unwrap()).unwrap();
    // The bytes of `seq 100000`.
    let size = 588_895;
    assert_eq!(snapshot["logicalSize"], size, "{snapshot:#}");
    assert_eq!(kopia.snapshots().unwrap(), [snapshot["id"].as_str().unwrap()]);
    assert!(!home.log().contains(PASSWORD), "a secret stands in the log");

    let name = backup["metadata"]["name"].as_str().unwrap().to_owned();
    let restore = act(&home, &["--action", "restore", "--from", &name]).await;
    let phase = &restore["status"]["actions"][0]["phases"][0];
    // md5sum of `seq 100000`.
    assert_eq!(phase["output"]["sum"], "dea9193b768319cbb4ff1a137ac03113", "{phase:#}");
    assert_eq!(phase["progress"]["sizeDownloadedB"], size, "{phase:#}");
    act(&home, &["--action", "delete", "--from", &name]).await;
    assert!(kopia.snapshots().unwrap().is_empty());
}
