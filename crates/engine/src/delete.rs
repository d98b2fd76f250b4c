//! Deletion of a backup: delete item actions, and the objects in the location.

use std::fs::File;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use plimsoll_archive::layout;
use plimsoll_archive::tarball::{Item, Reader};
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_store::Store;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::ports::LeadershipGuard;
use crate::registry::Registry;
use crate::{Error, RetryPolicy, kill};

/// Cleans up external data of an item before its backup is deleted.
pub trait DeleteItemAction: Send + Sync {
    /// Cleans up for one item. On an error the backup is kept.
    fn execute<'a>(&'a self, item: &'a Value, backup: &'a Value) -> BoxFuture<'a, Result<(), String>>;
}

/// Runs the delete item actions on the items of a backup. Returns the errors. Without actions nothing is read; a backup
/// without a tarball has nothing to clean up.
pub async fn run_actions(
    store: &Store,
    backup: &Value,
    actions: &Registry<dyn DeleteItemAction>,
    scratch: &Path,
    task: &Task,
) -> Result<Vec<String>, Error> {
    if actions.names().next().is_none() {
        return Ok(Vec::new());
    }
    let name = backup.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let key = layout::backup_contents(name);
    let file = scratch.join("contents.tar.gz");
    task.say(&key);
    match RetryPolicy::default().run(task, || download(store, &key, &file)).await {
        Err(Error::Store(error)) if error.is_not_found() => return Ok(Vec::new()),
        answer => answer?,
    }
    let (sender, mut items) = mpsc::channel(16);
    let reading = tokio::task::spawn_blocking(move || read(&file, &sender));
    let mut failures = Vec::new();
    while let Some(item) = items.recv().await {
        run_item_actions(&item, backup, actions, task, &mut failures).await;
    }
    let read = reading.await.unwrap_or(Ok(()));
    read.map_err(|source| Error::Archive { name: key, source })?;
    Ok(failures)
}

async fn run_item_actions(
    item: &Item,
    backup: &Value,
    actions: &Registry<dyn DeleteItemAction>,
    task: &Task,
    failures: &mut Vec<String>,
) {
    let none = std::collections::BTreeMap::new();
    let labels = item.header.metadata.labels.as_ref().unwrap_or(&none);
    let object: Value = serde_json::from_slice(&item.json).unwrap_or_default();
    task.touch();
    let matching: Vec<_> = actions.for_item(&item.group_resource, item.namespace.as_deref(), labels).collect();
    for (name, action) in matching {
        let what = format!("delete item action {name} on {} {}", item.group_resource, item.name);
        task.say(&what);
        if let Err(error) = action.execute(&object, backup).await {
            failures.push(format!("{what}: {error}"));
        }
    }
}

fn read(file: &Path, items: &mpsc::Sender<Item>) -> Result<(), plimsoll_archive::Error> {
    let mut archive = Reader::new(File::open(file)?);
    loop {
        match archive.next_item() {
            Ok(Some(item)) => {
                if items.blocking_send(item).is_err() {
                    return Ok(());
                }
            }
            Ok(None) => return Ok(()),
            Err(error) if error.is_entry_error() => {}
            Err(error) => return Err(error),
        }
    }
}

async fn download(store: &Store, key: &str, file: &PathBuf) -> Result<(), Error> {
    let mut chunks = store.reader(key).await?;
    let mut out = tokio::fs::File::create(file).await.map_err(|e| Error::scratch(file, e))?;
    while let Some(chunk) = chunks.next().await {
        out.write_all(&chunk?).await.map_err(|e| Error::scratch(file, e))?;
    }
    out.flush().await.map_err(|e| Error::scratch(file, e))
}

