//! `plimsoll agent`: moves the data of one node's volumes.

use std::net::SocketAddr;

use anyhow::Context;
use kube::Client;
use plimsoll_agent::{Agent, AgentSettings};
use plimsoll_mover::Launch;
use plimsoll_progress::Trees;
use plimsoll_serve::{Dashboard, Listening, Settings, Token};
use tokio_util::sync::CancellationToken;

use super::server;
use crate::args::Global;
use crate::args::agent::Agent;
use crate::connect;
use crate::exit::Outcome;

/// Runs until a signal.
pub async fn run(global: &Global, options: Agent) -> anyhow::Result<Outcome> {
    let client = connect::client(global).await?;
    let (namespace, trees) = (namespace(global), Trees::default());
    let listening = match options.progress_address {
        Some(address) => Some(tell(&client, &namespace, address, trees.clone()).await?),
        None => None,
    };
    let told_at = listening.as_ref().map(|listening| {
        SocketAddr::new(options.pod_ip.unwrap_or_else(|| listening.address.ip()), listening.address.port())
    });
    let settings = AgentSettings {
        namespace,
        trees,
        // Others cannot reach an address that means every one of this machine.
        progress_address: told_at.filter(|address| !address.ip().is_unspecified()),
        identity: options.pod.unwrap_or_else(server::identity),
        node: options.node,
        pods_directory: options.pods_directory,
        concurrency: options.concurrency.into(),
        progress_interval: options.progress_interval,
        cache: Some(options.cache_dir.unwrap_or_else(|| std::env::temp_dir().join("plimsoll-cache"))),
        cache_limit: options.cache_limit,
        launch: Launch::this_program()?,
        restic: options.restic,
        kopia: options.kopia,
    };
    serve(client, settings, server::stop_on_signal()?).await?;
    Ok(Outcome::Success)
}

/// Serves the trees of this agent's transfers. The token is the server's, which may not have made it yet.
async fn tell(client: &Client, namespace: &str, address: SocketAddr, trees: Trees) -> anyhow::Result<Listening> {
    let settings = Settings {
        address,
        token: Token::random(),
        open_metrics: false,
        may_change: false,
        namespace: namespace.to_owned(),
        due: |_, _| None,
    };
    let dashboard = Dashboard::new(client.clone(), settings).with_trees(trees).only_trees();
    dashboard.listen().await.context("cannot tell the server how far transfers are")
}

/// The one that is asked for; otherwise that of the agent's own pod.
fn namespace(global: &Global) -> String {
    let own = std::env::var("POD_NAMESPACE").ok().filter(|name| !name.is_empty());
    match own {
        Some(own) if global.namespace == "velero" => own,
        _ => global.namespace.clone(),
    }
}

/// Runs an agent with these settings.
pub async fn serve(client: Client, settings: AgentSettings, stop: CancellationToken) -> anyhow::Result<()> {
    Box::pin(Agent::new(client, settings).run(stop)).await.context("the agent ended")
}
