//! `plimsoll agent`: moves the data of one node's volumes.

use std::net::SocketAddr;

use anyhow::Context;
use kube::Client;
use plimsoll_agent::AgentSettings;
use plimsoll_mover::MoverCommand;
use plimsoll_progress::Trees;
use plimsoll_progress_stream::AgentServer;
use plimsoll_volumes::NodeAgentConfig;
use tokio_util::sync::CancellationToken;

use super::server;
use crate::args::Global;
use crate::args::agent::Agent;
use crate::connect;
use crate::exit::Outcome;

/// Runs until a signal.
pub async fn run(global: &Global, options: Agent) -> anyhow::Result<Outcome> {
    let client = connect::service_client(global).await?;
    let (namespace, trees) = (namespace(global), Trees::default());
    let progress_server = match options.progress_address {
        Some(address) => {
            let server = AgentServer::new(client.clone(), &namespace, trees.clone()).listen(address).await;
            Some(server.context("failed to serve the progress of transfers")?)
        }
        None => None,
    };
    let progress_address = progress_server
        .as_ref()
        .map(|server| SocketAddr::new(options.pod_ip.unwrap_or_else(|| server.address.ip()), server.address.port()));
    let concurrency = concurrency(&client, &namespace, &options).await?;
    let settings = AgentSettings {
        namespace,
        trees,
        // The leader cannot connect to the unspecified address.
        progress_address: progress_address.filter(|address| !address.ip().is_unspecified()),
        identity: options.pod.unwrap_or_else(server::identity),
        node: options.node,
        pods_directory: options.pods_directory,
        concurrency,
        memory: options.memory,
        progress_interval: options.progress_interval,
        cache: Some(options.cache_dir.unwrap_or_else(|| std::env::temp_dir().join("plimsoll-cache"))),
        cache_limit: options.cache_limit,
        launch: MoverCommand::this_program()?,
        restic: options.restic,
        kopia: options.kopia,
    };
    serve(client, settings, server::stop_on_signal()?).await?;
    Ok(Outcome::Success)
}

/// How many transfers run on the node: by the ConfigMap, or else as requested.
async fn concurrency(client: &Client, namespace: &str, options: &Agent) -> anyhow::Result<usize> {
    let requested = options.concurrency.into();
    let Some(name) = &options.node_agent_configmap else { return Ok(requested) };
    let config = NodeAgentConfig::read(client, namespace, name).await.context("invalid --node-agent-configmap")?;
    let node = &options.node;
    let found = config.concurrency_of(client, node).await.with_context(|| format!("cannot read node {node}"))?;
    Ok(found.unwrap_or(requested))
}

/// The requested one; otherwise that of the agent's own pod.
fn namespace(global: &Global) -> String {
    let own = std::env::var("POD_NAMESPACE").ok().filter(|name| !name.is_empty());
    match own {
        Some(own) if global.namespace == "velero" => own,
        _ => global.namespace.clone(),
    }
}

/// Runs an agent with these settings.
pub async fn serve(client: Client, settings: AgentSettings, stop: CancellationToken) -> anyhow::Result<()> {
    Box::pin(plimsoll_agent::Agent::new(client, settings).run(stop)).await.context("the agent ended")
}
