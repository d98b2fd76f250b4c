//! Who gets what.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use kube::Client;
use plimsoll_progress::Trees;
use serde_json::json;
use tokio::sync::OnceCell;

use crate::answer::{Answer, events as event_stream, json as value, problem, whole};
use crate::board::Board;
use crate::listen::Settings;
use crate::remote::{HEADER, Leader};
use crate::token::Token;
use crate::{changes, events, page};

/// So many streams at the same time.
const MOST_STREAMS: usize = 128;
/// How long this process answers in the place of a server that cannot be reached, before that is asked again.
const STAND_IN: Duration = Duration::from_mins(1);
/// How often trees are looked at for whoever follows them.
const LEADERS_TREES_EVERY: Duration = Duration::from_millis(500);
const AGENTS_TREES_EVERY: Duration = Duration::from_millis(200);
/// Where a reader that comes back was.
const LAST_EVENT: &str = "last-event-id";

/// Everything that can be asked for.
pub struct Routes {
    pub settings: Settings,
    pub client: Client,
    pub trees: Trees,
    pub leader: Option<Leader>,
    pub board: Arc<Board>,
    pub epoch: u64,
    /// An agent has nothing else to tell.
    pub only_trees: bool,
    /// The server's token, once it was found.
    pub servers_token: OnceCell<Token>,
}

