//! A gRPC server of a few methods on a unix socket, with the handshake that hosts wait for.

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

use crate::catalog::Kind;
use crate::handshake::{COOKIE, PROTOCOL};
use crate::wire::{
    CHECK_HEALTH, Empty, HealthCheckResponse, LIST_PLUGINS, ListPluginsResponse, Method, PluginIdentifier, SERVING,
    SHUT_DOWN,
};

type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// Why a plugin stopped before it could serve.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// It was started by hand.
    #[error("this is a plugin: put it into the plugin directory of a server, which starts it")]
    ByHand,
    /// Its socket could not be made, or its handshake not written.
    #[error("it cannot serve: {0}")]
    Io(#[from] std::io::Error),
}

/// A plugin: what it offers, and how it answers.
#[derive(Default)]
pub struct Plugin {
    offers: Vec<PluginIdentifier>,
    handlers: HashMap<&'static str, Handler>,
}

impl Plugin {
    /// One that offers nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Offers something under a registered name, `domain/name`.
    #[must_use]
    pub fn offer(mut self, kind: Kind, name: &str) -> Self {
        let command = std::env::args().next().unwrap_or_default();
        self.offers.push(PluginIdentifier { command, kind: kind.as_str().to_owned(), name: name.to_owned() });
        self
    }

    /// Answers a method.
    #[must_use]
    pub fn on<Ask, Answer, Work>(
        mut self,
        method: Method<Ask, Answer>,
        work: impl Fn(Ask) -> Work + Clone + Send + Sync + 'static,
    ) -> Self
    where
        Ask: Message + Default + 'static,
        Answer: Message + Default + 'static,
        Work: Future<Output = Result<Answer, Status>> + Send + 'static,
    {
        let handler = move |request: Request<Incoming>| -> BoxFuture<'static, Response<Body>> {
            let work = work.clone();
            Box::pin(async move {
                let codec = ProstCodec::<Answer, Ask>::default();
                Grpc::new(codec).unary(Unary(work), request).await
            })
        };
        self.handlers.insert(method.path(), Arc::new(handler));
        self
    }

    /// Says hello and serves until the host asks for the end.
    pub async fn serve(self) -> Result<(), Stopped> {
        if std::env::var(COOKIE.0).as_deref() != Ok(COOKIE.1) {
            return Err(Stopped::ByHand);
        }
        let directory = std::env::var_os("PLUGIN_UNIX_SOCKET_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let socket = directory.join(format!("plugin{}", std::process::id()));
        let listener = UnixListener::bind(&socket)?;
        let end = Arc::new(Notify::new());
        let handlers = Arc::new(self.with_library(&end).handlers);
        // The one line that may go to standard output.
        writeln!(std::io::stdout(), "1|{PROTOCOL}|unix|{}|grpc|", socket.display())?;
        std::io::stdout().flush()?;
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => accepted?.0,
                () = end.notified() => break,
            };
            let handlers = Arc::clone(&handlers);
            let answer = service_fn(move |request| answer(Arc::clone(&handlers), request));
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(connection);
        }
        let _ = std::fs::remove_file(&socket);
        Ok(())
    }

    /// What every plugin answers: its list, its health, its end.
    fn with_library(self, end: &Arc<Notify>) -> Self {
        let (offers, end) = (self.offers.clone(), Arc::clone(end));
        self.on(LIST_PLUGINS, move |_: Empty| {
            let plugins = offers.clone();
            async move { Ok(ListPluginsResponse { plugins }) }
        })
        .on(CHECK_HEALTH, |_| async { Ok(HealthCheckResponse { status: SERVING }) })
        .on(SHUT_DOWN, move |_| {
            end.notify_one();
            async { Ok(Empty {}) }
        })
    }
}

async fn answer(
    handlers: Arc<HashMap<&'static str, Handler>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    match handlers.get(request.uri().path()).cloned() {
        Some(handler) => Ok(handler(request).await),
        None => Ok(Status::unimplemented("this plugin does not know the method").into_http()),
    }
}

struct Unary<F>(F);

impl<Ask, Answer, Work, F> UnaryService<Ask> for Unary<F>
where
    F: Fn(Ask) -> Work,
    Work: Future<Output = Result<Answer, Status>> + Send + 'static,
    Answer: Send + 'static,
{
    type Response = Answer;
    type Future = BoxFuture<'static, Result<tonic::Response<Answer>, Status>>;

    fn call(&mut self, request: tonic::Request<Ask>) -> Self::Future {
        let work = (self.0)(request.into_inner());
        Box::pin(async move { work.await.map(tonic::Response::new) })
    }
}
