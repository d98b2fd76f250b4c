//! The listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use kube::Client;
use plimsoll_observe::{Gatherer, Scope};
use plimsoll_progress::Trees;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use crate::board::Board;
use crate::error::Error;
use crate::feed::{Due, Memory, SAMPLE_EVERY, feed, sample};
use crate::remote::Leader;
use crate::routes::{AppState, agent_router, dashboard_router};
use crate::token::Token;

/// Connections that are open at the same time; further ones are closed.
const MAX_CONNECTIONS: usize = 256;
/// A client must have sent its request headers by then.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// How the dashboard is served.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen.
    pub address: SocketAddr,
    /// Opens it.
    pub token: Token,
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
    leader: Option<Leader>,
    only_trees: bool,
}

/// A dashboard that is served until this is dropped.
pub struct Listening {
    /// Where.
    pub address: SocketAddr,
    _work: Vec<AbortOnDropHandle<()>>,
}

impl Dashboard {
    /// From what this client may read.
    pub fn new(client: Client, settings: Settings) -> Self {
        Self { settings, client, memory: Memory::default(), leader: None, only_trees: false }
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
    pub fn through(self, leader: Leader) -> Self {
        Self { leader: Some(leader), ..self }
    }

    /// Nothing but its trees, behind the server's token: an agent's.
    #[must_use]
    pub fn only_trees(self) -> Self {
        Self { only_trees: true, ..self }
    }

    /// Begins to serve.
    pub async fn listen(self) -> Result<Listening, Error> {
        let wanted = self.settings.address;
        let failed = |source| Error::Listen { address: wanted, source };
        let listener = TcpListener::bind(wanted).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let board = Board::new();
        let scope = Scope { namespace: self.settings.namespace.clone() };
        let gatherer = Gatherer::new(self.client.clone(), scope);
        let feeding = feed(gatherer, self.memory.clone(), Arc::clone(&board), self.settings.due);
        // Costs nothing until somebody asks: with a leader that is when the leader does not answer.
        let mut work = vec![AbortOnDropHandle::new(tokio::spawn(feeding))];
        if !self.only_trees {
            let sampling = sample(self.memory.trees.clone(), Arc::clone(&board), SAMPLE_EVERY);
            work.push(AbortOnDropHandle::new(tokio::spawn(sampling)));
        }
        let state = Arc::new(AppState {
            settings: self.settings,
            client: self.client,
            trees: self.memory.trees,
            leader: self.leader,
            board,
            // Grows from one process to the next, like an epoch.
            epoch: u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0),
            only_trees: self.only_trees,
            server_token: OnceCell::new(),
        });
        let router = if state.only_trees { agent_router(&state) } else { dashboard_router(&state) };
        work.push(AbortOnDropHandle::new(tokio::spawn(accept(listener, router))));
        Ok(Listening { address, _work: work })
    }
}

async fn accept(listener: TcpListener, router: Router) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut open = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = open.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
                    let router = router.clone();
                    open.spawn(async move {
                        serve(stream, router).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    warn!("failed to accept a connection to the dashboard: {error}");
                    // Out of file descriptors, most likely: other connections must close first.
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                }
            }
        }
    }
}

/// Serves one connection. Not `axum::serve`, which has neither a time limit for headers nor a limit for connections.
async fn serve(stream: TcpStream, router: Router) {
    // Events are small, and each of them is waited for.
    let _ = stream.set_nodelay(true);
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_READ_TIMEOUT);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await {
        debug!("connection to the dashboard failed: {error}");
    }
}
