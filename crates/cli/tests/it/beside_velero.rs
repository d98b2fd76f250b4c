//! One controller for each custom resource: next to a running Velero the server observes, and leads when Velero is gone.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use plimsoll_testkit::peers::{S3Server, VeleroInPods};
use plimsoll_testkit::{cache, require};
use serde_json::json;

use crate::bed::{Bed, Home, eventually, phase};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_beside_a_working_velero_observes_and_leads_once_it_is_gone() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let machine = require!(cluster.machine());
    require!(VeleroInPods::preflight());
    require!(cache::program("versitygw"));
    let bed = Bed::real(cluster).await;
    let store = S3Server::start(&machine.addresses().host()).unwrap();
    let bucket = store.create_bucket("beside").unwrap();
    let velero = VeleroInPods::install(cluster, store.endpoint(), "beside").await.unwrap();
    let home = Home { bed: &bed, namespace: velero.namespace().to_owned(), bucket };
    let _server = home.server();
    eventually("our server says that it only looks on", async || home.log().contains("observing only: Velero")).await;

    let shop = bed.application("shop", 3).await;
    velero.cli(["backup", "create", "theirs", "--include-namespaces", &shop, "--wait"]).unwrap();
    assert_eq!(phase(&home.get("Backup", "theirs").await), "Completed");
    assert!(home.list("Operation").await.is_empty(), "we have not touched it");

    let deployments: Api<Deployment> = Api::namespaced(bed.client.clone(), velero.namespace());
    let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    deployments.patch("velero", &PatchParams::default(), &none).await.unwrap();
    home.backup("ours", json!({ "includedNamespaces": [shop] })).await;
    let backup = home.ended("Backup", "ours").await;
    assert_eq!(phase(&backup), "Completed", "{backup:#}\n{}", home.log());
    assert_eq!(home.list("Operation").await.len(), 1);
    bed.clear().await;
}
