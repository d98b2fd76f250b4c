//! The command line reads the trees of the leader through the API server's service proxy.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{Request, StatusCode};
use kube::Client;
use plimsoll_progress::Trees;
use plimsoll_progress_stream::{AccessToken, TreeSource, follow_leader, presents_token, stream_trees};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt;

use crate::{Transfer, bytes_done, eventually};

const PROXY: &str = "/services/http:plimsoll:dashboard/proxy";

/// A client of an API server that has the Service of the leader, and no Secret that this user may read.
fn client(leader: Router, token: AccessToken) -> Client {
    let service = tower::service_fn(move |mut request: Request<kube::client::Body>| {
        let (leader, token) = (leader.clone(), token.clone());
        async move {
            let path = request.uri().path_and_query().unwrap().as_str().to_owned();
            let response = if let Some((_, path)) = path.split_once(PROXY) {
                *request.uri_mut() = path.parse().unwrap();
                if presents_token(request.headers(), &token) {
                    leader.oneshot(request.map(Body::new)).await.unwrap()
                } else {
                    StatusCode::UNAUTHORIZED.into_response()
                }
            } else if path.ends_with("/services/plimsoll") {
                axum::Json(json!({ "metadata": { "name": "plimsoll" },
                    "spec": { "ports": [{ "name": "dashboard", "port": 8086 }] } }))
                .into_response()
            } else {
                StatusCode::FORBIDDEN.into_response()
            };
            Ok::<Response, Infallible>(response)
        }
    });
    Client::new(service, "velero")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_has_replicas_of_the_leaders_trees_with_the_token_that_it_was_given() {
    let trees = Trees::default();
    let source = TreeSource { trees: trees.clone(), epoch: 1, interval: Duration::from_millis(20) };
    let leader = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/api/trees", get(stream_trees).with_state(Arc::new(source)));
    let token = AccessToken::generate();
    let client = client(leader, token.clone());
    let (refused, replicas) = (Trees::default(), Trees::default());
    let follow = |token: AccessToken, replicas: &Trees| {
        let following = follow_leader(client.clone(), "velero".to_owned(), Some(token), replicas.clone());
        AbortOnDropHandle::new(tokio::spawn(following))
    };
    let _wrong = follow(AccessToken::generate(), &refused);
    let _right = follow(token, &replicas);
    let transfer = Transfer::new();
    let registration = transfer.register(&trees);
    eventually("the replica exists", || bytes_done(&replicas) == Some(0)).await;
    transfer.bytes.add(42);
    eventually("it follows", || bytes_done(&replicas) == Some(42)).await;
    drop(registration);
    eventually("a removed tree is removed", || replicas.is_empty()).await;
    assert!(refused.is_empty(), "a wrong token gets nothing");
}
