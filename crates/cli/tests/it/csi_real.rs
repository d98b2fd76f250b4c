//! Snapshots and moved data of real pods' volumes, through an installed server and agent under the installer's rights.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, api::ApiResource};
use plimsoll_testkit::csi::{self, CLASS};
use plimsoll_testkit::peers::{PlimsollInPods, S3Server};
use plimsoll_testkit::{Csi, cache, require};
use serde_json::{Value, json};

use crate::actions::{ProgressWatch, ended, make, message, state};
use crate::actions_csi::{ask, blueprint, in_pod, of_snapshots};
use crate::bed::{Bed, Home, create_namespace, eventually, phase};
use crate::installed_volumes::{expect, fill, program, sums};

#[tokio::test(flavor = "multi_thread")]
async fn an_installed_server_takes_and_deletes_csi_snapshots_with_its_own_permissions() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let machine = require!(cluster.machine());
    require!(cluster.csi().await);
    let bed = Bed::real(cluster).await;
    let folder = machine.directory().join("volumes").join(bed.ns("csi-rights"));
    let ours =
        PlimsollInPods::install_in_directory(cluster, program(), &folder, &["--use-node-agent=false"]).await.unwrap();
    let home = Home { bed: &bed, namespace: ours.namespace().to_owned(), bucket: folder };
    make(&home, "Blueprint", "csi", blueprint()).await;
    csi::claim(&bed.client, &home.namespace, "data", CLASS, None).await.unwrap();
    in_pod(&home, "data", "echo precious > /data/file; sync").await;
    let mut artifacts = json!({});
    for (set, options) in
        [("backup", json!({ "class": CLASS })), ("restore", json!({ "claim": "copy" })), ("delete", json!({}))]
    {
        ask(&home, set, set, options, &artifacts).await;
        let ended = ended(&home, set, &mut ProgressWatch::default()).await;
        assert_eq!(state(&ended), "complete", "{}\n{}", message(&ended), ours.logs());
        if set == "backup" {
            artifacts = ended["status"]["actions"][0]["artifacts"].clone();
        }
        if set == "restore" {
            assert_eq!(in_pod(&home, "copy", "cat /data/file").await, "precious\n");
        }
    }
    assert!(of_snapshots(&home, "VolumeSnapshot").list(&ListParams::default()).await.unwrap().items.is_empty());
    ask(&home, "erase", "delete-content", json!({}), &artifacts).await;
    assert_eq!(state(&ended(&home, "erase", &mut ProgressWatch::default()).await), "complete", "{}", ours.logs());
    bed.clear().await;
}

/// An application with a claim of the driver, filled; and the sums of its files.
pub async fn application(bed: &Bed, namespace: &str) -> String {
    create_namespace(&bed.client, namespace).await;
    csi::claim(&bed.client, namespace, "data", CLASS, None).await.unwrap();
    fill(&bed.client, namespace, json!({ "persistentVolumeClaim": { "claimName": "data" } })).await
}

/// The driver's name of the volume that the application's claim is bound to.
async fn volume_of(bed: &Bed, namespace: &str) -> String {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(bed.client.clone(), namespace);
    let volume = claims.get("data").await.unwrap().spec.unwrap().volume_name.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(bed.client.clone());
    volumes.get(&volume).await.unwrap().spec.unwrap().csi.unwrap().volume_handle
}

