//! Accepts connections and serves them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use crate::certificate::ServerCertificate;
use crate::error::ListenError;

/// Connections that are open at the same time, unless the server has a limit of its own.
const DEFAULT_MAX_CONNECTIONS: usize = 256;
/// A client that does not finish its TLS handshake must not hold a connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A client must have sent the headers of its request by then.
pub const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A bound address that is not served yet.
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    max_connections: usize,
    certificate: Option<ServerCertificate>,
}

/// A server that runs until this is dropped.
pub struct RunningServer {
    /// Where it listens.
    pub address: SocketAddr,
    _accepting: AbortOnDropHandle<()>,
}

impl HttpServer {
    /// Binds an address.
    pub async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let failed = |source| ListenError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, max_connections: DEFAULT_MAX_CONNECTIONS, certificate: None })
    }

    /// Closes new connections while this many are open.
    #[must_use]
    pub fn with_max_connections(self, max_connections: usize) -> Self {
        Self { max_connections, ..self }
    }

    /// Serves HTTPS, not HTTP.
    #[must_use]
    pub fn with_certificate(self, certificate: ServerCertificate) -> Self {
        Self { certificate: Some(certificate), ..self }
    }

    /// Starts to serve these routes.
    pub fn serve(self, router: Router) -> RunningServer {
        let address = self.address;
        RunningServer { address, _accepting: AbortOnDropHandle::new(tokio::spawn(self.accept(router))) }
    }

    async fn accept(self, router: Router) {
        let free = Arc::new(Semaphore::new(self.max_connections));
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = open.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let Ok(permit) = Arc::clone(&free).try_acquire_owned() else { continue };
                        let (router, certificate) = (router.clone(), self.certificate.clone());
                        open.spawn(async move {
                            serve_connection(stream, certificate, router).await;
                            drop(permit);
                        });
                    }
                    Err(error) => {
                        warn!("failed to accept a connection: {error}");
                        // Out of file descriptors, most likely: other connections must close first.
                        tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                    }
                }
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, certificate: Option<ServerCertificate>, router: Router) {
    // A server-sent event is small, and a client waits for each of them.
    let _ = stream.set_nodelay(true);
    let Some(certificate) = certificate else { return serve_requests(stream, router).await };
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, certificate.0.accept(stream)).await {
        Ok(Ok(stream)) => serve_requests(stream, router).await,
        Ok(Err(error)) => debug!("TLS handshake failed: {error}"),
        Err(_) => debug!("TLS handshake timed out after {HANDSHAKE_TIMEOUT:?}"),
    }
}

async fn serve_requests(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, router: Router) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_READ_TIMEOUT);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await {
        debug!("a connection failed: {error}");
    }
}