impl Routes {
    /// Answers a request.
    pub async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (parts, _) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let get = parts.method == Method::GET;
        if get && path == "/healthz" {
            return whole("text/plain; charset=utf-8", "ok\n");
        }
        if get
            && !self.only_trees
            && let Some(file) = page::file(&path)
        {
            return file;
        }
        let open = path == "/metrics" && self.settings.open_metrics;
        if !open && !self.is_allowed(&parts.headers).await {
            return problem(StatusCode::UNAUTHORIZED, "TokenMissing", "the token is missing or wrong");
        }
        // Of this process, whoever answers the rest; and without a look at the cluster, which may not answer yet.
        if get && path == "/api/facts" && !self.only_trees {
            return value(StatusCode::OK, &self.facts());
        }
        // Only questions go on: what is to be changed is changed here, with the rights of whoever started this, or not at all.
        if let Some(leader) = self.leader.as_ref().filter(|_| get && path.starts_with("/api/"))
            && let Some(answer) = self.ask_leader(leader, &parts).await
        {
            return answer;
        }
        match (get, path.as_str()) {
            (true, "/api/trees") => self.own_trees(parts.uri.query()),
            _ if self.only_trees => nothing(),
            (true, "/metrics") => self.metrics().await,
            (true, "/api/overview") => self.overview().await,
            (true, "/api/events") => self.events(&parts.headers).await,
            (_, path) => match path.strip_prefix("/api/operations/") {
                Some(rest) => self.operation(&parts.method, rest).await,
                None => problem(StatusCode::NOT_FOUND, "NotFound", "there is nothing here"),
            },
        }
    }

    /// The leader's answer, if it gives one. Whether anything may be changed is for this process to say.
    async fn ask_leader(&self, leader: &Leader, parts: &http::request::Parts) -> Option<Answer> {
        let answer = leader.forward(parts).await?;
        if parts.uri.path() != "/api/overview" || !answer.status().is_success() {
            return Some(answer);
        }
        let status = answer.status();
        let Ok(bytes) = answer.into_body().collect().await;
        let mut told: serde_json::Value = serde_json::from_slice(&bytes.to_bytes()).ok()?;
        told.get_mut("facts")?.as_object_mut()?.insert("mayChange".to_owned(), json!(self.settings.may_change));
        Some(value(status, &told))
    }

    async fn is_allowed(&self, headers: &HeaderMap) -> bool {
        let own = headers.get(HEADER).map(http::HeaderValue::as_bytes);
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let Some(token) = self.token().await else { return false };
        [own, bearer].into_iter().flatten().any(|offered| token.is(offered))
    }

    /// An agent's is the server's, which may make it after the agent has begun.
    async fn token(&self) -> Option<&Token> {
        if !self.only_trees {
            return Some(&self.settings.token);
        }
        let find = || async { Token::find(&self.client, &self.settings.namespace).await.ok().flatten().ok_or(()) };
        self.servers_token.get_or_try_init(find).await.ok()
    }

    async fn metrics(&self) -> Answer {
        if !self.board.fresh().await {
            return late();
        }
        whole("text/plain; version=0.0.4; charset=utf-8", self.board.metrics(self.settings.due))
    }

    async fn overview(&self) -> Answer {
        if !self.board.fresh().await {
            return late();
        }
        let news = self.board.since(None);
        value(StatusCode::OK, &json!({ "facts": self.facts(), "news": news }))
    }

    /// What does not change while the page is open.
    fn facts(&self) -> serde_json::Value {
        json!({
            "namespace": self.settings.namespace, "mayChange": self.settings.may_change,
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    async fn events(&self, headers: &HeaderMap) -> Answer {
        let Some(reader) = self.board.read(MOST_STREAMS) else { return crowded() };
        if !self.board.fresh().await {
            return late();
        }
        let place = headers.get(LAST_EVENT).and_then(|place| place.to_str().ok());
        let place = place.and_then(|place| self.board.find_place(place));
        event_stream(stand_in(self.leader.is_some(), events::overview(Arc::clone(&self.board), reader, place)))
    }

    fn own_trees(&self, query: Option<&str>) -> Answer {
        let only = query.and_then(|query| query.strip_prefix("subject=")).map(str::to_owned);
        // What an agent tells goes through other hands before anybody sees it.
        let every = if self.only_trees { AGENTS_TREES_EVERY } else { LEADERS_TREES_EVERY };
        event_stream(events::trees(self.trees.clone(), only, self.epoch, every))
    }

    /// `KIND/NAMESPACE/NAME`, and what to do with it.
    async fn operation(&self, method: &Method, rest: &str) -> Answer {
        let parts: Vec<&str> = rest.split('/').collect();
        let (key, deed) = match parts.as_slice() {
            [kind, namespace, name] => (format!("{kind}/{namespace}/{name}"), ""),
            [kind, namespace, name, deed] => (format!("{kind}/{namespace}/{name}"), *deed),
            _ => return nothing(),
        };
        if !self.board.fresh().await {
            return late();
        }
        match (method, deed) {
            (&Method::GET, "") => match self.board.detail(&key) {
                Some(detail) => value(StatusCode::OK, &detail),
                None => nothing(),
            },
            (&Method::GET, "events") => match self.board.read(MOST_STREAMS) {
                Some(reader) => {
                    let events = events::operation(Arc::clone(&self.board), reader, key);
                    event_stream(stand_in(self.leader.is_some(), events))
                }
                None => crowded(),
            },
            (&Method::POST, "cancel" | "retry") => self.change(&key, deed).await,
            _ => nothing(),
        }
    }

    async fn change(&self, key: &str, deed: &str) -> Answer {
        if !self.settings.may_change {
            let how = "this dashboard only shows: `--allow-changes` lets it cancel and retry";
            return problem(StatusCode::FORBIDDEN, "ReadOnly", how);
        }
        let Some((line, object)) = self.board.object(key) else { return nothing() };
        let done = match deed {
            "cancel" => changes::cancel(&self.client, &line, &object).await,
            _ => changes::retry(&self.client, &line, &object).await,
        };
        match done {
            Ok(said) => value(StatusCode::OK, &json!({ "message": said })),
            Err(error) => problem(StatusCode::CONFLICT, error.reason(), &error.to_string()),
        }
    }
}

/// Events of this process. In the place of a server that does not answer they end after a while, so that readers who come back
/// find that one again.
fn stand_in<S: Stream<Item = Bytes>>(for_another: bool, events: S) -> impl Stream<Item = Bytes> {
    let over = async move {
        if for_another {
            tokio::time::sleep(STAND_IN).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    events.take_until(over)
}

fn nothing() -> Answer {
    problem(StatusCode::NOT_FOUND, "NotFound", "there is no such operation")
}

fn late() -> Answer {
    problem(StatusCode::SERVICE_UNAVAILABLE, "NothingSeen", "the cluster has not answered yet: try again")
}

fn crowded() -> Answer {
    problem(StatusCode::SERVICE_UNAVAILABLE, "TooManyReaders", "too many others are looking on: close some pages")
}
