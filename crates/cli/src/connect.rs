//! Connections to the cluster.

use std::error::Error;
use std::time::Duration;

use anyhow::{Context, anyhow};
use http::Request;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use plimsoll_api::client_error::{UnreachableServer, error_text};
use tower::{BoxError, ServiceBuilder, service_fn};
use tower_http::decompression::DecompressionLayer;

use crate::api_retry::{with_read_retries, with_server_requested_retries};
use crate::api_timeout::with_timeouts;
use crate::args::Global;
use crate::errors::Hint;

/// How often an idle connection is probed, and how often without an answer before it counts as lost.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 4;

/// A client for a command.
pub async fn client(global: &Global) -> anyhow::Result<Client> {
    let config = config(global).await?;
    let server = config.cluster_url.to_string();
    let client = naming_server(client_of(config)?, server.trim_end_matches('/').to_owned());
    Ok(with_server_requested_retries(with_read_retries(client)))
}

/// A client for the server and the agent, which have retries of their own.
pub async fn service_client(global: &Global) -> anyhow::Result<Client> {
    Ok(with_read_retries(client_of(config(global).await?)?))
}

fn client_of(mut config: Config) -> anyhow::Result<Client> {
    // The client's own retries take minutes and show nothing.
    config.default_retry = false;
    Ok(with_timeouts(connection(config).context("cannot create a client for the cluster")?))
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
            let file = Kubeconfig::read_from(path).map_err(|error| anyhow!(kubeconfig_text(&error)))?;
            let read = Config::from_custom_kubeconfig(file, &options).await;
            read.map_err(|error| anyhow!("kubeconfig {}: {}", path.display(), kubeconfig_text(&error)))
        }
        None if global.context.is_some() => {
            Config::from_kubeconfig(&options).await.map_err(|error| anyhow!(kubeconfig_text(&error)))
        }
        None => Config::infer().await.map_err(|error| {
            let cause = error.source().and_then(|cause| cause.downcast_ref().map(kubeconfig_text));
            anyhow!(cause.unwrap_or_else(|| error.to_string())).context(Hint(
                "no cluster is configured; pass --kubeconfig, set KUBECONFIG, or start one with `plimsoll local`"
                    .into(),
            ))
        }),
    }
}

/// The client's own text has the path in its `Debug` form.
fn kubeconfig_text(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(cause, path) => format!("cannot read kubeconfig {}: {cause}", path.display()),
        KubeconfigError::LoadContext(name) => format!("context {name:?} not found in the kubeconfig"),
        KubeconfigError::CurrentContextNotSet => "the kubeconfig has no current context; pass --context".to_owned(),
        other => error_text(other),
    }
}

/// Errors of connections name the server.
fn naming_server(client: Client, server: String) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let (client, server) = (client.clone(), server.clone());
        async move { client.send(request).await.map_err(|source| UnreachableServer { server, source: source.into() }) }
    });
    Client::new(service, namespace)
}
