//! A lock that could not be removed, remembered on this machine: a store that keeps what is there for a while says so only
//! when something is to be deleted, and every process would find out anew, with a lock of its own.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::format::id::Id;
use crate::repository::Repository;

impl Repository {
    fn refusal_file(&self) -> Option<PathBuf> {
        self.options.cache.as_ref().map(|root| root.join(self.config.id.to_string()).join("lock-that-stays"))
    }

    /// For the next process: this lock cannot be removed.
    pub(super) fn remember_refusal(&self, lock: Id) {
        let Some(file) = self.refusal_file() else { return };
        let folder = file.parent().map_or(Ok(()), std::fs::create_dir_all);
        if let Err(error) = folder.and_then(|()| std::fs::write(&file, lock.to_string())) {
            tracing::debug!(file = %file.display(), %error, "not remembered that the store refuses deletes");
        }
    }

    /// Whether the lock that once could not be removed still cannot be. If it can, that is done and forgotten.
    pub(super) fn still_refuses(&self) -> bool {
        let Some(file) = self.refusal_file() else { return false };
        let Some(lock) = std::fs::read_to_string(&file).ok().and_then(|name| Id::parse(name.trim())) else {
            return false;
        };
        if !self.remove_lock(lock) {
            return self.keeps_everything.load(Ordering::Acquire);
        }
        let _ = std::fs::remove_file(&file);
        false
    }
}
