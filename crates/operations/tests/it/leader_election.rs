//! Two processes and one Lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use plimsoll_engine::Error;
use plimsoll_operations::leader_election::{Fence, campaign, fence_client};
use serde_json::json;
use tokio::time::timeout;

use crate::cluster::{Cluster, NAMESPACE, TERM, candidate};

/// Why a fence refuses.
fn refusal(fence: &Fence) -> Option<&'static str> {
    fence.check().err().map(|error| error.reason())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_candidate_leads_only_after_the_first_has_resigned() {
    let cluster = Cluster::start().await;
    let first = cluster.lead("a").await;
    let (first_epoch, first_fence) = (first.epoch, Arc::clone(&first.fence));
    let mut second = Box::pin(cluster.lead("b"));
    assert!(timeout(Duration::from_secs(1), &mut second).await.is_err(), "the first one leads");
    assert_eq!(cluster.lease_holder().await.as_deref(), Some("a"));
    first.resign().await;
    assert_eq!(refusal(&first_fence), Some("LeadershipLost"));
    let second = second.await;
    assert!(second.epoch > first_epoch, "{} after {first_epoch}", second.epoch);
    assert_eq!(refusal(&second.fence), None);
    assert_eq!(cluster.lease_holder().await.as_deref(), Some("b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_lease_was_given_to_another_process_stops() {
    let cluster = Cluster::start().await;
    let first = cluster.lead("a").await;
    cluster.clear_lease().await;
    let second = cluster.lead("b").await;
    timeout(TERM * 2, first.lost()).await.unwrap();
    assert_eq!(refusal(&first.fence), Some("LeadershipLost"));
    assert_eq!(refusal(&second.fence), None);
    assert!(second.epoch > first.epoch);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_an_api_server_stops_and_its_lease_is_free_after_its_term() {
    let cluster = Cluster::start().await;
    let (client, cut) = cluster.unreliable_client();
    let first = campaign(client, candidate("a", Duration::from_secs(3)), async || Ok(0)).await.unwrap();
    cut.store(true, Ordering::Relaxed);
    timeout(TERM * 2, first.lost()).await.unwrap();
    assert_eq!(refusal(&first.fence), Some("LeadershipLost"));
    assert_eq!(cluster.lease_holder().await.as_deref(), Some("a"), "it could not resign");
    let second = cluster.lead("b").await;
    assert!(second.epoch > first.epoch);
}

#[tokio::test]
async fn a_term_ends_on_time_whatever_the_api_server_does() {
    let cluster = Cluster::start().await;
    let (client, cut) = cluster.unreliable_client();
    let term = Duration::from_secs(3);
    let first = campaign(client, candidate("a", term), async || Ok(0)).await.unwrap();
    // Right after a renewal a request begins that gets no answer: with its timeout it ends after the term.
    cut.store(true, Ordering::Relaxed);
    let begun = tokio::time::Instant::now();
    first.lost().await;
    assert!(begun.elapsed() < term + Duration::from_millis(250), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_leader_that_stops_does_not_wait_for_an_api_server_that_is_gone() {
    let cluster = Cluster::start().await;
    let (client, cut) = cluster.unreliable_client();
    let first = campaign(client, candidate("a", Duration::from_secs(3)), async || Ok(0)).await.unwrap();
    cut.store(true, Ordering::Relaxed);
    timeout(Duration::from_secs(2), first.resign()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_no_longer_leads_reads_and_changes_nothing() {
    let cluster = Cluster::start().await;
    let first = cluster.lead("a").await;
    let client = fence_client(cluster.client.clone(), Arc::clone(&first.fence));
    let config_maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let object = |name: &str| serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    config_maps.create(&PostParams::default(), &object("before")).await.unwrap();
    first.resign().await;
    let refused = config_maps.delete("before", &DeleteParams::default()).await.unwrap_err();
    assert_eq!(Error::api("delete", refused).reason(), "LeadershipLost");
    let refused = config_maps.create(&PostParams::default(), &object("after")).await.unwrap_err();
    assert_eq!(Error::api("create", refused).reason(), "LeadershipLost");
    assert!(config_maps.get_opt("before").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_epoch_continues_after_the_lease_was_deleted() {
    let cluster = Cluster::start().await;
    let leadership = campaign(cluster.client.clone(), candidate("a", TERM), async || Ok(41)).await.unwrap();
    assert_eq!(leadership.epoch, 42);
}
