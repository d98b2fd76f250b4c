//! Looking on beside an unchanged Velero that runs in real pods, with faults made on purpose. The cluster is its own: in the
//! others' there are our definitions.

use std::process::{Output, Stdio};
use std::time::Duration;

use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use plimsoll_testkit::cluster::NODE;
use plimsoll_testkit::csi::{self, CLASS, Csi, DRIVER};
use plimsoll_testkit::enclosure::Lifetime;
use plimsoll_testkit::image::BUSYBOX;
use plimsoll_testkit::peers::{S3Server, VeleroInPods};
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::{Cluster, Proxy, cache, require};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::bed::{eventually, plimsoll};
use crate::dashboard::overview;

struct Scene {
    /// The observer connects through this proxy, which records every request.
    door: Proxy,
    /// Velero's way to its bucket.
    store: Proxy,
    client: Client,
    velero: VeleroInPods,
    shop: String,
    /// Where a volume is that takes its time.
    bulk: String,
    /// Where a claim is whose snapshot is never ready.
    disks: String,
}

impl Scene {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = plimsoll();
        command
            .args(arguments)
            .args(["-n", self.velero.namespace(), "--kubeconfig"])
            .arg(self.door.kubeconfig().unwrap());
        command
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().await.unwrap()
    }

    /// The exit code and the output of `why`.
    async fn why(&self, what: &str) -> (i32, Value) {
        let output = self.run(&["why", what, "-o", "json"]).await;
        let text = String::from_utf8_lossy(&output.stdout);
        let explanation =
            serde_json::from_str(&text).unwrap_or_else(|_| json!(String::from_utf8_lossy(&output.stderr)));
        (output.status.code().unwrap_or(-1), explanation)
    }

    /// Waits until `why` names this cause; returns its output.
    async fn named(&self, what: &str, reason: &str) -> (i32, Value) {
        let mut last = (0, Value::Null);
        let named = async {
            loop {
                last = self.why(what).await;
                let causes = last.1["causes"].as_array();
                if causes.into_iter().flatten().any(|cause| cause["reason"] == reason) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_mins(3), named).await;
        assert!(in_time.is_ok(), "{reason} was not named for {what}: {:#}", last.1);
        last
    }

    fn api(&self, group: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    async fn create(&self, group: &str, kind: &str, namespace: &str, object: Value) {
        let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        let mut object = object;
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        let object = serde_json::from_value(object).unwrap();
        self.api(group, kind, namespace).create(&PostParams::default(), &object).await.unwrap();
    }

    async fn patch(&self, group: &str, kind: &str, name: &str, patch: Value) {
        let api = self.api(group, kind, self.velero.namespace());
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// A pod with a file of so many bytes in a volume of its own.
    async fn application(&self, namespace: &str, bytes: u64) {
        let fill = format!("head -c {bytes} /dev/urandom > /data/file; touch /tmp/filled; sleep 2147483647");
        let ready = json!({ "exec": { "command": ["test", "-e", "/tmp/filled"] }, "periodSeconds": 1 });
        let pod = json!({ "metadata": { "name": "holder" }, "spec": { "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "volumes": [{ "name": "data", "emptyDir": {} }],
            "containers": [{ "name": "main", "image": BUSYBOX, "imagePullPolicy": "Never",
                "command": ["sh", "-c", fill], "readinessProbe": ready,
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }] } });
        self.create("", "Pod", namespace, pod).await;
        let pods = self.api("", "Pod", namespace);
        plimsoll_testkit::wait::until("the pod to have its files", Duration::from_mins(2), || async {
            let pod = pods.get("holder").await?;
            anyhow::Ok((pod.data["status"]["containerStatuses"][0]["ready"] == json!(true)).then_some(()))
        })
        .await
        .unwrap();
    }

    /// The process of the server, on this machine.
    fn server(&self) -> Pid {
        let ours = format!("VELERO_NAMESPACE={}\0", self.velero.namespace());
        let found = std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let id: i32 = entry.file_name().to_str()?.parse().ok()?;
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let is_server = words.starts_with(b"/velero\0server\0");
            (is_server && String::from_utf8_lossy(&environment).contains(&ours)).then_some(id)
        });
        Pid::from_raw(found.expect("the server is a process of this machine")).unwrap()
    }
}

