//! The functions of CSI snapshots, on the real cluster with the real snapshot controller and the test kit's driver.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod as KubernetesPod};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use plimsoll_testkit::csi::{self, CLASS, DRIVER, FAILING_CLASS, RETAIN_CLASS, SLOW_CLASS};
use plimsoll_testkit::wait::WAIT_TIMEOUT;
use plimsoll_testkit::{Csi, Pod, require};
use serde_json::{Value, json};

use crate::actions::{ProgressWatch, ended, is_ended, make, message, state};
use crate::bed::{Bed, Home, eventually};

fn phase(func: &str, name: &str, args: &Value) -> Value {
    json!({ "func": func, "name": name, "args": args })
}

/// What a snapshot is called, in artifacts.
fn known(phase: &str) -> Value {
    let output = |key: &str| format!("{{{{ .Phases.{phase}.Output.{key} }}}}");
    json!({ "snapshot": { "keyValue": { "name": output("name"), "content": output("snapshotContent"), "size": output("restoreSize") } } })
}

pub fn blueprint() -> Value {
    let given = |key: &str| format!("{{{{ .ArtifactsIn.snapshot.KeyValue.{key} }}}}");
    let here = "{{ .Namespace.Name }}";
    let take = json!({ "pvc": "data", "namespace": here, "snapshotClass": "{{ .Options.class }}", "labels": { "of": "data" } });
    let adopt = json!({ "name": "adopted", "namespace": here, "driver": DRIVER, "snapshotClass": RETAIN_CLASS,
        "snapshotHandle": "{{ .Options.handle }}" });
    let restore = json!({ "name": given("name"), "pvc": "{{ .Options.claim }}", "namespace": here, "storageClass": CLASS,
        "restoreSize": given("size"), "accessModes": ["ReadWriteOnce"], "labels": { "restored": "yes" } });
    json!({ "actions": {
        "backup": { "outputArtifacts": known("take"), "phases": [phase("CreateCSISnapshot", "take", &take)] },
        "adopt": { "outputArtifacts": known("adopt"), "phases": [phase("CreateCSISnapshotStatic", "adopt", &adopt)] },
        "restore": { "phases": [phase("RestoreCSISnapshot", "restore", &restore)] },
        "delete": { "phases": [phase("DeleteCSISnapshot", "forget", &json!({ "name": given("name"), "namespace": here }))] },
        "delete-content": { "phases": [phase("DeleteCSISnapshotContent", "erase", &json!({ "name": given("content") }))] },
    } })
}

/// A set with one action of the blueprint.
pub async fn ask(home: &Home<'_>, set: &str, action: &str, options: Value, artifacts: &Value) {
    let object = json!({ "kind": "Namespace", "name": home.namespace, "namespace": home.namespace });
    let action =
        json!({ "name": action, "blueprint": "csi", "object": object, "options": options, "artifacts": artifacts });
    make(home, "ActionSet", set, json!({ "spec": { "actions": [action] } })).await;
}

/// Runs one action to its good end; returns its artifacts.
async fn done(home: &Home<'_>, set: &str, action: &str, options: Value, artifacts: &Value) -> Value {
    ask(home, set, action, options, artifacts).await;
    let mut seen = ProgressWatch::default();
    let ended = ended(home, set, &mut seen).await;
    assert_eq!(state(&ended), "complete", "{}\n{}", message(&ended), home.log());
    let percents = seen.phases.iter().map(|(_, percent)| percent.as_str());
    assert!(percents.clone().all(|percent| ["none", "0.00", "100.00"].contains(&percent)), "{:?}", seen.phases);
    ended["status"]["actions"][0]["artifacts"].clone()
}

pub fn of_snapshots(home: &Home<'_>, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", kind));
    if kind == "VolumeSnapshot" {
        return Api::namespaced_with(home.bed.client.clone(), &home.namespace, &resource);
    }
    Api::all_with(home.bed.client.clone(), &resource)
}

