//! Progress that is in memory only, and that whoever downloads a file expects in it.
//!
//! The file of a backup's background operations is written when operations begin and end. In between their progress is known
//! to the process that follows them; whoever asks for the file is meant to see it, so it is written first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use plimsoll_engine::Error;

/// Knows the live state of one subject's background operations.
pub trait Flush: Send + Sync {
    /// Writes it into the subject's file in the location.
    fn flush(&self) -> BoxFuture<'_, Result<(), Error>>;
}

/// Everybody who follows background operations in this process.
#[derive(Default)]
pub struct LiveOperations {
    following: Mutex<HashMap<(String, String), Arc<dyn Flush>>>,
}

impl LiveOperations {
    /// Registers who follows the operations of a subject, for example `("backup", "nightly")`.
    pub fn follow(&self, verb: &str, name: &str, flush: Arc<dyn Flush>) {
        self.lock().insert((verb.to_owned(), name.to_owned()), flush);
    }

    /// Nobody follows them any more.
    pub fn leave(&self, verb: &str, name: &str) {
        self.lock().remove(&(verb.to_owned(), name.to_owned()));
    }

    /// Writes what is known, if anybody follows them.
    pub async fn flush(&self, verb: &str, name: &str) -> Result<(), Error> {
        let found = self.lock().get(&(verb.to_owned(), name.to_owned())).cloned();
        match found {
            Some(flush) => flush.flush().await,
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Arc<dyn Flush>>> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Counting(AtomicUsize);

    impl Flush for Counting {
        fn flush(&self) -> BoxFuture<'_, Result<(), Error>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test]
    async fn only_those_who_follow_a_subject_are_asked() {
        let (live, counting) = (LiveOperations::default(), Arc::new(Counting(AtomicUsize::new(0))));
        live.follow("backup", "a", counting.clone());
        live.flush("backup", "b").await.unwrap();
        live.flush("backup", "a").await.unwrap();
        live.leave("backup", "a");
        live.flush("backup", "a").await.unwrap();
        assert_eq!(counting.0.load(Ordering::Relaxed), 1);
    }
}
