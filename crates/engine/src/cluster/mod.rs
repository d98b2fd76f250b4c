//! Access to the Kubernetes API: resources by name, objects as the bytes that the API server sent.
//!
//! Objects are never parsed into typed structs, because a typed round trip drops unknown fields.

mod discovery;
mod item;
mod pages;
mod resource;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use kube::Client;
use kube::client::Body;
use kube::core::Status;

pub use self::discovery::Discovery;
pub use self::item::{ItemMeta, add_type_meta};
use self::pages::DEFAULT_PAGE_SIZE;
pub use self::pages::{Page, PageQuery, list_pages};
pub use self::resource::{Resource, collection_path};
use crate::Error;

/// Access to one cluster.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    page_size: u32,
}

impl Cluster {
    /// Uses this client.
    pub fn new(client: Client) -> Self {
        Self { client, page_size: DEFAULT_PAGE_SIZE }
    }

    /// Another page size of lists; zero means one page.
    #[must_use]
    pub fn with_page_size(self, page_size: u32) -> Self {
        Self { page_size, ..self }
    }

    /// Maximum number of objects that a backup lists in one request.
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// The client, for typed requests.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads one object; `None` if it does not exist.
    pub async fn get(&self, path: &str) -> Result<Option<Bytes>, Error> {
        match self.read(path).await {
            Ok(body) => Ok(Some(body)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(Error::api(format!("read {path}"), error)),
        }
    }

    /// The time of the API server, by the `Date` of an answer; `None` if it sends none.
    pub async fn server_time(&self) -> Result<Option<Timestamp>, Error> {
        let asked = async {
            let question = request(Method::GET, "/version", None, Vec::new())?;
            self.client.send(question.map(Body::from)).await
        };
        let answer = asked.await.map_err(|error| Error::api("read the time of the API server", error))?;
        let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        Ok(date.and_then(|date| rfc2822::DateTimeParser::new().parse_timestamp(date).ok()))
    }

    /// The body of a response, in memory once: the functions of the client hold a page three times.
    async fn read(&self, url: &str) -> Result<Bytes, kube::Error> {
        let answer = self.client.send(request(Method::GET, url, None, Vec::new())?.map(Body::from)).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if status.is_client_error() || status.is_server_error() { Err(status_error(status, &body)) } else { Ok(body) }
    }

    /// Creates one object from its JSON.
    pub async fn create(&self, collection: &str, field_manager: &str, object: Vec<u8>) -> Result<Bytes, Error> {
        let manager: String = url::form_urlencoded::byte_serialize(field_manager.as_bytes()).collect();
        let url = format!("{collection}?fieldManager={manager}");
        self.send(Method::POST, &url, "application/json", object).await
    }

    /// Patches one object with a JSON merge patch.
    pub async fn merge(&self, path: &str, patch: Vec<u8>) -> Result<Bytes, Error> {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch).await
    }

    async fn send(&self, method: Method, url: &str, content: &str, body: Vec<u8>) -> Result<Bytes, Error> {
        let what = || format!("{} {}", method.as_str().to_lowercase(), url.split('?').next().unwrap_or(url));
        let request = request(method.clone(), url, Some(content), body).map_err(|e| Error::api(what(), e))?;
        self.client.request_text(request).await.map(Bytes::from).map_err(|e| Error::api(what(), e))
    }
}

/// Proxies and starting API servers may respond with something other than a Status.
fn status_error(code: StatusCode, body: &[u8]) -> kube::Error {
    let status = serde_json::from_slice::<Status>(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(body);
        Status::failure(text.trim(), "Failed to parse error data").with_code(code.as_u16())
    });
    kube::Error::Api(status.boxed())
}

fn request(method: Method, url: &str, content: Option<&str>, body: Vec<u8>) -> Result<Request<Vec<u8>>, kube::Error> {
    let mut builder = Request::builder().method(method).uri(url).header("accept", "application/json");
    if let Some(content) = content {
        builder = builder.header("content-type", content);
    }
    builder.body(body).map_err(kube::Error::HttpError)
}
