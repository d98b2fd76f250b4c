//! The listener.

use std::net::SocketAddr;
use std::sync::Arc;

use kube::Client;
use plimsoll_observe::{Gatherer, Scope};
use plimsoll_progress::Trees;
use plimsoll_progress_stream::{AccessToken, HttpServer, LeaderClient, RunningServer};
use tokio_util::task::AbortOnDropHandle;

use crate::board::Board;
use crate::error::Error;
use crate::feed::{Due, Memory, SAMPLE_EVERY, feed, sample};
use crate::routes::{AppState, router};

/// How the dashboard is served.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen.
    pub address: SocketAddr,
    /// Opens it.
    pub token: AccessToken,
    /// Metrics need no token: collectors seldom have one.
    pub open_metrics: bool,
    /// Cancel and retry are allowed.
    pub may_change: bool,
    /// The namespace that is shown.
    pub namespace: String,
    /// Knows when schedules are due.
    pub due: Due,
}

/// A dashboard, not yet served.
pub struct Dashboard {
    settings: Settings,
    client: Client,
    memory: Memory,
    leader: Option<LeaderClient>,
}

/// A dashboard that is served until this is dropped.
pub struct Listening {
    /// Where.
    pub address: SocketAddr,
    _server: RunningServer,
    _updating: [AbortOnDropHandle<()>; 2],
}

impl Dashboard {
    /// From what this client may read.
    pub fn new(client: Client, settings: Settings) -> Self {
        Self { settings, client, memory: Memory::default(), leader: None }
    }

    /// With trees that are in memory, by the uid of their subject.
    #[must_use]
    pub fn with_trees(self, trees: Trees) -> Self {
        Self { memory: Memory { trees, ..self.memory }, ..self }
    }

    /// With the trees of single volumes, by the uid of their resources.
    #[must_use]
    pub fn with_transfers(self, transfers: Trees) -> Self {
        Self { memory: Memory { transfers, ..self.memory }, ..self }
    }

    /// With the leader's answers in the place of own ones, for as long as it answers: only the page is ours then, and what is changed is
    /// changed with this client's rights.
    #[must_use]
    pub fn through(self, leader: LeaderClient) -> Self {
        Self { leader: Some(leader), ..self }
    }

    /// Begins to serve.
    pub async fn listen(self) -> Result<Listening, Error> {
        let server = HttpServer::bind(self.settings.address).await?;
        let board = Board::new();
        let scope = Scope { namespace: self.settings.namespace.clone() };
        let gatherer = Gatherer::new(self.client.clone(), scope);
        let feeding = feed(gatherer, self.memory.clone(), Arc::clone(&board), self.settings.due);
        let sampling = sample(self.memory.trees.clone(), Arc::clone(&board), SAMPLE_EVERY);
        // Reads nothing until a request needs it: with a leader that is when the leader does not answer.
        let updating = [tokio::spawn(feeding), tokio::spawn(sampling)].map(AbortOnDropHandle::new);
        let state = AppState { settings: self.settings, client: self.client, leader: self.leader, board };
        let server = server.serve(router(&Arc::new(state), self.memory.trees));
        Ok(Listening { address: server.address, _server: server, _updating: updating })
    }
}
