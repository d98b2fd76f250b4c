//! Verifies the files of a backup in its location: the metadata, and every entry of the tarball.

use std::collections::HashMap;
use std::sync::mpsc;

use futures::StreamExt;
use plimsoll_api::velero::v1::Backup;
use plimsoll_archive::tarball::Reader;
use plimsoll_archive::{codec, layout};
use plimsoll_progress::{Task, Total, Unit};
use plimsoll_store::Store;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::Error;
use crate::chunk_reader::{ChunkReader, chunk_channel};

/// What was found in the files of a backup.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct VerifiedFiles {
    /// What is missing or damaged.
    pub problems: Vec<String>,
    /// The number of items in the tarball.
    pub items: u64,
}

/// The largest number of damaged entries of a tarball that are named.
const MAX_NAMED_ENTRIES: usize = 100;

/// Verifies the files of a backup. Damage is part of the result; only a store that does not answer is an error.
pub async fn verify_backup_files(store: &Store, backup: &str, task: &Task) -> Result<VerifiedFiles, Error> {
    let mut verified = VerifiedFiles::default();
    task.say("reading the metadata");
    if !verify_metadata(store, backup, &mut verified).await? {
        return Ok(verified);
    }
    for key in lists(backup) {
        verify_list::<IgnoredAny>(store, &key, &mut verified).await?;
    }
    let list = layout::backup_resource_list(backup);
    let listed = verify_list::<HashMap<String, Vec<IgnoredAny>>>(store, &list, &mut verified).await?;
    let listed = listed.map(|kinds| kinds.values().map(|items| items.len() as u64).sum());
    verify_tarball(store, backup, listed, &mut verified, task).await?;
    Ok(verified)
}

/// Reads a list. Velero and older versions do not write all of them.
async fn verify_list<T: DeserializeOwned>(
    store: &Store,
    key: &str,
    verified: &mut VerifiedFiles,
) -> Result<Option<T>, Error> {
    let packed = match store.get_at_most(key, codec::MAX_PACKED_METADATA_BYTES).await {
        Ok(packed) => packed,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let list = codec::stream_gzip_json(packed.as_ref());
    Ok(list.map_err(|error| verified.problems.push(format!("{key}: {error}"))).ok())
}

/// The list files that a restore reads, besides the resource list.
fn lists(backup: &str) -> [String; 6] {
    [
        layout::backup_pod_volume_backups(backup),
        layout::backup_volume_info(backup),
        layout::backup_volume_snapshots(backup),
        layout::backup_item_operations(backup),
        layout::backup_results(backup),
        layout::backup_volume_plugin_backups(backup),
    ]
}

/// Whether the metadata could be read. Without it, there is no backup.
async fn verify_metadata(store: &Store, backup: &str, verified: &mut VerifiedFiles) -> Result<bool, Error> {
    let key = layout::backup_metadata(backup);
    let problem = match store.get(&key).await {
        Ok(metadata) => match serde_json::from_slice::<Backup>(&metadata) {
            Ok(found) if found.metadata.name.as_deref() == Some(backup) => return Ok(true),
            Ok(found) => format!("{key}: it is the backup {:?}", found.metadata.name.unwrap_or_default()),
            Err(error) => format!("{key}: {error}"),
        },
        Err(error) if error.is_not_found() => format!("{key} is missing"),
        Err(error) => return Err(error.into()),
    };
    verified.problems.push(problem);
    Ok(false)
}

/// Reads every entry of the tarball, and compares their number with the resource list.
async fn verify_tarball(
    store: &Store,
    backup: &str,
    listed: Option<u64>,
    verified: &mut VerifiedFiles,
    task: &Task,
) -> Result<(), Error> {
    let key = layout::backup_contents(backup);
    let mut reader = match store.reader(&key).await {
        Ok(reader) => reader,
        Err(error) if error.is_not_found() => {
            verified.problems.push(format!("{key} is missing"));
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    task.say("reading the tarball");
    let bytes = task.meter(Unit::Bytes);
    bytes.set_total(Total::Growing(reader.info().size));
    let (chunks, input) = chunk_channel(bytes);
    let (results, read) = mpsc::channel();
    let reading = tokio::task::spawn_blocking(move || results.send(read_items(input)));
    while let Some(chunk) = reader.next().await {
        if chunks.send(chunk?).await.is_err() {
            break;
        }
    }
    drop(chunks);
    let _ = reading.await;
    let (items, problems) = read.recv().unwrap_or_else(|_| (0, vec!["it could not be read".to_owned()]));
    verified.items = items;
    verified.problems.extend(problems.into_iter().map(|problem| format!("{key}: {problem}")));
    if let Some(listed) = listed.filter(|listed| *listed > items) {
        let list = layout::backup_resource_list(backup);
        verified.problems.push(format!("{key}: it has {items} items, and {list} names {listed}"));
    }
    Ok(())
}

/// The number of items, and what is wrong. Blocks.
fn read_items(input: ChunkReader) -> (u64, Vec<String>) {
    let (mut archive, mut problems, mut more) = (Reader::new(input), Vec::new(), 0_u64);
    loop {
        match archive.next_item() {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) if error.is_entry_error() && problems.len() >= MAX_NAMED_ENTRIES => more += 1,
            Err(error) if error.is_entry_error() => problems.push(error.to_string()),
            Err(error) => {
                problems.push(error.to_string());
                break;
            }
        }
    }
    if more > 0 {
        problems.push(format!("{more} more damaged entries"));
    }
    (archive.counts().items, problems)
}
