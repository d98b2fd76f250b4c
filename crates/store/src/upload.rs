//! Writing an object piece by piece: parts go out while the next ones are being filled.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, UploadPart};
use tokio_util::task::AbortOnDropHandle;

use crate::again::Course;
use crate::{Result, Store};

/// Providers refuse parts under 5 MiB, and more than 10,000 parts.
const FIRST_PART: usize = 5 * 1024 * 1024;
/// How many parts may be under way: with the one being filled this bounds the memory.
const PARTS_UNDER_WAY: usize = 4;

/// An object being written. Nothing is visible under its key before [`Upload::finish`] has succeeded; dropping it
/// aborts, as far as the runtime still runs.
pub struct Upload {
    store: Store,
    key: String,
    path: Path,
    /// What the next part has so far, as it came: nothing is copied together.
    filling: Vec<Bytes>,
    filled: usize,
    parts: usize,
    started: Option<Box<dyn MultipartUpload>>,
    under_way: FuturesUnordered<BoxFuture<'static, Result<()>>>,
    written: u64,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Upload").field("key", &self.key).field("written", &self.written).finish_non_exhaustive()
    }
}

impl Upload {
    pub(crate) fn new(store: Store, key: String, path: Path) -> Self {
        let (filling, under_way) = (Vec::new(), FuturesUnordered::new());
        Self { store, key, path, filling, filled: 0, parts: 0, started: None, under_way, written: 0 }
    }

    /// Bytes taken so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Appends bytes. Waits while enough parts are under way.
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

    /// Makes the object visible. A small one is a single request.
    pub async fn finish(mut self) -> Result<()> {
        if self.started.is_none() {
            let content = self.take_filling();
            return self.store.put_payload(&self.key, content).await;
        }
        if !self.filling.is_empty() {
            self.send_part().await?;
        }
        while let Some(done) = self.under_way.next().await {
            done?;
        }
        let Some(upload) = &mut self.started else { return Ok(()) };
        let done = upload.complete().await;
        done.map_err(|error| self.store.failed(&error, &self.key))?;
        self.started = None;
        Ok(())
    }

    /// Gives up and removes what was stored so far.
    pub async fn abort(mut self) -> Result<()> {
        self.under_way.clear();
        let Some(mut upload) = self.started.take() else { return Ok(()) };
        upload.abort().await.map_err(|error| self.store.failed(&error, &self.key))
    }

    async fn send_part(&mut self) -> Result<()> {
        while self.under_way.len() >= PARTS_UNDER_WAY {
            if let Some(done) = self.under_way.next().await {
                done?;
            }
        }
        let upload = match &mut self.started {
            Some(upload) => upload,
            none => none.insert(self.store.begin_parts(&self.path, &self.key).await?),
        };
        let payload = PutPayload::from_iter(std::mem::take(&mut self.filling));
        self.filled = 0;
        self.parts += 1;
        let part = upload.put_part(payload);
        self.under_way.push(self.spawned(part));
        Ok(())
    }

    /// A part must move while nobody polls it, because the caller is busy filling the next one.
    fn spawned(&self, part: UploadPart) -> BoxFuture<'static, Result<()>> {
        let (store, key, course) = (self.store.clone(), self.key.clone(), Arc::<Course>::default());
        let followed = course.clone();
        let task = AbortOnDropHandle::new(tokio::spawn(async move { followed.follow(part).await }));
        Box::pin(async move {
            let done = task.await.map_err(object_store::Error::from).flatten();
            done.map_err(|error| store.failed(&error, &key).after(course.tries()))
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
        self.under_way.clear();
        runtime.spawn(async move {
            if let Err(error) = upload.abort().await {
                tracing::warn!(%error, "an abandoned upload could not be aborted");
            }
        });
    }
}

/// Grows, so that 10,000 parts hold a third of a terabyte; equal for a long time, because some providers want that.
fn part_size(parts: usize) -> usize {
    match parts {
        0..4000 => FIRST_PART,
        4000..7000 => 4 * FIRST_PART,
        _ => 16 * FIRST_PART,
    }
}
