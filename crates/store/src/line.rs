//! The line to a store: an HTTP client that says when bytes of a request's body have gone out.
//!
//! A body goes out in pieces. The client takes the next one when the connection has room for it, so each that is taken is a
//! sign that earlier ones have moved; only what the buffers on this machine hold is not on the line yet.

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

use crate::watch::Observers;

/// Small enough that a slow line takes several in a minute, large enough that a fast one does not notice.
const PIECE: usize = 128 * 1024;
/// What connections hold back at most before it is on the line: the client's own buffer and the system's.
pub(crate) const BUFFERED: usize = 4 * 1024 * 1024;

/// How a line is made.
#[derive(Clone, Debug)]
pub(crate) struct LineOptions {
    pub connect: Duration,
    pub certificates: Vec<reqwest::Certificate>,
    pub skip_tls_verify: bool,
}

/// Connections to a store. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Line(reqwest::Client);

impl Line {
    /// HTTP/1 only, as `object_store` has found it faster; and nothing is decompressed, because sizes are compared.
    pub(crate) fn new(options: &LineOptions) -> reqwest::Result<Self> {
        let builder = reqwest::Client::builder()
            .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(options.connect)
            .tls_certs_merge(options.certificates.iter().cloned())
            .tls_danger_accept_invalid_certs(options.skip_tls_verify)
            .dns_resolver(Arc::new(AnyAddress))
            .http1_only()
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate();
        builder.build().map(Self)
    }

    /// Sends a request and waits for the beginning of its answer. `sending` is told how its body goes out.
    pub(crate) async fn send(&self, request: HttpRequest, sending: Arc<Sending>) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let url =
            parts.uri.to_string().parse().map_err(|error| HttpError::new(HttpErrorKind::Unknown, BadUrl(error)))?;
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        *request.body_mut() = Some(match body.as_bytes().filter(|content| content.len() <= PIECE) {
            Some(content) => content.clone().into(),
            None => reqwest::Body::wrap(Pieces::new(body, sending)),
        });
        let answer = self.0.execute(request).await.map_err(failure)?;
        let (parts, body) = http::Response::<reqwest::Body>::from(answer).into_parts();
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body.map_err(failure))))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the address of a request is none: {0}")]
struct BadUrl(url::ParseError);

/// How far the body of a request is.
#[derive(Debug)]
pub(crate) struct Sending {
    observers: Arc<Observers>,
    left: AtomicUsize,
    moved: Mutex<Instant>,
}

impl Sending {
    pub(crate) fn new(length: usize, observers: Arc<Observers>) -> Arc<Self> {
        let (left, moved) = (AtomicUsize::new(length), Mutex::new(Instant::now()));
        Arc::new(Self { observers, left, moved })
    }

    /// What the client has not taken yet.
    pub(crate) fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    /// When it last took something.
    pub(crate) fn moved(&self) -> Instant {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn took(&self, bytes: usize) {
        self.left.fetch_sub(bytes, Ordering::Relaxed);
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.observers.moved();
    }
}

/// The body of a request, piece by piece.
pub(crate) struct Pieces {
    body: HttpRequestBody,
    rest: Bytes,
    sending: Arc<Sending>,
}

impl Pieces {
    pub(crate) fn new(body: HttpRequestBody, sending: Arc<Sending>) -> Self {
        Self { body, rest: Bytes::new(), sending }
    }
}

impl Body for Pieces {
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
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        self.sending.took(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.sending.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.sending.left() as u64)
    }
}

/// What went wrong, as far as a retry depends on it.
fn failure(error: reqwest::Error) -> HttpError {
    let kind = match &error {
        error if error.is_timeout() => HttpErrorKind::Timeout,
        error if error.is_connect() => HttpErrorKind::Connect,
        error if error.is_decode() => HttpErrorKind::Decode,
        error => causes(error).find_map(kind_of).unwrap_or(HttpErrorKind::Unknown),
    };
    HttpError::new(kind, error.without_url())
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| {
        let cause: &'e (dyn Error + 'static) = *cause;
        cause.source()
    })
}

fn kind_of(cause: &(dyn Error + 'static)) -> Option<HttpErrorKind> {
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

/// Begins with any of a name's addresses: a large store has many, and each gives only so much.
struct AnyAddress;

impl Resolve for AnyAddress {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let mut found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let first = usize::from(uuid::Uuid::new_v4().as_bytes()[0]) % found.len().max(1);
            found.rotate_left(first);
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
