//! A proxy for the API server or the object store that injects faults.
//!
//! ```text
//! client ─TCP─► gate, bandwidth (stall, close, slow down connections) ─► HTTP rules (faults of requests) ─► upstream
//! ```
//! It speaks plain HTTP/1.1 to its clients and passes headers on unchanged, so that signed requests stay valid; upgraded
//! connections (exec, port-forward) pass through.

mod bandwidth;
mod body;
mod connection;
mod rules;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use kube::Config;
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls::pki_types::ServerName;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use rules::{ActiveFault, Fault, Requests};

use crate::cluster::Cluster;
use bandwidth::BandwidthLimit;
use connection::{Connection, Gate, Upstream};
use rules::Rules;

/// A listening proxy; it and all its connections end when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    rules: Arc<Rules>,
    gate: watch::Sender<Gate>,
    bandwidth: Arc<BandwidthLimit>,
    kubeconfig: Option<(tempfile::TempDir, PathBuf)>,
    _stop: DropGuard,
}

impl Proxy {
    /// Starts a proxy for the API server of a cluster. Clients use [`Proxy::kubeconfig`].
    pub async fn for_api_server(cluster: &Cluster) -> Result<Self> {
        Self::for_api_server_at("127.0.0.1:0", cluster).await
    }

    /// The same on a given address, as for [`Proxy::for_server`]: a program in a pod needs the kubeconfig too, because
    /// the injected address and certificate are those of the API server.
    pub async fn for_api_server_at(bind: &str, cluster: &Cluster) -> Result<Self> {
        Self::for_kubeconfig(bind, cluster.kubeconfig()).await
    }

    /// The same for the API server of a kubeconfig.
    pub async fn for_kubeconfig(bind: &str, kubeconfig: &Path) -> Result<Self> {
        crate::install_crypto();
        let mut file = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(file.clone(), &KubeConfigOptions::default()).await?;
        let mut proxy = Self::listen(bind, upstream_of(&config)?).await?;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("kubeconfig");
        for entry in file.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
            entry.server = Some(proxy.url());
            entry.certificate_authority = None;
            entry.certificate_authority_data = None;
            entry.tls_server_name = None;
        }
        std::fs::write(&path, serde_json::to_vec(&file)?)?;
        proxy.kubeconfig = Some((folder, path));
        Ok(proxy)
    }

    /// Starts a proxy for a plain HTTP server, such as an object store, on a given address: pods reach the machine at
    /// [`Addresses::host`](crate::enclosure::Addresses::host), tests at `127.0.0.1`; port 0 selects a free one.
    pub async fn for_server(bind: &str, upstream: &str) -> Result<Self> {
        let uri: http::Uri = upstream.parse()?;
        let authority = uri.authority().with_context(|| format!("{upstream} names no server"))?;
        Self::listen(bind, Upstream { authority: authority.to_string(), tls: None }).await
    }

    async fn listen(bind: &str, upstream: Upstream) -> Result<Self> {
        let listener = TcpListener::bind(bind).await.with_context(|| format!("failed to listen on {bind}"))?;
        let address = listener.local_addr()?;
        let (rules, bandwidth) = (Arc::new(Rules::default()), Arc::new(BandwidthLimit::default()));
        let (gate, watched) = watch::channel(Gate::Open);
        let stop = CancellationToken::new();
        let shared = (Arc::clone(&rules), Arc::clone(&bandwidth));
        let connection = Arc::new(Connection { upstream, rules: shared.0, gate: watched, bandwidth: shared.1 });
        tokio::spawn(accept(listener, connection, stop.clone()));
        Ok(Self { address, rules, gate, bandwidth, kubeconfig: None, _stop: stop.drop_guard() })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig whose server is this proxy; `None` unless it is a proxy for an API server.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_ref().map(|(_, path)| path.as_path())
    }

    /// A client of the API server behind this proxy.
    pub async fn client(&self) -> Result<kube::Client> {
        let path = self.kubeconfig().context("this proxy does not stand before an API server")?;
        let config =
            Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &KubeConfigOptions::default()).await?;
        Ok(kube::Client::try_from(config)?)
    }

    /// Injects a fault into matching requests until the result is dropped. The newest matching fault applies.
    pub fn inject(&self, requests: Requests, fault: Fault) -> ActiveFault {
        self.rules.add(requests, fault)
    }

    /// The number of matching requests so far, with or without faults.
    pub fn count_requests(&self, requests: &Requests) -> usize {
        self.rules.count_requests(requests)
    }

    /// Stalls all traffic, on open connections too, until [`Proxy::open`].
    pub fn stall(&self) {
        self.gate.send_replace(Gate::Stalled);
    }

    /// Limits the bandwidth of all connections together, in both directions; `None` removes the limit.
    pub fn slow_down(&self, bytes_per_second: Option<u64>) {
        self.bandwidth.set(bytes_per_second);
    }

    /// Closes all connections and accepts none until [`Proxy::open`].
    pub fn close(&self) {
        self.gate.send_replace(Gate::Closed);
    }

    /// Ends a stall or a closure.
    pub fn open(&self) {
        self.gate.send_replace(Gate::Open);
    }
}

fn upstream_of(config: &Config) -> Result<Upstream> {
    let uri = &config.cluster_url;
    let host = uri.host().context("the cluster's address names no host")?;
    let secure = uri.scheme() == Some(&http::uri::Scheme::HTTPS);
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let tls = if secure {
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = config.tls_server_name.clone().unwrap_or_else(|| host.to_owned());
        Some((TlsConnector::from(Arc::new(tls)), ServerName::try_from(name)?))
    } else {
        None
    };
    Ok(Upstream { authority: format!("{host}:{port}"), tls })
}

async fn accept(listener: TcpListener, connection: Arc<Connection>, stop: CancellationToken) {
    let serve = async {
        while let Ok((stream, _)) = listener.accept().await {
            let (connection, stop) = (Arc::clone(&connection), stop.clone());
            tokio::spawn(async move { stop.run_until_cancelled(connection.serve(stream)).await });
        }
    };
    stop.run_until_cancelled(serve).await;
}
