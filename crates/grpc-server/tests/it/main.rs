//! A client of the server on a socket.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use plimsoll_grpc_server::Router;
use tokio::net::{UnixListener, UnixStream};
use tonic::client::Grpc;
use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// Calls a method that takes and returns a text.
async fn call(socket: &Path, method: &'static str, text: &str) -> Result<String, Status> {
    let socket: PathBuf = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://socket.invalid").connect_with_connector_lazy(connector);
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    let codec = ProstCodec::<String, String>::default();
    let response = client.unary(Request::new(text.to_owned()), PathAndQuery::from_static(method), codec).await;
    response.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn a_method_answers_an_error_keeps_its_code_and_an_unknown_method_is_unimplemented() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let router = Router::default()
        .on("/test.Text/Repeat", |text: String| async move { Ok(format!("{text} {text}")) })
        .on("/test.Text/Fail", |text: String| async move { Err::<String, _>(Status::not_found(text)) });
    let server = tokio::spawn(router.serve(UnixListener::bind(&socket).unwrap()));
    assert_eq!(call(&socket, "/test.Text/Repeat", "a").await.unwrap(), "a a");
    let failed = call(&socket, "/test.Text/Fail", "b").await.unwrap_err();
    assert_eq!((failed.code(), failed.message()), (Code::NotFound, "b"));
    let unknown = call(&socket, "/test.Text/Other", "c").await.unwrap_err();
    assert_eq!((unknown.code(), unknown.message()), (Code::Unimplemented, "unknown method"));
    server.abort();
}