fn snapshots_in(bed: &Bed, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshot");
    Api::namespaced_with(bed.client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

async fn uploads(home: &Home<'_>, kind: &str) -> Vec<Value> {
    let kind = GroupVersionKind::gvk("velero.io", "v2alpha1", kind);
    let api: Api<DynamicObject> =
        Api::namespaced_with(home.bed.client.clone(), &home.namespace, &ApiResource::from_gvk(&kind));
    let all = api.list(&ListParams::default()).await.unwrap();
    all.into_iter().map(|one| serde_json::to_value(one).unwrap()).collect()
}

async fn backed_up(home: &Home<'_>, ours: &PlimsollInPods, name: &str, shop: &str, more: &[&str]) {
    let words = [&["backup", "create", name, "--include-namespaces", shop, "--wait"][..], more].concat();
    expect(ours, ours.cli(words));
    assert_eq!(phase(&home.get("Backup", name).await), "Completed", "{}", ours.logs());
}

/// Deletes the namespace and restores it.
async fn delete_and_restore(bed: &Bed, ours: &PlimsollInPods, backup: &str, before: &str) {
    bed.delete_namespace("shop").await;
    expect(ours, ours.cli(["restore", "create", &format!("r-{backup}"), "--from-backup", backup, "--wait"]));
    assert_eq!(sums(&bed.client, &bed.ns("shop")).await, before, "{}", ours.logs());
}

async fn round_trip_snapshots(home: &Home<'_>, ours: &PlimsollInPods, csi: &Csi, before: &str) {
    let shop = home.bed.ns("shop");
    let volume = volume_of(home.bed, &shop).await;
    backed_up(home, ours, "snapped", &shop, &[]).await;
    assert_eq!(csi.snapshots_of(&volume).len(), 1, "the snapshot stays with the storage");
    delete_and_restore(home.bed, ours, "snapped", before).await;
    expect(ours, ours.cli(["backup", "delete", "snapped", "--confirm", "--wait"]));
    eventually("the snapshot goes with its backup", async || csi.snapshots_of(&volume).is_empty()).await;
}

async fn round_trip_moved_data(home: &Home<'_>, ours: &PlimsollInPods, csi: &Csi, before: &str) {
    let shop = home.bed.ns("shop");
    let volume = volume_of(home.bed, &shop).await;
    backed_up(home, ours, "moved", &shop, &["--snapshot-move-data"]).await;
    let moved = uploads(home, "DataUpload").await;
    assert_eq!(moved.len(), 1, "{moved:?}");
    let status = &moved[0]["status"];
    assert_eq!(status["phase"], "Completed", "{status:#}");
    assert_eq!(status["progress"]["bytesDone"], status["progress"]["totalBytes"], "{status:#}");
    eventually("what was moved needs no snapshot", async || csi.snapshots_of(&volume).is_empty()).await;
    eventually("nor does anything of it stay beside the claim", async || {
        let of_backup = ListParams::default().labels("velero.io/backup-name=moved");
        snapshots_in(home.bed, &shop).list(&of_backup).await.unwrap().items.is_empty()
    })
    .await;
    delete_and_restore(home.bed, ours, "moved", before).await;
    let down = uploads(home, "DataDownload").await;
    assert!(down.len() == 1 && down[0]["status"]["phase"] == "Completed", "{down:#?}");
    // Nothing that was made for the move is left beside the server.
    let pods: Api<Pod> = Api::namespaced(home.bed.client.clone(), &home.namespace);
    let movers = pods.list(&ListParams::default()).await.unwrap().items;
    let names: Vec<_> = movers.into_iter().filter_map(|pod| pod.metadata.name).collect();
    assert!(!names.iter().any(|name| name.starts_with("moved")), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_and_moved_data_are_restored_by_an_installed_server_and_agent() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let machine = require!(cluster.machine());
    let csi = require!(cluster.csi().await);
    require!(cache::program("versitygw").and(cache::program("kopia")));
    let bed = Bed::real(cluster).await;
    let store = S3Server::start(&machine.addresses().host()).unwrap();
    let bucket = store.create_bucket("csi").unwrap();
    let ours = PlimsollInPods::install(cluster, program(), store.endpoint(), "csi", &[]).await.unwrap();
    let home = Home { bed: &bed, namespace: ours.namespace().to_owned(), bucket };
    let before = application(&bed, &bed.ns("shop")).await;
    round_trip_snapshots(&home, &ours, csi, &before).await;
    round_trip_moved_data(&home, &ours, csi, &before).await;
    let logs = ours.logs();
    assert!(!logs.contains("forbidden"), "{logs}");
    bed.clear().await;
}
