//! Reads the trees of the agents for the leader, before the agents write them into custom resources.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use plimsoll_progress::Trees;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use crate::error::Error;
use crate::leader::TOKEN_HEADER;
use crate::replicas::replicate;
use crate::sse::is_event_stream;
use crate::token_source::TokenSource;

/// How often it is checked whether the leader has work.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How often Leases are listed while it has.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(5);
/// An unreachable agent is tried again after this.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);
/// An agent must have begun to respond by then.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Where agents announce themselves.
#[derive(Clone)]
pub struct AgentDiscovery {
    /// Reads the Leases and the token.
    pub client: Client,
    /// The namespace of the server and its agents.
    pub namespace: String,
    /// The annotation of an agent's Lease that holds the address of its server.
    pub address_annotation: &'static str,
}

type Readers = BTreeMap<SocketAddr, AbortOnDropHandle<()>>;

/// Keeps replicas of the agents' trees in `replicas` for as long as `busy` has any tree. Never returns.
pub async fn follow_agents(agents: AgentDiscovery, busy: Trees, replicas: Trees) {
    let mut readers = Readers::new();
    let mut discovered: Option<Instant> = None;
    loop {
        if busy.is_empty() {
            readers.clear();
            discovered = None;
        } else if discovered.is_none_or(|at| at.elapsed() >= DISCOVERY_INTERVAL) {
            discovered = Some(Instant::now());
            if let Err(error) = agents.update_readers(&mut readers, &replicas).await {
                debug!("agent discovery: {error}");
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

impl AgentDiscovery {
    /// Starts a reader for each new agent and stops those of agents that are gone.
    async fn update_readers(&self, readers: &mut Readers, replicas: &Trees) -> Result<(), Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let leases = leases.list(&ListParams::default()).await.map_err(|error| Error::api("list leases", error))?;
        let addresses: Vec<SocketAddr> = leases.items.iter().filter_map(|lease| self.address(lease)).collect();
        readers.retain(|address, _| addresses.contains(address));
        let new: Vec<SocketAddr> = addresses.into_iter().filter(|address| !readers.contains_key(address)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let token = TokenSource::secret(&self.client, &self.namespace);
        for address in new {
            let reader = tokio::spawn(read_agent(address, token.clone(), replicas.clone()));
            readers.insert(address, AbortOnDropHandle::new(reader));
        }
        Ok(())
    }

    /// The address of the agent that holds a Lease.
    fn address(&self, lease: &Lease) -> Option<SocketAddr> {
        lease.spec.as_ref()?.holder_identity.as_ref()?;
        lease.metadata.annotations.as_ref()?.get(self.address_annotation)?.parse().ok()
    }
}

async fn read_agent(address: SocketAddr, token: TokenSource, replicas: Trees) {
    loop {
        match tokio::time::timeout(RESPONSE_TIMEOUT, request_trees(address, &token)).await {
            Ok(Ok(body)) => replicate(body.into_data_stream(), &replicas).await,
            Ok(Err(error)) => debug!("agent {address}: {error}"),
            Err(_) => debug!("agent {address}: no response within {RESPONSE_TIMEOUT:?}"),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn request_trees(
    address: SocketAddr,
    token: &TokenSource,
) -> Result<Incoming, Box<dyn std::error::Error + Send + Sync>> {
    let token = token.current().await.ok_or("the server has no token yet")?;
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get("/api/trees").header(http::header::HOST, address.to_string());
    let request = request.header(TOKEN_HEADER, token.reveal()).body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    if !response.status().is_success() || !is_event_stream(response.headers()) {
        return Err(format!("unexpected response: {}", response.status()).into());
    }
    Ok(response.into_body())
}
