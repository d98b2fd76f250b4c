//! The no-bytes watchdog: every HTTP request of a store passes through here.
//!
//! Every piece of a request's body and every piece of its answer may take `idle`. The answer begins when the last byte of the
//! body has arrived: what may still be in this machine's buffers then has time according to the slowest acceptable rate.

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

use crate::again::Course;
use crate::line::{BUFFERED, Line, Sending};

/// Buffers that empty more slowly than this count as standing still.
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
    /// Bytes have gone out or come in, however few; called very often.
    fn on_bytes(&self) {}
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

    /// Bytes have gone out or come in.
    pub(crate) fn moved(&self) {
        self.each(|observer| observer.on_bytes());
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
    pub line: Line,
    /// Those that the line was made for.
    pub options: ClientOptions,
}

impl HttpConnector for WatchedConnector {
    /// Who asks a machine for its identity wants other limits, and gets a client of its own.
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let limits = |options: &ClientOptions| {
            [ClientConfigKey::ConnectTimeout, ClientConfigKey::Timeout].map(|limit| options.get_config_value(&limit))
        };
        let inner = if limits(options) == limits(&self.options) {
            Client::Line(self.line.clone())
        } else {
            Client::Other(ReqwestConnector::default().connect(options)?)
        };
        let watchdog = Watchdog { name: self.name.clone(), idle: self.idle, observers: self.observers.clone() };
        Ok(HttpClient::new(WatchedService { inner, watchdog }))
    }
}

#[derive(Debug)]
struct WatchedService {
    inner: Client,
    watchdog: Watchdog,
}

#[derive(Debug)]
enum Client {
    Line(Line),
    Other(HttpClient),
}

impl Client {
    async fn send(&self, request: HttpRequest, sending: Arc<Sending>) -> Result<HttpResponse, HttpError> {
        match self {
            Self::Line(line) => line.send(request, sending).await,
            Self::Other(client) => client.execute(request).await,
        }
    }
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
    /// Waits for the beginning of an answer as long as bytes of the request move.
    async fn watch<T>(&self, answer: impl Future<Output = T>, sending: &Sending) -> Result<T, HttpError> {
        let all = sending.left();
        let mut answer = std::pin::pin!(answer);
        let limit = || if sending.left() == 0 { self.limit(all) } else { self.idle };
        loop {
            let deadline = sending.moved() + limit();
            match tokio::time::timeout_at(deadline, &mut answer).await {
                Ok(answer) => return Ok(answer),
                // Something has moved meanwhile.
                Err(_) if sending.moved() + limit() > deadline => {}
                Err(_) => return Err(self.bite(limit())),
            }
        }
    }

    /// How long an answer may take after the last of a body of this length has been taken.
    fn limit(&self, body: usize) -> Duration {
        self.idle + Duration::from_secs(body.min(BUFFERED) as u64 / SLOWEST_UPLOAD)
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
        let course = Course::current();
        course.begin();
        let sending = Sending::new(request.body().content_length(), self.watchdog.observers.clone());
        let answer = self.inner.send(request, sending.clone());
        let answer = self.watchdog.watch(answer, &sending).await;
        let answer = answer.inspect(|answer| self.watchdog.judge(answer)).flatten();
        course.moved(sending.moved());
        course.judge(&answer);
        let (parts, body) = answer?.into_parts();
        let body = HttpResponseBody::new(WatchedBody(Mutex::new(watched(body, self.watchdog.clone(), course))));
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

fn watched(body: HttpResponseBody, watchdog: Watchdog, course: Arc<Course>) -> Pieces {
    let pieces = body.bytes_stream();
    stream::unfold(Some((pieces, watchdog, course)), |state| async {
        let (mut pieces, watchdog, course) = state?;
        // Before this nobody has asked for more.
        course.moved(Instant::now());
        let piece = match tokio::time::timeout(watchdog.idle, pieces.next()).await {
            Ok(piece) => piece?,
            Err(_) => Err(watchdog.bite(watchdog.idle)),
        };
        match piece {
            Ok(piece) => {
                watchdog.observers.resume();
                watchdog.observers.moved();
                Some((Ok(Frame::data(piece)), Some((pieces, watchdog, course))))
            }
            Err(error) => {
                course.failed(true);
                Some((Err(error), None))
            }
        }
    })
    // A body may be asked again after its end.
    .fuse()
    .boxed()
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use object_store::client::HttpRequestBody;

    use super::*;
    use crate::line::Pieces;

    const IDLE: Duration = Duration::from_mins(1);

    fn watchdog() -> (Watchdog, Arc<Observers>) {
        let observers = Arc::<Observers>::default();
        (Watchdog { name: "s3://b".into(), idle: IDLE, observers: observers.clone() }, observers)
    }

    /// Sends a body as a line does that has room for another piece after so long, and for so many in all; then there may be an
    /// answer.
    async fn send(length: usize, pace: Duration, most: usize, answers: bool) -> (Result<(), HttpError>, Duration) {
        let (watchdog, observers) = watchdog();
        let sending = Sending::new(length, observers);
        let mut pieces = Pieces::new(HttpRequestBody::from(vec![1; length]), sending.clone());
        let answer = async {
            for _ in 0..most {
                tokio::time::sleep(pace).await;
                std::future::poll_fn(|context| Pin::new(&mut pieces).poll_frame(context))
                    .await
                    .expect("more")
                    .expect("ok");
            }
            if !answers {
                std::future::pending::<()>().await;
            }
        };
        let begun = Instant::now();
        let ended = watchdog.watch(answer, &sending).await;
        (ended, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_take_any_time_as_long_as_it_moves_and_no_time_once_it_does_not() {
        let (ended, took) = send(16 << 20, Duration::from_secs(50), 128, true).await;
        assert!(ended.is_ok() && took == 128 * Duration::from_secs(50), "{ended:?} after {took:?}");
        let (ended, took) = send(16 << 20, Duration::from_secs(50), 100, false).await;
        assert!(ended.is_err(), "the line died before the body had gone out");
        assert_eq!(took, 100 * Duration::from_secs(50) + IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_still_in_the_buffers_has_time_to_get_out_before_the_answer() {
        let (ended, took) = send(16 << 20, Duration::ZERO, 128, false).await;
        assert!(ended.is_err(), "there is no answer");
        assert_eq!(took, IDLE + Duration::from_secs(BUFFERED as u64 / SLOWEST_UPLOAD));
        let (_, took) = send(0, Duration::ZERO, 0, false).await;
        assert_eq!(took, IDLE, "without a body there is nothing in them");
    }
}
