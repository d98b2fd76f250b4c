//! What the agents know and have not written yet: the leader reads it straight from their memory.
//!
//! ```text
//!   agent: trees of its transfers ── /api/trees ──▶ copies, by uid ──▶ the tasks of the leader's trees
//!          └── its Lease says where ─────────────▶ (looked up only while the leader works on something)
//! ```
//! Fresh, and optional: where an agent cannot be reached, what it writes into the custom resources is all there is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use plimsoll_api::labels;
use plimsoll_progress::Trees;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use crate::error::Error;
use crate::remote::{HEADER, copy_all, is_stream};
use crate::token::Token;

/// How often it is looked whether there is anything to follow.
const LOOK: Duration = Duration::from_millis(250);
/// How often agents are looked for while there is.
const FIND_EVERY: Duration = Duration::from_secs(5);
/// One that cannot be reached is tried again after this.
const PAUSE: Duration = Duration::from_secs(3);
/// It must have answered by then.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

type Following = BTreeMap<SocketAddr, AbortOnDropHandle<()>>;

/// Keeps copies of the agents' trees for as long as there is something `busy`. Ends never.
pub async fn follow_agents(client: Client, namespace: String, busy: Trees, copies: Trees) {
    let mut following = Following::new();
    let mut found: Option<Instant> = None;
    loop {
        if busy.is_empty() {
            following.clear();
            found = None;
        } else if found.is_none_or(|found| found.elapsed() >= FIND_EVERY) {
            found = Some(Instant::now());
            if let Err(error) = follow_those_there(&client, &namespace, &mut following, &copies).await {
                debug!("looking for agents: {error}");
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn follow_those_there(
    client: &Client,
    namespace: &str,
    following: &mut Following,
    copies: &Trees,
) -> Result<(), Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let leases = leases.list(&ListParams::default()).await.map_err(|e| Error::api("list Leases", e))?;
    let there: Vec<SocketAddr> = leases.items.iter().filter_map(address).collect();
    following.retain(|address, _| there.contains(address));
    let new: Vec<SocketAddr> = there.into_iter().filter(|address| !following.contains_key(address)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let Some(token) = Token::find(client, namespace).await? else { return Ok(()) };
    for address in new {
        let task = tokio::spawn(follow(address, token.clone(), copies.clone()));
        following.insert(address, AbortOnDropHandle::new(task));
    }
    Ok(())
}

/// Where the agent that holds a Lease can be asked.
fn address(lease: &Lease) -> Option<SocketAddr> {
    lease.spec.as_ref()?.holder_identity.as_ref()?;
    lease.metadata.annotations.as_ref()?.get(labels::PROGRESS_ADDRESS)?.parse().ok()
}

async fn follow(address: SocketAddr, token: Token, copies: Trees) {
    loop {
        match tokio::time::timeout(ANSWER_WITHIN, ask(address, &token)).await {
            Ok(Ok(body)) => copy_all(body.into_data_stream(), &copies).await,
            Ok(Err(error)) => debug!("the agent at {address}: {error}"),
            Err(_) => debug!("the agent at {address} does not answer"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn ask(
    address: SocketAddr,
    token: &Token,
) -> Result<hyper::body::Incoming, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get("/api/trees").header(http::header::HOST, address.to_string());
    let request = request.header(HEADER, token.reveal()).body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    if !response.status().is_success() || !is_stream(response.headers()) {
        return Err(format!("it answers {}", response.status()).into());
    }
    Ok(response.into_body())
}
