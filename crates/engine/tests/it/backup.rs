//! Backups from the first write to the commit, or to the removal of what was written.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use kube::api::{Patch, PatchParams};
use plimsoll_api::velero::v1::BackupSpec;
use plimsoll_archive::codec;
use plimsoll_archive::proof::ProofKey;
use plimsoll_archive::tarball::Reader;
use plimsoll_engine::backup::actions::{BackupActionOutput, BackupItemAction, ItemId};
use plimsoll_engine::backup::{
    BackupEnv, BackupExtensions, BackupInput, BackupObject, BackupOutcome, BackupResults, BackupState, PlannedBackup,
    execute,
};
use plimsoll_engine::item_operations::{ItemOperationClient, ItemOperationCounts, StartedOperation};
use plimsoll_engine::ports::LeadershipGuard;
use plimsoll_engine::registry::{AppliesTo, Source};
use plimsoll_engine::{Error, OperationEnv};
use plimsoll_progress::{Clock, Operation};
use plimsoll_select::resource_policies::ResourcePolicies;
use plimsoll_store::Store;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::item_operations::failing_operation;
use crate::test_bed::{AlwaysLeader, DeposedLeader, Interruption, SHOP, TestBed, keys};

struct TestBackup {
    store: Store,
    /// The phases that were shown.
    phases: Mutex<Vec<&'static str>>,
}

impl TestBackup {
    fn new(bed: &TestBed) -> Self {
        Self { store: bed.store.clone(), phases: Mutex::default() }
    }
}

impl BackupObject for TestBackup {
    fn open_location(&self) -> BoxFuture<'_, Result<Store, Error>> {
        Box::pin(async { Ok(self.store.clone()) })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Value, Error>> {
        let object = json!({ "metadata": { "name": "b", "uid": "uid-b" }, "status": { "phase": "InProgress" } });
        Box::pin(async { Ok(object) })
    }

    fn resource_policies(&self) -> BoxFuture<'_, Result<Option<ResourcePolicies>, Error>> {
        Box::pin(async { Ok(None) })
    }

    fn show_waiting(&self, _: ItemOperationCounts, _: bool) -> BoxFuture<'_, Result<(), Error>> {
        self.phases.lock().unwrap().push("WaitingForPluginOperations");
        Box::pin(async { Ok(()) })
    }

    fn proof_key(&self) -> BoxFuture<'_, Result<ProofKey, Error>> {
        Box::pin(async { Ok(proof_key()) })
    }

    fn show_finalizing(&self, failed: bool) -> BoxFuture<'_, Result<(), Error>> {
        self.phases.lock().unwrap().push(if failed { "FinalizingPartiallyFailed" } else { "Finalizing" });
        Box::pin(async { Ok(()) })
    }

    fn finalized_metadata(&self, left: &Value, failed: bool) -> Value {
        let mut metadata = left.clone();
        metadata["status"]["phase"] = json!(if failed { "PartiallyFailed" } else { "Completed" });
        metadata
    }

    fn metadata(&self, begun: &Value, results: &BackupResults) -> Value {
        let mut metadata = begun.clone();
        metadata["status"] = json!({ "phase": "Completed", "errors": results.results.errors.count });
        metadata
    }
}

/// The key of the cluster.
pub fn proof_key() -> ProofKey {
    ProofKey::new(vec![7; ProofKey::LENGTH]).unwrap()
}

/// Adds nothing, and records the calls.
pub struct RecordingExtensions {
    store: Store,
    calls: Mutex<Vec<&'static str>>,
    /// An item operation of the backup.
    operation: Option<Arc<dyn ItemOperationClient>>,
    /// An action on ConfigMaps.
    action: Option<Arc<dyn BackupItemAction>>,
}

impl RecordingExtensions {
    fn call(&self, name: &'static str) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.calls.lock().unwrap().push(name) })
    }

    fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().unwrap().clone()
    }
}

impl BackupExtensions for RecordingExtensions {
    fn prepare<'a>(
        &'a self,
        planned: &'a mut PlannedBackup,
        state: &'a BackupState,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async {
            self.call("prepare").await;
            if let Some(action) = &self.action {
                let (applies, catalog) = (AppliesTo::resources(["configmaps"]), planned.item_filter.catalog());
                planned.actions.register(Source::BuiltIn(2), "x.io/action", &applies, catalog, Arc::clone(action))?;
            }
            if let Some(client) = &self.operation {
                let item = ItemId::new("configmaps", Some(SHOP), "prices");
                let started = StartedOperation { id: "o1".into(), post: Vec::new() };
                state.operations.start("x.io/slow", item, started, Arc::clone(client)).await?;
            }
            Ok(())
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.call("close")
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        self.call("release")
    }

    fn discard(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.call("discard").await;
            assert!(!keys(&self.store, "backups/b/").await.is_empty(), "volume data is discarded before the files");
        })
    }
}

