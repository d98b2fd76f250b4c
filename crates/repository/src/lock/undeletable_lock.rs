//! Records a lock that could not be removed in the local cache. A store with object lock denies deletes only when they happen, so
//! every process would leave another lock.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use crate::format::id::Id;
use crate::repository::Repository;

impl Repository {
    fn undeletable_lock_file(&self) -> Option<PathBuf> {
        self.options.cache.as_ref().map(|root| root.join(self.config.id.to_string()).join("undeletable-lock"))
    }

    /// Records for the next process that this lock cannot be removed.
    pub(super) fn record_undeletable_lock(&self, lock: Id) {
        let Some(file) = self.undeletable_lock_file() else { return };
        let folder = file.parent().map_or(Ok(()), std::fs::create_dir_all);
        if let Err(error) = folder.and_then(|()| std::fs::write(&file, lock.to_string())) {
            tracing::debug!(file = %file.display(), %error, "failed to record an undeletable lock");
        }
    }

    /// Whether the recorded lock still cannot be removed. Otherwise it is removed with its record.
    pub(super) fn still_denies_deletes(&self) -> bool {
        let Some(file) = self.undeletable_lock_file() else { return false };
        let Some(lock) = std::fs::read_to_string(&file).ok().and_then(|name| Id::parse(name.trim())) else {
            return false;
        };
        if !self.remove_lock(lock) {
            return self.denies_deletes.load(Ordering::Acquire);
        }
        let _ = std::fs::remove_file(&file);
        false
    }
}
