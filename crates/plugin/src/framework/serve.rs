//! The gRPC server of a plugin on a unix socket, and its handshake.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_grpc_server::Router;
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tonic::Status;

use crate::handshake::{MAGIC_COOKIE, PROTOCOL_VERSION};
use crate::registry::PluginKind;
use crate::wire::{
    CHECK_HEALTH, Empty, HealthCheckResponse, LIST_PLUGINS, ListPluginsResponse, Method, PluginIdentifier, SERVING,
    SHUTDOWN,
};

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
    router: Router,
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
        self.router = self.router.on(method.path(), handler);
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
        let router = self.with_standard_services(&shutdown).router;
        // The only line on standard output.
        writeln!(std::io::stdout(), "1|{PROTOCOL_VERSION}|unix|{}|grpc|", socket.display())?;
        std::io::stdout().flush()?;
        tokio::select! {
            error = router.serve(listener) => return Err(error.into()),
            () = shutdown.notified() => {}
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
