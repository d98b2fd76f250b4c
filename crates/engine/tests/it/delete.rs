//! Deletions of backups.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use plimsoll_api::velero::v1::{Backup, PodVolumeBackup, Restore};
use plimsoll_archive::proof::ProofKey;
use plimsoll_archive::tarball::Writer;
use plimsoll_archive::volume_info::VolumeSnapshot;
use plimsoll_engine::Error;
use plimsoll_engine::delete::{
    DeleteEnv, DeleteExtensions, DeleteItemAction, DeleteItemActions, DeleteOutcome, DeletionCause, execute,
};
use plimsoll_engine::registry::{AppliesTo, Source};
use plimsoll_local::fixtures::eventually;
use plimsoll_progress::{Clock, Operation, Task};
use plimsoll_select::resources::{DiscoveredResource, DiscoveredResources};
use plimsoll_store::Store;
use serde_json::{Value, json};

use crate::backup::{commit_backup, extensions, proof_key};
use crate::test_bed::{NAMESPACE, TestBed};

/// Records the names of the items, and fails on the item `stuck`.
#[derive(Default)]
struct RecordingAction(Mutex<Vec<String>>);

impl DeleteItemAction for RecordingAction {
    fn execute<'a>(&'a self, item: &'a Value, _: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        let name = item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let answer = if name == "stuck" { Err("still in use".to_owned()) } else { Ok(()) };
        self.0.lock().unwrap().push(name);
        Box::pin(async { answer })
    }
}

/// One action on VolumeSnapshots; no volumes.
struct TestExtensions {
    store: Store,
    action: Arc<dyn DeleteItemAction>,
}

impl DeleteExtensions for TestExtensions {
    fn open_location(&self) -> BoxFuture<'_, Result<Option<Store>, Error>> {
        Box::pin(async { Ok(Some(self.store.clone())) })
    }

    fn proof_key(&self) -> BoxFuture<'_, Result<Option<ProofKey>, Error>> {
        Box::pin(async { Ok(Some(proof_key())) })
    }

    fn item_actions<'a>(&'a self, _: &'a Task) -> BoxFuture<'a, Result<(DeleteItemActions, Vec<String>), Error>> {
        Box::pin(async {
            let mut actions = DeleteItemActions::default();
            let wanted = AppliesTo::resources(["volumesnapshots.snapshot.storage.k8s.io", "configmaps"]);
            let catalog = DiscoveredResources::new(Vec::<DiscoveredResource>::new());
            actions.register(Source::BuiltIn(1), "test/snapshots", &wanted, &catalog, self.action.clone())?;
            Ok((actions, Vec::new()))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn delete_snapshots<'a>(
        &'a self,
        _: &'a [VolumeSnapshot],
        _: &'a Task,
    ) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn forget_volume_data<'a>(
        &'a self,
        _: Vec<PodVolumeBackup>,
        _: &'a Task,
    ) -> BoxFuture<'a, Result<Vec<String>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// Creates the Backup `b` and a Restore of it.
async fn create_objects(bed: &TestBed) -> (Api<Backup>, Api<Restore>) {
    let backups: Api<Backup> = Api::namespaced(bed.client.clone(), NAMESPACE);
    let restores: Api<Restore> = Api::namespaced(bed.client.clone(), NAMESPACE);
    let backup = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": "b" },
        "spec": { "storageLocation": "default" } });
    let restore = json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": { "name": "r" },
        "spec": { "backupName": "b" } });
    backups.create(&PostParams::default(), &serde_json::from_value(backup).unwrap()).await.unwrap();
    restores.create(&PostParams::default(), &serde_json::from_value(restore).unwrap()).await.unwrap();
    (backups, restores)
}

async fn delete(bed: &TestBed, backup: &Backup, action: &Arc<RecordingAction>) -> Result<DeleteOutcome, Error> {
    delete_because(bed, backup, action, DeletionCause::Requested).await
}

async fn delete_because(
    bed: &TestBed,
    backup: &Backup,
    action: &Arc<RecordingAction>,
    cause: DeletionCause,
) -> Result<DeleteOutcome, Error> {
    delete_with(bed, &Operation::new("test", Clock::system()), backup, action.clone(), cause).await
}

