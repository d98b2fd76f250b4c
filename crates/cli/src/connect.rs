//! Connections to the cluster.

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::api_retry::{with_read_retries, with_server_requested_retries};
use crate::args::Global;

/// A client for a command.
pub async fn client(global: &Global) -> anyhow::Result<Client> {
    Ok(with_server_requested_retries(service_client(global).await?))
}

/// A client for the server and the agent, which have retries of their own.
pub async fn service_client(global: &Global) -> anyhow::Result<Client> {
    let mut config = config(global).await?;
    // The client's own retries take minutes and show nothing.
    config.default_retry = false;
    Client::try_from(config).map(with_read_retries).context("cannot create a client for the cluster")
}

async fn config(global: &Global) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context: global.context.clone(), ..KubeConfigOptions::default() };
    match &global.kubeconfig {
        Some(path) => {
            let what = || format!("cannot read kubeconfig {}", path.display());
            let file = Kubeconfig::read_from(path).with_context(what)?;
            Config::from_custom_kubeconfig(file, &options).await.with_context(what)
        }
        None if global.context.is_some() => Config::from_kubeconfig(&options).await.context("cannot read kubeconfig"),
        None => Config::infer()
            .await
            .context("no cluster configured; pass --kubeconfig, set KUBECONFIG, or start one with `plimsoll local`"),
    }
}
