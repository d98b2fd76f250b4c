//! Who gets what.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Incoming;
use kube::Client;
use plimsoll_progress::Trees;
use serde_json::json;

use crate::answer::{Answer, events as event_stream, json as value, problem, whole};
use crate::board::Board;
use crate::listen::Settings;
use crate::remote::{HEADER, Leader};
use crate::{changes, events, page};

/// So many streams at the same time.
const MOST_STREAMS: usize = 128;
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
        if get && let Some(file) = page::file(&path) {
            return file;
        }
        let open = path == "/metrics" && self.settings.open_metrics;
        if !open && !self.is_allowed(&parts.headers) {
            return problem(StatusCode::UNAUTHORIZED, "TokenMissing", "the token is missing or wrong");
        }
        match (&self.leader, get, path.as_str()) {
            (Some(leader), _, path) if path.starts_with("/api/") => leader.forward(&parts).await,
            (_, true, "/metrics") => self.metrics().await,
            (_, true, "/api/overview") => self.overview().await,
            (_, true, "/api/events") => self.events(&parts.headers).await,
            (_, true, "/api/trees") => self.leaders_trees(parts.uri.query()),
            (_, _, path) => match path.strip_prefix("/api/operations/") {
                Some(rest) => self.operation(&parts.method, rest).await,
                None => problem(StatusCode::NOT_FOUND, "NotFound", "there is nothing here"),
            },
        }
    }

    fn is_allowed(&self, headers: &HeaderMap) -> bool {
        let own = headers.get(HEADER).map(http::HeaderValue::as_bytes);
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        [own, bearer].into_iter().flatten().any(|offered| self.settings.token.is(offered))
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
        event_stream(events::overview(Arc::clone(&self.board), reader, place))
    }

    fn leaders_trees(&self, query: Option<&str>) -> Answer {
        let only = query.and_then(|query| query.strip_prefix("subject=")).map(str::to_owned);
        event_stream(events::trees(self.trees.clone(), only, self.epoch))
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
                Some(reader) => event_stream(events::operation(Arc::clone(&self.board), reader, key)),
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

fn nothing() -> Answer {
    problem(StatusCode::NOT_FOUND, "NotFound", "there is no such operation")
}

fn late() -> Answer {
    problem(StatusCode::SERVICE_UNAVAILABLE, "NothingSeen", "the cluster has not answered yet: try again")
}

fn crowded() -> Answer {
    problem(StatusCode::SERVICE_UNAVAILABLE, "TooManyReaders", "too many others are looking on: close some pages")
}