pub fn extensions(bed: &TestBed) -> RecordingExtensions {
    RecordingExtensions { store: bed.store.clone(), calls: Mutex::default(), operation: None, action: None }
}

/// Backs up the namespace [`SHOP`] as the backup `b`.
async fn back_up(bed: &TestBed, extensions: &RecordingExtensions) -> Result<BackupOutcome, Error> {
    back_up_as(bed, extensions, Arc::new(AlwaysLeader)).await
}

async fn back_up_as(
    bed: &TestBed,
    extensions: &RecordingExtensions,
    guard: Arc<dyn LeadershipGuard>,
) -> Result<BackupOutcome, Error> {
    back_up_object(bed, extensions, &TestBackup::new(bed), guard).await
}

async fn back_up_object(
    bed: &TestBed,
    extensions: &RecordingExtensions,
    object: &TestBackup,
    guard: Arc<dyn LeadershipGuard>,
) -> Result<BackupOutcome, Error> {
    let tree = Operation::new("test", Clock::system());
    let spec = BackupSpec { included_namespaces: vec![SHOP.to_owned()], ..BackupSpec::default() };
    let input = BackupInput { name: "b".into(), uid: "uid-b".into(), spec, journal_entries: bed.journal.entries() };
    let operation = OperationEnv { guard, ..bed.operation_env(&tree) };
    let env = BackupEnv { operation, object, extensions, item_workers: 2 };
    execute(input, env).await
}

/// Makes the backup `b`, which is committed by this call.
pub async fn commit_backup(bed: &TestBed, extensions: &RecordingExtensions) -> Box<BackupResults> {
    match back_up(bed, extensions).await.unwrap() {
        BackupOutcome::Committed(results) => results,
        BackupOutcome::AlreadyCommitted(metadata) => panic!("an earlier attempt committed {metadata}"),
    }
}

#[tokio::test]
async fn a_backup_is_committed_with_all_its_files() {
    let bed = TestBed::new().await;
    let extensions = extensions(&bed);
    let results = commit_backup(&bed, &extensions).await;
    assert_eq!(results.results.errors.count, 0, "{:?}", results.results.errors);
    let keys = bed.keys("backups/b/").await;
    for name in ["velero-backup.json", "b.tar.gz", "b-results.gz", "b-logs.gz", "b-resource-list.json.gz"] {
        assert!(keys.contains(&format!("backups/b/{name}")), "{name} in {keys:?}");
    }
    let metadata: Value =
        serde_json::from_slice(&bed.store.get("backups/b/velero-backup.json").await.unwrap()).unwrap();
    assert_eq!(metadata["status"], json!({ "phase": "Completed", "errors": 0 }));
    let journal = bed.journal.entries();
    let lines: Vec<_> = journal.iter().map(|entry| (entry.effect.to_string(), entry.result.as_deref())).collect();
    let expected = [
        ("begin backups/b/".to_owned(), Some("packed")),
        ("commit backups/b/velero-backup.json".to_owned(), Some("committed")),
    ];
    assert_eq!(lines, expected);
    assert_eq!(extensions.calls(), ["prepare", "close", "release"]);
}

#[tokio::test]
async fn a_failed_item_operation_is_an_error_of_the_backup_and_in_its_log() {
    let bed = TestBed::new().await;
    let extensions = RecordingExtensions { operation: Some(failing_operation("no space")), ..extensions(&bed) };
    let results = commit_backup(&bed, &extensions).await;
    assert_eq!((results.operations.failed, results.results.errors.count), (1, 1), "{:?}", results.results);
    let expected = "operation o1 of x.io/slow on configmaps shop/prices: no space";
    let read = async |name: &str| {
        let packed = bed.store.get(&format!("backups/b/{name}")).await.unwrap();
        String::from_utf8(codec::gunzip(packed.as_ref(), 1 << 20).unwrap()).unwrap()
    };
    let saved: Value = serde_json::from_str(&read("b-results.gz").await).unwrap();
    assert_eq!(saved["errors"]["namespaces"][SHOP], json!([expected]), "{saved:#}");
    let log = read("b-logs.gz").await;
    assert!(log.lines().any(|line| line.contains("level=error") && line.contains(expected)), "{log}");
    assert!(log.lines().count() > 1, "the lines before are kept: {log}");
}

