//! The listener that serves signed links to the objects of directory locations. Every server has it, whether it leads or not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{StatusCode, Uri};
use jiff::Timestamp;
use kube::{Api, Client};
use plimsoll_api::velero::v1::BackupStorageLocation;
use plimsoll_engine::Error;
use plimsoll_http_server::{HttpServer, RunningServer, ServerCertificate};
use plimsoll_store::Tuning;
use plimsoll_volumes::storage_location::open_location;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::info;

use super::links::{InvalidLink, Link, Signer, Target};
use crate::settings::DownloadSettings;

/// Downloads that run at the same time; further connections are closed.
const MAX_CONNECTIONS: usize = 64;
/// How long the key is used without being read again.
const KEY_CACHE_TIME: Duration = Duration::from_secs(10);

/// A running listener. It ends when this is dropped.
pub struct DownloadListener {
    /// The base URL of links; `None` without an address that other machines can reach.
    pub base: Option<String>,
    _server: RunningServer,
}

/// Starts to listen.
pub async fn listen(settings: &DownloadSettings, client: Client, namespace: &str) -> Result<DownloadListener, Error> {
    let what = format!("listen for downloads on {}", settings.address);
    let failed = |detail: String| Error::InvalidResponse { what: what.clone(), detail };
    let server = HttpServer::bind(settings.address).await.map_err(|error| failed(error.to_string()))?;
    let server = match &settings.tls {
        Some((certificate, key)) => server
            .with_certificate(ServerCertificate::read(certificate, key).map_err(|error| failed(error.to_string()))?),
        None => server,
    };
    let service = DownloadService { client, namespace: namespace.to_owned(), key: Mutex::default() };
    let server = server.with_max_connections(MAX_CONNECTIONS).serve(router(service));
    let base = base(settings, server.address);
    info!(
        "serving downloads on {}, in links as {}",
        server.address,
        base.as_deref().unwrap_or("nothing: no URL is set")
    );
    Ok(DownloadListener { base, _server: server })
}

fn base(settings: &DownloadSettings, address: SocketAddr) -> Option<String> {
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    match &settings.url {
        Some(url) => Some(url.trim_end_matches('/').to_owned()),
        None if address.ip().is_loopback() => Some(format!("{scheme}://{address}")),
        None => None,
    }
}

fn router(service: DownloadService) -> Router {
    Router::new().fallback_service(get(download).with_state(Arc::new(service)))
}

async fn download(State(service): State<Arc<DownloadService>>, uri: Uri) -> Response {
    service.download(&uri).await.unwrap_or_else(IntoResponse::into_response)
}

struct DownloadService {
    client: Client,
    namespace: String,
    /// The key, and when it was read.
    key: Mutex<Option<(Instant, Signer)>>,
}

impl DownloadService {
    async fn download(&self, uri: &Uri) -> Result<Response, DownloadError> {
        let target = self.verify_link(uri).await?;
        self.read(&target).await
    }

    /// The target of a request's link. Only for what is a link, a request is sent to the API server.
    async fn verify_link(&self, uri: &Uri) -> Result<Target, DownloadError> {
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let link = Link::parse(path, query)?;
        let signer = self.signer().await?.ok_or(DownloadError::NoLinks)?;
        signer.verify(&link, Timestamp::now())?;
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
        let signer = Signer::find(self.client.clone(), &self.namespace).await?;
        *cached = signer.clone().map(|signer| (Instant::now(), signer));
        Ok(signer)
    }

    async fn read(&self, target: &Target) -> Result<Response, DownloadError> {
        let api: Api<BackupStorageLocation> = Api::namespaced(self.client.clone(), &self.namespace);
        let location = api.get_opt(&target.location).await;
        let location = location.map_err(|error| Error::api(format!("read location {}", target.location), error))?;
        let location = location.ok_or_else(|| DownloadError::LocationNotFound(target.location.clone()))?;
        let store = open_location(self.client.clone(), &self.namespace, &location, Tuning::default(), None).await?;
        let reader = store.reader(&target.key).await.map_err(Error::Store)?;
        let headers =
            [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_LENGTH, reader.info().size.to_string())];
        Ok((headers, Body::from_stream(reader)).into_response())
    }
}

/// Why a request is answered without the object.
#[derive(Debug, thiserror::Error)]
enum DownloadError {
    #[error(transparent)]
    InvalidLink(#[from] InvalidLink),
    #[error("no download link was created in this namespace")]
    NoLinks,
    #[error("location {0} not found")]
    LocationNotFound(String),
    #[error(transparent)]
    Read(#[from] Error),
}

impl IntoResponse for DownloadError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::InvalidLink(InvalidLink::Malformed) | Self::LocationNotFound(_) => StatusCode::NOT_FOUND,
            Self::InvalidLink(InvalidLink::Forged | InvalidLink::Expired) | Self::NoLinks => StatusCode::FORBIDDEN,
            Self::Read(Error::Store(error)) if error.is_not_found() => StatusCode::NOT_FOUND,
            Self::Read(_) => StatusCode::BAD_GATEWAY,
        };
        (status, format!("{self}\n")).into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::Request;
    use tower::ServiceExt;

    use super::*;

    const NOT_FOUND: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","message":"not found","code":404}"#;

    fn settings(url: Option<&str>) -> DownloadSettings {
        DownloadSettings { address: ([127, 0, 0, 1], 0).into(), url: url.map(str::to_owned), tls: None }
    }

    /// The status of the response to a request, and how many requests the API server received.
    async fn respond(method: &str, uri: &str) -> (StatusCode, u32) {
        let requests = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&requests);
        let api_server = tower::service_fn(move |_: Request<kube::client::Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let body = kube::client::Body::from(NOT_FOUND.as_bytes().to_vec());
            async { Ok::<_, Infallible>(Response::builder().status(404).body(body).unwrap()) }
        });
        let (client, namespace) = (Client::new(api_server, "velero"), "velero".to_owned());
        let router = router(DownloadService { client, namespace, key: Mutex::default() });
        let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        (response.status(), requests.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn no_request_is_sent_to_the_api_server_for_what_is_not_a_link() {
        assert_eq!(respond("GET", "/downloads/x?expires=1").await, (StatusCode::NOT_FOUND, 0));
        assert_eq!(
            respond("POST", "/downloads/default/a?expires=1&signature=00").await,
            (StatusCode::METHOD_NOT_ALLOWED, 0)
        );
    }

    #[tokio::test]
    async fn a_link_is_rejected_where_no_key_exists() {
        assert_eq!(respond("GET", "/downloads/default/a?expires=1&signature=00").await, (StatusCode::FORBIDDEN, 1));
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
