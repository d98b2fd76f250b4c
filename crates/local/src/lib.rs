//! A Kubernetes API inside the binary: the embedded default, and the fast stand-in for a cluster in tests.
//!
//! ```text
//!  kube::Client ─ in process ─┐
//!                             ├─> service ─> read, watch ─────────> snapshot, history
//!  kubectl ─ HTTPS, token ────┘         └──> write, delete ─jobs──> writer thread ─> redb
//!                                                 ▲                       │ committed changes
//!                                                 └────── collector <─────┘ (owners, namespaces, definitions)
//! ```
//!
//! It does what our controllers, `kubectl` and the `velero` CLI use of an API server, as the real one does it, and
//! refuses the rest with a `Status`. An object is JSON and a kind is a row in a table: built-in ones in `builtin`, others
//! from CustomResourceDefinitions.
//!
//! It must never acknowledge a write that is not on disk, let a watcher miss a change without saying so, or hold parsed
//! objects in memory. It is not a cluster: whoever has its token, or one that it issued to a pod, may do everything, and
//! pods run only where `node` was asked to run them.

mod admission;
mod answer;
mod builtin;
mod collector;
mod credentials;
mod database;
mod definition;
mod delete;
mod discovery;
mod error;
mod failure;
mod history;
mod key;
mod kind;
mod negotiate;
mod node;
mod object;
mod patch;
mod read;
mod registry;
mod scale;
mod selector;
mod serve;
mod service;
mod table;
mod target;
mod token;
mod watch;
mod write;

pub use answer::Body;
pub use error::Error;
pub use history::Retention;
pub use node::NAME as NODE;
pub use serve::Served;

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

/// What can be chosen about an API.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much of the past watches and paged lists can go back to.
    pub retention: Retention,
    /// How often a watch that asked for bookmarks gets one.
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
    /// Only where pods are run.
    node: OnceLock<node::Node>,
    /// Where this API can be reached from outside of the process, once it can.
    listener: channel::Sender<Option<serve::Listener>>,
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
    /// Opens the API over a directory, which is made if it is not there. Only one process can have it open.
    pub async fn open(directory: &Path) -> Result<Self, Error> {
        Self::open_with(directory, Options::default()).await
    }

    /// As [`Api::open`], with options.
    pub async fn open_with(directory: &Path, options: Options) -> Result<Self, Error> {
        std::fs::create_dir_all(directory).map_err(|source| Error::file(directory, source))?;
        let (database, observe) = Database::open(&directory.join("objects.redb"), options.cache, options.retention)?;
        let registry = Arc::new(RwLock::new(known_kinds(&database)?));
        let (changes, followed) = mpsc::unbounded_channel();
        let updated = Arc::clone(&registry);
        observe(Box::new(move |events| {
            update_registry(&updated, events);
            for event in events.iter().filter(|event| collector::is_interesting(event)) {
                // The collector ends only when this sender is dropped, or with the runtime.
                let _ = changes.send(Arc::clone(event));
            }
        }));
        let core = Arc::new(Core {
            database,
            registry,
            options,
            node: OnceLock::new(),
            listener: channel::Sender::new(None),
            tokens: token::Issuer::new(),
        });
        tokio::spawn(collector::Collector::new(&core, followed).run());
        let api = Self { core };
        api.make_permanent_namespaces().await?;
        Ok(api)
    }

    async fn make_permanent_namespaces(&self) -> Result<(), Error> {
        let kind = self.core.registry().find("", "v1", "namespaces");
        let Some(kind) = kind else { return Ok(()) };
        for name in admission::PERMANENT_NAMESPACES {
            let body = json!({"metadata": {"name": name}}).to_string();
            match self.core.create(Arc::clone(&kind), None, body.as_bytes(), &target::Query::default()).await {
                Err(failure) if failure.code != 409 => return Err(Error::Refused(failure.message)),
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

    /// Answers one request. The caller has authorized it.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Arc::clone(&self.core).handle(request).await
    }

    /// Serves this API over HTTPS. Certificate, token and kubeconfig are in `credentials`, made if they are not there.
    pub async fn serve(&self, address: SocketAddr, credentials: &Path) -> Result<Served, Error> {
        Served::start(self.clone(), address, credentials).await
    }

    /// Runs pods as processes of this machine, with the rights of this process, and volumes as directories below
    /// `directory`. What is in `environment` every container gets. They all end with [`Api::close`] or this process.
    pub async fn run_pods(&self, directory: &Path, environment: Vec<(String, String)>) -> Result<(), Error> {
        node::start(&self.core, directory, environment).await
    }

    /// Ends all watches, finishes the writes that wait, and lets go of the database. Later requests are refused.
    pub async fn close(&self) {
        let core = Arc::clone(&self.core);
        // Joining the writer blocks. The task cannot fail: closing does not panic.
        let _ = tokio::task::spawn_blocking(move || core.database.close()).await;
    }
}

fn known_kinds(database: &Database) -> Result<Registry, Error> {
    let mut registry = Registry::with_built_in();
    let refused = |failure: failure::Failure| Error::Refused(failure.message);
    let snapshot = database.snapshot().map_err(refused)?;
    for row in snapshot.scan(&key::Span::of(definition::RESOURCE, None)).map_err(refused)? {
        let (_, stored) = row.map_err(|error| Error::Refused(error.to_string()))?;
        if let Ok(definition) = serde_json::from_slice::<Value>(stored.value()) {
            registry.define(&definition);
        }
    }
    Ok(registry)
}

fn update_registry(registry: &RwLock<Registry>, events: &[Arc<history::Event>]) {
    for event in events.iter().filter(|event| *event.key.resource == *definition::RESOURCE) {
        let mut registry = registry.write().unwrap_or_else(PoisonError::into_inner);
        if event.deleted {
            registry.forget(&event.key.name);
        } else if let Ok(definition) = serde_json::from_slice(&event.object) {
            registry.define(&definition);
        }
    }
}
