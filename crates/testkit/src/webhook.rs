//! A validating admission webhook that allows everything and counts its calls.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{CertificateParams, KeyPair, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A listening webhook; it ends when this is dropped.
#[derive(Debug)]
pub struct Webhook {
    address: SocketAddr,
    certificate: String,
    calls: Arc<AtomicUsize>,
    _stop: DropGuard,
}

impl Webhook {
    /// Listens with its own certificate on an address that the API server of the test kit can reach:
    /// [`Addresses::host`](crate::enclosure::Addresses::host).
    pub async fn listen(address: &str) -> Result<Self> {
        crate::install_crypto();
        let mut params = CertificateParams::default();
        params.subject_alt_names.push(SanType::IpAddress(address.parse()?));
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let listener = TcpListener::bind((address, 0)).await?;
        let (address, calls, stop) = (listener.local_addr()?, Arc::default(), CancellationToken::new());
        let acceptor = acceptor(certificate.der().clone(), &key)?;
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, acceptor, Arc::clone(&calls))));
        Ok(Self { address, certificate: certificate.pem(), calls, _stop: stop.drop_guard() })
    }

    /// The number of calls.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// The ValidatingWebhookConfiguration for everything that is created or changed in namespaces with this label.
    pub fn configuration(&self, name: &str, label: &str) -> Value {
        let bundle = BASE64_STANDARD.encode(&self.certificate);
        json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": name },
            "webhooks": [{ "name": "all.webhook.test", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": { "url": format!("https://{}/", self.address), "caBundle": bundle },
                "namespaceSelector": { "matchExpressions": [{ "key": label, "operator": "Exists" }] },
                "rules": [{ "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
                    "operations": ["CREATE", "UPDATE"] }] }] })
    }
}

fn acceptor(certificate: CertificateDer<'static>, key: &KeyPair) -> Result<TlsAcceptor> {
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let mut config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, calls: Arc<AtomicUsize>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, calls) = (acceptor.clone(), Arc::clone(&calls));
        tokio::spawn(async move {
            let _ = serve_connection(stream, &acceptor, calls).await;
        });
    }
}

async fn serve_connection(stream: TcpStream, acceptor: &TlsAcceptor, calls: Arc<AtomicUsize>) -> Result<()> {
    let stream = TokioIo::new(acceptor.accept(stream).await?);
    let allow = service_fn(move |request| {
        calls.fetch_add(1, Ordering::SeqCst);
        allow(request)
    });
    auto::Builder::new(TokioExecutor::new()).serve_connection(stream, allow).await.map_err(anyhow::Error::from_boxed)
}

async fn allow(request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let review: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
    let uid = review["request"]["uid"].as_str().context("a review without a uid")?;
    let answer = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": { "uid": uid, "allowed": true } });
    let body = Full::new(Bytes::from(serde_json::to_vec(&answer)?));
    Ok(Response::builder().header("content-type", "application/json").body(body)?)
}