async fn delete_with(
    bed: &TestBed,
    tree: &Operation,
    backup: &Backup,
    action: Arc<dyn DeleteItemAction>,
    cause: DeletionCause,
) -> Result<DeleteOutcome, Error> {
    let extensions = TestExtensions { store: bed.store.clone(), action };
    let env = DeleteEnv {
        operation: bed.operation_env(tree),
        namespace: NAMESPACE.to_owned(),
        cause,
        extensions: &extensions,
    };
    execute(backup, env).await
}

#[tokio::test]
async fn a_backup_is_deleted_with_its_files_and_its_restores_and_nothing_else() {
    let bed = TestBed::new().await;
    commit_backup(&bed, &extensions(&bed)).await;
    bed.store.put("backups/bb/velero-backup.json", "x").await.unwrap();
    let (backups, restores) = create_objects(&bed).await;
    let backup = backups.get("b").await.unwrap();
    let outcome = delete(&bed, &backup, &Arc::default()).await.unwrap();
    assert_eq!(outcome, DeleteOutcome::Deleted(Vec::new()));
    assert_eq!(bed.keys("").await, ["backups/bb/velero-backup.json"]);
    assert!(backups.get_opt("b").await.unwrap().is_none());
    assert!(restores.get_opt("r").await.unwrap().is_none());
}

/// A tarball with a pod, and a VolumeSnapshot that cannot be cleaned up.
fn tarball() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let snapshot = ("volumesnapshots.snapshot.storage.k8s.io", "snapshot.storage.k8s.io/v1", "VolumeSnapshot", "stuck");
    for (resource, version, kind, name) in [("pods", "v1", "Pod", "p"), snapshot] {
        let json = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": "n" } });
        writer.append_object(resource, "v1", Some("n"), name, json.to_string().as_bytes()).unwrap();
    }
    writer.finish().unwrap()
}

#[tokio::test]
async fn a_backup_is_kept_if_an_action_fails_on_one_of_its_items() {
    let bed = TestBed::new().await;
    bed.store.put("backups/b/b.tar.gz", tarball()).await.unwrap();
    let (backups, _) = create_objects(&bed).await;
    let (backup, action) = (backups.get("b").await.unwrap(), Arc::default());
    let outcome = delete(&bed, &backup, &action).await.unwrap();
    let expected = "delete item action test/snapshots on volumesnapshots.snapshot.storage.k8s.io stuck: still in use";
    assert_eq!(outcome, DeleteOutcome::Kept(vec![expected.to_owned()]));
    assert_eq!(*action.0.lock().unwrap(), ["stuck"], "actions run on matching items only");
    assert_eq!(bed.keys("").await, ["backups/b/b.tar.gz"]);
    assert!(backups.get_opt("b").await.unwrap().is_some());
}

#[tokio::test]
async fn a_backup_without_files_is_deleted() {
    let bed = TestBed::new().await;
    let (backups, _) = create_objects(&bed).await;
    let (backup, action) = (backups.get("b").await.unwrap(), Arc::default());
    assert_eq!(delete(&bed, &backup, &action).await.unwrap(), DeleteOutcome::Deleted(Vec::new()));
    assert_eq!(*action.0.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn an_expired_backup_runs_its_actions_only_on_an_archive_that_this_cluster_wrote() {
    let action_of = "delete item action test/snapshots on";
    let foreign = format!("{action_of} volumesnapshots.snapshot.storage.k8s.io stuck");
    let cases = [
        ("b-proof.json.gz", None, vec!["prices"], Vec::new()),
        ("b-proof.json.gz", Some(Vec::new()), vec![], vec![format!("{action_of} configmaps prices")]),
        ("b.tar.gz", Some(tarball()), vec![], vec![foreign.clone()]),
        ("velero-backup.json", Some(b"{}".to_vec()), vec![], vec![format!("{action_of} configmaps prices")]),
    ];
    for (file, replacement, expected, kept) in cases {
        let bed = TestBed::new().await;
        commit_backup(&bed, &extensions(&bed)).await;
        if let Some(content) = &replacement {
            bed.store.put(&format!("backups/b/{file}"), content.clone()).await.unwrap();
        }
        let (backups, _) = create_objects(&bed).await;
        let (backup, action) = (backups.get("b").await.unwrap(), Arc::<RecordingAction>::default());
        let outcome = delete_because(&bed, &backup, &action, DeletionCause::Expired).await.unwrap();
        assert_eq!(outcome, DeleteOutcome::Deleted(kept), "{file}");
        let run: Vec<_> =
            action.0.lock().unwrap().iter().filter(|name| !name.starts_with("kube-root")).cloned().collect();
        assert_eq!(run, expected, "{file} {replacement:?}");
        assert_eq!(bed.keys("").await, Vec::<String>::new());
    }
}

/// Begins the Restore `r` while the items of the backup are cleaned up, and ends it later.
struct BeginRestore(Api<Restore>);

impl BeginRestore {
    async fn show(&self, phase: &str) {
        let patch = Patch::Merge(json!({ "status": { "phase": phase } }));
        self.0.patch("r", &PatchParams::default(), &patch).await.unwrap();
    }
}

impl DeleteItemAction for BeginRestore {
    fn execute<'a>(&'a self, _: &'a Value, _: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async {
            self.show("InProgress").await;
            Ok(())
        })
    }
}

