//! Delete item actions, on the items of a backup.

use std::fs::File;
use std::path::Path;

use plimsoll_archive::layout;
use plimsoll_archive::tarball::{Item, Reader};
use plimsoll_progress::Task;
use plimsoll_store::Store;
use serde_json::Value;
use tokio::sync::mpsc;

use super::DeleteItemActions;
use super::proof::ProofCheck;
use crate::operation_files::download;
use crate::{Error, RetryPolicy};

/// The results of the delete item actions.
#[derive(Default)]
pub(super) struct ActionResults {
    /// Errors.
    pub failures: Vec<String>,
    /// Items that were not deleted because there is no proof.
    pub unproven: Vec<String>,
}

/// Runs the delete item actions on the items of a backup. Without actions nothing is read; a backup without a tarball has
/// nothing to clean up.
pub(super) async fn run_actions(
    store: &Store,
    backup: &Value,
    actions: &DeleteItemActions,
    proof: &ProofCheck,
    scratch: &Path,
    task: &Task,
) -> Result<ActionResults, Error> {
    let mut results = ActionResults::default();
    if actions.names().next().is_none() {
        return Ok(results);
    }
    let name = backup.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let key = layout::backup_contents(name);
    let file = scratch.join("contents.tar.gz");
    task.say(&key);
    let contents = match RetryPolicy::default().run(task, || download(store, &key, &file)).await {
        Err(Error::Store(error)) if error.is_not_found() => return Ok(results),
        answer => answer?,
    };
    let is_proven = proof.covers_contents(name, &contents);
    let (sender, mut items) = mpsc::channel(16);
    let reading = tokio::task::spawn_blocking(move || read(&file, &sender));
    while let Some(item) = items.recv().await {
        run_item_actions(&item, backup, actions, is_proven, task, &mut results).await;
    }
    let read = reading.await.unwrap_or(Ok(()));
    match read {
        // It is deleted as it is: an expired backup that cannot be read must not stay for ever.
        Err(_) if !is_proven => Ok(results),
        Err(source) => Err(Error::Archive { name: key, source }),
        Ok(()) => Ok(results),
    }
}

async fn run_item_actions(
    item: &Item,
    backup: &Value,
    actions: &DeleteItemActions,
    is_proven: bool,
    task: &Task,
    results: &mut ActionResults,
) {
    let none = std::collections::BTreeMap::new();
    let labels = item.header.metadata.labels.as_ref().unwrap_or(&none);
    let object: Value = serde_json::from_slice(&item.json).unwrap_or_default();
    task.touch();
    let matching: Vec<_> = actions.for_item(&item.group_resource, item.namespace.as_deref(), labels).collect();
    for (name, action) in matching {
        let what = format!("delete item action {name} on {} {}", item.group_resource, item.name);
        task.say(&what);
        if action.is_external() && !is_proven {
            results.unproven.push(what);
            continue;
        }
        let _waiting = task.wait_quietly(&what, None);
        if let Err(error) = action.execute(&object, backup).await {
            results.failures.push(format!("{what}: {error}"));
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