async fn an_operation_that_succeeds(scene: &Scene) {
    let empty = scene.run(&["top", "--once"]).await;
    let text = String::from_utf8_lossy(&empty.stdout);
    assert!(text.contains("No backups, restores or actions found"), "{empty:?}");
    scene
        .velero
        .cli(["backup", "create", "good", "--include-namespaces", &scene.shop, "--default-volumes-to-fs-backup"])
        .unwrap();
    let watched = scene.run(&["watch", "backup/good"]).await;
    let text = String::from_utf8_lossy(&watched.stdout);
    assert!(watched.status.success() && text.contains("backup/good is fine: Completed"), "{text}");
    let events = scene.run(&["watch", "backup/good", "--events", "json"]).await;
    let event: Value = serde_json::from_slice(&events.stdout).unwrap();
    assert_eq!((&event["state"], &event["exitCode"]), (&json!("Succeeded"), &json!(0)), "{event:#}");
    let (code, explanation) = scene.why("backup/good").await;
    assert_eq!((code, &explanation["verdict"]), (0, &json!("Fine")), "{explanation:#}");
}

/// A claim whose snapshot the driver begins and never ends: Velero polls its plugin without reporting it.
async fn a_plugin_whose_operation_does_not_end(scene: &Scene) {
    let never = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": { "name": "never" },
        "driver": DRIVER, "deletionPolicy": "Delete", "parameters": { "readyAfter": "86400" } });
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshotClass"));
    let classes: Api<DynamicObject> = Api::all_with(scene.client.clone(), &kind);
    classes.create(&PostParams::default(), &serde_json::from_value(never).unwrap()).await.unwrap();
    csi::claim(&scene.client, &scene.disks, "data", CLASS, None).await.unwrap();
    let chosen = json!({ "metadata": { "annotations": { "velero.io/csi-volumesnapshot-class": "never" } } });
    let claims = scene.api("", "PersistentVolumeClaim", &scene.disks);
    claims.patch("data", &PatchParams::default(), &Patch::Merge(chosen)).await.unwrap();
    eventually("the claim has its volume", async || {
        claims.get("data").await.is_ok_and(|claim| claim.data["status"]["phase"] == "Bound")
    })
    .await;
    scene.velero.cli(["backup", "create", "silent", "--include-namespaces", &scene.disks]).unwrap();
}

/// That is not a fault, and is reported nevertheless.
async fn assert_silent_plugin_is_named(scene: &Scene) {
    let (code, explanation) = scene.named("backup/silent", "PluginOperationSilent").await;
    assert_eq!((code, &explanation["verdict"]), (0, &json!("Quiet")), "{explanation:#}");
    assert!(
        explanation["causes"][0]["text"].as_str().unwrap().starts_with("1 of 1 operations of plugins"),
        "{explanation:#}"
    );
}

/// Velero writes how far a volume is every ten seconds, and neither how fast nor how long: that comes from watching.
async fn rate_and_eta_of_a_slow_volume(scene: &Scene) {
    // The packs of the volume only, so that it is slow for longer than the four of Velero's reports that a time left takes.
    let packs = Requests::with_method(Method::PUT).containing(format!("/kopia/{}/p", scene.bulk));
    let slow = scene.store.inject(packs, Fault::Latency(Duration::from_secs(8)));
    let fs = "--default-volumes-to-fs-backup";
    scene.velero.cli(["backup", "create", "bulk", "--include-namespaces", &scene.bulk, fs]).unwrap();
    let mut watch = scene.command(&["watch", "backup/bulk", "--events", "json"]);
    let mut watch = watch.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let (mut slow, mut both, mut last) = (Some(slow), None, Value::Null);
    while let Some(line) = lines.next_line().await.unwrap() {
        last = serde_json::from_str(&line).unwrap();
        if both.is_none() && last["rate"].as_u64() > Some(0) && last["secondsLeft"][1].as_u64() > Some(0) {
            both = Some(last.clone());
            // The rest may be quick.
            slow.take();
        }
    }
    let both = both.unwrap_or_else(|| panic!("never both: {last:#}"));
    assert_eq!((&both["unit"], &both["source"]), (&json!("bytes"), &json!("cluster")), "{both:#}");
    assert!(watch.wait().await.unwrap().success(), "{last:#}");
}

