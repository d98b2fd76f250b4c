//! A Kubernetes API inside the binary: the embedded default, and the fast test double of a cluster.
//!
//! ```text
//!  kube::Client ─ in process ─┐
//!                             ├─> service ─> read, watch ─────────> snapshot, history
//!  kubectl ─ HTTPS, token ────┘         └──> write, delete ─jobs──> writer thread ─> redb
//!                                                 ▲                       │ committed changes
//!                                                 └────── collector <─────┘ (owners, namespaces, definitions)
//! ```
//!
//! It implements the part of the Kubernetes API that our controllers, `kubectl` and the `velero` CLI use, with the
//! behaviour of kube-apiserver, and rejects the rest with a `Status`. An object is JSON and a kind is a row in a table:
//! built-in kinds are in `builtin`, the others come from CustomResourceDefinitions.
//!
//! It must never acknowledge a write that is not on disk, let a watch miss a change without an error, or hold parsed
//! objects in memory. It has no authorization: its token, and every
//! token that it issued to a pod, permits everything. Pods run only after [`Api::run_pods`].

mod admission;
mod builtin;
mod collector;
mod credentials;
mod database;
mod definition;
mod delete;
mod discovery;
mod error;
#[cfg(feature = "fixtures")]
pub mod fixtures;
mod history;
mod key;
mod kind;
mod negotiate;
mod node;
mod object;
mod patch;
mod read;
mod registry;
mod request;
mod response;
mod scale;
mod selector;
mod server;
mod service;
mod status_error;
mod table;
mod token;
mod watch;
mod write;

pub use error::Error;
pub use history::Retention;
pub use node::NODE_NAME;
pub use response::Body;
pub use server::HttpsServer;

use bytes::Bytes;
use database::Database;
use http::{Request, Response};
use registry::Registry;
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    net::SocketAddr,
    path::Path,
    sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};
use tokio::sync::{mpsc, watch as channel};

/// Settings of an embedded API.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much history watches and paged lists can go back to.
    pub retention: Retention,
    /// Interval of the bookmarks of a watch that requested them.
    pub bookmark_interval: Duration,
    /// Memory for pages of the database, in bytes.
    pub cache: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { retention: Retention::default(), bookmark_interval: Duration::from_mins(1), cache: 32 << 20 }
    }
}

pub(crate) struct Core {
    database: Database,
    registry: Arc<RwLock<Registry>>,
    options: Options,
    /// Set once [`Api::run_pods`] was called.
    node: OnceLock<node::Node>,
    /// The address and CA of the HTTPS server, once it runs.
    endpoint: channel::Sender<Option<server::Endpoint>>,
    tokens: token::Issuer,
}

impl Core {
    fn registry(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An embedded Kubernetes API. Clones share it; when the last one and its clients are gone, it closes.
#[derive(Clone)]
pub struct Api {
    core: Arc<Core>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Api").field("options", &self.core.options).finish_non_exhaustive()
    }
}

impl Api {
    /// Opens the API over a directory, which is created if it does not exist. Only one process can have it open.
    pub async fn open(directory: &Path) -> Result<Self, Error> {
        Self::open_with(directory, Options::default()).await
    }

    /// As [`Api::open`], with options.
    pub async fn open_with(directory: &Path, options: Options) -> Result<Self, Error> {
        std::fs::create_dir_all(directory).map_err(|source| Error::file(directory, source))?;
        let (database, observe) = Database::open(&directory.join("objects.redb"), options.cache, options.retention)?;
        let registry = Arc::new(RwLock::new(load_registry(&database)?));
        let (changes, received) = mpsc::unbounded_channel();
        let updated = Arc::clone(&registry);
        observe(Box::new(move |events| {
            update_registry(&updated, events);
            for event in events.iter().filter(|event| collector::is_relevant(event)) {
                // The collector ends only when this sender is dropped, or with the runtime.
                let _ = changes.send(Arc::clone(event));
            }
        }));
        let core = Arc::new(Core {
            database,
            registry,
            options,
            node: OnceLock::new(),
            endpoint: channel::Sender::new(None),
            tokens: token::Issuer::new(),
        });
        tokio::spawn(collector::Collector::new(&core, received).run());
        let api = Self { core };
        api.create_permanent_namespaces().await?;
        Ok(api)
    }

    async fn create_permanent_namespaces(&self) -> Result<(), Error> {
        let kind = self.core.registry().find("", "v1", "namespaces");
        let Some(kind) = kind else { return Ok(()) };
        for name in admission::PERMANENT_NAMESPACES {
            let body = json!({"metadata": {"name": name}}).to_string();
            match self.core.create(Arc::clone(&kind), None, body.as_bytes(), &request::Query::default()).await {
                Err(failure) if failure.code != 409 => return Err(Error::Setup(failure.message)),
                _ => {}
            }
        }
        Ok(())
    }

    /// A client that talks to this API without a network. Exec, attach and port-forward need [`Api::serve`].
    pub fn client(&self, default_namespace: &str) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.handle(request).await) }
        });
        kube::Client::new(service, default_namespace)
    }

    /// Handles one request. The caller has authorized it.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Arc::clone(&self.core).handle(request).await
    }

    /// Serves this API over HTTPS. Certificate, token and kubeconfig are in `credentials`, created if absent.
    pub async fn serve(&self, address: SocketAddr, credentials: &Path) -> Result<HttpsServer, Error> {
        HttpsServer::start(self.clone(), address, credentials).await
    }

    /// Runs pods as processes of this machine, with the privileges of this process, and volumes as directories below
    /// `directory`. Every container gets the variables in `environment`. All pods end with [`Api::close`] or this process.
    pub async fn run_pods(&self, directory: &Path, environment: Vec<(String, String)>) -> Result<(), Error> {
        node::start(&self.core, directory, environment).await
    }

    /// Ends all watches, commits the queued writes and closes the database. Later requests fail.
    pub async fn close(&self) {
        let core = Arc::clone(&self.core);
        // Joining the writer blocks. The task cannot fail: closing does not panic.
        let _ = tokio::task::spawn_blocking(move || core.database.close()).await;
    }
}

fn load_registry(database: &Database) -> Result<Registry, Error> {
    let mut registry = Registry::with_built_in();
    let refused = |failure: status_error::StatusError| Error::Setup(failure.message);
    let snapshot = database.snapshot().map_err(refused)?;
    for row in snapshot.scan(&key::KeyRange::of(definition::RESOURCE, None)).map_err(refused)? {
        let (_, stored) = row.map_err(|error| Error::Setup(error.to_string()))?;
        if let Ok(definition) = serde_json::from_slice::<Value>(stored.value()) {
            registry.add_definition(&definition);
        }
    }
    Ok(registry)
}

fn update_registry(registry: &RwLock<Registry>, events: &[Arc<history::Event>]) {
    for event in events.iter().filter(|event| *event.key.resource == *definition::RESOURCE) {
        let mut registry = registry.write().unwrap_or_else(PoisonError::into_inner);
        if event.deleted {
            registry.remove_definition(&event.key.name);
        } else if let Ok(definition) = serde_json::from_slice(&event.object) {
            registry.add_definition(&definition);
        }
    }
}
