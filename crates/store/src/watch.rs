//! The no-bytes watchdog: every HTTP request of a store passes through here.
//!
//! A request that carries a body may take `idle` plus its size at the slowest acceptable rate until the answer starts:
//! the HTTP client does not say how much of a body it has sent. Every further piece of an answer may take `idle`.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http_body::Frame;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    ReqwestConnector,
};

/// Slower than this an upload counts as standing still.
const SLOWEST_UPLOAD: u64 = 64 * 1024;

/// Something a store waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What is waited for, in words: names the store, never a credential.
    pub reason: String,
}

/// Is told what a store waits for. Called from within requests: it must return at once.
pub trait Observer: Send + Sync {
    /// The store waits, and will try again by itself.
    fn on_wait(&self, wait: &Wait);
    /// Bytes move again.
    fn on_resume(&self) {}
}

impl<F: Fn(&Wait) + Send + Sync> Observer for F {
    fn on_wait(&self, wait: &Wait) {
        self(wait);
    }
}

/// Keeps an observer registered; dropping it ends that.
pub struct Observing {
    _observer: Arc<dyn Observer>,
}

impl fmt::Debug for Observing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Observing")
    }
}

/// Who listens to one store and all its clones.
#[derive(Default)]
pub(crate) struct Observers {
    listening: Mutex<Vec<Weak<dyn Observer>>>,
    waiting: std::sync::atomic::AtomicBool,
}

impl fmt::Debug for Observers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Observers")
    }
}

impl Observers {
    pub(crate) fn add(&self, observer: Arc<dyn Observer>) -> Observing {
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        listening.retain(|known| known.strong_count() > 0);
        listening.push(Arc::downgrade(&observer));
        Observing { _observer: observer }
    }

    pub(crate) fn wait(&self, reason: String) {
        tracing::debug!(reason, "store waits");
        self.waiting.store(true, std::sync::atomic::Ordering::Relaxed);
        let wait = Wait { reason };
        self.each(|observer| observer.on_wait(&wait));
    }

    fn resume(&self) {
        if self.waiting.swap(false, std::sync::atomic::Ordering::Relaxed) {
            self.each(|observer| observer.on_resume());
        }
    }

    fn each(&self, tell: impl Fn(&dyn Observer)) {
        let listening: Vec<_> = {
            let guard = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
            guard.iter().filter_map(Weak::upgrade).collect()
        };
        for observer in &listening {
            tell(observer.as_ref());
        }
    }
}

/// Makes HTTP clients whose requests cannot stand still unseen.
#[derive(Debug)]
pub(crate) struct WatchedConnector {
    pub name: String,
    pub idle: Duration,
    pub observers: Arc<Observers>,
}

impl HttpConnector for WatchedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        let watchdog = Watchdog { name: self.name.clone(), idle: self.idle, observers: self.observers.clone() };
        Ok(HttpClient::new(WatchedService { inner, watchdog }))
    }
}

#[derive(Debug)]
struct WatchedService {
    inner: HttpClient,
    watchdog: Watchdog,
}

#[derive(Clone, Debug)]
struct Watchdog {
    name: String,
    idle: Duration,
    observers: Arc<Observers>,
}

#[derive(Debug, thiserror::Error)]
#[error("no bytes moved for {0:?}")]
struct NoBytes(Duration);

impl Watchdog {
    fn limit(&self, body: usize) -> Duration {
        self.idle + Duration::from_secs(body as u64 / SLOWEST_UPLOAD)
    }

    fn bite(&self, limit: Duration) -> HttpError {
        self.observers.wait(format!("{} has moved no bytes for {limit:?}; trying again", self.name));
        HttpError::new(HttpErrorKind::Timeout, NoBytes(limit))
    }

    fn judge(&self, answer: &Result<HttpResponse, HttpError>) {
        match answer {
            Ok(response) if response.status().is_server_error() || response.status().as_u16() == 429 => {
                self.observers.wait(format!("{} answered {}; trying again", self.name, response.status()));
            }
            Ok(_) => self.observers.resume(),
            Err(error) if matches!(error.kind(), HttpErrorKind::Connect) => {
                self.observers.wait(format!("{} cannot be reached; trying again", self.name));
            }
            Err(_) => self.observers.wait(format!("the connection to {} broke; trying again", self.name)),
        }
    }
}

#[async_trait::async_trait]
impl HttpService for WatchedService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let limit = self.watchdog.limit(request.body().content_length());
        let Ok(answer) = tokio::time::timeout(limit, self.inner.execute(request)).await else {
            return Err(self.watchdog.bite(limit));
        };
        self.watchdog.judge(&answer);
        let (parts, body) = answer?.into_parts();
        let body = HttpResponseBody::new(WatchedBody(Mutex::new(watched(body, self.watchdog.clone()))));
        Ok(HttpResponse::from_parts(parts, body))
    }
}

/// The pieces of an answer. The lock is never contended: it only makes the stream shareable, which the client asks for.
struct WatchedBody(Mutex<Pieces>);

type Pieces = BoxStream<'static, Result<Frame<Bytes>, HttpError>>;

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

fn watched(body: HttpResponseBody, watchdog: Watchdog) -> Pieces {
    let pieces = body.bytes_stream();
    stream::unfold(Some((pieces, watchdog)), |state| async {
        let (mut pieces, watchdog) = state?;
        match tokio::time::timeout(watchdog.idle, pieces.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(piece))) => {
                watchdog.observers.resume();
                Some((Ok(Frame::data(piece)), Some((pieces, watchdog))))
            }
            Ok(Some(Err(error))) => Some((Err(error), None)),
            Err(_) => Some((Err(watchdog.bite(watchdog.idle)), None)),
        }
    })
    // A body may be asked again after its end.
    .fuse()
    .boxed()
}
