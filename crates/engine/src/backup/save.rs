//! The files beside the tarball, and the one that makes them a backup.

use plimsoll_archive::{codec, layout};
use plimsoll_progress::Task;
use plimsoll_store::Store;
use serde_json::Value;

use crate::files::Files;
use crate::outcome::Recorded;
use crate::ports::{Guard, VolumeResults};
use crate::{Error, kill};

/// What lies in a location under a backup's name.
#[derive(Debug, PartialEq)]
pub enum Standing {
    /// Nothing.
    Free,
    /// Files without metadata: what an attempt that died left behind.
    Unfinished,
    /// This very backup, committed: its metadata.
    Committed(Box<Value>),
}

/// Looks what lies in `store` under this name. Another backup of the same name is an error.
pub async fn standing(store: &Store, name: &str, uid: &str) -> Result<Standing, Error> {
    let bytes = match store.get(&layout::backup_metadata(name)).await {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => {
            let mut found = store.list(&layout::backup_directory(name));
            return Ok(match futures::StreamExt::next(&mut found).await.transpose()? {
                Some(_) => Standing::Unfinished,
                None => Standing::Free,
            });
        }
        Err(error) => return Err(error.into()),
    };
    let metadata: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let found = metadata.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    if found == uid {
        return Ok(Standing::Committed(Box::new(metadata)));
    }
    Err(Error::Exists { name: name.to_owned(), location: store.name().to_owned(), found: found.to_owned() })
}

/// Removes everything that lies under a backup's name.
pub async fn discard(store: &Store, name: &str) -> Result<(), Error> {
    store.delete_prefix(&layout::backup_directory(name)).await?;
    Ok(())
}

/// A list as other programs write it: none at all rather than an empty one.
fn or_null<T: serde::Serialize>(list: &[T]) -> Value {
    if list.is_empty() { Value::Null } else { serde_json::json!(list) }
}

/// Writes every file but the metadata; those of what this version does not back up are empty.
pub(super) async fn save_files(
    store: &Store,
    name: &str,
    recorded: &Recorded,
    volumes: &VolumeResults,
    task: &Task,
    guard: &dyn Guard,
) -> Result<(), Error> {
    Files::default()
        .json(layout::backup_results(name), &recorded.results)?
        .json(layout::backup_pod_volume_backups(name), &or_null(&volumes.pod_volume_backups))?
        .json(layout::backup_volume_snapshots(name), &or_null(&volumes.snapshots))?
        .json(layout::backup_item_operations(name), &Value::Null)?
        .json(layout::backup_volume_info(name), &or_null(&volumes.infos))?
        .maybe_json(layout::backup_volume_plugin_backups(name), &volumes.volume_plugin_backups)?
        .spooled(layout::backup_resource_list(name), &recorded.resource_list)
        .spooled(layout::backup_outcome(name), &recorded.outcome)
        .spooled(layout::backup_log(name), &recorded.log)
        .write(store, task, guard)
        .await
}

/// Writes the files about snapshots again, as these ended.
pub async fn save_snapshots(
    store: &Store,
    name: &str,
    volumes: &VolumeResults,
    task: &Task,
    guard: &dyn Guard,
) -> Result<(), Error> {
    Files::default()
        .json(layout::backup_volume_snapshots(name), &or_null(&volumes.snapshots))?
        .json(layout::backup_volume_info(name), &or_null(&volumes.infos))?
        .maybe_json(layout::backup_volume_plugin_backups(name), &volumes.volume_plugin_backups)?
        .write(store, task, guard)
        .await
}

/// Writes the metadata: from here on it is a backup.
pub async fn save_metadata(store: &Store, name: &str, backup: &Value) -> Result<(), Error> {
    let text = codec::pretty_json(backup).map_err(|source| Error::Archive { name: name.to_owned(), source })?;
    kill::point("backup.metadata.before");
    store.put(&layout::backup_metadata(name), text).await?;
    kill::point("backup.metadata.after");
    Ok(())
}
