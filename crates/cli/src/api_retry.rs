//! Retries of single requests to the API server.
//!
//! A server under load, or one that has just learned of a new kind ("storage is (re)initializing"), answers 429 with a
//! `Retry-After`. Such a request had no effect and is sent again, as `kubectl` does. A read that a restarting or overloaded server
//! rejects is sent again at once: an operation that reads ten objects would otherwise begin anew for each of them. Every other
//! answer goes to the caller: a request that timed out may have had its effect.

use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header::RETRY_AFTER};
use kube::Client;
use kube::client::Body;
use tokio::time::Sleep;
use tower::retry::{Policy, Retry};
use tower::{BoxError, service_fn};

/// How often one request is sent again.
const MAX_RETRIES: usize = 10;
/// How long one request waits in all.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The pauses before a rejected read is sent again. Short: an operation shows longer waits itself.
const READ_PAUSES: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(100), Duration::from_millis(200)];

/// A client that sends a request again when the API server asks for it.
pub fn with_server_requested_retries(client: Client) -> Client {
    with_retries(client, server_requested_pause)
}

/// A client that sends a rejected read again a few times.
pub fn with_read_retries(client: Client) -> Client {
    with_retries(client, rejected_read_pause)
}

fn with_retries(client: Client, pause: PauseFunction) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move { client.send(request).await.map_err(BoxError::from) }
    });
    Client::new(Retry::new(ResponsePolicy { pause, attempt: Attempt::default() }, service), namespace)
}

/// The pause before a request with this response is sent again; `None` if the response goes to the caller.
type PauseFunction = fn(&Request<Body>, &Response<Body>, Attempt) -> Option<Duration>;

/// How often one request was sent again, and how long that took.
#[derive(Clone, Copy, Debug, Default)]
struct Attempt {
    retries: usize,
    waited: Duration,
}

/// Retries a request by its response alone: a request without a response may have had its effect.
#[derive(Clone)]
struct ResponsePolicy {
    pause: PauseFunction,
    attempt: Attempt,
}

impl Policy<Request<Body>, Response<Body>, BoxError> for ResponsePolicy {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        answer: &mut Result<Response<Body>, BoxError>,
    ) -> Option<Self::Future> {
        let pause = (self.pause)(request, answer.as_ref().ok()?, self.attempt)?;
        self.attempt.retries += 1;
        self.attempt.waited += pause;
        Some(tokio::time::sleep(pause))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        copy(request)
    }
}

fn rejected_read_pause(request: &Request<Body>, answer: &Response<Body>, attempt: Attempt) -> Option<Duration> {
    let status = answer.status();
    let is_rejected = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT);
    let pause = READ_PAUSES.get(attempt.retries).filter(|_| is_rejected && request.method() == Method::GET)?;
    tracing::debug!("the API server rejects a read ({status}): {}", request.uri().path());
    Some(*pause)
}

fn server_requested_pause(request: &Request<Body>, answer: &Response<Body>, attempt: Attempt) -> Option<Duration> {
    let delay = requested_delay(answer)?;
    if attempt.retries >= MAX_RETRIES || attempt.waited + delay > MAX_WAIT {
        return None;
    }
    let (method, path) = (request.method(), request.uri().path());
    tracing::info!("the API server asks to retry in {}s: {method} {path}", delay.as_secs());
    Some(delay)
}

/// A copy of a request; `None` if its body is a stream.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// How long to wait before the same request, if the server says so.
fn requested_delay(answer: &Response<Body>) -> Option<Duration> {
    if answer.status() != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{ObjectMeta, PostParams};

    use super::*;

    /// A server that answers 429 so often, and how many requests it got.
    fn busy_server(refusals: u32, retry_after: Option<&'static str>) -> (Client, Arc<AtomicU32>) {
        let requests = Arc::new(AtomicU32::new(0));
        let counted = requests.clone();
        let service = service_fn(move |request: Request<Body>| {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let sent = request.into_body().collect_bytes().await?;
                assert!(!sent.is_empty(), "the body is sent every time");
                let mut answer = Response::builder();
                if number >= refusals {
                    return Ok::<_, BoxError>(answer.body(Body::from(sent))?);
                }
                if let Some(seconds) = retry_after {
                    answer = answer.header(RETRY_AFTER, seconds);
                }
                let status = r#"{"kind":"Status","code":429,"reason":"TooManyRequests","message":"storage is (re)initializing"}"#;
                Ok(answer.status(429).body(Body::from(status.as_bytes().to_vec()))?)
            }
        });
        (with_server_requested_retries(Client::new(service, "velero")), requests)
    }

    async fn create(client: Client) -> Result<ConfigMap, kube::Error> {
        let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
        let object = ConfigMap { metadata, ..ConfigMap::default() };
        Api::default_namespaced(client).create(&PostParams::default(), &object).await
    }

    #[tokio::test]
    async fn a_request_is_sent_again_while_the_server_asks_for_it() {
        let (client, requests) = busy_server(3, Some("0"));
        assert_eq!(create(client).await.unwrap().metadata.name.as_deref(), Some("a"));
        assert_eq!(requests.load(Ordering::Relaxed), 4);
    }

    #[tokio::test]
    async fn retries_are_bounded_in_number_and_in_time() {
        let (client, requests) = busy_server(u32::MAX, Some("0"));
        let error = create(client).await.unwrap_err();
        assert!(matches!(error, kube::Error::Api(status) if status.code == 429));
        assert_eq!(requests.load(Ordering::Relaxed) as usize, 1 + MAX_RETRIES);
        let (client, requests) = busy_server(u32::MAX, Some("3600"));
        create(client).await.unwrap_err();
        assert_eq!(requests.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_refusal_without_a_time_goes_to_the_caller() {
        let (client, requests) = busy_server(1, None);
        create(client).await.unwrap_err();
        assert_eq!(requests.load(Ordering::Relaxed), 1);
    }

    /// A client with retried reads, of a server that rejects so many requests, and how many requests it got.
    fn rejecting_server(rejections: u32) -> (Client, Arc<AtomicU32>) {
        let requests = Arc::new(AtomicU32::new(0));
        let counted = requests.clone();
        let service = service_fn(move |_: Request<Body>| {
            let is_rejected = counted.fetch_add(1, Ordering::Relaxed) < rejections;
            async move {
                let (code, body) = if is_rejected { (503, "{}") } else { (200, r#"{"metadata":{"name":"a"}}"#) };
                Ok::<_, BoxError>(Response::builder().status(code).body(Body::from(body.as_bytes().to_vec()))?)
            }
        });
        (with_read_retries(Client::new(service, "velero")), requests)
    }

    #[tokio::test]
    async fn a_rejected_read_is_sent_again_and_a_rejected_write_is_not() {
        let (client, requests) = rejecting_server(3);
        assert_eq!(Api::<ConfigMap>::default_namespaced(client).get("a").await.unwrap().metadata.name.unwrap(), "a");
        assert_eq!(requests.load(Ordering::Relaxed), 4);
        let (client, requests) = rejecting_server(4);
        Api::<ConfigMap>::default_namespaced(client).get("a").await.unwrap_err();
        assert_eq!(requests.load(Ordering::Relaxed), 4, "retries are bounded");
        let (client, requests) = rejecting_server(1);
        create(client).await.unwrap_err();
        assert_eq!(requests.load(Ordering::Relaxed), 1);
    }
}
