//! The store behind a repository, asked by ourselves: a dead or refusing one is named at once, whatever patience the
//! program would have with it.

use std::time::{Duration, SystemTime};

use futures::TryStreamExt;
use plimsoll_store::{Location, ObjectInfo, Store, Tuning};
use tokio::runtime::Runtime;

use crate::place::Place;
use crate::{MoverError, Result};

/// A store and what it takes to ask it from here.
#[derive(Debug)]
pub(crate) struct Probe {
    runtime: Runtime,
    store: Store,
    name: String,
}

impl Probe {
    pub(crate) fn open(place: &Place) -> Result<Self> {
        let name = place.name();
        let location = Location { tuning: impatient(), ..place.location() };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| MoverError::local("start a runtime", &error))?;
        let store = {
            let _inside = runtime.enter();
            Store::open(&location).map_err(|error| MoverError::of_store(&error, &name))?
        };
        Ok(Self { runtime, store, name })
    }

    /// Whether an object is there. Some servers answer "not found" to keys they refuse, and only a listing tells the truth.
    pub(crate) fn exists(&self, key: &str) -> Result<bool> {
        let asked = async {
            if self.store.exists(key).await? {
                return Ok(true);
            }
            self.store.list("").try_next().await.map(|_| false)
        };
        self.runtime.block_on(asked).map_err(|error| self.error(&error))
    }

    pub(crate) fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        self.runtime.block_on(self.store.list(folder).try_collect()).map_err(|error| self.error(&error))
    }

    /// Whether a folder holds anything, without listing all of it.
    pub(crate) fn holds_any(&self, folder: &str) -> Result<bool> {
        let first = self.runtime.block_on(async { self.store.list(folder).try_next().await });
        first.map(|first| first.is_some()).map_err(|error| self.error(&error))
    }

    pub(crate) fn get(&self, key: &str) -> Result<Vec<u8>> {
        self.runtime.block_on(self.store.get(key)).map(|bytes| bytes.to_vec()).map_err(|error| self.error(&error))
    }

    pub(crate) fn put(&self, key: &str, content: Vec<u8>) -> Result<()> {
        self.runtime.block_on(self.store.put(key, content)).map_err(|error| self.error(&error))
    }

    pub(crate) fn delete(&self, key: &str) -> Result<()> {
        self.runtime.block_on(self.store.delete(key)).map_err(|error| self.error(&error))
    }

    fn error(&self, error: &plimsoll_store::StoreError) -> MoverError {
        MoverError::of_store(error, &self.name)
    }
}

/// The age of the youngest of these objects.
pub(crate) fn youngest(objects: &[ObjectInfo]) -> Duration {
    let now = SystemTime::now();
    let ages = objects.iter().map(|object| now.duration_since(object.modified).unwrap_or_default());
    ages.min().unwrap_or_default()
}

fn impatient() -> Tuning {
    Tuning {
        idle: Duration::from_secs(10),
        connect: Duration::from_secs(5),
        retries: 2,
        give_up: Duration::from_secs(15),
    }
}
