//! Installed in a real cluster, under exactly the rights that the installer gives.

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use plimsoll_testkit::peers::{PlimsollInPods, S3Server};
use plimsoll_testkit::{cache, require};
use serde_json::Value;

use crate::bed::{Bed, Home, eventually, phase, plimsoll};

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_plimsoll"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installed_server_backs_up_and_restores_with_its_installed_permissions() {
    let cluster = require!(plimsoll_testkit::cluster().await);
    let machine = require!(cluster.machine());
    require!(cache::program("versitygw"));
    let bed = Bed::real(cluster).await;
    let store = S3Server::start(&machine.addresses().host()).unwrap();
    let bucket = store.create_bucket("installed").unwrap();
    let ours = PlimsollInPods::install(cluster, program(), store.endpoint(), "installed", &["--use-node-agent=false"]);
    let ours = ours.await.unwrap();
    let home = Home { bed: &bed, namespace: ours.namespace().to_owned(), bucket };

    bed.application("shop", 30).await;
    let before = bed.contents("shop").await;
    let shop = bed.ns("shop");
    ours.cli(["backup", "create", "b", "--include-namespaces", &shop, "--wait"])
        .unwrap_or_else(|e| panic!("{e:#}\n{}", ours.logs()));
    bed.delete_namespace("shop").await;
    ours.cli(["restore", "create", "r", "--from-backup", "b", "--wait"])
        .unwrap_or_else(|e| panic!("{e:#}\n{}", ours.logs()));
    let restored = bed.contents("shop").await;
    assert_eq!(restored, before, "{}", ours.logs());
    assert_eq!(phase(&home.get("Restore", "r").await), "Completed");

    // Again is an upgrade that changes nothing.
    let deployments: Api<Deployment> = Api::namespaced(bed.client.clone(), ours.namespace());
    let generation = deployments.get("plimsoll").await.unwrap().metadata.generation;
    let keys = bed.directory.path().join("keys");
    std::fs::write(&keys, crate::bed::s3_keys(plimsoll_testkit::peers::s3::SECRET_KEY)).unwrap();
    let config = format!("region=us-east-1,s3ForcePathStyle=true,s3Url={}", store.endpoint());
    ours.cli([
        "install",
        "--image",
        plimsoll_testkit::peers::plimsoll_pods::IMAGE,
        "--image-pull-policy",
        "Never",
        "--provider",
        "aws",
        "--bucket",
        "installed",
        "--secret-file",
        keys.to_str().unwrap(),
        "--backup-location-config",
        &config,
        "--server-cpu-request",
        "0",
        "--server-mem-request",
        "0",
        "--use-node-agent=false",
    ])
    .unwrap();
    assert_eq!(deployments.get("plimsoll").await.unwrap().metadata.generation, generation);
    assert_eq!(phase(&home.get("Backup", "b").await), "Completed");

    assert_service_reaches_leader(&bed, ours.namespace()).await;

    // A repository is made under these rights too, and the deletion of a backup.
    ours.cli(["backup", "delete", "b", "--confirm", "--wait"]).unwrap_or_else(|e| panic!("{e:#}\n{}", ours.logs()));
    let logs = ours.logs();
    assert!(!logs.contains("forbidden"), "{logs}");

    ours.cli(["uninstall", "--confirm"]).unwrap();
    assert!(
        deployments.get_opt("plimsoll").await.unwrap().is_none_or(|left| left.metadata.deletion_timestamp.is_some())
    );
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "ClusterRole"));
    let roles: Api<DynamicObject> = Api::all_with(bed.client.clone(), &resource);
    let name = format!("plimsoll-{}", ours.namespace());
    eventually("the roles are gone", async || roles.get_opt(&name).await.unwrap().is_none()).await;
    bed.clear().await;
}

async fn assert_service_reaches_leader(bed: &Bed, namespace: &str) {
    let services: Api<Service> = Api::namespaced(bed.client.clone(), namespace);
    let selector = services.get("plimsoll").await.unwrap().spec.unwrap().selector.unwrap();
    let selector = selector.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
    let pods: Api<Pod> = Api::namespaced(bed.client.clone(), namespace);
    let chosen = pods.list(&ListParams::default().labels(&selector)).await.unwrap().items;
    assert_eq!(chosen.len(), 1, "{:?}", chosen.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_manifests_of_a_dry_run_install_equal_those_in_deploy() {
    let output = plimsoll()
        .args(["install", "--dry-run", "--no-crds", "-o", "yaml", "--namespace", "velero"])
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/install.yaml");
    assert_eq!(String::from_utf8_lossy(&output.stdout), std::fs::read_to_string(file).unwrap(), "run `make generate`");
    let all = plimsoll().args(["install", "--dry-run", "-o", "json"]).output().await.unwrap();
    let all: Value = serde_json::from_slice(&all.stdout).unwrap();
    let kinds: Vec<&str> = all["items"].as_array().unwrap().iter().map(|item| item["kind"].as_str().unwrap()).collect();
    let server = all["items"].as_array().unwrap().iter().find(|item| item["kind"] == "Deployment").unwrap();
    let container = &server["spec"]["template"]["spec"]["containers"][0];
    let variable = |name: &str| container["env"].as_array().unwrap().iter().find(|one| one["name"] == name).cloned();
    let tools = variable("PLIMSOLL_TOOLS_IMAGE").map(|one| one["value"].clone());
    assert_eq!(tools.as_ref(), Some(&container["image"]), "its own kando is put into the pods of blueprints");
    let account = variable("POD_SERVICE_ACCOUNT").map(|one| one["valueFrom"]["fieldRef"]["fieldPath"].clone());
    assert_eq!(account, Some("spec.serviceAccountName".into()));
    for kind in [
        "CustomResourceDefinition",
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "Role",
        "Service",
        "Deployment",
        "DaemonSet",
        "NetworkPolicy",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
}