/// The dashboard without an installation.
async fn assert_dashboard_shows_causes(scene: &Scene) {
    let mut ui = scene.command(&["ui", "--no-open"]);
    let mut ui = ui.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(ui.stdout.take().unwrap()).lines();
    let said = lines.next_line().await.unwrap().unwrap();
    assert!(said.contains("read with this kubeconfig"), "{said}");
    let url = lines.next_line().await.unwrap().unwrap();
    let (base, token) = url.split_once("/#token=").unwrap();
    let explanation = overview(base, token).await;
    let rows = explanation["news"]["rows"].as_array().unwrap();
    let cause = |key: &str| {
        let key = key.replacen('/', &format!("/{}/", scene.velero.namespace()), 1);
        let row =
            rows.iter().find(|row| row["key"] == key.as_str()).unwrap_or_else(|| panic!("no {key}: {explanation:#}"));
        (row["verdict"].clone(), row["cause"]["reason"].clone())
    };
    assert_eq!(cause("restore/hangs"), (json!("Stuck"), json!("InitContainerCannotStart")));
    assert_eq!(cause("podvolumebackup/lonely"), (json!("Stuck"), json!("NodeAgentMissing")));
    assert_eq!(cause("backup/good"), (json!("Fine"), Value::Null));
    let volumes = explanation["news"]["volumes"].as_array().unwrap();
    assert!(
        volumes.iter().any(|volume| volume["parent"].as_str().is_some_and(|of| of.ends_with("/bulk"))),
        "{explanation:#}"
    );
}

/// The case of our baselines: Velero shows `InProgress` and nothing else, for hours.
async fn an_init_container_that_cannot_start_and_the_queue_behind_it(scene: &Scene) {
    let helper = json!({ "metadata": { "name": "helper", "labels": { "velero.io/plugin-config": "", "velero.io/pod-volume-restore": "RestoreItemAction" } },
        "data": { "image": BUSYBOX } });
    scene.create("", "ConfigMap", scene.velero.namespace(), helper).await;
    let pods = scene.api("", "Pod", &scene.shop);
    pods.delete("holder", &DeleteParams::default()).await.unwrap();
    plimsoll_testkit::wait::until("the pod to be gone", Duration::from_mins(2), || async {
        anyhow::Ok(pods.get_opt("holder").await?.is_none().then_some(()))
    })
    .await
    .unwrap();
    scene.velero.cli(["restore", "create", "hangs", "--from-backup", "good"]).unwrap();
    let (code, explanation) = scene.named("restore/hangs", "InitContainerCannotStart").await;
    assert_eq!((code, &explanation["verdict"]), (7, &json!("Stuck")), "{explanation:#}");
    let cause = &explanation["causes"][0];
    assert!(cause["text"].as_str().unwrap().contains("velero-restore-helper"), "{explanation:#}");
    assert_eq!(cause["next"][0], json!(format!("kubectl -n {} describe pod holder", scene.shop)), "{explanation:#}");

    scene.velero.cli(["restore", "create", "behind", "--from-backup", "good"]).unwrap();
    let (code, explanation) = scene.named("restore/behind", "Queued").await;
    assert_eq!((code, &explanation["causes"][0]["reason"]), (7, &json!("InitContainerCannotStart")), "{explanation:#}");

    let top = scene.run(&["top", "--once"]).await;
    let text = String::from_utf8_lossy(&top.stdout);
    assert_eq!(top.status.code(), Some(7), "{text}");
    assert!(text.lines().nth(1).unwrap().contains("STUCK"), "what is stuck comes first: {text}");
}

