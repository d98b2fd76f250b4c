//! Reading an object piece by piece.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetResult, GetResultPayload};
use tokio::io::AsyncRead;
use tokio_util::io::{ReaderStream, StreamReader};

use crate::again::Course;
use crate::{ObjectInfo, Result, Store, StoreError};

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
    pub(crate) fn new(result: GetResult, info: ObjectInfo, store: Store, key: &str, course: Arc<Course>) -> Self {
        let key = key.to_owned();
        let GetResult { payload, meta, .. } = result;
        let pieces = match payload {
            GetResultPayload::File(file, _) => ReaderStream::with_capacity(tokio::fs::File::from_std(file), FILE_PIECE)
                .map(move |piece| piece.map_err(|error| StoreError::from_io(&error, &key, store.name())))
                .boxed(),
            GetResultPayload::Stream(pieces) => {
                let (path, version, size) = (meta.location, meta.e_tag, meta.size);
                let rest = Rest { store, key, path, version, at: 0, size, pieces: Some(pieces), course };
                stream::try_unfold(rest, Rest::next).boxed()
            }
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

/// What is still to come of an object. A line that breaks costs nothing that has come before.
struct Rest {
    store: Store,
    key: String,
    path: Path,
    /// Without this nobody knows whether what follows belongs to what has come.
    version: Option<String>,
    at: u64,
    size: u64,
    /// Nothing once they broke off.
    pieces: Option<BoxStream<'static, object_store::Result<Bytes>>>,
    course: Arc<Course>,
}

impl Rest {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>> {
        let course = self.course.clone();
        loop {
            match course.follow(self.step()).await {
                Ok(piece) => return Ok(piece.map(|piece| (piece, self))),
                Err(_) if self.version.is_some() && course.goes_on(self.store.tuning()).await => {}
                Err(error) => return Err(self.store.failed(&error, &self.key).after(course.tries())),
            }
        }
    }

    async fn step(&mut self) -> object_store::Result<Option<Bytes>> {
        let mut pieces = match self.pieces.take() {
            Some(pieces) => pieces,
            None if self.at == self.size => return Ok(None),
            None => self.ask_again().await?,
        };
        let piece = pieces.try_next().await?;
        if let Some(piece) = &piece {
            self.at += piece.len() as u64;
            self.course.keep();
        }
        self.pieces = Some(pieces);
        Ok(piece)
    }

    async fn ask_again(&mut self) -> object_store::Result<BoxStream<'static, object_store::Result<Bytes>>> {
        let options = GetOptions::new().with_range(Some(self.at..self.size)).with_if_match(self.version.clone());
        match self.store.objects().get_opts(&self.path, options).await {
            Err(object_store::Error::Precondition { .. }) => {
                let source = "the line broke, and the object was replaced meanwhile".into();
                Err(object_store::Error::Generic { store: "rest", source })
            }
            answer => Ok(answer?.into_stream()),
        }
    }
}