#[tokio::test]
async fn a_committed_backup_is_not_written_again() {
    let bed = TestBed::new().await;
    commit_backup(&bed, &extensions(&bed)).await;
    let (before, extensions) = (bed.journal.entries(), extensions(&bed));
    let BackupOutcome::AlreadyCommitted(metadata) = back_up(&bed, &extensions).await.unwrap() else {
        panic!("it is committed a second time");
    };
    assert_eq!(metadata["metadata"]["uid"], "uid-b");
    assert_eq!(extensions.calls(), ["release"]);
    assert_eq!(bed.journal.entries(), before);
}

#[tokio::test]
async fn a_cancelled_backup_leaves_nothing_in_the_location() {
    let bed = TestBed::new().await;
    bed.journal.interrupt_at("packed", Interruption::Cancel(bed.cancel.clone()));
    let extensions = extensions(&bed);
    let error = back_up(&bed, &extensions).await.unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    assert_eq!(bed.keys("").await, Vec::<String>::new());
    assert_eq!(extensions.calls(), ["prepare", "close", "discard"]);
}

#[tokio::test]
async fn a_deposed_leader_removes_nothing_that_its_successor_may_have_written() {
    let bed = TestBed::new().await;
    bed.journal.interrupt_at("packed", Interruption::Cancel(bed.cancel.clone()));
    let extensions = extensions(&bed);
    let error = back_up_as(&bed, &extensions, Arc::new(DeposedLeader)).await.unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    assert!(!bed.keys("backups/b/").await.is_empty());
    assert_eq!(extensions.calls(), ["prepare", "close"]);
}

#[tokio::test]
async fn the_files_of_an_interrupted_attempt_are_replaced() {
    let bed = TestBed::new().await;
    bed.journal.interrupt_at("commit", Interruption::Stop);
    let first = extensions(&bed);
    let ended = tokio::select! {
        _ = back_up(&bed, &first) => true,
        () = bed.journal.stopped() => false,
    };
    assert!(!ended, "the first attempt is stopped before its commit");
    assert!(!bed.keys("backups/b/").await.contains(&"backups/b/velero-backup.json".to_owned()));
    bed.store.put("backups/b/left-over", "x").await.unwrap();
    commit_backup(&bed, &extensions(&bed)).await;
    let keys = bed.keys("backups/b/").await;
    assert!(keys.contains(&"backups/b/velero-backup.json".to_owned()), "{keys:?}");
    assert!(!keys.contains(&"backups/b/left-over".to_owned()), "{keys:?}");
}

#[tokio::test]
async fn files_of_an_unknown_attempt_are_kept() {
    let bed = TestBed::new().await;
    bed.store.put("backups/b/b.tar.gz", "x").await.unwrap();
    let extensions = extensions(&bed);
    let error = back_up(&bed, &extensions).await.unwrap_err();
    assert!(matches!(error, Error::UnfinishedBackupExists { .. }), "{error}");
    assert_eq!(bed.keys("").await, ["backups/b/b.tar.gz"]);
    assert_eq!(extensions.calls(), Vec::<&str>::new());
}

#[tokio::test]
async fn a_backup_is_finalizing_once_its_item_operations_have_ended() {
    let bed = TestBed::new().await;
    for (operation, expected) in [
        (None, ["Finalizing"].as_slice()),
        (Some(failing_operation("no space")), ["WaitingForPluginOperations", "FinalizingPartiallyFailed"].as_slice()),
    ] {
        bed.store.delete_prefix("backups/").await.unwrap();
        let object = TestBackup::new(&bed);
        let extensions = RecordingExtensions { operation, ..extensions(&bed) };
        back_up_object(&bed, &extensions, &object, Arc::new(AlwaysLeader)).await.unwrap();
        assert_eq!(*object.phases.lock().unwrap(), expected);
    }
}

/// A backup as Velero leaves it when it is stopped: committed, in a phase before the last, with one item operation on `prices`.
async fn leave_unfinished(bed: &TestBed, phase: &str, operation_phase: &str) {
    bed.store.delete_prefix("backups/").await.unwrap();
    commit_backup(bed, &extensions(bed)).await;
    let metadata = json!({ "metadata": { "name": "b", "uid": "uid-b" }, "status": { "phase": phase } });
    bed.store.put("backups/b/velero-backup.json", metadata.to_string().into_bytes()).await.unwrap();
    let item = json!({ "Group": "", "Resource": "configmaps", "Namespace": SHOP, "Name": "prices" });
    let operations = json!([{ "spec": { "backupName": "b", "backupUID": "uid-b", "backupItemAction": "x.io/slow",
        "resourceIdentifier": item, "operationID": "o1", "postOperationItems": [item] },
        "status": { "phase": operation_phase } }]);
    let packed = codec::gzip_json(&operations).unwrap();
    bed.store.put("backups/b/b-itemoperations.json.gz", packed).await.unwrap();
}

