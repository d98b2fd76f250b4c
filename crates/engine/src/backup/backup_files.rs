//! The metadata files of a backup.

use std::path::Path;

use bytes::Bytes;
use futures::TryStreamExt;
use plimsoll_archive::proof::{BackupProof, FileDigest, ProofKey, ProvenFiles, digest};
use plimsoll_archive::volume_info::VolumeSnapshot;
use plimsoll_archive::{codec, layout};
use plimsoll_progress::Task;
use plimsoll_store::Store;
use serde_json::Value;

use crate::operation_files::OperationFiles;
use crate::outcome::{RecordedFiles, Results};
use crate::ports::{LeadershipGuard, VolumeBackupResults};
use crate::{Error, kill};

/// The state of a location under the name of a backup.
#[derive(Debug, PartialEq)]
pub(super) enum ExistingBackup {
    /// No files.
    Absent,
    /// Files without `velero-backup.json`: an attempt was interrupted.
    Unfinished,
    /// This backup, committed, with its metadata.
    Committed(Box<Value>),
}

/// Looks for files of a backup in `store`. Another backup of the same name is an error.
pub(super) async fn find_existing_backup(store: &Store, name: &str, uid: &str) -> Result<ExistingBackup, Error> {
    let bytes = match store.get_at_most(&layout::backup_metadata(name), codec::MAX_BACKUP_OBJECT_BYTES).await {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => {
            let mut found = store.list(&layout::backup_directory(name));
            return Ok(match futures::StreamExt::next(&mut found).await.transpose()? {
                Some(_) => ExistingBackup::Unfinished,
                None => ExistingBackup::Absent,
            });
        }
        Err(error) => return Err(error.into()),
    };
    let metadata: Value = codec::parse_object(&bytes).unwrap_or_default();
    let found = metadata.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    if found == uid {
        return Ok(ExistingBackup::Committed(Box::new(metadata)));
    }
    Err(Error::BackupExists { name: name.to_owned(), location: store.name().to_owned(), found: found.to_owned() })
}

/// Deletes all files of a backup, one by one: a successor may write the same files.
pub(super) async fn discard(store: &Store, name: &str, guard: &dyn LeadershipGuard) -> Result<(), Error> {
    let keys: Vec<_> = store.list(&layout::backup_directory(name)).map_ok(|info| info.key).try_collect().await?;
    for key in keys {
        guard.check_effect()?;
        kill::point("backup.discard.file");
        store.delete(&key).await?;
    }
    Ok(())
}

/// A list as Velero writes it: `null` instead of an empty list.
fn list_or_null<T: serde::Serialize>(list: &[T]) -> Value {
    if list.is_empty() { Value::Null } else { serde_json::json!(list) }
}

/// Writes all files but `velero-backup.json`. Files of unsupported data are empty.
pub(super) async fn save_files(
    store: &Store,
    name: &str,
    recorded: &RecordedFiles,
    volumes: &VolumeBackupResults,
    task: &Task,
    guard: &dyn LeadershipGuard,
) -> Result<(), Error> {
    OperationFiles::default()
        .json(layout::backup_results(name), &recorded.results)?
        .json(layout::backup_pod_volume_backups(name), &list_or_null(&volumes.pod_volume_backups))?
        .json(layout::backup_volume_snapshots(name), &list_or_null(&volumes.snapshots))?
        .json(layout::backup_item_operations(name), &Value::Null)?
        .json(layout::backup_volume_info(name), &list_or_null(&volumes.infos))?
        .json_unless_empty(layout::backup_volume_plugin_backups(name), &volumes.volume_plugin_backups)?
        .spooled(layout::backup_resource_list(name), &recorded.resource_list)
        .spooled(layout::backup_outcome(name), &recorded.outcome)
        .spooled(layout::backup_log(name), &recorded.log)
        .write(store, task, guard)
        .await
}

/// Writes errors, warnings and the log again after item operations have ended.
pub(super) async fn save_results(
    store: &Store,
    name: &str,
    results: &Results,
    log: &Path,
    task: &Task,
    guard: &dyn LeadershipGuard,
) -> Result<(), Error> {
    OperationFiles::default()
        .json(layout::backup_results(name), results)?
        .spooled(layout::backup_log(name), log)
        .write(store, task, guard)
        .await
}

/// Writes the files about snapshots again after these have ended.
pub(super) async fn save_snapshots(
    store: &Store,
    name: &str,
    volumes: &VolumeBackupResults,
    task: &Task,
    guard: &dyn LeadershipGuard,
) -> Result<(), Error> {
    OperationFiles::default()
        .json(layout::backup_volume_snapshots(name), &list_or_null(&volumes.snapshots))?
        .json(layout::backup_volume_info(name), &list_or_null(&volumes.infos))?
        .json_unless_empty(layout::backup_volume_plugin_backups(name), &volumes.volume_plugin_backups)?
        .write(store, task, guard)
        .await
}

/// Writes `velero-backup.json`, which commits the backup.
pub(super) async fn save_metadata(store: &Store, name: &str, metadata: &Bytes) -> Result<(), Error> {
    kill::point("backup.metadata.before");
    store.put(&layout::backup_metadata(name), metadata.clone()).await?;
    kill::point("backup.metadata.after");
    Ok(())
}

/// Proves that this cluster wrote the files that name snapshots. Those without a proof delete nothing outside of the location
/// when they expire.
pub(super) fn prove(
    key: &ProofKey,
    name: &str,
    metadata: &Bytes,
    contents: &FileDigest,
    snapshots: &[VolumeSnapshot],
) -> Result<BackupProof, Error> {
    let snapshots_key = layout::backup_volume_snapshots(name);
    let packed = codec::gzip_json(&list_or_null(snapshots))
        .map_err(|source| Error::Archive { name: snapshots_key.clone(), source })?;
    Ok(key.prove(&ProvenFiles {
        metadata: (&layout::backup_metadata(name), &digest(metadata)),
        contents: (&layout::backup_contents(name), contents),
        volume_snapshots: (&snapshots_key, &digest(&packed)),
    }))
}
