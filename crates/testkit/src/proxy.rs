//! A proxy that stands before the API server or the object store and misbehaves on request.
//!
//! ```text
//! client ─TCP─► gate and line (stall, close, slow: whole connections) ─► HTTP rules (faults: single requests) ─► upstream
//! ```
//! It speaks plain HTTP/1.1 to its clients and passes headers on unchanged, so that signed requests stay valid; upgraded
//! connections (exec, port-forward) pass through.

mod body;
mod connection;
mod line;
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

pub use rules::{Active, Fault, Requests};

use crate::cluster::Cluster;
use connection::{Connection, Gate, Upstream};
use line::Line;
use rules::Rules;

/// A listening proxy; it and all its connections end when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    rules: Arc<Rules>,
    gate: watch::Sender<Gate>,
    line: Arc<Line>,
    kubeconfig: Option<(tempfile::TempDir, PathBuf)>,
    _stop: DropGuard,
}

impl Proxy {
    /// Stands before the API server of a cluster. Its clients find it with [`Proxy::kubeconfig`].
    pub async fn before_api_server(cluster: &Cluster) -> Result<Self> {
        Self::before_api_server_at("127.0.0.1:0", cluster).await
    }

    /// The same on an address of one's choice, as for [`Proxy::before`]: a program in a pod needs the kubeconfig too, because
    /// the address and the certificate that are injected there are the API server's own.
    pub async fn before_api_server_at(bind: &str, cluster: &Cluster) -> Result<Self> {
        Self::before_api_server_of(bind, cluster.kubeconfig()).await
    }

    /// The same before whatever cluster a kubeconfig leads to.
    pub async fn before_api_server_of(bind: &str, kubeconfig: &Path) -> Result<Self> {
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

    /// Stands before a server that speaks plain HTTP, such as an object store, on an address of one's choice: pods reach the
    /// machine at [`Addresses::host`](crate::enclosure::Addresses::host), tests at `127.0.0.1`; port 0 takes any.
    pub async fn before(bind: &str, upstream: &str) -> Result<Self> {
        let uri: http::Uri = upstream.parse()?;
        let authority = uri.authority().with_context(|| format!("{upstream} names no server"))?;
        Self::listen(bind, Upstream { authority: authority.to_string(), tls: None }).await
    }

    async fn listen(bind: &str, upstream: Upstream) -> Result<Self> {
        let listener = TcpListener::bind(bind).await.with_context(|| format!("failed to listen on {bind}"))?;
        let address = listener.local_addr()?;
        let (rules, line) = (Arc::new(Rules::default()), Arc::new(Line::default()));
        let (gate, watched) = watch::channel(Gate::Open);
        let stop = CancellationToken::new();
        let shared = (Arc::clone(&rules), Arc::clone(&line));
        let connection = Arc::new(Connection { upstream, rules: shared.0, gate: watched, line: shared.1 });
        tokio::spawn(accept(listener, connection, stop.clone()));
        Ok(Self { address, rules, gate, line, kubeconfig: None, _stop: stop.drop_guard() })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig whose server is this proxy. Only one before an API server has it.
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

    /// Does this to the matching requests until the result is dropped. Of several faults the youngest wins.
    pub fn inject(&self, requests: Requests, fault: Fault) -> Active {
        self.rules.add(requests, fault)
    }

    /// How many requests of this kind have come, whatever became of them.
    pub fn seen(&self, requests: &Requests) -> usize {
        self.rules.seen(requests)
    }

    /// Holds back every byte, on open connections too, until [`Proxy::open`].
    pub fn stall(&self) {
        self.gate.send_replace(Gate::Stalled);
    }

    /// Lets so many bytes a second pass, in both directions and on all connections together; with `None` as many as come.
    pub fn slow_down(&self, bytes_a_second: Option<u64>) {
        self.line.set(bytes_a_second);
    }

    /// Cuts every connection and accepts none until [`Proxy::open`].
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
