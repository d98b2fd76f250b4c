//! The server of an agent: its trees, behind the server's token.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use kube::Client;
use plimsoll_http_server::{HttpServer, RunningServer};
use plimsoll_progress::Trees;
use tokio::sync::OnceCell;

use crate::access_token::{AccessToken, presents_token};
use crate::error::Error;
use crate::response::{Problem, add_standard_headers};
use crate::tree_source::{TreeSource, process_epoch, stream_trees};

/// Shorter than the leader's: what an agent sends passes through the leader before it is shown.
const TREE_INTERVAL: Duration = Duration::from_millis(200);

/// Serves the trees of an agent's transfers.
pub struct AgentServer {
    client: Client,
    namespace: String,
    trees: Trees,
}

/// The server's token, once it was read: the server may create it after the agent has started.
struct ServerToken {
    client: Client,
    namespace: String,
    token: OnceCell<AccessToken>,
}

impl AgentServer {
    /// A server for these trees. The client reads the token from its Secret in the namespace.
    pub fn new(client: Client, namespace: impl Into<String>, trees: Trees) -> Self {
        Self { client, namespace: namespace.into(), trees }
    }

    /// Starts to serve.
    pub async fn listen(self, address: SocketAddr) -> Result<RunningServer, Error> {
        Ok(HttpServer::bind(address).await?.serve(self.router()))
    }

    fn router(self) -> Router {
        let source = TreeSource { trees: self.trees, epoch: process_epoch(), interval: TREE_INTERVAL };
        let token = ServerToken { client: self.client, namespace: self.namespace, token: OnceCell::new() };
        Router::new()
            .route("/api/trees", get(stream_trees).with_state(Arc::new(source)))
            .fallback(not_found)
            .method_not_allowed_fallback(not_found)
            .layer(from_fn_with_state(Arc::new(token), require_token))
            .route("/healthz", get(health))
            .layer(map_response(add_standard_headers))
    }
}

impl ServerToken {
    async fn get(&self) -> Option<&AccessToken> {
        let read = || async { AccessToken::read(&self.client, &self.namespace).await.ok().flatten().ok_or(()) };
        self.token.get_or_try_init(read).await.ok()
    }
}

async fn require_token(State(token): State<Arc<ServerToken>>, request: Request, next: Next) -> Response {
    match token.get().await {
        Some(token) if presents_token(request.headers(), token) => next.run(request).await,
        _ => Problem::new(StatusCode::UNAUTHORIZED, "TokenMissing", "the token is missing or wrong").into_response(),
    }
}

async fn health() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], "ok\n")
}

async fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "NotFound", "path not found")
}
