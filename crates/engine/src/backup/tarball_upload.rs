//! Writes items to the tarball and uploads it while items are still being read.
//!
//! ```text
//!  readers ──batches──▶ one thread: tar + gzip ──parts──▶ upload
//!           (bounded)                           (bounded)
//! ```
//! Both channels are bounded, so a slow location slows down the readers.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_archive::proof::FileDigest;
use plimsoll_archive::tarball;
use plimsoll_progress::{Meter, Task};
use plimsoll_store::Store;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::cluster::{ItemMeta, Resource, add_type_meta};
use crate::operation_files::complete_upload;
use crate::outcome::{ItemOutcome, ItemRef, Recorder};
use crate::ports::LeadershipGuard;
use crate::{Error, kill};

/// Selected items of one resource.
pub struct Batch {
    /// The resource.
    pub resource: Arc<Resource>,
    /// The items as the API server sent them or as actions changed them, with their metadata.
    pub items: Vec<(ItemMeta, Bytes)>,
}

/// Writes the tarball of a backup.
pub struct TarballUpload {
    /// The location.
    pub store: Store,
    /// Key of the tarball.
    pub key: String,
    /// Records each item.
    pub recorder: Arc<Recorder>,
    /// Counts items in the tarball.
    pub items: Meter,
    /// Counts uploaded bytes.
    pub bytes: Meter,
    /// Checked before every write.
    pub guard: Arc<dyn LeadershipGuard>,
    /// Shows that the store completes it.
    pub task: Task,
}

/// Size of a part: amortises a request, and a few fit into memory.
const PART_BYTES: usize = 1 << 20;

impl TarballUpload {
    /// Writes batches until the channel closes. The object is visible only after this returns its digest.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the upload; the thread ends at its next send.
    pub async fn run(self, batches: mpsc::Receiver<Batch>) -> Result<FileDigest, Error> {
        let Self { store, key, recorder, items, bytes, guard, task } = self;
        let (parts, mut outgoing) = mpsc::channel::<Bytes>(2);
        let (name, contents) = (key.clone(), key.clone());
        let writing =
            tokio::task::spawn_blocking(move || write_items(batches, PartWriter::new(parts), &recorder, &items));
        let mut upload = store.upload(&key).await?;
        while let Some(part) = outgoing.recv().await {
            guard.check_effect()?;
            let size = part.len() as u64;
            kill::point("backup.part.before");
            upload.write(part).await?;
            kill::point("backup.part.after");
            bytes.add(size);
        }
        let digest = match writing.await {
            Ok(written) => written.map_err(|source| Error::Archive { name, source })?,
            Err(panic) => return Err(Error::scratch(name.as_ref(), io::Error::other(panic))),
        };
        guard.check_effect()?;
        kill::point("backup.tarball.before");
        complete_upload(upload, &contents, &task).await?;
        kill::point("backup.tarball.after");
        Ok(digest)
    }
}

fn write_items(
    mut batches: mpsc::Receiver<Batch>,
    out: PartWriter,
    recorder: &Recorder,
    items: &Meter,
) -> Result<FileDigest, plimsoll_archive::Error> {
    let mut archive = tarball::Writer::new(out)?;
    while let Some(batch) = batches.blocking_recv() {
        for (meta, object) in &batch.items {
            write_item(&mut archive, &batch.resource, meta, object)?;
            recorder.item(&item_ref(&batch.resource, meta), &ItemOutcome::BackedUp);
            items.add(1);
        }
    }
    let mut out = archive.finish()?;
    out.flush()?;
    Ok(out.digest.finalize().into())
}

fn write_item(
    archive: &mut tarball::Writer<PartWriter>,
    resource: &Resource,
    meta: &ItemMeta,
    object: &Bytes,
) -> Result<(), plimsoll_archive::Error> {
    // Not earlier: this copies the item, and a page would be in memory twice.
    let object = add_type_meta(object, resource);
    archive.append_object(&resource.group_resource(), &resource.version, meta.namespace.as_deref(), &meta.name, &object)
}

/// The reference of an item in outcomes and lists.
pub fn item_ref(resource: &Resource, meta: &ItemMeta) -> ItemRef {
    ItemRef { kind: resource.list_key(), namespace: meta.namespace.clone(), name: meta.name.clone() }
}

/// Sends written data to the upload, in parts.
struct PartWriter {
    parts: mpsc::Sender<Bytes>,
    buffer: Vec<u8>,
    digest: Sha256,
}

impl PartWriter {
    fn new(parts: mpsc::Sender<Bytes>) -> Self {
        Self { parts, buffer: Vec::with_capacity(PART_BYTES), digest: Sha256::new() }
    }

    fn send(&mut self) -> io::Result<()> {
        let part = std::mem::replace(&mut self.buffer, Vec::with_capacity(PART_BYTES));
        self.digest.update(&part);
        self.parts.blocking_send(part.into()).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

impl Write for PartWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(data);
        if self.buffer.len() >= PART_BYTES {
            self.send()?;
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() { Ok(()) } else { self.send() }
    }
}
