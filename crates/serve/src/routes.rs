//! The routes of the dashboard.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::{Stream, StreamExt};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use kube::Client;
use plimsoll_progress::Trees;
use plimsoll_progress_stream::{
    LAST_EVENT_ID, LeaderClient, Problem, SERVER_HEADER, TreeSource, add_standard_headers, event_stream,
    is_event_stream, process_epoch, require_token, stream_trees,
};
use serde_json::{Value, json};
use tracing::debug;

use crate::dashboard::DashboardSettings;
use crate::dashboard_state::DashboardState;
use crate::{actions, assets, event_streams};

/// Event streams of the page that are open at the same time.
const MAX_STREAMS: usize = 128;
/// An overview of the leader is never larger.
const MAX_OVERVIEW_BYTES: usize = 256 << 20;
/// This process serves in place of an unreachable leader for this long; then clients reconnect and the leader is tried again.
const FALLBACK_PERIOD: Duration = Duration::from_mins(1);
/// How often trees are compared with what a client has.
const TREE_INTERVAL: Duration = Duration::from_millis(500);
/// A leader that has not begun to respond by then is treated as unreachable.
const LEADER_TIMEOUT: Duration = Duration::from_secs(25);

/// The state that the handlers share.
pub struct AppState {
    pub settings: DashboardSettings,
    pub client: Client,
    pub leader: Option<LeaderClient>,
    pub dashboard: Arc<DashboardState>,
}

type Shared = State<Arc<AppState>>;

/// The routes of the dashboard: the page and `/healthz` are open, everything else needs the token.
pub fn router(state: &Arc<AppState>, trees: Trees) -> Router {
    let trees = TreeSource { trees, epoch: process_epoch(), interval: TREE_INTERVAL };
    let metrics_route = Router::new().route("/metrics", get(metrics));
    let (open, closed) =
        if state.settings.open_metrics { (metrics_route, Router::new()) } else { (Router::new(), metrics_route) };
    let operation = "/api/operations/{kind}/{namespace}/{name}";
    let leader_first = Router::new()
        .route("/api/overview", get(overview))
        .route("/api/events", get(overview_events))
        .route("/api/trees", get(stream_trees).with_state(Arc::new(trees)))
        .route(operation, get(operation_detail))
        .route(&format!("{operation}/events"), get(operation_events))
        .route_layer(from_fn_with_state(Arc::clone(state), forward_to_leader));
    let own = Router::new()
        .route("/api/facts", get(facts))
        .route(&format!("{operation}/cancel"), post(cancel))
        .route(&format!("{operation}/retry"), post(retry));
    let open = open.merge(assets::router()).route("/healthz", get(health));
    finish(open, closed.merge(leader_first).merge(own), state)
}

/// Puts the token in front of the closed routes and of unknown paths, and the standard headers on everything.
fn finish(open: Router<Arc<AppState>>, closed: Router<Arc<AppState>>, state: &Arc<AppState>) -> Router {
    let closed = closed
        .fallback(path_not_found)
        .method_not_allowed_fallback(path_not_found)
        .layer(from_fn_with_state(Arc::clone(state), check_token));
    open.method_not_allowed_fallback(path_not_found)
        .merge(closed)
        .layer(map_response(add_standard_headers))
        .with_state(Arc::clone(state))
}

async fn check_token(State(state): Shared, request: Request, next: Next) -> Response {
    require_token(&state.settings.token, request, next).await
}

/// Forwards a request to the leader; where that does not answer, this process does. Only reads are forwarded: changes are made by this
/// process, with its own rights, or not at all.
async fn forward_to_leader(State(state): Shared, request: Request, next: Next) -> Response {
    if let Some(leader) = state.leader.as_ref().filter(|_| request.method() == Method::GET) {
        let uri = request.uri();
        let path = uri.path_and_query().map_or(uri.path(), |path| path.as_str()).to_owned();
        let last_event = request.headers().get(LAST_EVENT_ID).cloned();
        if let Some(response) = state.forward(leader, &path, last_event).await {
            return response;
        }
    }
    next.run(request).await
}

impl AppState {
    /// The leader's response, if it gives one. Whether changes are allowed is decided by this process.
    async fn forward(&self, leader: &LeaderClient, path: &str, last_event: Option<HeaderValue>) -> Option<Response> {
        let response = forward(leader, path, last_event.as_ref()).await?;
        if path.split('?').next() != Some("/api/overview") || !response.status().is_success() {
            return Some(response);
        }
        let bytes = to_bytes(response.into_body(), MAX_OVERVIEW_BYTES).await.ok()?;
        let mut overview: Value = serde_json::from_slice(&bytes).ok()?;
        overview.get_mut("facts")?.as_object_mut()?.insert("mayChange".to_owned(), json!(self.settings.allow_changes));
        Some(Json(overview).into_response())
    }

