//! The connection of one client: bytes pass the gate, requests pass the rules.

use std::io;
use std::sync::Arc;

use anyhow::Result;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use super::bandwidth::BandwidthLimit;
use super::body::{BodyEnd, BoxBody, Error, pass_through, truncate};
use super::rules::{Fault, Rules};

const BUFFER: usize = 64 << 10;

/// What happens to whole connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    Open,
    Stalled,
    Closed,
}

/// The server behind the proxy.
pub(super) struct Upstream {
    pub(super) authority: String,
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// The state that every connection needs.
pub(super) struct Connection {
    pub(super) upstream: Upstream,
    pub(super) rules: Arc<Rules>,
    pub(super) gate: watch::Receiver<Gate>,
    pub(super) bandwidth: Arc<BandwidthLimit>,
}

impl Connection {
    pub(super) async fn serve(self: Arc<Self>, client: TcpStream) {
        let mut gate = self.gate.clone();
        let _ = client.set_nodelay(true);
        let (near, far) = tokio::io::duplex(BUFFER);
        let (client_reader, client_writer) = client.into_split();
        let (near_reader, near_writer) = tokio::io::split(near);
        let relay = async {
            tokio::join!(
                pump(client_reader, near_writer, self.gate.clone(), &self.bandwidth),
                pump(near_reader, client_writer, self.gate.clone(), &self.bandwidth)
            )
        };
        let this = Arc::clone(&self);
        let http = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(far), service_fn(move |request| Arc::clone(&this).handle(request)))
            .with_upgrades();
        // An upgraded connection outlives its HTTP part, so the relay decides when it ends.
        let both = async { tokio::join!(relay, async { http.await.ok() }) };
        tokio::select! {
            _ = both => {}
            _ = gate.wait_for(|state| *state == Gate::Closed) => {}
        }
    }

    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<BoxBody>, Error> {
        let request = request.map(pass_through);
        match self.rules.match_fault(request.method(), request.uri()) {
            None => self.forward(request).await,
            Some(Fault::Latency(time)) => {
                tokio::time::sleep(time).await;
                self.forward(request).await
            }
            Some(Fault::Status(code)) => Ok(error_response(code)?),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::CloseConnection) => Err(closed()),
            Some(Fault::DropResponse) => {
                let response = self.forward(request).await?;
                // Read the whole response: a server may work while it responds.
                let _ = http_body_util::BodyExt::collect(response.into_body()).await;
                Err(closed())
            }
            Some(Fault::TruncateResponse(after)) => {
                self.forward(request).await.map(|it| it.map(|b| truncate(b, after, BodyEnd::Cut)))
            }
            Some(Fault::StallResponse(after)) => {
                self.forward(request).await.map(|it| it.map(|b| truncate(b, after, BodyEnd::Hang)))
            }
            Some(Fault::TruncateRequest(after)) => {
                self.forward(request.map(|b| truncate(b, after, BodyEnd::Cut))).await
            }
        }
    }

    /// Each request has its own connection, so that a fault affects one request only.
    async fn forward(&self, mut request: Request<BoxBody>) -> Result<Response<BoxBody>, Error> {
        let near = hyper::upgrade::on(&mut request);
        let stream = self.upstream.connect().await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection.with_upgrades());
        let mut response = sender.send_request(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let far = hyper::upgrade::on(&mut response);
            tokio::spawn(async move {
                let (near, far) = tokio::try_join!(near, far)?;
                tokio::io::copy_bidirectional(&mut TokioIo::new(near), &mut TokioIo::new(far)).await?;
                Ok::<_, Error>(())
            });
        }
        Ok(response.map(pass_through))
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Upstream {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Box::new(stream),
            Some((connector, name)) => Box::new(connector.connect(name.clone(), stream).await?),
        })
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut gate: watch::Receiver<Gate>,
    bandwidth: &BandwidthLimit,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        if gate.wait_for(|state| *state != Gate::Stalled).await.is_err() {
            return Ok(());
        }
        bandwidth.acquire(count).await;
        to.write_all(&buffer[..count]).await?;
    }
}

/// A `Status` as the API server returns it, which every Kubernetes client understands.
fn error_response(code: u16) -> Result<Response<BoxBody>, Error> {
    let status = StatusCode::from_u16(code)?;
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let text = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason,
        "message": format!("injected by the fault proxy: {status}"),
    });
    let body = pass_through(Full::from(text.to_string()));
    Ok(Response::builder().status(status).header("content-type", "application/json").body(body)?)
}

fn closed() -> Error {
    io::Error::from(io::ErrorKind::ConnectionAborted).into()
}