/// Runs a script with a claim at /data, and removes the pod, which would hold the claim.
pub async fn in_pod(home: &Home<'_>, claim: &str, script: &str) -> String {
    let pod = Pod::script("worker", script).mount(claim, "/data");
    let printed = pod.create(&home.bed.client, &home.namespace).await.unwrap().finished().await.unwrap();
    let pods: Api<KubernetesPod> = Api::namespaced(home.bed.client.clone(), &home.namespace);
    pods.delete("worker", &DeleteParams::default()).await.unwrap();
    eventually("the pod is gone", async || pods.get_opt("worker").await.unwrap().is_none()).await;
    printed
}

async fn lose(home: &Home<'_>, claim: &str) {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(home.bed.client.clone(), &home.namespace);
    claims.delete(claim, &DeleteParams::default()).await.unwrap();
    eventually("the claim is gone", async || claims.get_opt(claim).await.unwrap().is_none()).await;
}

/// A home with the blueprint and a claim with a file in it.
async fn prepare<'a>(bed: &'a Bed, name: &str) -> Home<'a> {
    let home = bed.home(name).await;
    make(&home, "Blueprint", "csi", blueprint()).await;
    csi::claim(&home.bed.client, &home.namespace, "data", CLASS, None).await.unwrap();
    in_pod(&home, "data", "echo precious > /data/file; sync").await;
    home
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blueprint_takes_restores_and_deletes_csi_snapshots() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let csi = require!(cluster.csi().await);
    let bed = Bed::real(cluster).await;
    let home = prepare(&bed, "csi").await;
    let _server = home.server();

    let taken = done(&home, "backup", "backup", json!({ "class": CLASS }), &json!({})).await;
    let artifact = &taken["snapshot"]["keyValue"];
    assert_eq!(artifact["size"], "64Mi");
    let name = artifact["name"].as_str().unwrap();
    assert!(name.starts_with("data-snapshot-") && name.len() == "data-snapshot-".len() + 5, "{name}");
    let snapshots = of_snapshots(&home, "VolumeSnapshot");
    let snapshot = snapshots.get(name).await.unwrap();
    assert_eq!(snapshot.data["status"]["boundVolumeSnapshotContentName"], artifact["content"]);
    assert_eq!(snapshot.metadata.labels.unwrap()["of"], "data");

    lose(&home, "data").await;
    done(&home, "restore", "restore", json!({ "claim": "data" }), &taken).await;
    assert_eq!(in_pod(&home, "data", "cat /data/file").await, "precious\n");

    done(&home, "delete", "delete", json!({}), &taken).await;
    assert!(snapshots.get_opt(name).await.unwrap().is_none());
    // Deleted again, it is well.
    done(&home, "delete-again", "delete", json!({}), &taken).await;

    a_retained_snapshot_is_adopted(&home, csi).await;
    a_refusal_is_reported_at_once(&home).await;
    a_slow_snapshot_is_awaited(&home).await;
    bed.clear().await;
}

async fn a_retained_snapshot_is_adopted(home: &Home<'_>, csi: &Csi) {
    let taken = done(home, "retain", "backup", json!({ "class": RETAIN_CLASS }), &json!({})).await;
    let contents = of_snapshots(home, "VolumeSnapshotContent");
    let content = taken["snapshot"]["keyValue"]["content"].as_str().unwrap();
    let handle = contents.get(content).await.unwrap().data["status"]["snapshotHandle"].as_str().unwrap().to_owned();
    done(home, "release", "delete", json!({}), &taken).await;
    done(home, "release-content", "delete-content", json!({}), &taken).await;
    eventually("the content is gone", async || contents.get_opt(content).await.unwrap().is_none()).await;
    assert!(csi.snapshots().contains(&handle), "its class keeps what the storage has");

    let adopted = done(home, "adopt", "adopt", json!({ "handle": handle }), &json!({})).await;
    assert_eq!(adopted["snapshot"]["keyValue"]["name"], "adopted");
    done(home, "restore-adopted", "restore", json!({ "claim": "again" }), &adopted).await;
    assert_eq!(in_pod(home, "again", "cat /data/file").await, "precious\n");
}