/// Volume restores into pods that cannot start, as a restore into another cluster meets them.
async fn a_pod_without_an_image_and_an_unschedulable_pod(scene: &Scene) {
    let volume = json!([{ "name": "data", "emptyDir": {} }]);
    let container = |image: &str, wants: Value| json!([{ "name": "main", "image": image, "imagePullPolicy": "Never", "resources": wants }]);
    let plenty = json!({ "requests": { "memory": "100Ti" } });
    let cases = [
        ("no-image", container("registry.invalid/nothing:1", json!({})), "ImagePullFailed"),
        ("no-room", container(BUSYBOX, plenty), "PodUnschedulable"),
    ];
    for (name, containers, reason) in cases {
        let spec = json!({ "restartPolicy": "Never", "volumes": volume, "containers": containers });
        scene.create("", "Pod", &scene.shop, json!({ "metadata": { "name": name }, "spec": spec })).await;
        let uid = scene.api("", "Pod", &scene.shop).get(name).await.unwrap().metadata.uid;
        let restore = json!({ "metadata": { "name": name }, "spec": { "volume": "data", "backupStorageLocation": "default",
            "pod": { "kind": "Pod", "namespace": scene.shop, "name": name, "uid": uid }, "repoIdentifier": "none",
            "snapshotID": "none", "sourceNamespace": scene.shop, "uploaderType": "kopia" } });
        scene.create("velero.io", "PodVolumeRestore", scene.velero.namespace(), restore).await;
        let (code, explanation) = scene.named(&format!("pvr/{name}"), reason).await;
        assert_eq!((code, &explanation["verdict"]), (7, &json!("Stuck")), "{explanation:#}");
        scene
            .api("velero.io", "PodVolumeRestore", scene.velero.namespace())
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        scene.api("", "Pod", &scene.shop).delete(name, &DeleteParams::default()).await.unwrap();
    }
}

async fn a_node_agent_that_is_down(scene: &Scene) {
    let nowhere = json!({ "spec": { "template": { "spec": { "nodeSelector": { "nowhere": "to-be-found" } } } } });
    scene.patch("apps", "DaemonSet", "node-agent", nowhere).await;
    let pods = scene.api("", "Pod", scene.velero.namespace());
    plimsoll_testkit::wait::until("the node agent to be gone", Duration::from_mins(2), || async {
        let agents = pods.list(&ListParams::default().labels("name=node-agent")).await?;
        anyhow::Ok(agents.items.is_empty().then_some(()))
    })
    .await
    .unwrap();
    let volume = json!({ "metadata": { "name": "lonely" }, "spec": { "node": NODE, "volume": "data", "backupStorageLocation": "default",
        "pod": { "kind": "Pod", "namespace": scene.shop, "name": "holder", "uid": "none" }, "repoIdentifier": "none", "uploaderType": "kopia" } });
    scene.create("velero.io", "PodVolumeBackup", scene.velero.namespace(), volume).await;
    let (code, explanation) = scene.named("pvb/lonely", "NodeAgentMissing").await;
    assert_eq!((code, &explanation["verdict"]), (7, &json!("Stuck")), "{explanation:#}");
}

async fn a_location_that_is_unavailable(scene: &Scene) {
    let dead = json!({ "spec": { "config": { "s3Url": "http://127.0.0.1:9" } } });
    scene.patch("velero.io", "BackupStorageLocation", "default", dead).await;
    let (code, explanation) = scene.named("bsl/default", "LocationUnavailable").await;
    assert_eq!(code, 7, "{explanation:#}");
    scene.velero.cli(["backup", "create", "nowhere", "--include-namespaces", &scene.shop]).unwrap();
    let (_, explanation) = scene.named("backup/nowhere", "LocationUnavailable").await;
    assert!(["Stuck", "Refused"].map(Value::from).contains(&explanation["verdict"]), "{explanation:#}");
    // Velero connects its repositories anew, and writes into their objects that it cannot.
    let (code, explanation) = scene.named("pvb/lonely", "RepositoryNotReady").await;
    assert_eq!((code, &explanation["verdict"]), (7, &json!("Stuck")), "{explanation:#}");
}

