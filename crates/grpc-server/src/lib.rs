//! A gRPC server of unary methods on a unix socket: the server side of plugins, and of the CSI driver of the tests.
//!
//! ```text
//!  Router::default().on("/package.Service/Method", handler)… ──▶ serve(listener)
//! ```
//!
//! It knows none of the methods. There is no TLS: the permissions of the socket protect it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// Handlers by the path of their method.
#[derive(Default)]
pub struct Router {
    handlers: HashMap<&'static str, Handler>,
}

impl Router {
    /// Sets the handler of `/package.Service/Method`.
    #[must_use]
    pub fn on<Input, Output, HandlerFuture>(
        mut self,
        path: &'static str,
        handler: impl Fn(Input) -> HandlerFuture + Clone + Send + Sync + 'static,
    ) -> Self
    where
        Input: Message + Default + 'static,
        Output: Message + Default + 'static,
        HandlerFuture: Future<Output = Result<Output, Status>> + Send + 'static,
    {
        let handler = move |request: Request<Incoming>| -> BoxFuture<'static, Response<Body>> {
            let handler = handler.clone();
            Box::pin(async move {
                let codec = ProstCodec::<Output, Input>::default();
                Grpc::new(codec).unary(UnaryHandler(handler), request).await
            })
        };
        self.handlers.insert(path, Arc::new(handler));
        self
    }

    /// Serves until the listener fails. Connections that are open then, or when the future is dropped, continue.
    pub async fn serve(self, listener: UnixListener) -> std::io::Error {
        let handlers = Arc::new(self.handlers);
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => return error,
            };
            let handlers = Arc::clone(&handlers);
            let service = service_fn(move |request| handle_request(Arc::clone(&handlers), request));
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    }
}

async fn handle_request(
    handlers: Arc<HashMap<&'static str, Handler>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    match handlers.get(request.uri().path()).cloned() {
        Some(handler) => Ok(handler(request).await),
        None => Ok(Status::unimplemented("unknown method").into_http()),
    }
}

struct UnaryHandler<F>(F);

impl<Input, Output, HandlerFuture, F> UnaryService<Input> for UnaryHandler<F>
where
    F: Fn(Input) -> HandlerFuture,
    HandlerFuture: Future<Output = Result<Output, Status>> + Send + 'static,
    Output: Send + 'static,
{
    type Response = Output;
    type Future = BoxFuture<'static, Result<tonic::Response<Output>, Status>>;

    fn call(&mut self, request: tonic::Request<Input>) -> Self::Future {
        let handler = (self.0)(request.into_inner());
        Box::pin(async move { handler.await.map(tonic::Response::new) })
    }
}
