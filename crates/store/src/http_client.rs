//! The HTTP client of a store. It reports when bytes of a request body have been sent.
//!
//! A body is sent in chunks. The client polls the next chunk when the connection has room for it, so each poll shows that
//! earlier chunks have last_progress. Only the content of local buffers has not been sent yet.

use std::error::Error;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::time::Instant;

use crate::transfer_attempts::TransferAttempts;
use crate::watchdog::Observers;

/// Small enough that a slow connection sends several in a minute, large enough to cost nothing on a fast one.
const CHUNK_SIZE: usize = 128 * 1024;
/// The most bytes that local buffers hold: the client's and the system's.
pub(crate) const MAX_BUFFERED: usize = 4 * 1024 * 1024;

/// The settings of a [`StoreHttpClient`].
#[derive(Clone, Debug)]
pub(crate) struct HttpClientOptions {
    pub connect_timeout: Duration,
    pub certificates: Vec<reqwest::Certificate>,
    pub skip_tls_verify: bool,
}

/// Connections to a store. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct StoreHttpClient(reqwest::Client);

impl StoreHttpClient {
    /// HTTP/1 only, which `object_store` addresses to be faster. Nothing is decompressed, because sizes are compared.
    pub(crate) fn new(options: &HttpClientOptions) -> reqwest::Result<Self> {
        let builder = reqwest::Client::builder()
            .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(options.connect_timeout)
            .tls_certs_merge(options.certificates.iter().cloned())
            .tls_danger_accept_invalid_certs(options.skip_tls_verify)
            .dns_resolver(Arc::new(RandomAddressResolver))
            .http1_only()
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate();
        builder.build().map(Self)
    }

    /// Sends a request and waits for the head of its response. Updates `progress` while the body is sent.
    pub(crate) async fn send(
        &self,
        request: HttpRequest,
        progress: Arc<BodyProgress>,
    ) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let url =
            parts.uri.to_string().parse().map_err(|error| HttpError::new(HttpErrorKind::Unknown, InvalidUrl(error)))?;
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        *request.body_mut() = Some(match body.as_bytes().filter(|content| content.len() <= CHUNK_SIZE) {
            Some(content) => content.clone().into(),
            None => reqwest::Body::wrap(ChunkedBody::new(body, progress)),
        });
        let response = self.0.execute(request).await.map_err(to_http_error)?;
        let (parts, body) = http::Response::<reqwest::Body>::from(response).into_parts();
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body.map_err(to_http_error))))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("invalid request URL: {0}")]
struct InvalidUrl(url::ParseError);

/// The progress of sending a request body.
#[derive(Debug)]
pub(crate) struct BodyProgress {
    observers: Arc<Observers>,
    transfer: Arc<TransferAttempts>,
    remaining: AtomicUsize,
    last_progress: Mutex<Instant>,
}

impl BodyProgress {
    pub(crate) fn new(length: usize, observers: Arc<Observers>, transfer: Arc<TransferAttempts>) -> Arc<Self> {
        let (remaining, last_progress) = (AtomicUsize::new(length), Mutex::new(Instant::now()));
        Arc::new(Self { observers, transfer, remaining, last_progress })
    }

    /// Bytes that the client has not polled yet.
    pub(crate) fn remaining(&self) -> usize {
        self.remaining.load(Ordering::Relaxed)
    }

    /// When the client last polled a chunk.
    pub(crate) fn last_progress(&self) -> Instant {
        *self.last_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_chunk(&self, bytes: usize) {
        self.remaining.fetch_sub(bytes, Ordering::Relaxed);
        *self.last_progress.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.observers.notify_bytes(self.transfer.record_sent(bytes as u64));
    }
}

/// A request body in chunks of at most [`CHUNK_SIZE`].
pub(crate) struct ChunkedBody {
    body: HttpRequestBody,
    rest: Bytes,
    progress: Arc<BodyProgress>,
}

impl ChunkedBody {
    pub(crate) fn new(body: HttpRequestBody, progress: Arc<BodyProgress>) -> Self {
        Self { body, rest: Bytes::new(), progress }
    }
}

impl Body for ChunkedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        while self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => self.rest = frame.into_data().unwrap_or_default(),
                other => return other,
            }
        }
        let length = self.rest.len().min(CHUNK_SIZE);
        let chunk = self.rest.split_to(length);
        self.progress.record_chunk(length);
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.progress.remaining() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.progress.remaining() as u64)
    }
}

/// Classifies an error for the retries.
fn to_http_error(error: reqwest::Error) -> HttpError {
    let kind = match &error {
        error if error.is_timeout() => HttpErrorKind::Timeout,
        error if error.is_connect() => HttpErrorKind::Connect,
        error if error.is_decode() => HttpErrorKind::Decode,
        error => causes(error).find_map(http_error_kind).unwrap_or(HttpErrorKind::Unknown),
    };
    HttpError::new(kind, error.without_url())
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| {
        let cause: &'e (dyn Error + 'static) = *cause;
        cause.source()
    })
}

fn http_error_kind(cause: &(dyn Error + 'static)) -> Option<HttpErrorKind> {
    if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        return match error {
            error if error.is_closed() || error.is_incomplete_message() || error.is_body_write_aborted() => {
                Some(HttpErrorKind::Request)
            }
            error if error.is_timeout() => Some(HttpErrorKind::Timeout),
            _ => None,
        };
    }
    match cause.downcast_ref::<std::io::Error>()?.kind() {
        ErrorKind::TimedOut => Some(HttpErrorKind::Timeout),
        ErrorKind::ConnectionAborted
        | ErrorKind::ConnectionReset
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof => Some(HttpErrorKind::Interrupted),
        _ => None,
    }
}

/// Starts with a random address of a name: a large store has many, and each has limited bandwidth.
struct RandomAddressResolver;

impl Resolve for RandomAddressResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let mut addresses: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let first = usize::from(uuid::Uuid::new_v4().as_bytes()[0]) % addresses.len().max(1);
            addresses.rotate_left(first);
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
