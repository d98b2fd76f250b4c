//! A gRPC server of a few methods on a unix socket.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
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

/// Methods by their path.
#[derive(Default)]
pub struct Services {
    handlers: HashMap<&'static str, Handler>,
}

impl Services {
    /// Adds the handler of `/package.Service/Method`.
    #[must_use]
    pub fn on<Req, Resp, Work>(
        mut self,
        path: &'static str,
        work: impl Fn(Req) -> Work + Clone + Send + Sync + 'static,
    ) -> Self
    where
        Req: Message + Default + 'static,
        Resp: Message + Default + 'static,
        Work: Future<Output = Result<Resp, Status>> + Send + 'static,
    {
        let handler = move |request: Request<Incoming>| -> BoxFuture<'static, Response<Body>> {
            let work = work.clone();
            Box::pin(async move { Grpc::new(ProstCodec::<Resp, Req>::default()).unary(Unary(work), request).await })
        };
        self.handlers.insert(path, Arc::new(handler));
        self
    }

    /// Listens at `socket`, replacing an earlier listener. The returned future serves until it is dropped.
    pub fn listen(self, socket: &Path) -> Result<impl Future<Output = Result<()>> + Send + use<>> {
        let _ = std::fs::remove_file(socket);
        let listener =
            UnixListener::bind(socket).with_context(|| format!("failed to listen at {}", socket.display()))?;
        let handlers = Arc::new(self.handlers);
        Ok(async move {
            loop {
                let (stream, _) = listener.accept().await?;
                let handlers = Arc::clone(&handlers);
                let service = service_fn(move |request| dispatch(Arc::clone(&handlers), request));
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        })
    }
}

async fn dispatch(
    handlers: Arc<HashMap<&'static str, Handler>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    match handlers.get(request.uri().path()).cloned() {
        Some(handler) => Ok(handler(request).await),
        None => Ok(Status::unimplemented("this driver does not implement the method").into_http()),
    }
}

struct Unary<F>(F);

impl<Req, Resp, Work, F> UnaryService<Req> for Unary<F>
where
    F: Fn(Req) -> Work,
    Work: Future<Output = Result<Resp, Status>> + Send + 'static,
    Resp: Send + 'static,
{
    type Response = Resp;
    type Future = BoxFuture<'static, Result<tonic::Response<Resp>, Status>>;

    fn call(&mut self, request: tonic::Request<Req>) -> Self::Future {
        let work = (self.0)(request.into_inner());
        Box::pin(async move { work.await.map(tonic::Response::new) })
    }
}
