//! The listener.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
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
use crate::routes::Routes;
use crate::token::Token;

/// So many connections at the same time.
const MOST_CONNECTIONS: usize = 256;
/// A client must have asked by then.
const HEADER_LIMIT: Duration = Duration::from_secs(10);

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
        let routes = Routes {
            settings: self.settings,
            client: self.client,
            trees: self.memory.trees,
            leader: self.leader,
            board,
            // Grows from one process to the next, like an epoch.
            epoch: u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0),
            only_trees: self.only_trees,
            servers_token: OnceCell::new(),
        };
        work.push(AbortOnDropHandle::new(tokio::spawn(accept(listener, Arc::new(routes)))));
        Ok(Listening { address, _work: work })
    }
}

async fn accept(listener: TcpListener, routes: Arc<Routes>) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut open = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = open.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
                    let routes = Arc::clone(&routes);
                    open.spawn(async move {
                        serve(stream, routes).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    warn!("cannot accept a connection for the dashboard: {error}");
                    // Out of file descriptors, most likely: others must close first.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn serve(stream: TcpStream, routes: Arc<Routes>) {
    // Small pieces, each of which somebody waits for.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let routes = Arc::clone(&routes);
        async move { Ok::<_, Infallible>(routes.answer(request).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_LIMIT);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        debug!("a connection to the dashboard ended badly: {error}");
    }
}
