//! Volumes with snapshots on the real cluster: the driver with the snapshot controller and its sidecar.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use plimsoll_testkit::csi::{self, BUSY_CLASS, CLASS, DRIVER, FAILING_CLASS, SLOW_CLASS, WAITING_CLASS};
use plimsoll_testkit::enclosure::Lifetime;
use plimsoll_testkit::wait::until;
use plimsoll_testkit::{Cluster, Csi, Pod, cluster, require};
use serde_json::{Value, json};

const START_TIMEOUT: Duration = Duration::from_mins(2);

fn snapshots(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshot");
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

async fn take(api: &Api<DynamicObject>, name: &str, class: &str) {
    let snapshot = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": { "name": name },
        "spec": { "volumeSnapshotClassName": class, "source": { "persistentVolumeClaimName": "data" } } });
    api.create(&PostParams::default(), &serde_json::from_value(snapshot).unwrap()).await.unwrap();
}

/// Waits until the status of a snapshot matches and returns it.
async fn status_of(csi: &Csi, api: &Api<DynamicObject>, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let look = || async { api.get(name).await.map(|found| Some(found.data["status"].clone()).filter(&wanted)) };
    until(format!("snapshot {name}"), START_TIMEOUT, look)
        .await
        .unwrap_or_else(|error| panic!("{error:#}\n{}", csi.logs()))
}

fn is_ready(status: &Value) -> bool {
    status["readyToUse"] == true
}

async fn run(client: &Client, namespace: &str, name: &str, claim: &str, script: &str) -> String {
    let pod = Pod::script(name, script).mount(claim, "/data").create(client, namespace).await.unwrap();
    pod.finished().await.unwrap()
}

/// The volumes of current and deleted claims of a namespace.
async fn volumes_of(client: &Client, namespace: &str) -> Vec<String> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let all = volumes.list(&ListParams::default()).await.unwrap();
    let specs = all.items.into_iter().filter_map(|volume| volume.spec);
    let own =
        specs.filter(|spec| spec.claim_ref.as_ref().and_then(|claim| claim.namespace.as_deref()) == Some(namespace));
    own.filter_map(|spec| spec.csi).filter(|csi| csi.driver == DRIVER).map(|csi| csi.volume_handle).collect()
}

#[tokio::test]
async fn a_claim_from_a_snapshot_has_the_content_before_the_snapshot() {
    let cluster = require!(cluster().await);
    let csi = require!(cluster.csi().await);
    let client = &cluster.client().await.unwrap();
    let namespace = cluster.namespace("csi").await.unwrap();
    let namespace = namespace.name();
    csi::claim(client, namespace, "data", CLASS, None).await.unwrap();
    run(client, namespace, "writer", "data", "echo before > /data/file; ln -s file /data/link; sync").await;

    let api = snapshots(client, namespace);
    take(&api, "first", CLASS).await;
    let status = status_of(csi, &api, "first", is_ready).await;
    assert_eq!(status["restoreSize"], "64Mi");
    run(client, namespace, "changer", "data", "echo after > /data/file; sync").await;

    // One class waits for the first consumer, the other binds immediately.
    for (claim, class) in [("early", CLASS), ("late", WAITING_CLASS)] {
        csi::claim(client, namespace, claim, class, Some("first")).await.unwrap();
        let read = run(client, namespace, &format!("reader-{claim}"), claim, "cat /data/link").await;
        assert_eq!(read, "before\n", "{claim}");
    }
    let handles = volumes_of(client, namespace).await;
    assert_eq!(handles.len(), 3);
    let files = |handle: &String| csi.volume_directory(handle);
    assert!(handles.iter().all(|handle| files(handle).is_some_and(|directory| directory.join("file").exists())));

    // Objects deleted in the cluster are deleted from the storage.
    let handle = format!("snapshot-{}", api.get("first").await.unwrap().metadata.uid.unwrap());
    assert!(csi.snapshots().contains(&handle), "{:?}", csi.snapshots());
    api.delete("first", &DeleteParams::default()).await.unwrap();
    let gone = || async { anyhow::Ok((!csi.snapshots().contains(&handle)).then_some(())) };
    until("the snapshot to go", START_TIMEOUT, gone).await.unwrap();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), namespace);
    pods.delete("reader-early", &DeleteParams::default()).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    claims.delete("early", &DeleteParams::default()).await.unwrap();
    let gone = || async { anyhow::Ok((handles.iter().filter_map(files).count() == 2).then_some(())) };
    until("the volume to go", START_TIMEOUT, gone).await.unwrap();
}

#[tokio::test]
async fn a_class_can_make_the_driver_fail_or_slow() {
    let cluster = require!(cluster().await);
    let csi = require!(cluster.csi().await);
    let client = &cluster.client().await.unwrap();
    let namespace = cluster.namespace("csi-faults").await.unwrap();
    let namespace = namespace.name();
    csi::claim(client, namespace, "data", CLASS, None).await.unwrap();
    csi::claim(client, namespace, "never", FAILING_CLASS, None).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let bound = || async {
        let phase = claims.get("data").await?.status.and_then(|status| status.phase);
        Ok::<_, kube::Error>(phase.filter(|phase| phase == "Bound"))
    };
    until("the claim to be bound", START_TIMEOUT, bound).await.unwrap();

    let api = snapshots(client, namespace);
    for (name, class) in [("slow", SLOW_CLASS), ("refused", FAILING_CLASS), ("busy", BUSY_CLASS)] {
        take(&api, name, class).await;
    }
    let bound = |status: &Value| status["boundVolumeSnapshotContentName"].is_string();
    assert_eq!(status_of(csi, &api, "slow", bound).await["readyToUse"], false);
    let status = status_of(csi, &api, "refused", |status| status["error"]["message"].is_string()).await;
    let message = status["error"]["message"].as_str().unwrap();
    assert!(message.contains("code = InvalidArgument") && message.contains("made to be refused"), "{message}");
    for name in ["busy", "slow"] {
        status_of(csi, &api, name, is_ready).await;
    }

    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(client.clone(), namespace);
    let said = events.list(&ListParams::default()).await.unwrap().items;
    let said = said.iter().filter(|event| event.involved_object.name.as_deref() == Some("never"));
    assert!(
        said.clone().any(|event| event.reason.as_deref() == Some("ProvisioningFailed")),
        "{:?}",
        said.collect::<Vec<_>>()
    );
}

#[test]
fn nothing_is_left_of_a_cluster_that_ended_with_a_mounted_csi_volume() {
    require!(Cluster::preflight());
    require!(Csi::preflight());
    let cluster = Cluster::start(Lifetime::Bound).unwrap();
    let state = cluster.machine().unwrap().directory();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = &cluster.client().await.unwrap();
        cluster.csi().await.unwrap();
        csi::claim(client, "default", "data", CLASS, None).await.unwrap();
        let pod = Pod::idle("user").mount("data", "/data").create(client, "default").await.unwrap();
        pod.ready().await.unwrap();
    });
    cluster.end().unwrap();
    crate::leftovers::assert_no_traces(&state);
}
