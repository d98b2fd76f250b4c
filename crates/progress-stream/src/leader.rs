//! The leader, as seen through the API server's service proxy, with the reader's own rights.

use std::time::Duration;

use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Service;
use kube::client::Body;
use kube::{Api, Client};
use plimsoll_progress::Trees;
use tracing::debug;

use crate::access_token::AccessToken;
use crate::replicas::replicate;
use crate::sse::is_event_stream;
use crate::token_source::TokenSource;

/// The Service that selects the leader's pod.
pub const SERVICE: &str = "plimsoll";
/// The name of its port.
const PORT: &str = "dashboard";
/// Carries the token: the proxy does not pass `Authorization` on.
pub const TOKEN_HEADER: &str = "x-plimsoll-token";
/// The last event that a reconnecting client has seen.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// A lost leader is looked for again after this; one that was never found less and less often.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// A client of the server that leads.
#[derive(Clone)]
pub struct LeaderClient {
    client: Client,
    namespace: String,
    token: TokenSource,
}

impl LeaderClient {
    /// Finds the leader of a namespace; nothing if none serves there or this user may not reach it.
    pub async fn find(client: &Client, namespace: &str, token: Option<AccessToken>) -> Option<Self> {
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        let service = services.get_opt(SERVICE).await.ok()??;
        let mut ports = service.spec?.ports.unwrap_or_default().into_iter();
        ports.find(|port| port.name.as_deref() == Some(PORT))?;
        let token = token.map_or_else(|| TokenSource::secret(client, namespace), TokenSource::from);
        token.current().await?;
        let leader = Self { client: client.clone(), namespace: namespace.to_owned(), token };
        let health = leader.get("/healthz", None).await.ok()?;
        health.status().is_success().then_some(leader)
    }

    /// Sends a GET request for a path of the leader.
    pub async fn get(&self, path: &str, last_event: Option<&HeaderValue>) -> Result<Response<Body>, kube::Error> {
        let uri = format!("/api/v1/namespaces/{}/services/http:{SERVICE}:{PORT}/proxy{path}", self.namespace);
        let mut request = Request::get(uri);
        if let Some(token) = self.token.current().await {
            request = request.header(TOKEN_HEADER, token.reveal());
        }
        if let Some(last_event) = last_event {
            request = request.header(LAST_EVENT_ID, last_event);
        }
        let request = request.body(Body::empty()).map_err(kube::Error::HttpError)?;
        self.client.send(request).await
    }
}

/// Keeps replicas of the leader's trees in `trees`. Never returns; without a leader there are no replicas, and readers use the
/// custom resources.
pub async fn follow_leader(client: Client, namespace: String, token: Option<AccessToken>, trees: Trees) {
    let mut interval = RETRY_INTERVAL;
    loop {
        if let Some(leader) = LeaderClient::find(&client, &namespace, token.clone()).await
            && let Ok(response) = leader.get("/api/trees", None).await
            && response.status().is_success()
            && is_event_stream(response.headers())
        {
            replicate(response.into_body().into_data_stream(), &trees).await;
            debug!("the leader's stream ended");
            interval = RETRY_INTERVAL;
        }
        tokio::time::sleep(interval).await;
        interval = (interval * 2).min(MAX_RETRY_INTERVAL);
    }
}
