//! The gRPC server of a plugin on a unix socket, and its handshake.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

use crate::handshake::{MAGIC_COOKIE, PROTOCOL_VERSION};
use crate::registry::PluginKind;
use crate::wire::{
    CHECK_HEALTH, Empty, HealthCheckResponse, LIST_PLUGINS, ListPluginsResponse, Method, PluginIdentifier, SERVING,
    SHUTDOWN,
};

type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// The error of [`Plugin::serve`].
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The process was not started by a server.
    #[error("this is a plugin: copy it to the plugin directory of a server, which starts it")]
    NotStartedByServer,
    /// The socket could not be created, or the handshake not written.
    #[error("failed to serve plugin: {0}")]
    Io(#[from] std::io::Error),
}

/// The plugins of a binary and their handlers.
#[derive(Default)]
pub struct Plugin {
    plugins: Vec<PluginIdentifier>,
    handlers: HashMap<&'static str, Handler>,
}

impl Plugin {
    /// A binary without plugins.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a plugin under a name, `domain/name`.
    #[must_use]
    pub fn register(mut self, kind: PluginKind, name: &str) -> Self {
        let command = std::env::args().next().unwrap_or_default();
        self.plugins.push(PluginIdentifier { command, kind: kind.as_str().to_owned(), name: name.to_owned() });
        self
    }

    /// Sets the handler of a method.
    #[must_use]
    pub fn handle<Input, Output, HandlerFuture>(
        mut self,
        method: Method<Input, Output>,
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
        self.handlers.insert(method.path(), Arc::new(handler));
        self
    }

    /// Writes the handshake and serves until the server requests the shutdown.
    pub async fn serve(self) -> Result<(), ServeError> {
        if std::env::var(MAGIC_COOKIE.0).as_deref() != Ok(MAGIC_COOKIE.1) {
            return Err(ServeError::NotStartedByServer);
        }
        let directory = std::env::var_os("PLUGIN_UNIX_SOCKET_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let socket = directory.join(format!("plugin{}", std::process::id()));
        let listener = UnixListener::bind(&socket)?;
        let shutdown = Arc::new(Notify::new());
        let handlers = Arc::new(self.with_standard_services(&shutdown).handlers);
        // The only line on standard output.
        writeln!(std::io::stdout(), "1|{PROTOCOL_VERSION}|unix|{}|grpc|", socket.display())?;
        std::io::stdout().flush()?;
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => accepted?.0,
                () = shutdown.notified() => break,
            };
            let handlers = Arc::clone(&handlers);
            let handle_request = service_fn(move |request| handle_request(Arc::clone(&handlers), request));
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), handle_request);
            tokio::spawn(connection);
        }
        let _ = std::fs::remove_file(&socket);
        Ok(())
    }

    /// Adds the services of every plugin: list, health, shutdown.
    fn with_standard_services(self, shutdown: &Arc<Notify>) -> Self {
        let (plugins, shutdown) = (self.plugins.clone(), Arc::clone(shutdown));
        self.handle(LIST_PLUGINS, move |_: Empty| {
            let plugins = plugins.clone();
            async move { Ok(ListPluginsResponse { plugins }) }
        })
        .handle(CHECK_HEALTH, |_| async { Ok(HealthCheckResponse { status: SERVING }) })
        .handle(SHUTDOWN, move |_| {
            shutdown.notify_one();
            async { Ok(Empty {}) }
        })
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
