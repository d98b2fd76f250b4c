//! The journal in its ConfigMaps: what a process that died leaves to its successor.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
use plimsoll_engine::ports::{Effect, IntentId, Journal, JournalEntry};
use plimsoll_operations::ConfigMapJournal;
use plimsoll_operations::journal::{self, JournalLocation};
use plimsoll_operations::record_version::RECORD_VERSION_ANNOTATION;
use serde_json::json;

use crate::cluster::{Cluster, NAMESPACE};

fn begin(prefix: &str) -> Effect {
    Effect::Begin { prefix: prefix.to_owned() }
}

fn entry(id: u64, effect: Effect, result: Option<&str>) -> JournalEntry {
    JournalEntry { id: IntentId(id), effect, result: result.map(str::to_owned) }
}

async fn location(cluster: &Cluster) -> JournalLocation {
    let subject = cluster.create_backup("x").await;
    JournalLocation { namespace: NAMESPACE.to_owned(), operation: subject.operation_name(), owner: subject.owner() }
}

/// Opens the journal of an operation that has one.
async fn reopen(cluster: &Cluster, location: &JournalLocation) -> (ConfigMapJournal, Vec<JournalEntry>) {
    journal::open(cluster.client.clone(), location.clone(), true).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_reads_the_results_and_the_intents_without_one() {
    let cluster = Cluster::start().await;
    let location = location(&cluster).await;
    let (journal, entries) = journal::open(cluster.client.clone(), location.clone(), false).await.unwrap();
    assert!(entries.is_empty());
    let first = journal.record_intent(begin("a/")).await.unwrap();
    journal.record_result(first, "done".to_owned()).await.unwrap();
    journal.record_intent(begin("b/")).await.unwrap();
    drop(journal);

    let (journal, entries) = reopen(&cluster, &location).await;
    assert_eq!(entries, [entry(0, begin("a/"), Some("done")), entry(1, begin("b/"), None)]);
    journal.record_result(IntentId(1), "repeated".to_owned()).await.unwrap();
    assert_eq!(journal.record_intent(begin("c/")).await.unwrap(), IntentId(2), "numbers continue");
    let (_, entries) = reopen(&cluster, &location).await;
    assert_eq!(entries[1..], [entry(1, begin("b/"), Some("repeated")), entry(2, begin("c/"), None)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_journal_a_successor_has_written_is_fenced() {
    let cluster = Cluster::start().await;
    let location = location(&cluster).await;
    let (old, _) = journal::open(cluster.client.clone(), location.clone(), false).await.unwrap();
    old.record_intent(begin("old/")).await.unwrap();
    let (new, _) = reopen(&cluster, &location).await;
    new.record_intent(begin("new/")).await.unwrap();
    let refused = old.record_intent(begin("late/")).await.unwrap_err();
    assert_eq!(refused.reason(), "LeadershipLost");
    let (_, entries) = reopen(&cluster, &location).await;
    assert_eq!(entries, [entry(0, begin("old/"), None), entry(1, begin("new/"), None)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_was_deleted_is_lost_and_not_a_new_one() {
    let cluster = Cluster::start().await;
    let location = location(&cluster).await;
    let (journal, _) = journal::open(cluster.client.clone(), location.clone(), false).await.unwrap();
    cluster.api::<ConfigMap>().delete("backup-x-0", &DeleteParams::default()).await.unwrap();
    assert_eq!(journal.record_intent(begin("a/")).await.unwrap_err().reason(), "JournalLost");
    let lost = journal::open(cluster.client.clone(), location, true).await.err().unwrap();
    assert_eq!(lost.reason(), "JournalLost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_journal_has_several_pages_which_are_removed_together() {
    let cluster = Cluster::start().await;
    let location = location(&cluster).await;
    let (journal, _) = journal::open(cluster.client.clone(), location.clone(), false).await.unwrap();
    let effects = ["a", "b", "c"].map(|name| begin(&name.repeat(300_000)));
    for effect in &effects {
        journal.record_intent(effect.clone()).await.unwrap();
    }
    assert_eq!(cluster.journal_pages().await, ["backup-x-0", "backup-x-1", "backup-x-2"]);
    let (_, entries) = reopen(&cluster, &location).await;
    assert!(entries.iter().map(|entry| &entry.effect).eq(&effects));
    journal::remove(cluster.client.clone(), NAMESPACE, "backup-x").await.unwrap();
    assert!(cluster.journal_pages().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_of_a_newer_version_is_refused_and_left_as_it_is() {
    let cluster = Cluster::start().await;
    let location = location(&cluster).await;
    let (journal, _) = journal::open(cluster.client.clone(), location.clone(), false).await.unwrap();
    journal.record_intent(begin("a/")).await.unwrap();
    drop(journal);
    let pages = cluster.api::<ConfigMap>();
    let newer = Patch::Merge(json!({ "metadata": { "annotations": { RECORD_VERSION_ANNOTATION: "2" } },
        "data": { "entries": "an unknown format" } }));
    let before = pages.patch("backup-x-0", &PatchParams::default(), &newer).await.unwrap();
    let refused = journal::open(cluster.client.clone(), location, true).await.err().unwrap();
    assert_eq!(refused.reason(), "RecordVersionUnknown");
    assert!(refused.to_string().contains("has version 2, this server reads up to 1"), "{refused}");
    assert_eq!(pages.get("backup-x-0").await.unwrap(), before);
}
