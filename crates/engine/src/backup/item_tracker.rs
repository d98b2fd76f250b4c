//! Items that are in a backup so far, and additional items that actions requested.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::actions::ItemId;

/// Stores 8 bytes for each item, because there may be millions. A collision of hashes would need billions.
#[derive(Default)]
pub struct ItemTracker {
    hasher: RandomState,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    added: HashSet<u64>,
    group_resources: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    requested: BTreeMap<ItemId, bool>,
}

impl ItemTracker {
    /// Adds an item. Returns `false` if it was added before.
    pub fn add(&self, group_resource: &str, namespace: Option<&str>, name: &str) -> bool {
        let hash = self.hash(group_resource, namespace, name);
        let mut inner = self.inner();
        if !inner.added.insert(hash) {
            return false;
        }
        if !inner.group_resources.contains(group_resource) {
            inner.group_resources.insert(group_resource.to_owned());
        }
        if let Some(namespace) = namespace.filter(|namespace| !inner.namespaces.contains(*namespace)) {
            inner.namespaces.insert(namespace.to_owned());
        }
        true
    }

    /// Requests an additional item, unless it was added. The filters do not apply to a `forced` item.
    pub fn request(&self, item: ItemId, forced: bool) {
        let hash = self.hash(&item.group_resource, item.namespace.as_deref(), &item.name);
        let mut inner = self.inner();
        if !inner.added.contains(&hash) {
            *inner.requested.entry(item).or_default() |= forced;
        }
    }

    /// Returns and clears the requested items that were not added yet.
    pub fn take_requested(&self) -> BTreeMap<ItemId, bool> {
        let mut requested = std::mem::take(&mut self.inner().requested);
        requested.retain(|item, _| !self.contains(item));
        requested
    }

    fn contains(&self, item: &ItemId) -> bool {
        let hash = self.hash(&item.group_resource, item.namespace.as_deref(), &item.name);
        self.inner().added.contains(&hash)
    }

    /// Whether the backup contains items of this namespace.
    pub fn has_items_in(&self, namespace: &str) -> bool {
        self.inner().namespaces.contains(namespace)
    }

    /// The group-resources of the added items.
    pub fn group_resources(&self) -> BTreeSet<String> {
        self.inner().group_resources.clone()
    }

    fn hash(&self, group_resource: &str, namespace: Option<&str>, name: &str) -> u64 {
        self.hasher.hash_one((group_resource, namespace, name))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_added_once_and_then_no_longer_requested() {
        let tracker = ItemTracker::default();
        tracker.request(ItemId::new("persistentvolumes", None, "a"), false);
        tracker.request(ItemId::new("persistentvolumes", None, "b"), false);
        assert!(tracker.add("persistentvolumes", None, "a") && !tracker.add("persistentvolumes", None, "a"));
        tracker.request(ItemId::new("persistentvolumes", None, "a"), true);
        assert_eq!(tracker.take_requested(), BTreeMap::from([(ItemId::new("persistentvolumes", None, "b"), false)]));
        assert!(tracker.take_requested().is_empty());
    }

    #[test]
    fn one_forced_request_forces_the_item() {
        let tracker = ItemTracker::default();
        tracker.request(ItemId::new("x", None, "a"), true);
        tracker.request(ItemId::new("x", None, "a"), false);
        assert_eq!(tracker.take_requested(), BTreeMap::from([(ItemId::new("x", None, "a"), true)]));
    }

    #[test]
    fn namespaces_and_resources_of_added_items_are_known() {
        let tracker = ItemTracker::default();
        tracker.add("pods", Some("shop"), "a");
        assert!(tracker.has_items_in("shop") && !tracker.has_items_in("other"));
        assert_eq!(tracker.group_resources(), BTreeSet::from(["pods".to_owned()]));
    }
}
