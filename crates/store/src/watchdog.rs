//! The idle watchdog: cancels every HTTP request that moves no bytes.
//!
//! Every chunk of a request body and of a response body may take `idle_timeout`. The response starts after the last byte of the
//! request body has arrived: the content of local buffers gets extra time at [`MIN_UPLOAD_RATE`].

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http_body::Frame;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    ReqwestConnector,
};
use object_store::{ClientConfigKey, ClientOptions};
use tokio::time::Instant;

use crate::http_client::{BodyProgress, MAX_BUFFERED, StoreHttpClient};
use crate::transfer_attempts::TransferAttempts;

/// Bytes per second. Buffers that drain more slowly count as idle.
const MIN_UPLOAD_RATE: u64 = 64 * 1024;

/// A wait of a store for its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Why the store waits. Contains the store's name and no credentials.
    pub reason: String,
}

/// Receives the waits of a store. Called from within requests: it must not block.
pub trait Observer: Send + Sync {
    /// The store waits and will retry.
    fn on_wait(&self, wait: &Wait);
    /// Bytes move again.
    fn on_resume(&self) {}
    /// Bytes were sent or received. `new` of them are of use: neither sent again nor the text of an error. Called very often.
    fn on_bytes(&self, new: u64) {
        let _ = new;
    }
}

impl<F: Fn(&Wait) + Send + Sync> Observer for F {
    fn on_wait(&self, wait: &Wait) {
        self(wait);
    }
}

/// Keeps an observer registered until it is dropped.
pub struct ObserverGuard {
    _observer: Arc<dyn Observer>,
}

impl fmt::Debug for ObserverGuard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ObserverGuard")
    }
}

/// The observers of a store and its clones.
#[derive(Default)]
pub(crate) struct Observers {
    registered: Mutex<Vec<Weak<dyn Observer>>>,
    waiting: std::sync::atomic::AtomicBool,
}

impl fmt::Debug for Observers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Observers")
    }
}

impl Observers {
    pub(crate) fn add(&self, observer: Arc<dyn Observer>) -> ObserverGuard {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        registered.retain(|observer| observer.strong_count() > 0);
        registered.push(Arc::downgrade(&observer));
        ObserverGuard { _observer: observer }
    }

    pub(crate) fn notify_wait(&self, reason: String) {
        tracing::debug!(reason, "store is waiting");
        self.waiting.store(true, std::sync::atomic::Ordering::Relaxed);
        let wait = Wait { reason };
        self.notify_each(|observer| observer.on_wait(&wait));
    }

    fn notify_resume(&self) {
        if self.waiting.swap(false, std::sync::atomic::Ordering::Relaxed) {
            self.notify_each(|observer| observer.on_resume());
        }
    }

    pub(crate) fn notify_bytes(&self, new: u64) {
        self.notify_each(|observer| observer.on_bytes(new));
    }

    fn notify_each(&self, notify: impl Fn(&dyn Observer)) {
        let registered: Vec<_> = {
            let guard = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
            guard.iter().filter_map(Weak::upgrade).collect()
        };
        for observer in &registered {
            notify(observer.as_ref());
        }
    }
}

/// Creates HTTP clients with a watchdog.
#[derive(Debug)]
pub(crate) struct WatchedConnector {
    pub name: String,
    pub idle_timeout: Duration,
    pub observers: Arc<Observers>,
    pub client: StoreHttpClient,
    /// The options that `client` was built with.
    pub options: ClientOptions,
}

impl HttpConnector for WatchedConnector {
    /// Requests to an instance metadata service have other limits and get a default client.
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let limits = |options: &ClientOptions| {
            [ClientConfigKey::ConnectTimeout, ClientConfigKey::Timeout].map(|limit| options.get_config_value(&limit))
        };
        let inner = if limits(options) == limits(&self.options) {
            InnerClient::Store(self.client.clone())
        } else {
            InnerClient::Default(ReqwestConnector::default().connect(options)?)
        };
        let watchdog =
            Watchdog { name: self.name.clone(), idle_timeout: self.idle_timeout, observers: self.observers.clone() };
        Ok(HttpClient::new(WatchedService { inner, watchdog }))
    }
}

#[derive(Debug)]
struct WatchedService {
    inner: InnerClient,
    watchdog: Watchdog,
}

#[derive(Debug)]
enum InnerClient {
    Store(StoreHttpClient),
    Default(HttpClient),
}

impl InnerClient {
    async fn send(&self, request: HttpRequest, progress: Arc<BodyProgress>) -> Result<HttpResponse, HttpError> {
        match self {
            Self::Store(client) => client.send(request, progress).await,
            Self::Default(client) => client.execute(request).await,
        }
    }
}

#[derive(Clone, Debug)]
struct Watchdog {
    name: String,
    idle_timeout: Duration,
    observers: Arc<Observers>,
}

#[derive(Debug, thiserror::Error)]
#[error("no bytes moved for {0:?}")]
struct IdleTimeout(Duration);

impl Watchdog {
    /// Waits for the head of a response while bytes of the request move.
    async fn watch<T>(&self, response: impl Future<Output = T>, progress: &BodyProgress) -> Result<T, HttpError> {
        let body_length = progress.remaining();
        let mut response = std::pin::pin!(response);
        let limit = || if progress.remaining() == 0 { self.response_timeout(body_length) } else { self.idle_timeout };
        loop {
            let deadline = progress.last_progress() + limit();
            match tokio::time::timeout_at(deadline, &mut response).await {
                Ok(response) => return Ok(response),
                // Bytes moved before the deadline.
                Err(_) if progress.last_progress() + limit() > deadline => {}
                Err(_) => return Err(self.time_out(limit())),
            }
        }
    }

