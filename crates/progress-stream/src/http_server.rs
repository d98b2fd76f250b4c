//! A listener with limits: connections at the same time, and time to send a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use crate::error::Error;

/// Connections that are open at the same time; further ones are closed.
const MAX_CONNECTIONS: usize = 256;
/// A client must have sent its request headers by then.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A bound address that is not served yet.
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
}

/// A server that runs until this is dropped.
pub struct RunningServer {
    /// Where it listens.
    pub address: SocketAddr,
    _accepting: AbortOnDropHandle<()>,
}

impl HttpServer {
    /// Binds an address.
    pub async fn bind(address: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Starts to serve these routes.
    pub fn serve(self, router: Router) -> RunningServer {
        let accepting = AbortOnDropHandle::new(tokio::spawn(accept(self.listener, router)));
        RunningServer { address: self.address, _accepting: accepting }
    }
}

async fn accept(listener: TcpListener, router: Router) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut open = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = open.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
                    let router = router.clone();
                    open.spawn(async move {
                        serve_connection(stream, router).await;
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

/// Not `axum::serve`, which has neither a time limit for headers nor a limit for connections.
async fn serve_connection(stream: TcpStream, router: Router) {
    // Events are small, and each of them is waited for.
    let _ = stream.set_nodelay(true);
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_READ_TIMEOUT);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await {
        debug!("a connection failed: {error}");
    }
}
