//! The real API server restarts during operations. It has its own cluster, because other tests would lose theirs.

use std::time::Duration;

use http::Method;
use plimsoll_testkit::enclosure::Lifetime;
use plimsoll_testkit::proxy::{Fault, Requests};
use plimsoll_testkit::wait::WAIT_TIMEOUT;
use plimsoll_testkit::{Cluster, Component, Proxy, Stopwatch, require};
use serde_json::json;

use crate::bed::{Bed, eventually, is_ended, phase};

/// Longer than an API server takes to start on a busy machine. A server that loses its Lease exits and is not restarted here.
const LEASE_DURATION: &str = "10m";

#[tokio::test(flavor = "multi_thread")]
async fn backup_and_restore_survive_a_restart_of_the_api_server() {
    require!(Cluster::preflight());
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(Lifetime::Bound).unwrap()).await.unwrap();
    let bed = Bed::dedicated(&cluster).await;
    let home = bed.home("home").await;
    let shop = bed.application("shop", 60).await;
    let before = bed.contents("shop").await;
    // Requests take their time on the way, so that the middle is certainly met.
    let proxy = Proxy::for_api_server(&cluster).await.unwrap();
    let _server = home.server_through(proxy.kubeconfig().unwrap(), &["--lease-duration", LEASE_DURATION], &[]);

    let lists = Requests::with_method(Method::GET).containing(format!("/namespaces/{shop}/"));
    let slow = proxy.inject(lists.clone(), Fault::Latency(Duration::from_millis(500)));
    home.backup("b", json!({ "includedNamespaces": [shop] })).await;
    eventually("the backup reads", async || slow.hits() > 2).await;
    restart(&cluster).await;
    drop(slow);
    let backup = home.ended("Backup", "b").await;
    assert_eq!((phase(&backup), &backup["status"]["errors"]), ("Completed", &json!(0)), "{backup:#}\n{}", home.log());

    bed.delete_namespace("shop").await;
    let posts = Requests::with_method(Method::POST).containing(format!("/namespaces/{shop}/"));
    let slow = proxy.inject(posts, Fault::Latency(Duration::from_millis(500)));
    home.restore("r", json!({ "backupName": "b" })).await;
    eventually("the restore creates", async || {
        let restore = home.get("Restore", "r").await;
        assert!(!is_ended(&restore), "it ended before it was disturbed: {restore:#}\n{}", home.log());
        slow.hits() > 10
    })
    .await;
    restart(&cluster).await;
    drop(slow);
    let restore = home.ended("Restore", "r").await;
    assert_eq!(
        (phase(&restore), &restore["status"]["errors"]),
        ("Completed", &json!(0)),
        "{restore:#}\n{}",
        home.log()
    );
    let count = |field: &str| restore["status"]["progress"][field].as_u64().unwrap_or(0);
    // Kubernetes makes some of it by itself in a new namespace.
    assert!(count("itemsRestored") >= before.len() as u64, "{restore:#}");
    assert_eq!(count("itemsRestored") + count("itemsSkipped"), count("totalItems"), "{restore:#}");
    assert_eq!(count("itemsFailed"), 0, "{restore:#}");
    assert_eq!(bed.contents("shop").await, before);
    tokio::task::spawn_blocking(move || cluster.end().unwrap()).await.unwrap();
}

/// Kills the API server and starts it until it is ready: on a busy machine it may exit because a step of its start took too long, and a
/// kubelet starts it again then.
async fn restart(cluster: &Cluster) {
    let machine = cluster.machine().unwrap();
    machine.kill(Component::ApiServer).unwrap();
    let client = cluster.client().await.unwrap();
    let ready = || http::Request::get("/readyz").body(Vec::new()).unwrap();
    let begun = Stopwatch::start();
    let is_ready = async || {
        let answer = tokio::time::timeout(Duration::from_secs(5), client.request_text(ready())).await;
        answer.is_ok_and(|answer| answer.is_ok())
    };
    while !is_ready().await {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "{}", machine.log(Component::ApiServer));
        if !machine.process(Component::ApiServer).unwrap().is_alive() {
            machine.start_component(Component::ApiServer).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
