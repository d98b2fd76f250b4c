//! The HTTPS listener for `kubectl` and everything else outside of this process.

use crate::{Api, Error, credentials::Credentials, failure::Failure};
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{
    convert::Infallible,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

/// A client that does not finish its handshake must not hold a connection for ever.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Where a listener can be reached, and the authority that vouches for it.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub address: SocketAddr,
    /// A certificate, PEM.
    pub authority: String,
}

/// A running listener. It ends with [`Served::shutdown`] or when it is dropped.
#[derive(Debug)]
pub struct Served {
    address: SocketAddr,
    kubeconfig: PathBuf,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start(api: Api, address: SocketAddr, directory: &Path) -> Result<Self, Error> {
        let credentials = Credentials::prepare(directory)?;
        let acceptor = acceptor(&credentials)?;
        let listener = TcpListener::bind(address).await.map_err(Error::Listen)?;
        let address = listener.local_addr().map_err(Error::Listen)?;
        let kubeconfig = credentials.write_kubeconfig(address)?;
        let (stop, stopped) = watch::channel(false);
        api.core.listener.send_replace(Some(Listener { address, authority: credentials.authority }));
        let token = Arc::from(credentials.token);
        let accepting = tokio::spawn(accept(listener, Connection { api, acceptor, token }, stopped));
        Ok(Self { address, kubeconfig, stop, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig for it, readable by the owner only.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// Stops listening and closes all connections.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        // A panic of the accepting task has been reported already.
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

fn acceptor(credentials: &Credentials) -> Result<TlsAcceptor, Error> {
    let refused = |error: &dyn std::fmt::Display| Error::Certificate(error.to_string());
    let certificate = CertificateDer::from_pem_slice(credentials.certificate.as_bytes()).map_err(|e| refused(&e))?;
    let key = PrivateKeyDer::from_pem_slice(credentials.key.as_bytes()).map_err(|e| refused(&e))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| refused(&e))?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(|e| refused(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// What every connection needs.
#[derive(Clone)]
struct Connection {
    api: Api,
    acceptor: TlsAcceptor,
    token: Arc<str>,
}

async fn accept(listener: TcpListener, connection: Connection, mut stopped: watch::Receiver<bool>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.changed() => break,
            Some(_) = open.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { open.spawn(connection.clone().run(stream)); }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    // Out of file descriptors, most likely: others must close first.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
    open.shutdown().await;
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let handshake = tokio::time::timeout(HANDSHAKE_LIMIT, self.acceptor.accept(stream)).await;
        let Ok(Ok(stream)) = handshake else {
            tracing::debug!("a client did not complete its handshake");
            return;
        };
        let service = service_fn(|request: Request<Incoming>| {
            let (api, token) = (self.api.clone(), Arc::clone(&self.token));
            async move {
                if !api.core.is_authorized(request.headers(), &token) {
                    return Ok::<_, Infallible>(Failure::unauthorized().into_response());
                }
                Ok(api.handle(request).await)
            }
        });
        let server = auto::Builder::new(TokioExecutor::new());
        if let Err(error) = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await {
            tracing::debug!(error, "a connection ended badly");
        }
    }
}
