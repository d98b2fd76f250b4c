//! Finding the cluster.

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::args::Global;

/// A client for the cluster that the user means.
pub async fn client(global: &Global) -> anyhow::Result<Client> {
    let mut config = config(global).await?;
    // The client's own retries take minutes and show nothing: ours are visible.
    config.default_retry = false;
    Client::try_from(config).context("cannot make a client for the cluster")
}

async fn config(global: &Global) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context: global.context.clone(), ..KubeConfigOptions::default() };
    match &global.kubeconfig {
        Some(path) => {
            let file =
                Kubeconfig::read_from(path).with_context(|| format!("cannot read kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &options).await.context("cannot use the kubeconfig")
        }
        None if global.context.is_some() => {
            Config::from_kubeconfig(&options).await.context("cannot use the kubeconfig")
        }
        None => Config::infer()
            .await
            .context("no cluster found: give --kubeconfig, set KUBECONFIG, or start one with `plimsoll local`"),
    }
}
