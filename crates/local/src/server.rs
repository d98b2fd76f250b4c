//! The HTTPS server for `kubectl` and other clients outside of this process.

use crate::{Api, Error, credentials::Credentials, status_error::StatusError};
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

/// A client that does not complete its TLS handshake must not hold a connection forever.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of the server and the certificate of its CA.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub address: SocketAddr,
    /// PEM.
    pub ca_certificate: String,
}

/// A running HTTPS server. It ends with [`HttpsServer::shutdown`] or when it is dropped.
#[derive(Debug)]
pub struct HttpsServer {
    address: SocketAddr,
    kubeconfig: PathBuf,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl HttpsServer {
    pub(crate) async fn start(api: Api, address: SocketAddr, directory: &Path) -> Result<Self, Error> {
        let credentials = Credentials::prepare(directory)?;
        let acceptor = acceptor(&credentials)?;
        let listener = TcpListener::bind(address).await.map_err(Error::Listen)?;
        let address = listener.local_addr().map_err(Error::Listen)?;
        let kubeconfig = credentials.write_kubeconfig(address)?;
        let (stop, stopped) = watch::channel(false);
        api.core.endpoint.send_replace(Some(Endpoint { address, ca_certificate: credentials.ca_certificate }));
        let token = Arc::from(credentials.token);
        let accepting = tokio::spawn(accept(listener, Connection { api, acceptor, token }, stopped));
        Ok(Self { address, kubeconfig, stop, accepting })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its kubeconfig, readable by the owner only.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// Stops listening and closes all connections.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        // The panic hook has reported a panic of the task.
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for HttpsServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

fn acceptor(credentials: &Credentials) -> Result<TlsAcceptor, Error> {
    let certificate_error = |error: &dyn std::fmt::Display| Error::Certificate(error.to_string());
    let certificate =
        CertificateDer::from_pem_slice(credentials.certificate.as_bytes()).map_err(|e| certificate_error(&e))?;
    let key = PrivateKeyDer::from_pem_slice(credentials.key.as_bytes()).map_err(|e| certificate_error(&e))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| certificate_error(&e))?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(|e| certificate_error(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The state that every connection needs.
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
                    // Most likely out of file descriptors: other connections must close first.
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
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(stream)).await;
        let Ok(Ok(stream)) = handshake else {
            tracing::debug!("TLS handshake failed");
            return;
        };
        let service = service_fn(|request: Request<Incoming>| {
            let (api, token) = (self.api.clone(), Arc::clone(&self.token));
            async move {
                if !api.core.is_authorized(request.headers(), &token) {
                    return Ok::<_, Infallible>(StatusError::unauthorized().into_response());
                }
                Ok(api.handle(request).await)
            }
        });
        let server = auto::Builder::new(TokioExecutor::new());
        if let Err(error) = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await {
            tracing::debug!(error, "connection failed");
        }
    }
}
