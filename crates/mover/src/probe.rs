//! Direct access to the store of a repository. An unreachable store or rejected credentials are reported at once, without the
//! long retries of the programs.

use std::time::{Duration, SystemTime};

use futures::TryStreamExt;
use plimsoll_store::{Location, ObjectInfo, Store, Tuning};
use tokio::runtime::Runtime;

use crate::repository_location::RepositoryLocation;
use crate::{MoverError, Result};

/// Maximum size of the files that are read whole: formats, manifests and locks.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// A store with a runtime for blocking calls.
#[derive(Debug)]
pub(crate) struct Probe {
    runtime: Runtime,
    store: Store,
    name: String,
}

impl Probe {
    pub(crate) fn open(location: &RepositoryLocation) -> Result<Self> {
        let name = location.name();
        let location = Location { tuning: short_timeouts(), ..location.location() };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| MoverError::local("start a runtime", &error))?;
        let store = {
            let _inside = runtime.enter();
            Store::open(&location).map_err(|error| MoverError::from_store(&error, &name))?
        };
        Ok(Self { runtime, store, name })
    }

    /// Whether an object exists. Some servers respond "not found" to rejected credentials; only a list reveals it.
    pub(crate) fn exists(&self, key: &str) -> Result<bool> {
        let exists = async {
            if self.store.exists(key).await? {
                return Ok(true);
            }
            self.store.list("").try_next().await.map(|_| false)
        };
        self.runtime.block_on(exists).map_err(|error| self.error(&error))
    }

    pub(crate) fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        self.runtime.block_on(self.store.list(folder).try_collect()).map_err(|error| self.error(&error))
    }

    /// Whether a folder contains an object, without listing all of it.
    pub(crate) fn contains_any(&self, folder: &str) -> Result<bool> {
        let first = self.runtime.block_on(async { self.store.list(folder).try_next().await });
        first.map(|first| first.is_some()).map_err(|error| self.error(&error))
    }

    pub(crate) fn get(&self, key: &str) -> Result<Vec<u8>> {
        self.runtime
            .block_on(self.store.get_at_most(key, MAX_FILE_BYTES))
            .map(|bytes| bytes.to_vec())
            .map_err(|error| self.error(&error))
    }

    pub(crate) fn put(&self, key: &str, content: Vec<u8>) -> Result<()> {
        self.runtime.block_on(self.store.put(key, content)).map_err(|error| self.error(&error))
    }

    pub(crate) fn delete(&self, key: &str) -> Result<()> {
        self.runtime.block_on(self.store.delete(key)).map_err(|error| self.error(&error))
    }

    fn error(&self, error: &plimsoll_store::StoreError) -> MoverError {
        MoverError::from_store(error, &self.name)
    }
}

/// The age of the newest of these objects.
pub(crate) fn newest_age(objects: &[ObjectInfo]) -> Duration {
    let now = SystemTime::now();
    let ages = objects.iter().map(|object| now.duration_since(object.modified).unwrap_or_default());
    ages.min().unwrap_or_default()
}

fn short_timeouts() -> Tuning {
    Tuning {
        idle_timeout: Duration::from_secs(10),
        connect_timeout: Duration::from_secs(5),
        max_retries: 2,
        retry_timeout: Duration::from_secs(15),
    }
}
