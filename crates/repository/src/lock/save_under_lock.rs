//! Writes that others will rely on, under a lock that stays until it is known how they ended.

use std::sync::Arc;

use super::Lock;
use crate::format::id::Id;
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result};

/// Keeps a lock for a write that is under way.
struct Hold(Option<Arc<Lock>>);

impl Hold {
    /// The write has ended, whichever way. Whoever is the last to hold the lock releases it.
    fn settle(mut self) {
        if let Some(lock) = self.0.take().and_then(Arc::into_inner) {
            // Releasing waits for the store, which the runtime's own threads must not.
            std::thread::spawn(move || drop(lock));
        }
    }
}

impl Drop for Hold {
    /// Nobody waited for the write to its end, and it may still happen.
    fn drop(&mut self) {
        if let Some(lock) = self.0.take() {
            lock.leave_behind();
        }
    }
}

impl Repository {
    /// Seals and stores JSON. Who no longer waits for it does not end it: it goes on by itself, and keeps the lock until it
    /// has settled. An index that appeared after somebody else has swept up its packs would promise what is gone.
    pub(crate) async fn save_under(self: &Arc<Self>, lock: &Arc<Lock>, kind: FileKind, json: Vec<u8>) -> Result<Id> {
        let (repository, hold) = (self.clone(), Hold(Some(lock.clone())));
        let saving = self.runtime.spawn(async move {
            let saved = repository.save(kind, &json).await;
            hold.settle();
            saved
        });
        saving.await.unwrap_or_else(|error| Err(RepositoryError::corrupt(kind.folder(), error.to_string())))
    }
}
