//! Reading an object piece by piece.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt};
use object_store::{GetResult, GetResultPayload};
use tokio::io::AsyncRead;
use tokio_util::io::{ReaderStream, StreamReader};

use crate::{ObjectInfo, Result, StoreError};

/// A file is read in pieces of this size: the provider's own are 8 KiB, which costs a thread hop each.
const FILE_PIECE: usize = 256 * 1024;

/// An object being read: a stream of its bytes.
pub struct Reader {
    info: ObjectInfo,
    pieces: BoxStream<'static, Result<Bytes>>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Reader").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Reader {
    pub(crate) fn new(result: GetResult, info: ObjectInfo, key: &str, location: String) -> Self {
        let key = key.to_owned();
        let pieces = match result.payload {
            GetResultPayload::File(file, _) => ReaderStream::with_capacity(tokio::fs::File::from_std(file), FILE_PIECE)
                .map(move |piece| piece.map_err(|error| StoreError::from_io(&error, &key, &location)))
                .boxed(),
            GetResultPayload::Stream(stream) => stream
                .map(move |piece| piece.map_err(|error| StoreError::from_provider(&error, &key, &location)))
                .boxed(),
        };
        Self { info, pieces }
    }

    /// Size and time of the object being read.
    pub fn info(&self) -> &ObjectInfo {
        &self.info
    }

    /// The same bytes as an `AsyncRead`; errors are wrapped and keep their text.
    pub fn into_async_read(self) -> impl AsyncRead + Send + Unpin + 'static {
        StreamReader::new(self.pieces.map(|piece| piece.map_err(std::io::Error::other)))
    }
}

impl Stream for Reader {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pieces.as_mut().poll_next(context)
    }
}
