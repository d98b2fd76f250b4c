//! The current token. After a rotation the old one is rejected.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http::StatusCode;
use kube::Client;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::access_token::{AccessToken, TOKEN_SECRET, presents_token};
use crate::error::Error;
use crate::response::Problem;
use crate::sse::is_event_stream;

/// A token that was read is used for this long. A new one takes effect by then.
const MAX_TOKEN_AGE: Duration = Duration::from_secs(5);
/// A request waits for the API server for this long; then the last known token counts.
const READ_TIMEOUT: Duration = Duration::from_secs(3);

/// Where the token comes from.
#[derive(Clone)]
pub struct TokenSource(Arc<Source>);

enum Source {
    Fixed(AccessToken),
    Secret(SecretSource),
}

struct SecretSource {
    client: Client,
    namespace: String,
    /// Creates the Secret if it does not exist.
    create: bool,
    known: Mutex<Option<KnownToken>>,
}

#[derive(Clone)]
struct KnownToken {
    token: AccessToken,
    checked: Instant,
}

impl From<AccessToken> for TokenSource {
    /// A token that does not change.
    fn from(token: AccessToken) -> Self {
        Self(Arc::new(Source::Fixed(token)))
    }
}

impl TokenSource {
    /// The Secret of the server in a namespace.
    pub fn secret(client: &Client, namespace: &str) -> Self {
        Self::of_secret(client, namespace, false, None)
    }

    /// The same for the server, which creates the Secret where there is none, also after someone has deleted it.
    pub async fn create_secret(client: &Client, namespace: &str) -> Result<Self, Error> {
        let token = AccessToken::read_or_create(client, namespace).await?;
        let known = KnownToken { token, checked: Instant::now() };
        Ok(Self::of_secret(client, namespace, true, Some(known)))
    }

    fn of_secret(client: &Client, namespace: &str, create: bool, known: Option<KnownToken>) -> Self {
        let (client, namespace, known) = (client.clone(), namespace.to_owned(), Mutex::new(known));
        Self(Arc::new(Source::Secret(SecretSource { client, namespace, create, known })))
    }

    /// The token; `None` if there is none.
    pub async fn current(&self) -> Option<AccessToken> {
        match self.0.as_ref() {
            Source::Fixed(token) => Some(token.clone()),
            Source::Secret(secret) => secret.current().await,
        }
    }

    /// Resolves when the token is another one.
    async fn replaced(self, token: AccessToken) {
        loop {
            tokio::time::sleep(MAX_TOKEN_AGE).await;
            if self.current().await.as_ref() != Some(&token) {
                return;
            }
        }
    }
}

impl SecretSource {
    async fn current(&self) -> Option<AccessToken> {
        let mut known = self.known.lock().await;
        if let Some(fresh) = known.as_ref().filter(|known| known.checked.elapsed() < MAX_TOKEN_AGE) {
            return Some(fresh.token.clone());
        }
        let read = tokio::time::timeout(READ_TIMEOUT, self.read()).await;
        let token = match read.unwrap_or_else(|_| Err(Error::NoAnswer(TOKEN_SECRET.into()))) {
            Ok(token) => token,
            Err(error) => {
                warn!("{error}; the last known token stays valid");
                known.as_ref().map(|known| known.token.clone())
            }
        };
        // A Secret that does not exist yet is read again for the next request.
        *known = token.clone().map(|token| KnownToken { token, checked: Instant::now() });
        token
    }

    async fn read(&self) -> Result<Option<AccessToken>, Error> {
        if self.create {
            return AccessToken::read_or_create(&self.client, &self.namespace).await.map(Some);
        }
        AccessToken::read(&self.client, &self.namespace).await
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSource(…)")
    }
}

/// Passes a request with the token on. A stream that it opens ends when the token is replaced.
pub async fn require_token(source: &TokenSource, request: Request, next: Next) -> Response {
    let Some(token) = source.current().await.filter(|token| presents_token(request.headers(), token)) else {
        return Problem::new(StatusCode::UNAUTHORIZED, "TokenMissing", "the token is missing or wrong").into_response();
    };
    let response = next.run(request).await;
    if !is_event_stream(response.headers()) {
        return response;
    }
    let replaced = source.clone().replaced(token);
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(replaced)))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Mutex, PoisonError};

    use axum::Router;
    use axum::body::to_bytes;
    use axum::extract::State;
    use axum::middleware::from_fn_with_state;
    use axum::response::sse::Event;
    use axum::routing::get;
    use base64::Engine as _;
    use futures::stream;
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;
    use crate::leader::TOKEN_HEADER;
    use crate::response::event_stream;

    const OLD: &str = "the token until it is rotated";
    const NEW: &str = "the token after it was rotated";

    /// A cluster whose Secret has the token that stands here; with nothing it does not answer.
    fn cluster(token: &Arc<Mutex<Option<&'static str>>>) -> Client {
        let token = Arc::clone(token);
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let token = *token.lock().unwrap_or_else(PoisonError::into_inner);
            async move {
                let Some(token) = token else { return std::future::pending().await };
                let data = base64::engine::general_purpose::STANDARD.encode(token);
                let secret = json!({ "metadata": { "name": TOKEN_SECRET }, "data": { "token": data } });
                Ok::<_, Infallible>(http::Response::new(kube::client::Body::from(secret.to_string().into_bytes())))
            }
        });
        Client::new(service, "velero")
    }

    /// A route with a stream that never ends by itself.
    fn router(source: TokenSource) -> Router {
        async fn check(State(source): State<TokenSource>, request: Request, next: Next) -> Response {
            require_token(&source, request, next).await
        }
        let endless = async || event_stream(stream::pending::<Result<Event, axum::Error>>());
        Router::new().route("/stream", get(endless)).layer(from_fn_with_state(source, check))
    }

    async fn open(router: &Router, token: &str) -> Response {
        let request = Request::get("/stream").header(TOKEN_HEADER, token).body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_rotated_token_opens_nothing_any_more_and_ends_what_it_has_opened() {
        let token = Arc::new(Mutex::new(Some(OLD)));
        let router = router(TokenSource::secret(&cluster(&token), "velero"));
        let stream = open(&router, OLD).await;
        assert_eq!(stream.status(), StatusCode::OK);
        *token.lock().unwrap() = Some(NEW);
        let rotated = Instant::now();
        to_bytes(stream.into_body(), 1 << 20).await.expect("it ends");
        assert!(rotated.elapsed() <= 2 * MAX_TOKEN_AGE, "{:?}", rotated.elapsed());
        assert_eq!(open(&router, OLD).await.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(open(&router, NEW).await.status(), StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_token_stays_valid_while_the_api_server_does_not_answer() {
        let token = Arc::new(Mutex::new(Some(OLD)));
        let router = router(TokenSource::secret(&cluster(&token), "velero"));
        assert_eq!(open(&router, OLD).await.status(), StatusCode::OK);
        *token.lock().unwrap() = None;
        tokio::time::advance(2 * MAX_TOKEN_AGE).await;
        assert_eq!(open(&router, OLD).await.status(), StatusCode::OK);
        assert_eq!(open(&router, NEW).await.status(), StatusCode::UNAUTHORIZED);
    }
}
