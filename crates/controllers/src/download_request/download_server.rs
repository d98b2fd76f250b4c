//! The listener that serves signed links to the objects of directory locations. Every server has it, whether it leads or not.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use kube::{Api, Client};
use plimsoll_api::velero::v1::BackupStorageLocation;
use plimsoll_engine::Error;
use plimsoll_store::{StoreError, Tuning};
use plimsoll_volumes::storage_location::open_location;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

use super::links::{InvalidLink, Link, Signer, Target};
use crate::settings::DownloadSettings;

/// A client that does not finish its handshake must not hold a connection for ever.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Connections that are open at the same time; further ones are closed.
const MAX_CONNECTIONS: usize = 64;
/// A client must have sent the headers of its request by then.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the key is used without being read again.
const KEY_CACHE_TIME: Duration = Duration::from_secs(10);

/// A running listener. It ends when this is dropped.
pub struct DownloadListener {
    /// What comes before the path in a link; `None` without an address that others can reach.
    pub base: Option<String>,
    _accepting: AbortOnDropHandle<()>,
}

/// Starts to listen.
pub async fn listen(settings: &DownloadSettings, client: Client, namespace: &str) -> Result<DownloadListener, Error> {
    let what = format!("listen for downloads on {}", settings.address);
    let failed = |detail: String| Error::InvalidResponse { what: what.clone(), detail };
    let acceptor = settings.tls.as_ref().map(|(cert, key)| acceptor(cert, key)).transpose().map_err(failed)?;
    let listener = TcpListener::bind(settings.address).await.map_err(|e| failed(e.to_string()))?;
    let address = listener.local_addr().map_err(|e| failed(e.to_string()))?;
    let base = base(settings, address);
    info!("serving downloads on {address}, in links as {}", base.as_deref().unwrap_or("nothing: no URL is set"));
    let service = Service { client, namespace: namespace.to_owned(), acceptor, key: Mutex::default() };
    Ok(DownloadListener { base, _accepting: AbortOnDropHandle::new(tokio::spawn(accept(listener, Arc::new(service)))) })
}

fn base(settings: &DownloadSettings, address: SocketAddr) -> Option<String> {
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    match &settings.url {
        Some(url) => Some(url.trim_end_matches('/').to_owned()),
        None if address.ip().is_loopback() => Some(format!("{scheme}://{address}")),
        None => None,
    }
}

fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate)
        .map_err(|e| format!("certificate {}: {e}", certificate.display()))?
        .collect();
    let chain = chain.map_err(|e| format!("certificate {}: {e}", certificate.display()))?;
    let key_file = key.display();
    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| format!("key {key_file}: {e}"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|e| format!("certificate {}: {e}", certificate.display()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

struct Service {
    client: Client,
    namespace: String,
    acceptor: Option<TlsAcceptor>,
    /// The key, and when it was read.
    key: Mutex<Option<(Instant, Signer)>>,
}

async fn accept(listener: TcpListener, service: Arc<Service>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut open = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = open.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
                    let served = Arc::clone(&service).greet(stream);
                    open.spawn(async move {
                        served.await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    warn!("cannot accept a connection for a download: {error}");
                    // Out of file descriptors, most likely: others must close first.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

type Answer = Response<BoxBody<Bytes, StoreError>>;

impl Service {
    async fn greet(self: Arc<Self>, stream: TcpStream) {
        let Some(acceptor) = self.acceptor.clone() else { return self.serve(stream).await };
        if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
            self.serve(stream).await;
        } else {
            debug!("a client did not complete its handshake");
        }
    }

    async fn serve(self: Arc<Self>, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let service = service_fn(move |request: Request<Incoming>| {
            let this = Arc::clone(&self);
            async move { Ok::<_, Infallible>(this.answer(&request).await) }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEADER_READ_TIMEOUT);
        if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
            debug!("a download ended badly: {error}");
        }
    }

    async fn answer(&self, request: &Request<Incoming>) -> Answer {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are known here");
        }
        let target = match self.check(request).await {
            Ok(target) => target,
            Err(refused) => return refused,
        };
        match self.read(&target, request.method() == Method::HEAD).await {
            Ok(answer) => answer,
            Err(Error::Store(error)) if error.is_not_found() => text(StatusCode::NOT_FOUND, &error.to_string()),
            Err(error) => text(StatusCode::BAD_GATEWAY, &error.to_string()),
        }
    }

    /// What a request asks for, if its link is valid. The API server is not asked about what is no link.
    async fn check(&self, request: &Request<Incoming>) -> Result<Target, Answer> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let link = Link::parse(path, query).map_err(refuse)?;
        let unavailable = |error: Error| text(StatusCode::BAD_GATEWAY, &error.to_string());
        let Some(signer) = self.signer().await.map_err(unavailable)? else {
            return Err(text(StatusCode::FORBIDDEN, "no link was ever made here"));
        };
        signer.verify(&link, Timestamp::now()).map_err(refuse)?;
        Ok(link.target)
    }

    /// The key, which is read again after a while: it may have been replaced.
    async fn signer(&self) -> Result<Option<Signer>, Error> {
        let mut cached = self.key.lock().await;
        if let Some((read, signer)) = cached.as_ref()
            && read.elapsed() < KEY_CACHE_TIME
        {
            return Ok(Some(signer.clone()));
        }
        let found = Signer::find(self.client.clone(), &self.namespace).await?;
        *cached = found.clone().map(|signer| (Instant::now(), signer));
        Ok(found)
    }

    async fn read(&self, target: &Target, head: bool) -> Result<Answer, Error> {
        let api: Api<BackupStorageLocation> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = api.get_opt(&target.location).await;
        let found = found.map_err(|e| Error::api(format!("read location {}", target.location), e))?;
        let Some(location) = found else {
            return Ok(text(StatusCode::NOT_FOUND, &format!("location {} not found", target.location)));
        };
        let store = open_location(self.client.clone(), &self.namespace, &location, Tuning::default(), None).await?;
        let reader = store.reader(&target.key).await?;
        let size = reader.info().size;
        let body = if head {
            Full::new(Bytes::new()).map_err(|never| match never {}).boxed()
        } else {
            BodyExt::boxed(StreamBody::new(sync(reader).map_ok(Frame::data)))
        };
        let answer = Response::builder().header(CONTENT_TYPE, "application/octet-stream").header(CONTENT_LENGTH, size);
        Ok(answer.body(body).unwrap_or_else(|error| text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())))
    }
}

fn refuse(refusal: InvalidLink) -> Answer {
    match refusal {
        InvalidLink::Malformed => text(StatusCode::NOT_FOUND, "this is no link to a download"),
        InvalidLink::Forged => text(StatusCode::FORBIDDEN, "the signature of this link is not valid"),
        InvalidLink::Expired => text(StatusCode::FORBIDDEN, "this link has expired: ask for a new one"),
    }
}

/// Only one task polls the stream, but a body must be `Sync`.
fn sync(
    reader: plimsoll_store::Reader,
) -> impl futures::Stream<Item = Result<Bytes, StoreError>> + Send + Sync + 'static {
    let (sender, receiver) = tokio::sync::mpsc::channel(2);
    tokio::spawn(async move {
        let mut reader = reader;
        while let Some(piece) = reader.next().await {
            if sender.send(piece).await.is_err() {
                break;
            }
        }
    });
    tokio_stream::wrappers::ReceiverStream::new(receiver)
}

fn text(status: StatusCode, message: &str) -> Answer {
    let body = Full::new(Bytes::from(format!("{message}\n"))).map_err(|never| match never {}).boxed();
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn settings(url: Option<&str>) -> DownloadSettings {
        DownloadSettings { address: ([127, 0, 0, 1], 0).into(), url: url.map(str::to_owned), tls: None }
    }

    /// A listener, and how often it has asked the API server.
    async fn listening() -> (DownloadListener, SocketAddr, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        let service = tower::service_fn(move |_: Request<kube::client::Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, Infallible>(Response::builder().status(404).body(kube::client::Body::empty()).unwrap()) }
        });
        let listening = listen(&settings(None), Client::new(service, "velero"), "velero").await.unwrap();
        let address = listening.base.as_deref().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
        (listening, address, asked)
    }

    async fn answer(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn the_api_server_is_not_asked_about_what_is_no_link() {
        let (_listening, address, asked) = listening().await;
        let refused =
            answer(address, "GET /downloads/x?expires=1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
        assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_nothing_is_not_served_for_ever() {
        let (_listening, address, _) = listening().await;
        let begun = Instant::now();
        assert_eq!(answer(address, "GET / HTTP/1.1\r\n").await, "");
        assert!(begun.elapsed() <= HEADER_READ_TIMEOUT + Duration::from_secs(1), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn the_number_of_connections_is_limited() {
        let (_listening, address, _) = listening().await;
        let mut open = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            open.push(TcpStream::connect(address).await.unwrap());
        }
        let mut refused = TcpStream::connect(address).await.unwrap();
        assert_eq!(refused.read(&mut [0]).await.unwrap_or(0), 0, "it is closed");
    }

    #[test]
    fn only_a_loopback_listener_knows_its_own_address() {
        let loopback: SocketAddr = ([127, 0, 0, 1], 8085).into();
        let everywhere: SocketAddr = ([0, 0, 0, 0], 8085).into();
        assert_eq!(base(&settings(None), loopback).as_deref(), Some("http://127.0.0.1:8085"));
        assert_eq!(base(&settings(None), everywhere), None);
        assert_eq!(base(&settings(Some("https://b.example/")), everywhere).as_deref(), Some("https://b.example"));
    }
}
