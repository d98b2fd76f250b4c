//! Writes of index files and snapshots under a lock that stays until their result is known.

use std::sync::Arc;

use super::Lock;
use crate::format::id::Id;
use crate::repository::{FileKind, Repository};
use crate::{RepositoryError, Result};

/// Keeps a lock for a pending write.
struct PendingWrite(Option<Arc<Lock>>);

impl PendingWrite {
    /// The write has ended. The last reference releases the lock.
    fn complete(mut self) {
        if let Some(lock) = self.0.take().and_then(Arc::into_inner) {
            // A release blocks on the store, which is not allowed on a runtime thread.
            std::thread::spawn(move || drop(lock));
        }
    }
}

impl Drop for PendingWrite {
    /// The write was abandoned and may still happen, so the lock file must stay.
    fn drop(&mut self) {
        if let Some(lock) = self.0.take() {
            lock.abandon();
        }
    }
}

impl Repository {
    /// Encrypts and stores JSON. Dropping the future does not stop the write: it continues and keeps the lock until it has ended. An
    /// index file that appears after a prune removed its packs would be invalid.
    pub(crate) async fn save_under(self: &Arc<Self>, lock: &Arc<Lock>, kind: FileKind, json: Vec<u8>) -> Result<Id> {
        let (repository, pending) = (self.clone(), PendingWrite(Some(lock.clone())));
        let saving = self.runtime.spawn(async move {
            let saved = repository.save(kind, &json).await;
            pending.complete();
            saved
        });
        saving.await.unwrap_or_else(|error| Err(RepositoryError::corrupt(kind.folder(), error.to_string())))
    }
}
