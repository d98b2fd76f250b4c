//! The parameters have Kanister's types and order, read from a cluster.

use std::collections::BTreeMap;

use kube::Api;
use kube::api::{Patch, PatchParams};
use plimsoll_api::kanister::v1alpha1::ActionSpec;
use plimsoll_blueprint::params::{self, Params};
use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE};

/// A StatefulSet with two running pods, of which one has a claim.
async fn workload(bed: &Bed) -> Params {
    let template = json!({ "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "db", "image": "any" }] } });
    let set = json!({ "metadata": { "name": "db" }, "spec": { "replicas": 3, "serviceName": "db",
        "selector": { "matchLabels": { "app": "db" } }, "template": template } });
    let set = bed.create("apps/v1", "StatefulSet", "statefulsets", set).await;
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": set.metadata.uid }]);
    let volume = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data-db-1" } }]);
    for (name, volumes) in [("db-0", json!([])), ("db-1", volume)] {
        let mounts = if name == "db-1" { json!([{ "name": "data", "mountPath": "/data" }]) } else { json!([]) };
        let pod = json!({ "metadata": { "name": name, "ownerReferences": owner }, "spec": { "volumes": volumes,
            "containers": [{ "name": "main", "image": "any", "volumeMounts": mounts }, { "name": "agent", "image": "any" }] } });
        bed.create("v1", "Pod", "pods", pod).await;
        let status = |name: &str| json!({ "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0 });
        let reported =
            json!({ "status": { "phase": "Running", "containerStatuses": [status("agent"), status("main")] } });
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(bed.client.clone(), NAMESPACE);
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(reported)).await.unwrap();
    }
    let object = json!({ "kind": "StatefulSet", "name": "db", "namespace": NAMESPACE });
    let spec: ActionSpec = serde_json::from_value(json!({ "name": "backup", "object": object })).unwrap();
    params::fetch(&bed.client, &spec, None, "2026-11-16T03:00:00Z", NAMESPACE).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_have_the_order_of_the_kubelet_and_claims_are_those_of_pods_with_claims() {
    let bed = Bed::without_node().await;
    let params = workload(&bed).await;
    let set = &params.tree()["StatefulSet"];
    assert_eq!(set["Pods"], json!(["db-0", "db-1"]));
    assert_eq!(set["Containers"], json!([["agent", "main"], ["agent", "main"]]));
    assert_eq!(set["PersistentVolumeClaims"], json!({ "db-1": { "data-db-1": "/data" } }));
    bed.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_original_replica_count_is_a_number() {
    let bed = Bed::without_node().await;
    let params = workload(&bed).await;
    let scale = json!({ "replicas": 0, "waitForReady": false });
    let outputs = bed.call("ScaleWorkload", scale, params).run().await.unwrap();
    assert_eq!(Value::Object(outputs), json!({ "originalReplicaCount": 3 }));
    bed.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_phase_that_are_neither_secret_nor_config_map_are_skipped() {
    let bed = Bed::without_node().await;
    bed.create("v1", "Secret", "secrets", json!({ "metadata": { "name": "login" }, "stringData": { "user": "me" } }))
        .await;
    let reference = |kind: &str, name: &str| json!({ "kind": kind, "name": name, "namespace": NAMESPACE });
    let objects = json!({ "login": reference("Secret", "login"), "app": reference("Deployment", "absent") });
    let objects: BTreeMap<_, _> = serde_json::from_value(objects).unwrap();
    let mut params = Params::default();
    params.start_phase("p", &params::phase_objects(&bed.client, &objects).await.unwrap(), false);
    let phase = &params.tree()["Phases"]["p"];
    assert_eq!(phase["Secrets"]["login"]["data"]["user"], "bWU=");
    assert_eq!((phase["Secrets"].as_object().unwrap().len(), &phase["ConfigMaps"]), (1, &json!({})));
    bed.shut_down().await;
}
