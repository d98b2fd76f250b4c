//! Streamed reads of an object.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetResult, GetResultPayload};
use tokio::io::AsyncRead;
use tokio_util::io::{ReaderStream, StreamReader};

use crate::transfer_attempts::TransferAttempts;
use crate::{ObjectInfo, Result, Store, StoreError};

/// A file is read in chunks of this size: the provider's own are 8 KiB, which costs a thread hop each.
const FILE_CHUNK_SIZE: usize = 256 * 1024;

/// An object being read: a stream of its bytes.
pub struct Reader {
    info: ObjectInfo,
    chunks: BoxStream<'static, Result<Bytes>>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Reader").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Reader {
    pub(crate) fn new(
        result: GetResult,
        info: ObjectInfo,
        store: Store,
        key: &str,
        transfer: Arc<TransferAttempts>,
    ) -> Self {
        let key = key.to_owned();
        let GetResult { payload, meta, .. } = result;
        let chunks = match payload {
            GetResultPayload::File(file, _) => {
                ReaderStream::with_capacity(tokio::fs::File::from_std(file), FILE_CHUNK_SIZE)
                    .map(move |chunk| chunk.map_err(|error| StoreError::from_io(&error, &key, store.name())))
                    .boxed()
            }
            GetResultPayload::Stream(chunks) => {
                let (path, version, size) = (meta.location, meta.e_tag, meta.size);
                let remaining =
                    RemainingObject { store, key, path, version, offset: 0, size, chunks: Some(chunks), transfer };
                stream::try_unfold(remaining, RemainingObject::next).boxed()
            }
        };
        Self { info, chunks }
    }

    /// Size and time of the object being read.
    pub fn info(&self) -> &ObjectInfo {
        &self.info
    }

    /// Converts into an `AsyncRead`. Errors are wrapped and keep their text.
    pub fn into_async_read(self) -> impl AsyncRead + Send + Unpin + 'static {
        StreamReader::new(self.chunks.map(|chunk| chunk.map_err(std::io::Error::other)))
    }
}

impl Stream for Reader {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.chunks.as_mut().poll_next(context)
    }
}

/// The rest of an object. A lost connection resumes at the current offset.
struct RemainingObject {
    store: Store,
    key: String,
    path: Path,
    /// The ETag. Without it a resumed read might continue a different object.
    version: Option<String>,
    offset: u64,
    size: u64,
    /// `None` after the stream failed.
    chunks: Option<BoxStream<'static, object_store::Result<Bytes>>>,
    transfer: Arc<TransferAttempts>,
}

impl RemainingObject {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>> {
        let transfer = self.transfer.clone();
        loop {
            match transfer.scope(self.read_chunk()).await {
                Ok(chunk) => return Ok(chunk.map(|chunk| (chunk, self))),
                Err(_) if self.version.is_some() && transfer.pause_before_retry(self.store.tuning()).await => {}
                Err(error) => {
                    return Err(self.store.error_for(&error, &self.key).after_attempts(transfer.failed_attempts()));
                }
            }
        }
    }

    async fn read_chunk(&mut self) -> object_store::Result<Option<Bytes>> {
        let mut chunks = match self.chunks.take() {
            Some(chunks) => chunks,
            None if self.offset == self.size => return Ok(None),
            None => self.resume().await?,
        };
        let chunk = chunks.try_next().await?;
        if let Some(chunk) = &chunk {
            self.offset += chunk.len() as u64;
            self.transfer.reset();
        }
        self.chunks = Some(chunks);
        Ok(chunk)
    }

    async fn resume(&mut self) -> object_store::Result<BoxStream<'static, object_store::Result<Bytes>>> {
        let options = GetOptions::new().with_range(Some(self.offset..self.size)).with_if_match(self.version.clone());
        match self.store.objects().get_opts(&self.path, options).await {
            Err(object_store::Error::Precondition { .. }) => {
                let source = "the object was replaced while it was read".into();
                Err(object_store::Error::Generic { store: "reader", source })
            }
            result => Ok(result?.into_stream()),
        }
    }
}