/// The phase in which such a backup ends, in the metadata and in the location.
async fn end_left(bed: &TestBed) -> Value {
    let outcome = back_up(bed, &extensions(bed)).await.unwrap();
    let BackupOutcome::AlreadyCommitted(metadata) = outcome else { panic!("it was made again: {outcome:?}") };
    let stored = bed.store.get("backups/b/velero-backup.json").await.unwrap();
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    assert_eq!(stored, *metadata);
    metadata["status"]["phase"].clone()
}

#[tokio::test]
async fn a_backup_that_velero_left_finalizing_is_finalized() {
    let bed = TestBed::new().await;
    for (left, operation, ended) in [
        ("Finalizing", "Completed", "Completed"),
        ("FinalizingPartiallyFailed", "Completed", "PartiallyFailed"),
        ("WaitingForPluginOperations", "Completed", "Completed"),
        ("WaitingForPluginOperations", "Failed", "PartiallyFailed"),
        // Its result is unknown: the plugin that ran it is gone.
        ("WaitingForPluginOperations", "InProgress", "WaitingForPluginOperations"),
        ("Completed", "Completed", "Completed"),
    ] {
        leave_unfinished(&bed, left, operation).await;
        assert_eq!(end_left(&bed).await, ended, "{left}, operation {operation}");
    }
}

#[tokio::test]
async fn the_post_operation_items_of_a_left_backup_are_read_again() {
    let bed = TestBed::new().await;
    leave_unfinished(&bed, "Finalizing", "Completed").await;
    let change = Patch::Merge(json!({ "data": { "apple": "4" } }));
    bed.config_maps(SHOP).patch("prices", &PatchParams::default(), &change).await.unwrap();
    assert_eq!(end_left(&bed).await, "Completed");
    let archive = bed.store.get("backups/b/b.tar.gz").await.unwrap();
    let mut archive = Reader::new(archive.as_ref());
    let mut prices = None;
    while let Some(item) = archive.next_item().unwrap() {
        if item.name == "prices" {
            prices = serde_json::from_slice::<Value>(&item.json).ok();
        }
    }
    assert_eq!(prices.unwrap()["data"]["apple"], "4");
}

#[tokio::test]
async fn a_left_backup_that_cannot_be_finalized_keeps_its_files() {
    let bed = TestBed::new().await;
    leave_unfinished(&bed, "Finalizing", "Completed").await;
    let before = bed.keys("backups/b/").await;
    bed.store.put("backups/b/b-itemoperations.json.gz", b"no gzip".to_vec()).await.unwrap();
    let error = back_up(&bed, &extensions(&bed)).await.unwrap_err().to_string();
    assert!(error.contains("b-itemoperations.json.gz"), "{error}");
    assert_eq!(bed.keys("backups/b/").await, before);
}

/// Ends for two items at a time. The later of the two ends first.
struct PairedAction {
    barrier: Barrier,
    /// The items in the order in which their actions ended.
    ended: Mutex<Vec<String>>,
}

impl BackupItemAction for PairedAction {
    fn execute<'a>(&'a self, item: &'a Value, _: &'a Value) -> BoxFuture<'a, Result<BackupActionOutput, Error>> {
        Box::pin(async move {
            let waiting = tokio::time::timeout(Duration::from_secs(30), self.barrier.wait()).await;
            waiting.map_err(|_| Error::Selection("no second item is processed meanwhile".into()))?;
            self.ended.lock().unwrap().push(item["metadata"]["name"].as_str().unwrap().to_owned());
            Ok(BackupActionOutput::default())
        })
    }
}

#[tokio::test]
async fn as_many_items_are_processed_side_by_side_as_there_are_workers() {
    let bed = TestBed::new().await;
    bed.create_config_map("weights", "apple", "1").await;
    let action = Arc::new(PairedAction { barrier: Barrier::new(2), ended: Mutex::default() });
    let extensions = RecordingExtensions { action: Some(Arc::clone(&action) as _), ..extensions(&bed) };
    let results = commit_backup(&bed, &extensions).await;
    assert_eq!(results.results.errors.count, 0, "{:?}", results.results.errors);
    assert_eq!(action.ended.lock().unwrap().len(), 2);
}
