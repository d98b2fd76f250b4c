//! First step: everything selected, in run order, on disk. Nothing is created before the whole archive has been read.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures::StreamExt;
use plimsoll_archive::spool::{Sealed, Spool};
use plimsoll_archive::tarball::{Item, Reader};
use plimsoll_progress::{Meter, Task, Total, Unit};
use plimsoll_store::Store;
use tokio::sync::mpsc;

use crate::Error;
use crate::outcome::{Recorder, Scope};
use crate::selection::Selecting;

/// What a restore will do.
pub struct RestorePlan {
    /// The selected objects, in run order.
    pub spool: Sealed,
    /// Objects of the backup that the filters left out.
    pub excluded: u64,
    /// Entries of the archive that are damaged, each of which is an error.
    pub damaged: u64,
}

impl RestorePlan {
    /// How many items the restore will settle.
    pub fn total(&self) -> u64 {
        self.spool.len() as u64 + self.damaged
    }
}

/// A spool may take this much of the scratch directory.
const SPOOL_LIMIT: u64 = 64 << 30;

/// Reads the archive at `key` once, from front to back.
///
/// # Cancel safety
/// Dropping the future ends the reading thread with its next read; the spool has no name and goes with it.
pub async fn plan(
    store: &Store,
    key: &str,
    selecting: Arc<Selecting>,
    scratch: &Path,
    recorder: Arc<Recorder>,
    task: &Task,
) -> Result<RestorePlan, Error> {
    let mut reader = store.reader(key).await?;
    let bytes = task.meter(Unit::Bytes);
    bytes.set_total(Total::Growing(reader.info().size));
    let (pieces, incoming) = mpsc::channel::<Bytes>(4);
    let (name, scratch) = (key.to_owned(), scratch.to_owned());
    let reading = tokio::task::spawn_blocking(move || {
        let collect = Collect { selecting: &selecting, recorder: &recorder, excluded: 0, damaged: 0 };
        collect.run(Pieces { incoming, current: Bytes::new(), bytes }, &scratch)
    });
    while let Some(piece) = reader.next().await {
        // After an error of the store the thread sees a truncated archive; the store knows better.
        if pieces.send(piece?).await.is_err() {
            break;
        }
    }
    drop(pieces);
    match reading.await {
        Ok(planned) => planned.map_err(|source| Error::Archive { name, source }),
        Err(panic) => Err(Error::scratch(name.as_ref(), io::Error::other(panic))),
    }
}

struct Collect<'a> {
    selecting: &'a Selecting,
    recorder: &'a Recorder,
    excluded: u64,
    damaged: u64,
}

impl Collect<'_> {
    fn run(mut self, input: Pieces, scratch: &Path) -> Result<RestorePlan, plimsoll_archive::Error> {
        let mut archive = Reader::new(input);
        let mut spool = Spool::create(scratch, SPOOL_LIMIT)?;
        loop {
            match archive.next_item() {
                Ok(Some(item)) => self.take(&item, &mut spool)?,
                Ok(None) => break,
                Err(error) if error.is_entry() => {
                    self.damaged += 1;
                    self.recorder.error(&Scope::Operation, error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        let spool = spool.seal(|group_resource| self.selecting.rank(group_resource))?;
        Ok(RestorePlan { spool, excluded: self.excluded, damaged: self.damaged })
    }

    fn take(&mut self, item: &Item, spool: &mut Spool) -> Result<(), plimsoll_archive::Error> {
        let labels = item.head.metadata.labels.as_ref();
        if self.selecting.restores(&item.group_resource, item.namespace.as_deref(), &item.name, labels) {
            return spool.append(&item.group_resource, item.namespace.as_deref(), &item.name, &item.json);
        }
        self.excluded += 1;
        Ok(())
    }
}

/// What arrives piece by piece, as something to read from.
struct Pieces {
    incoming: mpsc::Receiver<Bytes>,
    current: Bytes,
    bytes: Meter,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.incoming.blocking_recv() {
                Some(piece) => self.current = piece,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..length]);
        self.bytes.add(length as u64);
        Ok(length)
    }
}