    /// The time limit for a response after the last chunk of a body of this length was polled.
    fn response_timeout(&self, body: usize) -> Duration {
        self.idle_timeout + Duration::from_secs(body.min(MAX_BUFFERED) as u64 / MIN_UPLOAD_RATE)
    }

    fn time_out(&self, limit: Duration) -> HttpError {
        self.observers.notify_wait(format!("no bytes moved to or from {} for {limit:?}; retrying", self.name));
        HttpError::new(HttpErrorKind::Timeout, IdleTimeout(limit))
    }

    fn report(&self, response: &Result<HttpResponse, HttpError>) {
        match response {
            Ok(response) if response.status().is_server_error() || response.status().as_u16() == 429 => {
                self.observers.notify_wait(format!("{} returned {}; retrying", self.name, response.status()));
            }
            Ok(_) => self.observers.notify_resume(),
            Err(error) if matches!(error.kind(), HttpErrorKind::Connect) => {
                self.observers.notify_wait(format!("{} is unreachable; retrying", self.name));
            }
            Err(_) => self.observers.notify_wait(format!("connection to {} lost; retrying", self.name)),
        }
    }
}

#[async_trait::async_trait]
impl HttpService for WatchedService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let transfer = TransferAttempts::current();
        transfer.begin_attempt();
        let progress =
            BodyProgress::new(request.body().content_length(), self.watchdog.observers.clone(), transfer.clone());
        let response = self.inner.send(request, progress.clone());
        let response = self.watchdog.watch(response, &progress).await;
        let response = response.inspect(|response| self.watchdog.report(response)).flatten();
        transfer.record_progress(progress.last_progress());
        transfer.record_response(&response);
        let (parts, body) = response?.into_parts();
        let is_content = parts.status.is_success();
        let chunks = watch_body(body, self.watchdog.clone(), transfer, is_content);
        let body = HttpResponseBody::new(WatchedBody(Mutex::new(chunks)));
        Ok(HttpResponse::from_parts(parts, body))
    }
}

/// The chunks of a response body. The lock is never contended: the client requires a type that is `Sync`.
struct WatchedBody(Mutex<FrameStream>);

type FrameStream = BoxStream<'static, Result<Frame<Bytes>, HttpError>>;

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).poll_next_unpin(context)
    }
}

fn watch_body(
    body: HttpResponseBody,
    watchdog: Watchdog,
    transfer: Arc<TransferAttempts>,
    is_content: bool,
) -> FrameStream {
    let chunks = body.bytes_stream();
    stream::unfold(Some((chunks, watchdog, transfer)), move |state| async move {
        let (mut chunks, watchdog, transfer) = state?;
        // The time until the next poll is the caller's, not the store's.
        transfer.record_progress(Instant::now());
        let chunk = match tokio::time::timeout(watchdog.idle_timeout, chunks.next()).await {
            Ok(chunk) => chunk?,
            Err(_) => Err(watchdog.time_out(watchdog.idle_timeout)),
        };
        match chunk {
            Ok(chunk) => {
                watchdog.observers.notify_resume();
                watchdog.observers.notify_bytes(if is_content { chunk.len() as u64 } else { 0 });
                Some((Ok(Frame::data(chunk)), Some((chunks, watchdog, transfer))))
            }
            Err(error) => {
                transfer.record_failure(true);
                Some((Err(error), None))
            }
        }
    })
    // A body may be polled again after its end.
    .fuse()
    .boxed()
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use object_store::client::HttpRequestBody;

    use super::*;
    use crate::http_client::ChunkedBody;

    const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

    fn watchdog() -> (Watchdog, Arc<Observers>) {
        let observers = Arc::<Observers>::default();
        (Watchdog { name: "s3://b".into(), idle_timeout: IDLE_TIMEOUT, observers: observers.clone() }, observers)
    }

    /// Sends a body over a connection that accepts a chunk every `pace`, `max_chunks` in all. The server responds afterwards if
    /// `responds` is set.
    async fn send(
        length: usize,
        pace: Duration,
        max_chunks: usize,
        responds: bool,
    ) -> (Result<(), HttpError>, Duration) {
        let (watchdog, observers) = watchdog();
        let progress = BodyProgress::new(length, observers, Arc::default());
        let mut chunks = ChunkedBody::new(HttpRequestBody::from(vec![1; length]), progress.clone());
        let response = async {
            for _ in 0..max_chunks {
                tokio::time::sleep(pace).await;
                std::future::poll_fn(|context| Pin::new(&mut chunks).poll_frame(context))
                    .await
                    .expect("more")
                    .expect("ok");
            }
            if !responds {
                std::future::pending::<()>().await;
            }
        };
        let started = Instant::now();
        let ended = watchdog.watch(response, &progress).await;
        (ended, started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_no_time_limit_while_it_moves_and_times_out_once_it_is_idle() {
        let (ended, took) = send(16 << 20, Duration::from_secs(50), 128, true).await;
        assert!(ended.is_ok() && took == 128 * Duration::from_secs(50), "{ended:?} after {took:?}");
        let (ended, took) = send(16 << 20, Duration::from_secs(50), 100, false).await;
        assert!(ended.is_err(), "the connection stalled before the body was sent");
        assert_eq!(took, 100 * Duration::from_secs(50) + IDLE_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn buffered_content_has_extra_time_before_the_response() {
        let (ended, took) = send(16 << 20, Duration::ZERO, 128, false).await;
        assert!(ended.is_err(), "there is no response");
        assert_eq!(took, IDLE_TIMEOUT + Duration::from_secs(MAX_BUFFERED as u64 / MIN_UPLOAD_RATE));
        let (_, took) = send(0, Duration::ZERO, 0, false).await;
        assert_eq!(took, IDLE_TIMEOUT, "without a body nothing is buffered");
    }
}
