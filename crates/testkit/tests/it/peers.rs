//! Velero, S3 servers and Chromium run with the cluster.

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use plimsoll_testkit::peers::{S3Server, Velero, VeleroInPods};
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::wait::{WAIT_TIMEOUT, until_blocking};
use plimsoll_testkit::{Pod, Proxy, Shape, cache, cluster, require};

#[tokio::test]
async fn velero_backs_up_through_a_faulty_proxy_to_an_s3_server_and_restores_what_was_deleted() {
    let cluster = require!(cluster().await);
    require!(Velero::preflight());
    require!(cache::program("versitygw"));
    let store = S3Server::start("127.0.0.1").unwrap();
    store.create_bucket("backups").unwrap();
    let proxy = Proxy::for_server("127.0.0.1:0", store.endpoint()).await.unwrap();
    let velero = Velero::start(cluster, &proxy.url(), "backups").await.unwrap();
    let namespace = cluster.namespace("subject").await.unwrap();
    let config_maps: Api<ConfigMap> = Api::namespaced(cluster.client().await.unwrap(), namespace.name());
    let mut precious = ConfigMap { data: Some([("key".into(), "value".into())].into()), ..ConfigMap::default() };
    precious.metadata.name = Some("precious".into());
    config_maps.create(&PostParams::default(), &precious).await.unwrap();

    // Signed requests must pass unchanged, and a client with retries must survive one error.
    let fault = proxy.inject(Requests::with_method(Method::PUT).first(1), Fault::Status(503));
    let backup = ["backup", "create", "one", "--include-namespaces", namespace.name(), "--wait"].map(String::from);
    let velero = tokio::task::spawn_blocking(move || velero.cli(backup).map(|_| velero)).await.unwrap().unwrap();
    assert_eq!(fault.hits(), 1);
    assert!(velero.cli(["backup", "get", "one"]).unwrap().contains("Completed"));
    config_maps.delete("precious", &DeleteParams::default()).await.unwrap();
    let restore = ["restore", "create", "back", "--from-backup", "one", "--wait"];
    // Not on this thread: the proxy of the server runs on it.
    let _velero = tokio::task::spawn_blocking(move || velero.cli(restore).map(|_| velero)).await.unwrap().unwrap();
    assert_eq!(config_maps.get("precious").await.unwrap().data, precious.data);
}

#[tokio::test]
async fn velero_in_pods_backs_up_the_files_of_a_volume_with_its_node_agent() {
    let cluster = require!(cluster().await);
    let machine = require!(cluster.machine());
    require!(VeleroInPods::preflight());
    require!(cache::program("versitygw"));
    let store = S3Server::start(&machine.addresses().host()).unwrap();
    store.create_bucket("volumes").unwrap();
    let velero = VeleroInPods::install(cluster, store.endpoint(), "volumes").await.unwrap();
    let namespace = cluster.namespace("files").await.unwrap();
    let client = cluster.client().await.unwrap();
    let volume = cluster.volume(namespace.name(), "data").await.unwrap();
    let written = volume.fill(&Shape::small_files(50)).unwrap();
    let pod = Pod::idle("holder").mount(volume.claim(), "/data").create(&client, namespace.name()).await.unwrap();
    pod.ready().await.unwrap();

    let name = namespace.name();
    velero
        .cli(["backup", "create", "v", "--include-namespaces", name, "--default-volumes-to-fs-backup", "--wait"])
        .unwrap();
    let described = velero.cli(["backup", "describe", "v", "--details"]).unwrap();
    let moved = format!("Completed:\n      {name}/holder: data (size: {}", written.bytes);
    assert!(described.contains("Pod Volume Backups - kopia:") && described.contains(&moved), "{described}");
}

#[test]
fn the_s3_server_starts_and_ends() {
    require!(cache::program("versitygw"));
    let server = S3Server::start("127.0.0.1").unwrap();
    let process = plimsoll_testkit::process::Process::find(server.process().id()).unwrap();
    assert!(server.create_bucket("bucket").unwrap().is_dir());
    drop(server);
    until_blocking("its end", WAIT_TIMEOUT, || (!process.is_alive()).then_some(())).unwrap();
}

#[test]
fn chromium_draws_a_page_without_a_screen() {
    let chromium = require!(cache::system_program("chromium"));
    let profile = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg("data:text/html,<p id=x></p><script>x.textContent=6*7</script>")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(">42</p>"), "{output:?}");
}
