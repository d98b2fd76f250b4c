//! The files beside the tarball, and the one that makes them a backup.

use std::path::Path;

use bytes::Bytes;
use plimsoll_archive::{codec, layout};
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_store::Store;
use serde_json::Value;
use tokio::io::AsyncReadExt;

use crate::outcome::Recorded;
use crate::ports::Guard;
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

/// Writes every file but the metadata.
pub(super) async fn save_files(
    store: &Store,
    name: &str,
    recorded: &Recorded,
    task: &Task,
    guard: &dyn Guard,
) -> Result<(), Error> {
    let results = codec::gzip_json(&recorded.results).map_err(|e| archive_error(name, e))?;
    let nothing = codec::gzip_json(&Value::Null).map_err(|e| archive_error(name, e))?;
    let small: Vec<(String, Bytes)> = vec![
        (layout::backup_results(name), results.into()),
        (layout::backup_pod_volume_backups(name), nothing.clone().into()),
        (layout::backup_volume_snapshots(name), nothing.clone().into()),
        (layout::backup_item_operations(name), nothing.clone().into()),
        (layout::backup_volume_info(name), nothing.into()),
    ];
    let spooled = [
        (layout::backup_resource_list(name), recorded.resource_list.as_path()),
        (layout::backup_outcome(name), recorded.outcome.as_path()),
        (layout::backup_log(name), recorded.log.as_path()),
    ];
    let steps = task.meter(Unit::Steps);
    steps.set_total(Total::Final((small.len() + spooled.len()) as u64));
    for (key, content) in small {
        guard.effect()?;
        task.say(&key);
        kill::point("backup.file.before");
        store.put(&key, content).await?;
        kill::point("backup.file.after");
        steps.add(1);
    }
    for (key, path) in spooled {
        guard.effect()?;
        task.say(&key);
        upload_file(store, &key, path).await?;
        steps.add(1);
    }
    Ok(())
}

/// Copies a spooled file into the location, a piece at a time.
pub(crate) async fn upload_file(store: &Store, key: &str, path: &Path) -> Result<(), Error> {
    let mut file = tokio::fs::File::open(path).await.map_err(|e| Error::scratch(path, e))?;
    let mut upload = store.upload(key).await?;
    loop {
        let mut piece = bytes::BytesMut::with_capacity(1 << 20);
        let read = file.read_buf(&mut piece).await.map_err(|e| Error::scratch(path, e))?;
        if read == 0 {
            break;
        }
        upload.write(piece.freeze()).await?;
    }
    upload.finish().await?;
    Ok(())
}

/// Writes the metadata: from here on it is a backup.
pub async fn save_metadata(store: &Store, name: &str, backup: &Value) -> Result<(), Error> {
    let text = codec::pretty_json(backup).map_err(|e| archive_error(name, e))?;
    kill::point("backup.metadata.before");
    store.put(&layout::backup_metadata(name), text).await?;
    kill::point("backup.metadata.after");
    Ok(())
}

fn archive_error(name: &str, source: plimsoll_archive::Error) -> Error {
    Error::Archive { name: name.to_owned(), source }
}
