//! One agent of a node at a time: its Lease, and what happens to its transfers when it goes.

use k8s_openapi::api::coordination::v1::Lease;
use plimsoll_api::velero::v1::PodVolumeBackup;
use plimsoll_volumes::transfer::agent_lease::lease_name;
use serde_json::json;

use crate::test_bed::{NODE, TestBed, annotations, eventually, script};

async fn wait_for_holder(bed: &TestBed, expected: Option<&str>) {
    eventually(&format!("the Lease is held by {expected:?}"), async || {
        let lease = bed.api::<Lease>().get_opt(&lease_name(NODE)).await.unwrap();
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        if holder.as_deref() == expected { Ok(()) } else { Err(json!(holder)) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stops_leaves_its_lease_and_its_running_transfer_to_the_next_one() {
    let bed = TestBed::new().await;
    let first = bed.start("first", script::WAIT_FOR_GO);
    wait_for_holder(&bed, Some("first")).await;
    bed.back_up("b", json!({})).await;
    bed.in_phase::<PodVolumeBackup>("b", "InProgress").await;
    let second = bed.start("second", script::WAIT_FOR_GO);
    first.stop().await;
    wait_for_holder(&bed, Some("second")).await;
    bed.let_movers_go_on();
    let ended = bed.in_phase::<PodVolumeBackup>("b", "Completed").await;
    assert_eq!(annotations(&ended)["plimsoll.dev/attempts"], "2", "{ended:#}");
    second.stop().await;
    wait_for_holder(&bed, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_agent_of_a_node_does_no_work_while_the_first_one_lives() {
    let bed = TestBed::new().await;
    let first = bed.start("first", script::WAIT_FOR_GO);
    wait_for_holder(&bed, Some("first")).await;
    // It would fail every transfer.
    let second = bed.start("second", script::FAIL);
    bed.let_movers_go_on();
    bed.back_up("b", json!({})).await;
    bed.in_phase::<PodVolumeBackup>("b", "Completed").await;
    second.stop().await;
    wait_for_holder(&bed, Some("first")).await;
    first.stop().await;
}
