//! Restores from a backup that the engine wrote.

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use plimsoll_api::velero::v1::Restore;
use plimsoll_archive::codec;
use plimsoll_archive::volume_info::RestoreVolumeInfo;
use plimsoll_engine::Error;
use plimsoll_engine::item_operations::ItemOperationCounts;
use plimsoll_engine::restore::hooks::RestoreHooks;
use plimsoll_engine::restore::{
    ResolvedSpec, RestoreEnv, RestoreExtensions, RestoreInput, RestoreObject, RestoreResults, RestoreRules,
    RestoreState, RestoreTimeouts, StartedRestore, execute,
};
use plimsoll_progress::{Clock, Operation};
use plimsoll_select::resource_order::RestorePriorities;
use plimsoll_store::Store;
use serde_json::{Value, json};

use crate::backup::{commit_backup, extensions};
use crate::test_bed::{NAMESPACE, SHOP, TestBed};

struct TestRestore {
    restore: Restore,
    store: Store,
}

impl RestoreObject for TestRestore {
    fn begin(&self) -> BoxFuture<'_, Result<StartedRestore, Error>> {
        let backup = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": "b" }, "spec": {} });
        Box::pin(async {
            Ok(StartedRestore {
                restore: serde_json::to_value(&self.restore).unwrap(),
                backup: serde_json::from_value(backup).unwrap(),
                store: self.store.clone(),
            })
        })
    }

    fn resolve_spec(&self) -> BoxFuture<'_, Result<ResolvedSpec, Error>> {
        Box::pin(async {
            let hooks = RestoreHooks::new(&self.restore.spec)?;
            Ok(ResolvedSpec { policies: None, modifiers: None, hooks, warnings: vec!["something to check".to_owned()] })
        })
    }

    fn show_total(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn show_waiting(&self, _: ItemOperationCounts, _: bool) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn show_finalizing(&self, _: bool) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}

struct NoExtensions;

impl RestoreExtensions for NoExtensions {
    fn prepare<'a>(&'a self, _: &'a mut RestoreRules, _: &'a RestoreState) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn volume_infos(&self) -> Vec<RestoreVolumeInfo> {
        Vec::new()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// Restores the backup `b` as the restore `r`, into the namespace `copy`.
pub async fn restore(bed: &TestBed) -> Result<RestoreResults, Error> {
    Box::pin(restore_in_order(bed, RestorePriorities::default())).await
}

async fn restore_in_order(bed: &TestBed, priorities: RestorePriorities) -> Result<RestoreResults, Error> {
    let restore: Restore = serde_json::from_value(json!({
        "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": { "name": "r", "uid": "uid-r" },
        "spec": { "backupName": "b", "namespaceMapping": { "shop": "copy" } },
    }))
    .unwrap();
    let tree = Operation::new("test", Clock::system());
    let object = TestRestore { restore: restore.clone(), store: bed.store.clone() };
    let env = RestoreEnv {
        operation: bed.operation_env(&tree),
        namespace: NAMESPACE.to_owned(),
        object: &object,
        extensions: &NoExtensions,
        timeouts: RestoreTimeouts::default(),
        priorities,
    };
    Box::pin(execute(RestoreInput { restore, journal_entries: Vec::new() }, env)).await
}

#[tokio::test]
async fn objects_are_restored_and_the_files_of_the_restore_are_written() {
    let bed = TestBed::new().await;
    commit_backup(&bed, &extensions(&bed)).await;
    let results = Box::pin(restore(&bed)).await.unwrap();
    assert_eq!(results.results.errors.count, 0, "{:?}", results.results.errors);
    let warnings = format!("{:?}", results.results.warnings);
    assert!(warnings.contains("something to check"), "a part of the spec that cannot be used: {warnings}");
    let restored = bed.config_maps("copy").get("prices").await.unwrap();
    assert_eq!(restored.data.unwrap()["apple"], "3");
    let keys = bed.keys("restores/r/").await;
    for name in ["restore-r-results.gz", "restore-r-logs.gz"] {
        assert!(keys.contains(&format!("restores/r/{name}")), "{name} in {keys:?}");
    }
}

#[tokio::test]
async fn a_cancelled_restore_writes_no_files() {
    let bed = TestBed::new().await;
    commit_backup(&bed, &extensions(&bed)).await;
    bed.cancel.cancel();
    let error = Box::pin(restore(&bed)).await.unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    assert_eq!(bed.keys("restores/").await, Vec::<String>::new());
}

/// The kinds of the outcomes of the restore, in the order in which they were recorded, each once.
async fn restored_kinds(bed: &TestBed) -> Vec<String> {
    let packed = bed.store.get("restores/r/restore-r-outcome.json.gz").await.unwrap();
    let outcomes: Vec<Value> = codec::read_gzip_list(packed.as_ref()).unwrap();
    let mut kinds: Vec<String> =
        outcomes.iter().map(|outcome| outcome["kind"].as_str().unwrap_or_default().to_owned()).collect();
    kinds.dedup();
    kinds.retain(|kind| kind.ends_with("ConfigMap") || kind.ends_with("Secret"));
    kinds
}

#[tokio::test]
async fn resources_are_restored_in_the_order_that_the_server_sets() {
    let bed = TestBed::new().await;
    let secrets: Api<Secret> = Api::namespaced(bed.client.clone(), SHOP);
    let secret = json!({ "metadata": { "name": "key" }, "stringData": { "a": "b" } });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    commit_backup(&bed, &extensions(&bed)).await;
    for (priorities, expected) in [("", ["v1/Secret", "v1/ConfigMap"]), ("-,secrets", ["v1/ConfigMap", "v1/Secret"])] {
        Box::pin(restore_in_order(&bed, priorities.parse().unwrap())).await.unwrap();
        assert_eq!(restored_kinds(&bed).await, expected, "{priorities:?}");
    }
}
