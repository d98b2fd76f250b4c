//! A subject from its creation to the end of its Operation.

use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use plimsoll_api::plimsoll::v1alpha1::{Operation, OperationState, OperationStatus};
use plimsoll_api::velero::v1::Backup;
use plimsoll_local::fixtures::eventually;
use plimsoll_progress::Snapshot;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::scripted_backup::Server;

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_written_while_the_work_runs_and_its_end_leaves_no_journal() {
    let cluster = Cluster::start().await;
    let leadership = cluster.lead("a").await;
    let mut server = Server::start(cluster.runtime(&leadership), 1);
    cluster.create_backup("x").await;
    let work = server.next_start().await;
    assert!(work.journal_entries.is_empty());
    eventually("the progress is written", async || {
        let status = cluster.status("x").await;
        (status["progress"]["itemsBackedUp"] == 1 && status["progress"]["totalItems"] == 4).then_some(())
    })
    .await;
    let shows_stage = |status: &OperationStatus| {
        let tree = status.tree.as_ref().map(Value::to_string).unwrap_or_default();
        status.state == Some(OperationState::Running) && tree.contains("reading")
    };
    let running = cluster.wait_for_operation("x", shows_stage).await;
    assert_eq!((running.attempt, running.epoch), (Some(1), i64::try_from(leadership.epoch).ok()));
    assert_eq!(cluster.journal_pages().await, ["backup-x-0"]);

    drop(work);
    let status = cluster.wait_for_phase("x", "Completed").await;
    assert_eq!(status["progress"]["itemsBackedUp"], 4);
    let ended = cluster.wait_for_operation("x", |status| status.completion_timestamp.is_some()).await;
    assert_eq!(ended.state, Some(OperationState::Succeeded));
    let tree: Snapshot = serde_json::from_value(ended.tree.unwrap()).unwrap();
    assert_eq!(tree.percent().map(|percent| percent.to_string()).as_deref(), Some("100.00"));
    assert_eq!(
        tree.token.map(|token| json!(token.to_string())).as_ref(),
        status["plimsoll"].get("token"),
        "one moment"
    );
    assert!(
        tree.node("reading").is_some_and(|node| node.ages.elapsed.is_some()),
        "the stages and their durations remain"
    );
    assert_eq!(ended.stages.iter().filter_map(|stage| stage.name.as_deref()).collect::<Vec<_>>(), ["reading"]);
    assert!(cluster.journal_pages().await.is_empty());
    let events = cluster.api::<Event>().list(&ListParams::default()).await.unwrap();
    let reasons: Vec<_> = events.items.iter().filter_map(|event| event.reason.as_deref()).collect();
    assert!(reasons.contains(&"Started") && reasons.contains(&"Succeeded"), "{reasons:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_subject_waits_in_the_queue_until_the_first_has_ended() {
    let cluster = Cluster::start().await;
    let leadership = cluster.lead("a").await;
    let mut server = Server::start(cluster.runtime(&leadership), 1);
    cluster.create_backup("first").await;
    let first = server.next_start().await;
    cluster.create_backup("second").await;
    let queued = cluster.wait_for_phase("second", "Queued").await;
    assert_eq!(queued["queuePosition"], 1);
    let waiting = cluster.wait_for_operation("second", |status| status.tree.is_some()).await;
    assert_eq!(waiting.state, Some(OperationState::Waiting));
    assert!(waiting.tree.unwrap().to_string().contains("queued behind backup first"));
    assert!(server.is_idle(), "only one may run");

    drop(first);
    let second = server.next_start().await;
    assert_eq!(second.name, "second");
    cluster.wait_for_phase("first", "Completed").await;
    drop(second);
    cluster.wait_for_phase("second", "Completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_its_user_cancels_ends_cancelled() {
    let cluster = Cluster::start().await;
    let leadership = cluster.lead("a").await;
    let mut server = Server::start(cluster.runtime(&leadership), 1);
    cluster.create_backup("x").await;
    let _work = server.next_start().await;
    let cancel = Patch::Merge(json!({ "spec": { "cancel": true } }));
    cluster.api::<Operation>().patch("backup-x", &PatchParams::default(), &cancel).await.unwrap();
    let status = cluster.wait_for_phase("x", "Failed").await;
    assert_eq!(status["failureReason"], "Cancelled");
    let ended = cluster.wait_for_operation("x", |status| status.completion_timestamp.is_some()).await;
    assert_eq!(ended.state, Some(OperationState::Cancelled));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_panics_fails_by_name_and_frees_its_place() {
    let cluster = Cluster::start().await;
    let leadership = cluster.lead("a").await;
    let mut server = Server::start(cluster.runtime(&leadership), 1);
    cluster.create_backup("defective").await;
    drop(server.next_start().await);
    let status = cluster.wait_for_phase("defective", "Failed").await;
    let reason = status["failureReason"].as_str().unwrap_or_default().to_owned();
    assert!(
        reason.contains("internal error in backup defective") && reason.contains("a test asked for it"),
        "{reason}"
    );
    cluster.create_backup("next").await;
    assert_eq!(server.next_start().await.name, "next");
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_start_nor_an_end_costs_a_request_for_each_subject_that_has_ended() {
    let cluster = Cluster::start().await;
    let leadership = cluster.lead("a").await;
    let ended = Patch::Merge(json!({ "status": { "phase": "Completed" } }));
    for index in 0..20 {
        let name = format!("ended-{index}");
        cluster.create_backup(&name).await;
        cluster.api::<Backup>().patch(&name, &PatchParams::default(), &ended).await.unwrap();
    }
    let (client, paths) = cluster.recording_client();
    let mut server = Server::start(cluster.runtime_of(client, &leadership), 1);
    for name in ["first", "second"] {
        cluster.create_backup(name).await;
        drop(server.next_start().await);
        cluster.wait_for_operation(name, |status| status.completion_timestamp.is_some()).await;
    }
    // Every subject is reconciled again at each end, before this one.
    cluster.create_backup("third").await;
    drop(server.next_start().await);
    let paths = paths.lock().unwrap();
    let read: Vec<_> = paths.iter().filter(|path| path.contains("/operations/backup-ended-")).collect();
    assert!(read.is_empty(), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_before_the_start_rejects_that_subject_and_the_others_run() {
    let cluster = Cluster::start().await;
    let leadership = cluster.lead("a").await;
    let mut server = Server::start(cluster.runtime(&leadership), 1);
    cluster.create_backup("unreadable").await;
    let status = cluster.wait_for_phase("unreadable", "FailedValidation").await;
    let errors = status["validationErrors"].to_string();
    assert!(errors.contains("internal error in backup unreadable"), "{errors}");
    cluster.create_backup("next").await;
    assert_eq!(server.next_start().await.name, "next");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_subject_is_rejected_and_never_runs() {
    let cluster = Cluster::start().await;
    let leadership = cluster.lead("a").await;
    let server = Server::start(cluster.runtime(&leadership), 1);
    cluster.create_backup("invalid").await;
    let status = cluster.wait_for_phase("invalid", "FailedValidation").await;
    assert_eq!(status["validationErrors"], json!(["metadata.name: this name is invalid"]));
    assert!(server.is_idle());
}