async fn a_server_that_is_stopped_in_the_middle(scene: &Scene) {
    let server = scene.server();
    kill_process(server, Signal::STOP).unwrap();
    let (code, explanation) = scene.named("restore/hangs", "ServerSilent").await;
    kill_process(server, Signal::CONT).unwrap();
    assert_eq!(code, 7, "{explanation:#}");
}

/// Every definition is Velero's, as Velero made it.
async fn assert_no_plimsoll_crds_exist(scene: &Scene) {
    let definitions: Api<CustomResourceDefinition> = Api::all(scene.client.clone());
    let all = definitions.list(&ListParams::default()).await.unwrap().items;
    let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
    assert!(names.iter().any(|name| name == "backups.velero.io"), "{names:?}");
    // Beside its own there is only the API of snapshots.
    let foreign = |name: &String| name.ends_with(".velero.io") || name.ends_with("snapshot.storage.k8s.io");
    assert!(names.iter().all(foreign), "{names:?}");
    for definition in &all {
        let text = serde_json::to_string(&definition.spec).unwrap();
        assert!(!text.contains("plimsoll"), "{} is ours", definition.name_any());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_an_unchanged_velero_is_reported_without_changes() {
    require!(Cluster::preflight());
    require!(VeleroInPods::preflight());
    require!(Csi::preflight());
    require!(cache::program("versitygw"));
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(Lifetime::Bound).unwrap()).await.unwrap();
    let host = cluster.machine().unwrap().addresses().host();
    let store = S3Server::start(&host).unwrap();
    store.create_bucket("observed").unwrap();
    let way = Proxy::for_server(&format!("{host}:0"), store.endpoint()).await.unwrap();
    require!(cluster.csi().await);
    let features = ["--features=EnableCSI"];
    let velero = VeleroInPods::install_with(&cluster, &way.url(), "observed", &features).await.unwrap();
    let mut namespaces = Vec::new();
    for name in ["observed", "bulk", "disks"] {
        namespaces.push(cluster.namespace(name).await.unwrap());
    }
    let [shop, bulk, disks] = [0, 1, 2].map(|place: usize| namespaces[place].name().to_owned());
    let client = cluster.client().await.unwrap();
    let door = Proxy::for_api_server(&cluster).await.unwrap();
    let scene = Scene { door, store: way, client, velero, shop, bulk, disks };
    let often = json!({ "spec": { "validationFrequency": "5s" } });
    scene.patch("velero.io", "BackupStorageLocation", "default", often).await;
    scene.application(&scene.shop, 3_000_000).await;
    scene.application(&scene.bulk, 240 << 20).await;

    an_operation_that_succeeds(&scene).await;
    a_plugin_whose_operation_does_not_end(&scene).await;
    rate_and_eta_of_a_slow_volume(&scene).await;
    assert_silent_plugin_is_named(&scene).await;
    an_init_container_that_cannot_start_and_the_queue_behind_it(&scene).await;
    a_pod_without_an_image_and_an_unschedulable_pod(&scene).await;
    a_node_agent_that_is_down(&scene).await;
    assert_dashboard_shows_causes(&scene).await;
    a_location_that_is_unavailable(&scene).await;
    a_server_that_is_stopped_in_the_middle(&scene).await;

    assert!(scene.door.count_requests(&Requests::with_method(Method::GET)) > 100, "it used another connection");
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        assert_eq!(scene.door.count_requests(&Requests::with_method(method.clone())), 0, "{method} from an observer");
    }
    assert_no_plimsoll_crds_exist(&scene).await;
    drop((scene, namespaces));
    tokio::task::spawn_blocking(move || cluster.end().unwrap()).await.unwrap();
}