    /// Assets, which do not change while the page is open.
    fn facts(&self) -> Value {
        json!({
            "namespace": self.settings.namespace, "mayChange": self.settings.allow_changes,
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    /// Waits for a recent view of the cluster.
    async fn require_fresh(&self) -> Result<(), Problem> {
        let late = || {
            let message = "the cluster has not answered yet: try again";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "NothingSeen", message)
        };
        if self.dashboard.wait_until_fresh().await { Ok(()) } else { Err(late()) }
    }

    /// Events of this process. In place of the leader they end after a while, so that clients reconnect and find it again.
    fn stream<S>(&self, events: S) -> Response
    where
        S: Stream<Item = Result<Event, axum::Error>> + Send + 'static,
    {
        if self.leader.is_some() {
            return event_stream(events.take_until(tokio::time::sleep(FALLBACK_PERIOD)));
        }
        event_stream(events)
    }

    fn require_changes_allowed(&self) -> Result<(), Problem> {
        let message = "this dashboard is read-only: `--allow-changes` allows cancel and retry";
        let allowed = self.settings.allow_changes;
        allowed.then_some(()).ok_or_else(|| Problem::new(StatusCode::FORBIDDEN, "ReadOnly", message))
    }
}

/// Sends a read to the leader and returns its response; nothing if no leader responds.
async fn forward(leader: &LeaderClient, path: &str, last_event: Option<&HeaderValue>) -> Option<Response> {
    let response = match tokio::time::timeout(LEADER_TIMEOUT, leader.get(path, last_event)).await {
        Ok(Ok(response)) if response.headers().contains_key(SERVER_HEADER) => response,
        Ok(Ok(response)) => {
            debug!("the API server's proxy does not reach the leader: {}", response.status());
            return None;
        }
        Ok(Err(error)) => {
            debug!("the leader is unreachable: {error}");
            return None;
        }
        Err(_) => return None,
    };
    let content_type = if is_event_stream(response.headers()) { "text/event-stream" } else { "application/json" };
    let (status, body) = (response.status(), Body::new(response.into_body()));
    Some((status, [(CONTENT_TYPE, content_type)], body).into_response())
}

async fn health() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], "ok\n")
}

async fn facts(State(state): Shared) -> Json<Value> {
    Json(state.facts())
}

async fn metrics(State(state): Shared) -> Result<impl IntoResponse, Problem> {
    state.require_fresh().await?;
    let text = state.dashboard.metrics(state.settings.next_run);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

async fn overview(State(state): Shared) -> Result<Json<Value>, Problem> {
    state.require_fresh().await?;
    Ok(Json(json!({ "facts": state.facts(), "news": state.dashboard.updates_since(None) })))
}

async fn overview_events(State(state): Shared, headers: HeaderMap) -> Result<Response, Problem> {
    let reader = state.dashboard.add_reader(MAX_STREAMS).ok_or_else(too_many_readers)?;
    state.require_fresh().await?;
    let last_event = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
    let last_event = last_event.and_then(|id| state.dashboard.parse_event_id(id));
    Ok(state.stream(event_streams::overview(Arc::clone(&state.dashboard), reader, last_event)))
}

type OperationPath = Path<(String, String, String)>;

fn key(Path((kind, namespace, name)): OperationPath) -> String {
    format!("{kind}/{namespace}/{name}")
}

async fn operation_detail(State(state): Shared, path: OperationPath) -> Result<impl IntoResponse, Problem> {
    state.require_fresh().await?;
    state.dashboard.detail(&key(path)).map(Json).ok_or_else(operation_not_found)
}

async fn operation_events(State(state): Shared, path: OperationPath) -> Result<Response, Problem> {
    state.require_fresh().await?;
    let reader = state.dashboard.add_reader(MAX_STREAMS).ok_or_else(too_many_readers)?;
    Ok(state.stream(event_streams::operation(Arc::clone(&state.dashboard), reader, key(path))))
}

async fn cancel(State(state): Shared, path: OperationPath) -> Result<Json<Value>, Problem> {
    state.require_fresh().await?;
    state.require_changes_allowed()?;
    let (line, object) = state.dashboard.find_object(&key(path)).ok_or_else(operation_not_found)?;
    let message = actions::cancel(&state.client, &line, &object).await.map_err(conflict)?;
    Ok(Json(json!({ "message": message })))
}

async fn retry(State(state): Shared, path: OperationPath) -> Result<Json<Value>, Problem> {
    state.require_fresh().await?;
    state.require_changes_allowed()?;
    let (line, object) = state.dashboard.find_object(&key(path)).ok_or_else(operation_not_found)?;
    let message = actions::retry(&state.client, &line, &object).await.map_err(conflict)?;
    Ok(Json(json!({ "message": message })))
}

async fn path_not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "NotFound", "path not found")
}

fn operation_not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "NotFound", "operation not found")
}

fn too_many_readers() -> Problem {
    let message = "too many pages are open on this dashboard: close some of them";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "TooManyReaders", message)
}

#[expect(clippy::needless_pass_by_value, reason = "used as the function of map_err")]
fn conflict(error: crate::Error) -> Problem {
    Problem::new(StatusCode::CONFLICT, error.reason(), error.to_string())
}
