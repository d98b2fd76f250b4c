//! An operation outlives its leader.

use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use plimsoll_api::plimsoll::v1alpha1::{Operation, OperationState};
use plimsoll_engine::ports::Effect;
use plimsoll_local::fixtures::eventually;
use plimsoll_operations::record_version::RECORD_VERSION_ANNOTATION;
use serde_json::json;
use tokio::time::timeout;

use crate::cluster::{Cluster, TERM};
use crate::scripted_backup::Server;

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_resumes_from_the_journal_and_the_old_one_is_fenced() {
    let cluster = Cluster::start().await;
    let first = cluster.lead("a").await;
    let mut old = Server::start(cluster.runtime(&first), 1);
    cluster.create_backup("x").await;
    let interrupted = old.next_start().await;
    cluster.clear_lease().await;
    let second = cluster.lead("b").await;
    timeout(TERM * 2, first.lost()).await.unwrap();
    old.stop_controller().await;

    let mut new = Server::start(cluster.runtime(&second), 1);
    let resumed = new.next_start().await;
    let [entry] = &resumed.journal_entries[..] else { unreachable!("one intent was recorded") };
    assert_eq!((&entry.effect, &entry.result), (&Effect::Begin { prefix: "backups/".to_owned() }, &None));
    let running = cluster.wait_for_operation("x", |status| status.attempt == Some(2)).await;
    assert_eq!(running.epoch, i64::try_from(second.epoch).ok());
    drop(resumed);
    cluster.wait_for_phase("x", "Completed").await;
    let ended = cluster.wait_for_operation("x", |status| status.completion_timestamp.is_some()).await;
    assert_eq!(ended.state, Some(OperationState::Succeeded));

    drop(interrupted);
    assert_eq!(old.next_failure().await, "JournalLost", "the new leader has removed it");
    let unchanged = cluster.wait_for_operation("x", |status| status.completion_timestamp.is_some()).await;
    assert_eq!(unchanged, ended);
    assert_eq!(cluster.status("x").await["phase"], "Completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_of_a_newer_version_waits_for_a_server_that_knows_it() {
    let cluster = Cluster::start().await;
    let first = cluster.lead("a").await;
    let mut newer = Server::start(cluster.runtime(&first), 1);
    cluster.create_backup("x").await;
    let interrupted = newer.next_start().await;
    cluster.clear_lease().await;
    let second = cluster.lead("b").await;
    timeout(TERM * 2, first.lost()).await.unwrap();
    newer.stop_controller().await;
    let set_version = async |version: Option<&str>| {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { RECORD_VERSION_ANNOTATION: version } } }));
        let api = cluster.api::<Operation>();
        api.patch("backup-x", &PatchParams::default(), &patch).await.unwrap()
    };
    let written = set_version(Some("2")).await;

    let mut older = Server::start(cluster.runtime(&second), 1);
    let events = cluster.api::<Event>();
    eventually("the version is reported", async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        events.items.into_iter().find(|event| event.reason.as_deref() == Some("RecordVersionUnknown"))
    })
    .await;
    let untouched = cluster.api::<Operation>().get("backup-x").await.unwrap();
    assert_eq!(untouched.status, written.status, "the older server writes nothing");
    assert_eq!(cluster.status("x").await["phase"], "InProgress");

    set_version(None).await;
    let resumed = older.next_start().await;
    assert_eq!(resumed.journal_entries.len(), 1);
    drop((resumed, interrupted));
    cluster.wait_for_phase("x", "Completed").await;
}