/// Deletes all objects below a folder, `first` before all others. A second call continues an interrupted deletion.
pub async fn remove_folder(
    store: &Store,
    folder: &str,
    first: Option<&str>,
    task: &Task,
    guard: &dyn LeadershipGuard,
) -> Result<(), Error> {
    let list = || async { Ok(store.list(folder).map_ok(|info| info.key).try_collect::<Vec<_>>().await?) };
    let mut keys = RetryPolicy::default().run(task, list).await?;
    keys.sort_by_key(|key| (Some(key.as_str()) != first, key.clone()));
    let steps = task.meter(Unit::Steps);
    steps.set_total(Total::Final(keys.len() as u64));
    for key in keys {
        guard.check_effect()?;
        task.say(&key);
        kill::point("object.delete.before");
        RetryPolicy::default().run(task, || async { Ok(store.delete(&key).await?) }).await?;
        kill::point("object.delete.after");
        steps.add(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use plimsoll_archive::tarball::Writer;
    use plimsoll_progress::{Clock, Operation};
    use plimsoll_select::resources::{DiscoveredResource, DiscoveredResources};
    use serde_json::json;

    use super::*;
    use crate::registry::{AppliesTo, Source};

    struct RecordingAction(Mutex<Vec<String>>);

    impl DeleteItemAction for RecordingAction {
        fn execute<'a>(&'a self, item: &'a Value, _: &'a Value) -> BoxFuture<'a, Result<(), String>> {
            let name = item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let answer = if name == "stuck" { Err("still in use".to_owned()) } else { Ok(()) };
            self.0.lock().unwrap().push(name);
            Box::pin(async { answer })
        }
    }

    struct NoGuard;

    impl LeadershipGuard for NoGuard {
        fn check_effect(&self) -> Result<(), Error> {
            Ok(())
        }

        fn check_commit(&self) -> BoxFuture<'_, Result<(), Error>> {
            Box::pin(async { Ok(()) })
        }
    }

    fn tarball() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new()).unwrap();
        let snapshots =
            ("volumesnapshots.snapshot.storage.k8s.io", "snapshot.storage.k8s.io/v1", "VolumeSnapshot", "stuck");
        for (resource, version, kind, name) in [("pods", "v1", "Pod", "p"), snapshots] {
            let json = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": "n" } });
            writer.append_object(resource, "v1", Some("n"), name, json.to_string().as_bytes()).unwrap();
        }
        writer.finish().unwrap()
    }

    #[tokio::test]
    async fn actions_run_on_matching_items_and_their_errors_are_returned() {
        let (store, scratch) = (Store::memory(), tempfile::tempdir().unwrap());
        store.put("backups/b/b.tar.gz", tarball()).await.unwrap();
        let action = Arc::new(RecordingAction(Mutex::default()));
        let mut actions: Registry<dyn DeleteItemAction> = Registry::default();
        let wanted = AppliesTo::resources(["volumesnapshots.snapshot.storage.k8s.io"]);
        let catalog = DiscoveredResources::new(Vec::<DiscoveredResource>::new());
        actions.register(Source::BuiltIn(1), "test/snapshots", &wanted, &catalog, action.clone()).unwrap();
        let tree = Operation::new("delete-b", Clock::system());
        let backup = json!({ "metadata": { "name": "b" } });
        let failures = run_actions(&store, &backup, &actions, scratch.path(), &tree.root()).await.unwrap();
        assert_eq!(*action.0.lock().unwrap(), ["stuck"]);
        let expected =
            "delete item action test/snapshots on volumesnapshots.snapshot.storage.k8s.io stuck: still in use";
        assert_eq!(failures, [expected]);
        let absent = json!({ "metadata": { "name": "other" } });
        let none = run_actions(&store, &absent, &actions, scratch.path(), &tree.root()).await.unwrap();
        assert!(none.is_empty(), "a backup without a tarball has nothing to clean up");
    }

    #[tokio::test]
    async fn only_the_folder_is_deleted() {
        let store = Store::memory();
        for key in ["backups/b/velero-backup.json", "backups/b/b.tar.gz", "backups/bb/x", "restores/b/y"] {
            store.put(key, "x").await.unwrap();
        }
        let tree = Operation::new("delete-b", Clock::system());
        remove_folder(&store, "backups/b/", None, &tree.root(), &NoGuard).await.unwrap();
        let left: Vec<_> = store.list("").map_ok(|info| info.key).try_collect().await.unwrap();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}
