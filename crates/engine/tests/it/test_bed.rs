//! An in-process cluster, a location in a directory, and ports that record what the engine does.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures::TryStreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use plimsoll_engine::cluster::Cluster;
use plimsoll_engine::ports::{Effect, IntentId, Journal, JournalEntry, LeadershipGuard};
use plimsoll_engine::{Error, OperationEnv};
use plimsoll_local::fixtures::{create_namespace, open_api};
use plimsoll_progress::Operation;
use plimsoll_store::Store;
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The namespace of the custom resources.
pub const NAMESPACE: &str = "velero";
/// The namespace with objects to back up.
pub const SHOP: &str = "shop";

pub struct TestBed {
    pub client: Client,
    pub store: Store,
    pub journal: Arc<MemoryJournal>,
    pub cancel: CancellationToken,
    directory: TempDir,
}

impl TestBed {
    /// A cluster with one ConfigMap in the namespace [`SHOP`], and an empty location.
    pub async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let api = open_api(&directory.path().join("cluster"), plimsoll_api::crds(), &[NAMESPACE, SHOP]).await;
        let client = api.client(NAMESPACE);
        let store = Store::directory(directory.path().join("location"), "").unwrap();
        std::fs::create_dir(directory.path().join("scratch")).unwrap();
        let bed = Self { client, store, journal: Arc::default(), cancel: CancellationToken::new(), directory };
        bed.create_config_map("prices", "apple", "3").await;
        bed
    }

    pub async fn create_namespace(&self, name: &str) {
        create_namespace(&self.client, name).await.unwrap();
    }

    pub fn config_maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub async fn create_config_map(&self, name: &str, key: &str, value: &str) {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let data = Some([(key.to_owned(), value.to_owned())].into());
        let object = ConfigMap { metadata, data, ..ConfigMap::default() };
        self.config_maps(SHOP).create(&PostParams::default(), &object).await.unwrap();
    }

    pub fn cluster(&self) -> Cluster {
        Cluster::new(self.client.clone())
    }

    pub fn scratch(&self) -> PathBuf {
        self.directory.path().join("scratch")
    }

    /// The environment of an operation with this tree.
    pub fn operation_env(&self, tree: &Operation) -> OperationEnv {
        OperationEnv {
            cluster: self.cluster(),
            guard: Arc::new(AlwaysLeader),
            journal: self.journal.clone(),
            cancel: self.cancel.clone(),
            scratch: self.scratch(),
            root: tree.root(),
        }
    }

    /// The keys in the location below a prefix, sorted.
    pub async fn keys(&self, prefix: &str) -> Vec<String> {
        keys(&self.store, prefix).await
    }
}

pub async fn keys(store: &Store, prefix: &str) -> Vec<String> {
    let mut keys: Vec<_> = store.list(prefix).map_ok(|info| info.key).try_collect().await.unwrap();
    keys.sort();
    keys
}

/// A process that always leads.
pub struct AlwaysLeader;

impl LeadershipGuard for AlwaysLeader {
    fn check_effect(&self) -> Result<(), Error> {
        Ok(())
    }

    fn check_commit(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}

/// A process that does not know yet that another one leads.
pub struct DeposedLeader;

impl LeadershipGuard for DeposedLeader {
    fn check_effect(&self) -> Result<(), Error> {
        Ok(())
    }

    fn check_commit(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Err(Error::Fenced("the operation was taken over".into())) })
    }
}

/// What happens at a line of the journal.
pub enum Interruption {
    /// The user cancels.
    Cancel(CancellationToken),
    /// The process stops there: the line is durable, and the call does not return.
    Stop,
}

/// A journal in memory, which can interrupt the operation once.
#[derive(Default)]
pub struct MemoryJournal {
    entries: Mutex<Vec<JournalEntry>>,
    interruption: Mutex<Option<(&'static str, Interruption)>>,
    stopped: Notify,
}

impl MemoryJournal {
    pub fn entries(&self) -> Vec<JournalEntry> {
        self.entries.lock().unwrap().clone()
    }

    /// Interrupts the operation at the first line that begins with `line`.
    pub fn interrupt_at(&self, line: &'static str, interruption: Interruption) {
        *self.interruption.lock().unwrap() = Some((line, interruption));
    }

    /// Returns once the operation was stopped.
    pub async fn stopped(&self) {
        self.stopped.notified().await;
    }

    async fn react(&self, line: &str) {
        let reaction = self.interruption.lock().unwrap().take_if(|(at, _)| line.starts_with(*at));
        match reaction {
            Some((_, Interruption::Cancel(cancel))) => {
                cancel.cancel();
                // The operation sees it here, and not in the middle of its next write.
                tokio::task::yield_now().await;
            }
            Some((_, Interruption::Stop)) => {
                self.stopped.notify_one();
                std::future::pending::<()>().await;
            }
            None => {}
        }
    }
}

impl Journal for MemoryJournal {
    fn record_intent(&self, effect: Effect) -> BoxFuture<'_, Result<IntentId, Error>> {
        Box::pin(async move {
            let line = effect.to_string();
            let id = {
                let mut entries = self.entries.lock().unwrap();
                let id = IntentId(entries.len() as u64);
                entries.push(JournalEntry { id, effect, result: None });
                id
            };
            self.react(&line).await;
            Ok(id)
        })
    }

    fn record_result(&self, intent: IntentId, result: String) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            for entry in self.entries.lock().unwrap().iter_mut().filter(|entry| entry.id == intent) {
                entry.result = Some(result.clone());
            }
            self.react(&result).await;
            Ok(())
        })
    }
}
