//! The transfers of a follower, by name.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::ResourceExt;

use super::TransferLost;
use super::followed_transfer::FollowedTransfer;
use crate::fs_backup::obstacle::BlockableTransfer;

pub(super) type Entries<T> = Arc<Mutex<HashMap<String, Entry<T>>>>;

pub(super) struct Entry<T> {
    /// `None` while it is unknown whether it exists.
    pub latest: Option<Arc<T>>,
    pub followed: Option<FollowedTransfer<T>>,
}

impl<T> Default for Entry<T> {
    fn default() -> Self {
        Self { latest: None, followed: None }
    }
}

impl<T> Entry<T> {
    /// The followed transfer, until it has ended.
    pub fn active(&mut self) -> Option<&mut FollowedTransfer<T>> {
        self.followed.as_mut().filter(|followed| followed.is_active())
    }
}

pub(super) fn lock<T>(entries: &Entries<T>) -> MutexGuard<'_, HashMap<String, Entry<T>>> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn update_entry<T: BlockableTransfer>(object: T, entries: &Entries<T>) {
    let object = Arc::new(object);
    let mut entries = lock(entries);
    let entry = entries.entry(object.name_any()).or_default();
    if let Some(followed) = &mut entry.followed {
        followed.update(&object);
    }
    entry.latest = Some(object);
}

/// Clears transfers that are absent from a list: deleted while the watch was down, or created after the list. The next poll
/// reads them.
pub(super) fn clear_unlisted<T>(listed: &HashSet<String>, entries: &Entries<T>) {
    for (_, entry) in lock(entries).iter_mut().filter(|(name, _)| !listed.contains(*name)) {
        entry.latest = None;
    }
}

pub(super) fn mark_lost<T: BlockableTransfer>(name: &str, lost: TransferLost, entries: &Entries<T>) {
    let mut entries = lock(entries);
    let Some(entry) = entries.get_mut(name) else { return };
    // Later followers find out too.
    entry.latest = None;
    if let Some(followed) = entry.active() {
        followed.mark_lost(lost);
    }
}

/// The transfers that have not ended, as last observed.
pub(super) fn active_transfers<T>(entries: &Entries<T>) -> Vec<(String, Option<Arc<T>>)> {
    let mut entries = lock(entries);
    let open = entries.iter_mut().filter_map(|(name, entry)| entry.active().is_some().then_some((name, &entry.latest)));
    open.map(|(name, latest)| (name.clone(), latest.clone())).collect()
}
