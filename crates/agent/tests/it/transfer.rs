//! One transfer from its acceptance to its last status.

use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use plimsoll_api::velero::v1::PodVolumeBackup;
use serde_json::{Value, json};

use crate::test_bed::{NODE, TestBed, annotations, eventually, script};

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_of_this_node_shows_its_bytes_and_ends_with_the_outcome_of_its_mover() {
    let bed = TestBed::new().await;
    let agent = bed.start("agent", script::WAIT_FOR_GO);
    bed.back_up("b", json!({ "spec": { "tags": { "backup": "nightly" } } })).await;
    let has_bytes = |object: &Value| object["status"]["progress"]["bytesDone"] == 3;
    let running = bed.transfer::<PodVolumeBackup>("b", "shows its bytes", has_bytes).await;
    let status = &running["status"];
    assert_eq!(status["phase"], "InProgress", "{running:#}");
    assert_eq!(status["progress"], json!({ "totalBytes": 10, "bytesDone": 3 }));
    assert_eq!(status["plimsoll"]["percent"], "30.00", "{running:#}");
    assert_eq!(status["path"].as_str(), bed.volume().canonicalize().unwrap().to_str());
    assert_eq!(bed.job()["work"]["backup"]["tags"], json!({ "backup": "nightly" }), "{:#}", bed.job());

    bed.let_movers_go_on();
    let ended = bed.in_phase::<PodVolumeBackup>("b", "Completed").await;
    let status = &ended["status"];
    assert_eq!((&status["snapshotID"], &status["incrementalBytes"]), (&json!("5eed"), &json!(4)), "{ended:#}");
    assert_eq!(status["progress"], json!({ "totalBytes": 10, "bytesDone": 10 }));
    assert_eq!(annotations(&ended)["plimsoll.dev/attempts"], "1");
    wait_for_event(&bed, "Completed").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_of_another_node_is_left_to_the_agent_of_that_node() {
    let bed = TestBed::new().await;
    bed.let_movers_go_on();
    bed.back_up("theirs", json!({ "spec": { "node": "node-2" } })).await;
    bed.back_up("ours", json!({})).await;
    let agent = bed.start("agent", script::WAIT_FOR_GO);
    bed.in_phase::<PodVolumeBackup>("ours", "Completed").await;
    let theirs = bed.transfer::<PodVolumeBackup>("theirs", "is there", |_| true).await;
    assert!(theirs["status"]["phase"].is_null(), "{theirs:#}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_transfer_stops_its_mover_and_keeps_what_it_reached() {
    let bed = TestBed::new().await;
    let agent = bed.start("agent", script::WAIT_FOR_CANCEL);
    bed.back_up("b", json!({})).await;
    let has_bytes = |object: &Value| object["status"]["progress"]["bytesDone"] == 3;
    bed.transfer::<PodVolumeBackup>("b", "shows its bytes", has_bytes).await;
    let cancel = Patch::Merge(json!({ "spec": { "cancel": true } }));
    bed.api::<PodVolumeBackup>().patch("b", &PatchParams::default(), &cancel).await.unwrap();
    let ended = bed.in_phase::<PodVolumeBackup>("b", "Canceled").await;
    assert_eq!(ended["status"]["progress"], json!({ "totalBytes": 10, "bytesDone": 3 }), "{ended:#}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_is_cancelled_before_it_starts_ends_without_a_mover() {
    let bed = TestBed::new().await;
    bed.back_up("b", json!({ "spec": { "cancel": true } })).await;
    let agent = bed.start("agent", script::FAIL);
    bed.in_phase::<PodVolumeBackup>("b", "Canceled").await;
    assert!(!bed.path("job").exists(), "a mover ran");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mover_that_is_killed_is_started_again() {
    let bed = TestBed::new().await;
    let agent = bed.start("agent", script::CRASH_ONCE);
    bed.back_up("b", json!({})).await;
    let ended = bed.in_phase::<PodVolumeBackup>("b", "Completed").await;
    assert_eq!(annotations(&ended)["plimsoll.dev/attempts"], "2", "{ended:#}");
    assert_eq!(bed.job()["epoch"], 2, "{:#}", bed.job());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_no_retry_helps_fails_the_transfer_at_once() {
    let bed = TestBed::new().await;
    let agent = bed.start("agent", script::FAIL);
    bed.back_up("b", json!({})).await;
    let ended = bed.in_phase::<PodVolumeBackup>("b", "Failed").await;
    let message = ended["status"]["message"].as_str().unwrap();
    assert!(message.contains("the repository") && message.contains("password"), "{message}");
    assert_eq!(annotations(&ended)["plimsoll.dev/attempts"], "1");
    wait_for_event(&bed, "WrongRepositoryPassword").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_that_failed_in_five_attempts_is_not_tried_again() {
    let bed = TestBed::new().await;
    bed.back_up("b", json!({ "metadata": { "annotations": { "plimsoll.dev/attempts": "5" } } })).await;
    let agent = bed.start("agent", script::WAIT_FOR_GO);
    let ended = bed.in_phase::<PodVolumeBackup>("b", "Failed").await;
    assert!(ended["status"]["message"].as_str().unwrap().contains("5 attempts"), "{ended:#}");
    assert!(!bed.path("job").exists(), "a mover ran");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_beyond_the_slots_of_the_node_says_what_it_waits_for() {
    let bed = TestBed::new().await;
    let agent = bed.start_with("agent", script::WAIT_FOR_GO, |settings| settings.concurrency = 1);
    bed.back_up("first", json!({})).await;
    bed.in_phase::<PodVolumeBackup>("first", "InProgress").await;
    bed.back_up("second", json!({})).await;
    let doing = format!("waiting for one of 1 transfers on node {NODE} to end");
    let waits = |object: &Value| object["status"]["plimsoll"]["doing"] == doing;
    let second = bed.transfer::<PodVolumeBackup>("second", "says what it waits for", waits).await;
    assert_eq!(second["status"]["phase"], "Accepted", "{second:#}");
    bed.let_movers_go_on();
    for name in ["first", "second"] {
        bed.in_phase::<PodVolumeBackup>(name, "Completed").await;
    }
    agent.stop().await;
}

async fn wait_for_event(bed: &TestBed, reason: &str) {
    eventually(&format!("event {reason}"), async || {
        let events = bed.api::<Event>().list(&ListParams::default()).await.unwrap();
        let reasons: Vec<_> = events.items.into_iter().filter_map(|event| event.reason).collect();
        if reasons.iter().any(|recorded| recorded == reason) { Ok(()) } else { Err(json!(reasons)) }
    })
    .await;
}
