//! The other side: reading the leader's answers through the API server's service proxy, with the reader's own rights.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{Method, Request};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client};
use plimsoll_progress::{Clock, Frame, Replica, Shown, Trees};
use serde::Deserialize;
use tracing::debug;

use crate::response::SERVER_HEADER;
use crate::token::Token;

/// The Service that leads to the leader.
pub const SERVICE: &str = "plimsoll";
/// The name of its port.
const PORT: &str = "dashboard";
/// Carries our token: the proxy keeps `Authorization` for itself.
pub const HEADER: &str = "x-plimsoll-token";
/// The last event that a reader who comes back has seen.
pub(crate) const LAST_EVENT_ID: &str = "last-event-id";
/// Trees that were not heard of for this long are no longer fresher than what the cluster says.
const SILENCE: Duration = Duration::from_secs(12);
/// A leader that is gone is looked for again after this; one that was never found, less and less often.
const PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A server that has not begun to answer by then is as good as none.
const ANSWER_WITHIN: Duration = Duration::from_secs(25);
/// One event is never longer.
const LONGEST: usize = 32 << 20;

/// The server that leads, as seen through the API server.
#[derive(Clone)]
pub struct Leader {
    client: Client,
    namespace: String,
    token: Token,
}

impl Leader {
    /// The leader of a namespace, if one serves there and this reader may ask it.
    pub async fn find(client: &Client, namespace: &str, token: Option<Token>) -> Option<Self> {
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        let service = services.get_opt(SERVICE).await.ok()??;
        let mut ports = service.spec?.ports.unwrap_or_default().into_iter();
        ports.find(|port| port.name.as_deref() == Some(PORT))?;
        let token = match token {
            Some(token) => token,
            None => Token::find(client, namespace).await.ok()??,
        };
        let leader = Self { client: client.clone(), namespace: namespace.to_owned(), token };
        let health = leader.ask(&Method::GET, "/healthz", None).await.ok()?;
        health.status().is_success().then_some(leader)
    }

    async fn ask(
        &self,
        method: &Method,
        path: &str,
        place: Option<&http::HeaderValue>,
    ) -> Result<http::Response<kube::client::Body>, kube::Error> {
        let uri = format!("/api/v1/namespaces/{}/services/http:{SERVICE}:{PORT}/proxy{path}", self.namespace);
        let mut request = Request::builder().method(method).uri(uri).header(HEADER, self.token.reveal());
        if let Some(place) = place {
            request = request.header(LAST_EVENT_ID, place);
        }
        let request = request.body(kube::client::Body::empty()).map_err(kube::Error::HttpError)?;
        self.client.send(request).await
    }

    /// Forwards a read to the server and returns its response; nothing if no server answers.
    pub(crate) async fn forward(&self, path: &str, last_event: Option<&http::HeaderValue>) -> Option<Response> {
        let response = match tokio::time::timeout(ANSWER_WITHIN, self.ask(&Method::GET, path, last_event)).await {
            Ok(Ok(response)) if response.headers().contains_key(SERVER_HEADER) => response,
            Ok(Ok(response)) => {
                debug!("the API server's proxy does not reach the server: {}", response.status());
                return None;
            }
            Ok(Err(error)) => {
                debug!("the server is unreachable: {error}");
                return None;
            }
            Err(_) => return None,
        };
        let content_type = if is_stream(response.headers()) { "text/event-stream" } else { "application/json" };
        let (status, body) = (response.status(), Body::new(response.into_body()));
        Some((status, [(http::header::CONTENT_TYPE, content_type)], body).into_response())
    }
}

pub(crate) fn is_stream(headers: &http::HeaderMap) -> bool {
    let kind = headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

#[derive(Deserialize)]
struct Told {
    subject: String,
    frame: Option<Frame>,
}

#[derive(Default)]
struct Copies {
    held: BTreeMap<String, (Arc<Mutex<Replica>>, Shown)>,
}

/// Keeps copies of the leader's trees for as long as this is polled. Ends never; without a leader there are no copies, and whoever
/// reads them takes what the cluster says.
pub async fn follow_leader(client: Client, namespace: String, token: Option<Token>, trees: Trees) {
    let mut pause = PAUSE;
    loop {
        if let Some(leader) = Leader::find(&client, &namespace, token.clone()).await
            && let Ok(response) = leader.ask(&Method::GET, "/api/trees", None).await
            && response.status().is_success()
            && is_stream(response.headers())
        {
            copy_all(response.into_body().into_data_stream(), &trees).await;
            debug!("the leader's stream ended");
            pause = PAUSE;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Shows copies of the trees that a stream tells of, until it ends or falls silent.
pub(crate) async fn copy_all<E>(pieces: impl Stream<Item = Result<Bytes, E>>, trees: &Trees) {
    let mut copies = Copies::default();
    let mut events = std::pin::pin!(events(pieces));
    while let Ok(Some((name, data))) = tokio::time::timeout(SILENCE, events.next()).await {
        copies.take(&name, &data, trees);
    }
}

impl Copies {
    fn take(&mut self, name: &str, data: &str, trees: &Trees) {
        let Ok(told) = serde_json::from_str::<Told>(data) else { return };
        match (name, told.frame) {
            ("gone", _) => drop(self.held.remove(&told.subject)),
            ("frame", Some(frame)) => {
                let (replica, _) = self.held.entry(told.subject.clone()).or_insert_with(|| copy(&told.subject, trees));
                // One that cannot be used is followed by others that can.
                let _ = replica.lock().unwrap_or_else(PoisonError::into_inner).apply(&frame);
            }
            _ => {}
        }
    }
}

fn copy(subject: &str, trees: &Trees) -> (Arc<Mutex<Replica>>, Shown) {
    let replica = Arc::new(Mutex::new(Replica::new(Clock::system())));
    let seen = Arc::clone(&replica);
    let shown = trees.show(subject, move || seen.lock().unwrap_or_else(PoisonError::into_inner).snapshot());
    (replica, shown)
}

/// Events, as name and data, from pieces that end anywhere.
fn events<E>(pieces: impl Stream<Item = Result<Bytes, E>>) -> impl Stream<Item = (String, String)> {
    let whole =
        pieces.take_while(|piece| std::future::ready(piece.is_ok())).filter_map(|piece| std::future::ready(piece.ok()));
    whole
        .scan(Vec::new(), |rest: &mut Vec<u8>, piece| {
            rest.extend_from_slice(&piece);
            let mut found = Vec::new();
            while let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") {
                let text: Vec<u8> = rest.drain(..end + 2).collect();
                found.extend(parse(&String::from_utf8_lossy(&text)));
            }
            std::future::ready((rest.len() <= LONGEST).then(|| futures::stream::iter(found)))
        })
        .flatten()
}

fn parse(text: &str) -> Option<(String, String)> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
    Some((field("event:")?, field("data:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_are_read_wherever_the_pieces_end() {
        let text = b"event: frame\nid: 1\ndata: {\"a\":1}\n\nevent: beat\ndata: {}\n\nevent: cut\ndata: {";
        for size in [1, 3, 7, 1000] {
            let pieces: Vec<Result<Bytes, ()>> =
                text.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
            let found: Vec<_> = events(futures::stream::iter(pieces)).collect().await;
            assert_eq!(found, [("frame".into(), "{\"a\":1}".into()), ("beat".to_owned(), "{}".to_owned())], "{size}");
        }
    }
}
