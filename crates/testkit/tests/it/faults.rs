//! Components that are killed, paused and partitioned, and the behaviour of the cluster.
//!
//! These run on their own cluster: other tests would fail.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use plimsoll_testkit::cluster::NODE;
use plimsoll_testkit::enclosure::Lifetime;
use plimsoll_testkit::{Cluster, Component, Pod, require};

/// One cluster for these tests, one test at a time: faults of two tests would interfere.
fn alone() -> Arc<Cluster> {
    static SHARED: Mutex<Option<Arc<Cluster>>> = Mutex::new(None);
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(shared.get_or_insert_with(|| Arc::new(Cluster::start(Lifetime::Bound).unwrap())))
}

async fn start() -> Arc<Cluster> {
    tokio::task::spawn_blocking(alone).await.unwrap()
}

static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn can_write(client: &Client) -> Result<(), String> {
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let mut probe = ConfigMap::default();
    probe.metadata.generate_name = Some("probe-".into());
    let parameters = PostParams::default();
    let write = config_maps.create(&parameters, &probe);
    match tokio::time::timeout(Duration::from_secs(3), write).await {
        Ok(answer) => answer.map(|_| ()).map_err(|error| error.to_string()),
        Err(_) => Err("no answer".into()),
    }
}

async fn writes_again(client: &Client) {
    let probe = || async { can_write(client).await.map(Some) };
    plimsoll_testkit::wait::until("writes to work again", Duration::from_mins(1), probe).await.unwrap();
}

#[tokio::test]
async fn the_api_survives_the_death_and_return_of_etcd_and_of_the_api_server() {
    require!(Cluster::preflight());
    let _turn = ONE_AT_A_TIME.lock().await;
    let cluster = start().await;
    let (machine, client) = (cluster.machine().unwrap(), cluster.client().await.unwrap());
    for component in [Component::Etcd, Component::ApiServer] {
        machine.kill(component).unwrap();
        assert!(can_write(&client).await.is_err(), "without {} nothing can be written", component.name());
        machine.start_component(component).unwrap();
        writes_again(&client).await;
    }
}

#[tokio::test]
async fn pods_are_scheduled_once_a_killed_scheduler_is_back() {
    require!(Cluster::preflight());
    let _turn = ONE_AT_A_TIME.lock().await;
    let cluster = start().await;
    let (machine, client) = (cluster.machine().unwrap(), cluster.client().await.unwrap());
    let namespace = cluster.namespace("scheduler").await.unwrap();
    machine.kill(Component::Scheduler).unwrap();
    let pod = Pod::script("late", "echo ran").create(&client, namespace.name()).await.unwrap();
    machine.start_component(Component::Scheduler).unwrap();
    assert_eq!(pod.finished().await.unwrap(), "ran\n");
}

#[tokio::test]
async fn a_pod_keeps_running_while_containerd_and_kubelet_die_and_return() {
    require!(Cluster::preflight());
    let _turn = ONE_AT_A_TIME.lock().await;
    let cluster = start().await;
    let (machine, client) = (cluster.machine().unwrap(), cluster.client().await.unwrap());
    let namespace = cluster.namespace("node").await.unwrap();
    let pod = Pod::idle("steady").create(&client, namespace.name()).await.unwrap();
    pod.ready().await.unwrap();
    pod.exec(["touch", "/tmp/mark"]).await.unwrap();
    for component in [Component::Containerd, Component::Kubelet] {
        machine.kill(component).unwrap();
        machine.start_component(component).unwrap();
    }
    let probe = || async { pod.exec(["ls", "/tmp/mark"]).await.map(|output| output.success.then_some(())) };
    plimsoll_testkit::wait::until("exec to work again", Duration::from_mins(1), probe).await.unwrap();
}

#[tokio::test]
async fn a_paused_api_server_does_not_respond_until_it_continues() {
    require!(Cluster::preflight());
    let _turn = ONE_AT_A_TIME.lock().await;
    let cluster = start().await;
    let (machine, client) = (cluster.machine().unwrap(), cluster.client().await.unwrap());
    let paused = machine.pause(Component::ApiServer).unwrap();
    assert_eq!(can_write(&client).await, Err("no answer".into()));
    drop(paused);
    writes_again(&client).await;
}

#[tokio::test]
async fn a_partitioned_api_server_loses_open_connections() {
    require!(Cluster::preflight());
    let _turn = ONE_AT_A_TIME.lock().await;
    let cluster = start().await;
    let (machine, client) = (cluster.machine().unwrap(), cluster.client().await.unwrap());
    can_write(&client).await.unwrap();
    let cut = machine.partition(Component::ApiServer).unwrap();
    assert_eq!(can_write(&client).await, Err("no answer".into()));
    drop(cut);
    writes_again(&cluster.client().await.unwrap()).await;
}

#[tokio::test]
async fn a_partitioned_scheduler_schedules_nothing_and_others_are_unaffected() {
    require!(Cluster::preflight());
    let _turn = ONE_AT_A_TIME.lock().await;
    let cluster = start().await;
    let (machine, client) = (cluster.machine().unwrap(), cluster.client().await.unwrap());
    let namespace = cluster.namespace("cut").await.unwrap();
    let cut = machine.partition(Component::Scheduler).unwrap();
    let pod = Pod::script("waiting", "echo ran").create(&client, namespace.name()).await.unwrap();
    let past_it = Pod::script("past", "echo ran").on(NODE).create(&client, namespace.name()).await.unwrap();
    assert_eq!(past_it.finished().await.unwrap(), "ran\n");
    assert_eq!(pod.now().await.unwrap().spec.unwrap().node_name, None, "a whole pod has run in the meantime");
    drop(cut);
    assert_eq!(pod.finished().await.unwrap(), "ran\n");
}

#[tokio::test]
async fn a_partitioned_pod_cannot_reach_the_api_server() {
    require!(Cluster::preflight());
    let _turn = ONE_AT_A_TIME.lock().await;
    let cluster = start().await;
    let (machine, client) = (cluster.machine().unwrap(), cluster.client().await.unwrap());
    let namespace = cluster.namespace("island").await.unwrap();
    let pod = Pod::idle("island").create(&client, namespace.name()).await.unwrap();
    let address = pod.ready().await.unwrap().status.unwrap().pod_ip.unwrap();
    let call = ["sh", "-c", "nc -w 2 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT < /dev/null"];
    assert!(pod.exec(call).await.unwrap().success);
    let cut = machine.partition_pod(&address).unwrap();
    assert!(!pod.exec(call).await.unwrap().success);
    drop(cut);
    assert!(pod.exec(call).await.unwrap().success);
}
