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

use crate::error::Error;
use crate::response::{Problem, add_standard_headers};
use crate::token_source::{TokenSource, require_token};
use crate::tree_source::{TreeSource, process_epoch, stream_trees};

/// Shorter than the leader's: what an agent sends passes through the leader before it is shown.
const TREE_INTERVAL: Duration = Duration::from_millis(200);

/// Serves the trees of an agent's transfers.
pub struct AgentServer {
    client: Client,
    namespace: String,
    trees: Trees,
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
        let token = TokenSource::secret(&self.client, &self.namespace);
        Router::new()
            .route("/api/trees", get(stream_trees).with_state(Arc::new(source)))
            .fallback(not_found)
            .method_not_allowed_fallback(not_found)
            .layer(from_fn_with_state(token, check_token))
            .route("/healthz", get(health))
            .layer(map_response(add_standard_headers))
    }
}

async fn check_token(State(token): State<TokenSource>, request: Request, next: Next) -> Response {
    require_token(&token, request, next).await
}

async fn health() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], "ok\n")
}

async fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "NotFound", "path not found")
}