async fn failed(home: &Home<'_>, set: &str, action: &str, options: Value, artifacts: &Value) -> String {
    ask(home, set, action, options, artifacts).await;
    let set = ended(home, set, &mut ProgressWatch::default()).await;
    assert_eq!(state(&set), "failed");
    message(&set).to_owned()
}

async fn a_refusal_is_reported_at_once(home: &Home<'_>) {
    let said = failed(home, "refused", "backup", json!({ "class": FAILING_CLASS }), &json!({})).await;
    assert!(said.contains("VolumeSnapshot") && said.contains("this class is made to be refused"), "{said}");
    let said = failed(home, "no-class", "backup", json!({ "class": "no-such-class" }), &json!({})).await;
    assert!(said.contains("no-such-class"), "{said}");
    let artifact =
        |size: &str| json!({ "snapshot": { "keyValue": { "name": "no-such", "content": "c", "size": size } } });
    let said = failed(home, "no-snapshot", "restore", json!({ "claim": "c" }), &artifact("1Gi")).await;
    assert!(said.contains("VolumeSnapshot") && said.contains("no-such does not exist"), "{said}");
    let said = failed(home, "no-size", "restore", json!({ "claim": "c" }), &artifact("0")).await;
    assert!(said.contains("argument restoreSize"), "{said}");
    let said = failed(home, "taken-name", "adopt", json!({ "handle": "h" }), &json!({})).await;
    assert!(said.contains("already exists"), "{said}");
}

async fn a_slow_snapshot_is_awaited(home: &Home<'_>) {
    ask(home, "slow", "backup", json!({ "class": SLOW_CLASS }), &json!({})).await;
    let (mut waited, mut seen, mut last) = (false, ProgressWatch::default(), Value::Null);
    eventually("the slow one has ended", async || {
        let operation = home.find("Operation", "run-slow").await;
        waited |= operation.is_some_and(|one| one.to_string().contains("waiting for VolumeSnapshot"));
        last = home.get("ActionSet", "slow").await;
        seen.record(&last);
        is_ended(&last)
    })
    .await;
    assert_eq!(state(&last), "complete", "{}", message(&last));
    assert!(waited && seen.has_seen("take", "0.00"), "the wait is seen: {:?}", seen.phases);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_whose_server_is_killed_is_taken_once() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let csi = require!(cluster.csi().await);
    let bed = Bed::real(cluster).await;
    let home = prepare(&bed, "killed").await;
    let points = ["phase.snapshot.before", "phase.snapshot.after", "phase.end.before"];
    for (number, point) in points.into_iter().enumerate() {
        let set = format!("set-{number}");
        ask(&home, &set, "backup", json!({ "class": CLASS }), &json!({})).await;
        let mut mortal = home.server_with_short_lease(&[("PLIMSOLL_KILL_AT", point)]);
        let died = tokio::time::timeout(WAIT_TIMEOUT, mortal.wait()).await;
        died.unwrap_or_else(|_| panic!("not killed at {point}\n{}", home.log())).unwrap();
        let next = home.server_with_short_lease(&[]);
        let ended = ended(&home, &set, &mut ProgressWatch::default()).await;
        assert_eq!(state(&ended), "complete", "killed at {point}: {}\n{}", message(&ended), home.log());
        let taken = of_snapshots(&home, "VolumeSnapshot").list(&ListParams::default()).await.unwrap().items;
        assert_eq!(taken.len(), number + 1, "killed at {point}");
        crate::killed::terminate_if_running(next).await;
    }
    let taken = of_snapshots(&home, "VolumeSnapshot").list(&ListParams::default()).await.unwrap().items;
    let kept = csi.snapshots();
    let own = taken.iter().filter_map(|one| one.metadata.uid.as_ref());
    assert_eq!(own.filter(|uid| kept.contains(&format!("snapshot-{uid}"))).count(), points.len());
    bed.clear().await;
}
