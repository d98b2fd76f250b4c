//! The dashboard: its settings and its server.

use std::net::SocketAddr;
use std::sync::Arc;

use kube::Client;
use plimsoll_http_server::{HttpServer, RunningServer};
use plimsoll_observe::{ClusterReader, Scope};
use plimsoll_progress::Trees;
use plimsoll_progress_stream::{LeaderClient, TokenSource};
use tokio_util::task::AbortOnDropHandle;

use crate::dashboard_state::DashboardState;
use crate::error::Error;
use crate::refresh::{MemoryTrees, NextRun, SAMPLE_INTERVAL, record_samples, refresh};
use crate::routes::{AppState, router};

/// Settings of a dashboard.
#[derive(Clone, Debug)]
pub struct DashboardSettings {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The token that a client must present.
    pub token: TokenSource,
    /// `/metrics` needs no token: few collectors can send one.
    pub open_metrics: bool,
    /// Allow cancel and retry.
    pub allow_changes: bool,
    /// The namespace that is shown.
    pub namespace: String,
    /// Computes the next run of a schedule.
    pub next_run: NextRun,
}

/// A dashboard, not yet served.
pub struct Dashboard {
    settings: DashboardSettings,
    client: Client,
    memory: MemoryTrees,
    leader: Option<LeaderClient>,
}

/// A dashboard that is served until this is dropped.
pub struct RunningDashboard {
    /// The address that it listens on.
    pub address: SocketAddr,
    _server: RunningServer,
    _updating: [AbortOnDropHandle<()>; 2],
}

impl Dashboard {
    /// A dashboard of what this client may read.
    pub fn new(client: Client, settings: DashboardSettings) -> Self {
        Self { settings, client, memory: MemoryTrees::default(), leader: None }
    }

    /// Adds the trees of operations that are in memory, by the uid of their subject.
    #[must_use]
    pub fn with_trees(self, trees: Trees) -> Self {
        Self { memory: MemoryTrees { trees, ..self.memory }, ..self }
    }

    /// Adds the trees of volume transfers, by the uid of their resources.
    #[must_use]
    pub fn with_transfer_trees(self, transfers: Trees) -> Self {
        Self { memory: MemoryTrees { transfers, ..self.memory }, ..self }
    }

    /// Forwards reads to the leader for as long as it responds. The page comes from this process, and changes are made with this
    /// client's rights.
    #[must_use]
    pub fn with_leader(self, leader: LeaderClient) -> Self {
        Self { leader: Some(leader), ..self }
    }

    /// Starts to serve.
    pub async fn listen(self) -> Result<RunningDashboard, Error> {
        let server = HttpServer::bind(self.settings.address).await.map_err(plimsoll_progress_stream::Error::from)?;
        let dashboard = DashboardState::new();
        let scope = Scope { namespace: self.settings.namespace.clone() };
        let reader = ClusterReader::new(self.client.clone(), scope);
        let refreshing = refresh(reader, self.memory.clone(), Arc::clone(&dashboard), self.settings.next_run);
        let sampling = record_samples(self.memory.trees.clone(), Arc::clone(&dashboard), SAMPLE_INTERVAL);
        // Reads nothing until a request needs it: with a leader that is when the leader does not answer.
        let updating = [tokio::spawn(refreshing), tokio::spawn(sampling)].map(AbortOnDropHandle::new);
        let state = AppState { settings: self.settings, client: self.client, leader: self.leader, dashboard };
        let server = server.serve(router(&Arc::new(state), self.memory.trees));
        Ok(RunningDashboard { address: server.address, _server: server, _updating: updating })
    }
}