#[tokio::test]
async fn a_restore_that_begins_during_the_deletion_is_not_removed_before_it_has_ended() {
    let bed = TestBed::new().await;
    commit_backup(&bed, &extensions(&bed)).await;
    let (backups, restores) = create_objects(&bed).await;
    let backup = backups.get("b").await.unwrap();
    let (action, tree) = (Arc::new(BeginRestore(restores.clone())), Operation::new("test", Clock::system()));
    let end_restore = async {
        eventually("the deletion waits for the restore", async || {
            let snapshot = tree.snapshot();
            snapshot.root()?.reason.as_ref().is_some_and(|reason| reason.contains("restore r")).then_some(())
        })
        .await;
        assert!(restores.get("r").await.unwrap().metadata.deletion_timestamp.is_none());
        action.show("Completed").await;
    };
    let deletion = delete_with(&bed, &tree, &backup, action.clone(), DeletionCause::Requested);
    let (outcome, ()) = tokio::join!(deletion, end_restore);
    assert_eq!(outcome.unwrap(), DeleteOutcome::Deleted(Vec::new()));
    assert!(restores.get_opt("r").await.unwrap().is_none());
}

#[tokio::test]
async fn an_expired_backup_of_others_is_deleted_although_its_lists_cannot_be_read() {
    for file in ["volumesnapshots", "podvolumebackups"] {
        let bed = TestBed::new().await;
        bed.store.put("backups/b/velero-backup.json", "{}").await.unwrap();
        bed.store.put(&format!("backups/b/b-{file}.json.gz"), "no gzip").await.unwrap();
        let (backups, _) = create_objects(&bed).await;
        let (backup, action) = (backups.get("b").await.unwrap(), Arc::default());
        let refused = delete(&bed, &backup, &action).await.unwrap_err();
        assert!(refused.to_string().contains(file), "a person is told: {refused}");
        let outcome = delete_because(&bed, &backup, &action, DeletionCause::Expired).await.unwrap();
        let DeleteOutcome::Deleted(kept) = outcome else { panic!("{outcome:?}") };
        assert!(kept.len() == 1 && kept[0].contains(file), "{kept:?}");
        assert_eq!(bed.keys("").await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn an_expired_backup_of_others_is_deleted_although_its_archive_does_not_fit_on_the_disk() {
    let bed = TestBed::new().await;
    bed.store.put("backups/b/b.tar.gz", "x").await.unwrap();
    let archive = bed.store.local_file("backups/b/b.tar.gz").unwrap();
    std::fs::File::options().write(true).open(archive).unwrap().set_len(1 << 43).unwrap();
    let (backups, _) = create_objects(&bed).await;
    let (backup, action) = (backups.get("b").await.unwrap(), Arc::default());
    let refused = delete(&bed, &backup, &action).await.unwrap_err();
    assert!(refused.to_string().contains("scratch space"), "a person is told: {refused}");
    let outcome = delete_because(&bed, &backup, &action, DeletionCause::Expired).await.unwrap();
    let DeleteOutcome::Deleted(kept) = outcome else { panic!("{outcome:?}") };
    assert!(kept.len() == 1 && kept[0].contains("b.tar.gz"), "{kept:?}");
    assert_eq!(bed.keys("").await, Vec::<String>::new());
}
