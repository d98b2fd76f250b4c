//! Streamed uploads: parts are sent while the next ones are filled.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, UploadPart};
use tokio_util::task::AbortOnDropHandle;

use crate::transfer_attempts::TransferAttempts;
use crate::{Result, Store};

/// Providers refuse parts under 5 MiB, and more than 10,000 parts.
const MIN_PART_SIZE: usize = 5 * 1024 * 1024;
/// With the part being filled this bounds the memory of an upload.
const MAX_PARTS_IN_FLIGHT: usize = 4;

/// An object being written. Nothing is visible under its key before [`Upload::finish`] has succeeded; dropping it
/// aborts, as far as the runtime still runs.
pub struct Upload {
    store: Store,
    key: String,
    path: Path,
    /// The content of the next part, as it was written: nothing is copied.
    filling: Vec<Bytes>,
    filled: usize,
    parts: usize,
    started: Option<Box<dyn MultipartUpload>>,
    in_flight: FuturesUnordered<BoxFuture<'static, Result<()>>>,
    written: u64,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Upload").field("key", &self.key).field("written", &self.written).finish_non_exhaustive()
    }
}

impl Upload {
    pub(crate) fn new(store: Store, key: String, path: Path) -> Self {
        let (filling, in_flight) = (Vec::new(), FuturesUnordered::new());
        Self { store, key, path, filling, filled: 0, parts: 0, started: None, in_flight, written: 0 }
    }

    /// Bytes accepted so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Appends bytes. Waits while the maximum number of parts is in flight.
    pub async fn write(&mut self, mut content: Bytes) -> Result<()> {
        self.written += content.len() as u64;
        while !content.is_empty() {
            let piece = content.split_to((part_size(self.parts) - self.filled).min(content.len()));
            self.filled += piece.len();
            self.filling.push(piece);
            if self.filled == part_size(self.parts) {
                self.send_part().await?;
            }
        }
        Ok(())
    }

    /// Sends what is left of a large object: what [`Upload::finish`] then waits for is the completion alone.
    pub async fn flush(&mut self) -> Result<()> {
        if self.started.is_none() {
            return Ok(());
        }
        if !self.filling.is_empty() {
            self.send_part().await?;
        }
        while let Some(done) = self.in_flight.next().await {
            done?;
        }
        Ok(())
    }

    /// Makes the object visible. A small one is a single request.
    pub async fn finish(mut self) -> Result<()> {
        if self.started.is_none() {
            let content = self.take_filling();
            return self.store.put_payload(&self.key, content).await;
        }
        self.flush().await?;
        let Some(upload) = &mut self.started else { return Ok(()) };
        let done = upload.complete().await;
        done.map_err(|error| self.store.error_for(&error, &self.key))?;
        self.started = None;
        Ok(())
    }

    /// Aborts the upload and removes the parts that were stored.
    pub async fn abort(mut self) -> Result<()> {
        self.in_flight.clear();
        let Some(mut upload) = self.started.take() else { return Ok(()) };
        upload.abort().await.map_err(|error| self.store.error_for(&error, &self.key))
    }

    async fn send_part(&mut self) -> Result<()> {
        while self.in_flight.len() >= MAX_PARTS_IN_FLIGHT {
            if let Some(done) = self.in_flight.next().await {
                done?;
            }
        }
        let upload = match &mut self.started {
            Some(upload) => upload,
            none => none.insert(self.store.create_multipart(&self.path, &self.key).await?),
        };
        let payload = PutPayload::from_iter(std::mem::take(&mut self.filling));
        self.filled = 0;
        self.parts += 1;
        let part = upload.put_part(payload);
        self.in_flight.push(self.spawn_part(part));
        Ok(())
    }

    /// Spawns a part, so that it makes progress while the caller fills the next one.
    fn spawn_part(&self, part: UploadPart) -> BoxFuture<'static, Result<()>> {
        let (store, key, transfer) = (self.store.clone(), self.key.clone(), Arc::<TransferAttempts>::default());
        let attempts = transfer.clone();
        let task = AbortOnDropHandle::new(tokio::spawn(async move { attempts.scope(part).await }));
        Box::pin(async move {
            let done = task.await.map_err(object_store::Error::from).flatten();
            done.map_err(|error| store.error_for(&error, &key).after_attempts(transfer.failed_attempts()))
        })
    }

    fn take_filling(&mut self) -> PutPayload {
        self.filled = 0;
        PutPayload::from_iter(std::mem::take(&mut self.filling))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let (Some(mut upload), Ok(runtime)) = (self.started.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        self.in_flight.clear();
        runtime.spawn(async move {
            if let Err(error) = upload.abort().await {
                tracing::warn!(%error, "failed to abort a dropped upload");
            }
        });
    }
}

/// Grows in two steps, so that 10,000 parts hold a third of a terabyte: some providers require parts of equal size.
fn part_size(parts: usize) -> usize {
    match parts {
        0..4000 => MIN_PART_SIZE,
        4000..7000 => 4 * MIN_PART_SIZE,
        _ => 16 * MIN_PART_SIZE,
    }
}
