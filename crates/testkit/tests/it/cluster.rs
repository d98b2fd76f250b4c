//! The features of the cluster that tests use.

use k8s_openapi::api::core::v1::Namespace as KubernetesNamespace;
use kube::Api;
use plimsoll_testkit::{Image, Pod, Shape, cluster, require};
use std::time::Duration;

#[tokio::test]
async fn it_is_a_kubernetes_of_the_pinned_version() {
    let cluster = require!(cluster().await);
    require!(cluster.machine());
    let version = cluster.client().await.unwrap().apiserver_version().await.unwrap();
    assert_eq!(version.git_version, "v1.36.3");
}

#[tokio::test]
async fn a_pod_reads_a_volumes_files_and_writes_new_ones() {
    let cluster = require!(cluster().await);
    require!(cluster.machine());
    let namespace = cluster.namespace("volume").await.unwrap();
    let volume = cluster.volume(namespace.name(), "data").await.unwrap();
    let written = volume.fill(&Shape::small_files(120)).unwrap();
    let script = "find /data -type f | wc -l; find /data -type f -exec cat {} + | wc -c; echo hello > /data/from-pod";
    let pod = Pod::script("reader", script).mount(volume.claim(), "/data");
    let printed =
        pod.create(&cluster.client().await.unwrap(), namespace.name()).await.unwrap().finished().await.unwrap();
    let counts: Vec<u64> = printed.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(counts, [written.files, written.bytes]);
    assert_eq!(std::fs::read_to_string(volume.directory().join("from-pod")).unwrap(), "hello\n");
}

#[tokio::test]
async fn exec_returns_both_streams_and_whether_the_command_succeeded() {
    let cluster = require!(cluster().await);
    let namespace = cluster.namespace("exec").await.unwrap();
    let pod = Pod::idle("idle").create(&cluster.client().await.unwrap(), namespace.name()).await.unwrap();
    pod.ready().await.unwrap();
    let good = pod.exec(["sh", "-c", "echo out; echo err >&2"]).await.unwrap();
    assert_eq!((good.stdout.as_str(), good.stderr.as_str(), good.success), ("out\n", "err\n", true));
    assert!(!pod.exec(["false"]).await.unwrap().success);
}

#[tokio::test]
async fn a_program_in_a_pod_reaches_the_api_server_at_the_injected_address() {
    let cluster = require!(cluster().await);
    let machine = require!(cluster.machine());
    let namespace = cluster.namespace("api").await.unwrap();
    // A debug build is dynamically linked.
    let image =
        Image::busybox("plimsoll.test/own:1").with_program(env!("CARGO_BIN_EXE_testkit"), "/usr/bin/testkit").unwrap();
    machine.load_image(&image).unwrap();
    let pod = Pod::script("caller", "exec testkit in-cluster").image(image.name());
    let pod = pod.create(&cluster.client().await.unwrap(), namespace.name()).await.unwrap();
    assert_eq!(pod.finished().await.unwrap(), "v1.36.3\n");
}

#[tokio::test]
async fn kubectl_of_the_same_version_execs_into_a_pod() {
    let cluster = require!(cluster().await);
    require!(plimsoll_testkit::cache::program("kubectl"));
    let namespace = cluster.namespace("kubectl").await.unwrap();
    let pod = Pod::idle("idle").create(&cluster.client().await.unwrap(), namespace.name()).await.unwrap();
    pod.ready().await.unwrap();
    let printed = cluster.kubectl(["exec", "--namespace", namespace.name(), "idle", "--", "echo", "hello"]).unwrap();
    assert_eq!(printed, "hello\n");
    assert!(cluster.kubectl(["get", "nonsense"]).unwrap_err().to_string().contains("nonsense"));
}

#[tokio::test]
async fn a_namespace_is_deleted_with_its_test() {
    let cluster = require!(cluster().await);
    let namespaces: Api<KubernetesNamespace> = Api::all(cluster.client().await.unwrap());
    let namespace = cluster.namespace("short").await.unwrap();
    let name = namespace.name().to_owned();
    drop(namespace);
    let gone = || async { namespaces.get_opt(&name).await.map(|found| found.is_none().then_some(())) };
    plimsoll_testkit::wait::until("the namespace to go", Duration::from_mins(1), gone).await.unwrap();
}
