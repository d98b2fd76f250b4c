//! Connections to the cluster.

use std::time::Duration;

use anyhow::Context;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};
use tower_http::decompression::DecompressionLayer;

use crate::api_retry::{with_read_retries, with_server_requested_retries};
use crate::api_timeout::with_timeouts;
use crate::args::Global;

/// How often an idle connection is probed, and how often without an answer before it counts as lost.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 4;

/// A client for a command.
pub async fn client(global: &Global) -> anyhow::Result<Client> {
    Ok(with_server_requested_retries(service_client(global).await?))
}

/// A client for the server and the agent, which have retries of their own.
pub async fn service_client(global: &Global) -> anyhow::Result<Client> {
    let mut config = config(global).await?;
    // The client's own retries take minutes and show nothing.
    config.default_retry = false;
    let client = connection(config).context("cannot create a client for the cluster")?;
    Ok(with_read_retries(with_timeouts(client)))
}

/// As kube's own client, with keep-alive probes. Connections through a proxy are kube's own.
fn connection(config: Config) -> anyhow::Result<Client> {
    if config.proxy_url.is_some() {
        return Ok(Client::try_from(config)?);
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_keepalive(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    let http = legacy::Client::builder(TokioExecutor::new())
        .build::<_, Body>(config.rustls_https_connector_with_connector(connector)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(DecompressionLayer::new().gzip(!config.disable_compression))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
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
