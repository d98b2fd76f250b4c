//! Progress that is only in memory until the file that shows it is requested.
//!
//! The file of a backup's background operations is written when operations begin and end. In between their progress is in
//! the memory of the process that follows them. It is written into the file before the file is handed out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use plimsoll_engine::Error;

/// Holds the live state of one subject's background operations.
pub trait Flush: Send + Sync {
    /// Writes it into the subject's file in the location.
    fn flush(&self) -> BoxFuture<'_, Result<(), Error>>;
}

/// The live states of this process.
#[derive(Default)]
pub struct LiveProgress {
    holders: Mutex<HashMap<(String, String), Arc<dyn Flush>>>,
}

impl LiveProgress {
    /// Registers the live state of a subject, for example `("backup", "nightly")`.
    pub fn register(&self, verb: &str, name: &str, flush: Arc<dyn Flush>) {
        self.lock().insert((verb.to_owned(), name.to_owned()), flush);
    }

    /// Removes it.
    pub fn unregister(&self, verb: &str, name: &str) {
        self.lock().remove(&(verb.to_owned(), name.to_owned()));
    }

    /// Writes the live state of a subject, if there is one.
    pub async fn flush(&self, verb: &str, name: &str) -> Result<(), Error> {
        let found = self.lock().get(&(verb.to_owned(), name.to_owned())).cloned();
        match found {
            Some(flush) => flush.flush().await,
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Arc<dyn Flush>>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
