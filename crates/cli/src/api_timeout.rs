//! Time limits of requests to the API server.
//!
//! An API server that disappears without closing its connections, or a network device in between that forgets them, leaves a
//! request without an answer. Every request has a limit for its answer, and every body one for its silence. What the API server
//! keeps open on purpose (watches, followed logs) has a longer one. An upgraded connection (exec) has none of its own: keep-alive
//! probes of TCP find out that its peer is gone.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::UPGRADE;
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, Sleep};
use tower::{BoxError, service_fn};

/// The API server ends a request itself after a minute.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The watches of this program end after at most 295 s.
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_mins(6);
/// A container may be silent for long.
const LOG_IDLE_TIMEOUT: Duration = Duration::from_hours(1);

/// A client whose requests end in an error when the API server is silent for too long.
pub fn with_timeouts(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let (client, idle) = (client.clone(), idle_timeout(&request));
        async move {
            let answer = tokio::time::timeout(ANSWER_TIMEOUT, client.send(request)).await;
            let answer = answer.map_err(|_| Silence { timeout: ANSWER_TIMEOUT })??;
            Ok::<_, BoxError>(Response::map(answer, |body| GuardedBody::new(body, idle)))
        }
    });
    Client::new(service, namespace)
}

/// How long the body of the answer may be silent.
fn idle_timeout(request: &Request<Body>) -> Duration {
    let asks = |option: &str| request.uri().query().unwrap_or_default().split('&').any(|given| given == option);
    match () {
        () if request.headers().contains_key(UPGRADE) => Duration::MAX,
        () if asks("watch=true") || asks("watch=1") => WATCH_IDLE_TIMEOUT,
        () if asks("follow=true") => LOG_IDLE_TIMEOUT,
        () => IDLE_TIMEOUT,
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no answer from the API server within {}s", timeout.as_secs())]
struct Silence {
    timeout: Duration,
}

/// A body that fails when it is silent for too long.
struct GuardedBody {
    body: Body,
    timeout: Duration,
    silence: Pin<Box<Sleep>>,
}

impl GuardedBody {
    fn new(body: Body, timeout: Duration) -> Self {
        Self { body, timeout, silence: Box::pin(tokio::time::sleep(timeout)) }
    }
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let timeout = self.timeout;
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            if let Some(end) = Instant::now().checked_add(timeout) {
                self.silence.as_mut().reset(end);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        self.silence.as_mut().poll(context).map(|()| Some(Err(Silence { timeout }.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _};
    use http_body_util::StreamBody;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube::Api;
    use kube::api::{ListParams, LogParams, WatchParams};

    use super::*;

    /// A server that never answers.
    fn silent() -> Client {
        let service = service_fn(|_: Request<Body>| async {
            std::future::pending::<()>().await;
            Ok::<_, BoxError>(Response::new(Body::empty()))
        });
        with_timeouts(Client::new(service, "velero"))
    }

    /// A server that sends this, waits, sends it again, and is silent then.
    fn slow(text: &'static str, pause: Duration) -> Client {
        let service = service_fn(move |_: Request<Body>| async move {
            let parts = futures::stream::unfold(0, move |sent| async move {
                match sent {
                    0 => {}
                    1 => tokio::time::sleep(pause).await,
                    _ => std::future::pending().await,
                }
                Some((Ok::<_, BoxError>(Frame::data(Bytes::from(text))), sent + 1))
            });
            Ok::<_, BoxError>(Response::new(StreamBody::new(parts)))
        });
        with_timeouts(Client::new(service, "velero"))
    }

    async fn elapsed(work: impl Future<Output = String>) -> (String, Duration) {
        let begun = Instant::now();
        let text = tokio::time::timeout(Duration::from_hours(24), work).await.expect("it hangs");
        (text, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_ends_in_a_retryable_error() {
        let list = async |client: Client| {
            let answer = Api::<ConfigMap>::default_namespaced(client).list(&ListParams::default()).await;
            plimsoll_engine::Error::api("list", answer.expect_err("no answer"))
        };
        let error = list(silent()).await;
        assert!(
            error.is_retryable() && error.to_string().contains("no answer from the API server within 65s"),
            "{error}"
        );
        let begun = Instant::now();
        let error = list(slow("{", Duration::from_secs(20))).await;
        assert!(error.to_string().contains("within 30s"), "{error}");
        assert_eq!(begun.elapsed(), Duration::from_secs(50), "a body that moves is not cut");
        assert!(error.is_retryable(), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_and_a_followed_log_may_be_silent_for_longer_but_not_for_ever() {
        let bookmark = "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"1\"}}}\n";
        let (events, took) = elapsed(async {
            let api = Api::<ConfigMap>::default_namespaced(slow(bookmark, Duration::from_mins(4)));
            let events = api.watch(&WatchParams::default(), "1").await.expect("it begins").collect::<Vec<_>>().await;
            events.iter().map(|event| if event.is_ok() { "event " } else { "error " }).collect()
        })
        .await;
        assert!(events.starts_with("event event error"), "{events}");
        assert_eq!(took, Duration::from_mins(10));
        let (lines, took) = elapsed(async {
            let follow = LogParams { follow: true, ..LogParams::default() };
            let api = Api::<Pod>::default_namespaced(slow("line\n", Duration::from_mins(30)));
            let lines = api.log_stream("p", &follow).await.expect("it begins").lines();
            lines.try_for_each(|_| std::future::ready(Ok(()))).await.expect_err("it ends").to_string()
        })
        .await;
        assert!(lines.contains("within 3600s"), "{lines}");
        assert_eq!(took, Duration::from_mins(90));
    }

    #[test]
    fn an_upgraded_connection_has_no_limit_of_its_own() {
        let upgrade = Request::get("/exec").header(UPGRADE, "websocket").body(Body::empty()).expect("a request");
        assert_eq!(idle_timeout(&upgrade), Duration::MAX);
    }
}
