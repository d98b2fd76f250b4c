//! What a backup has taken so far, and what actions asked for that no list will bring.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::actions::ItemId;

/// An item is remembered by 8 bytes: a cluster may have millions. Two items of one hash would need billions.
#[derive(Default)]
pub struct Found {
    hasher: RandomState,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    taken: HashSet<u64>,
    kinds: BTreeSet<String>,
    namespaces: BTreeSet<String>,
    wanted: BTreeMap<ItemId, bool>,
}

impl Found {
    /// Notes that an item is taken. `false` if it was before.
    pub fn take(&self, group_resource: &str, namespace: Option<&str>, name: &str) -> bool {
        let hash = self.hash(group_resource, namespace, name);
        let mut inner = self.inner();
        if !inner.taken.insert(hash) {
            return false;
        }
        if !inner.kinds.contains(group_resource) {
            inner.kinds.insert(group_resource.to_owned());
        }
        if let Some(namespace) = namespace.filter(|namespace| !inner.namespaces.contains(*namespace)) {
            inner.namespaces.insert(namespace.to_owned());
        }
        true
    }

    /// Notes that an action asked for an item, unless it is taken. `forced` ones are taken whatever the filters say.
    pub fn want(&self, item: ItemId, forced: bool) {
        let hash = self.hash(&item.group_resource, item.namespace.as_deref(), &item.name);
        let mut inner = self.inner();
        if !inner.taken.contains(&hash) {
            *inner.wanted.entry(item).or_default() |= forced;
        }
    }

    /// What was asked for since the last call and is not taken yet.
    pub fn wanted(&self) -> BTreeMap<ItemId, bool> {
        let mut wanted = std::mem::take(&mut self.inner().wanted);
        wanted.retain(|item, _| !self.has(item));
        wanted
    }

    fn has(&self, item: &ItemId) -> bool {
        let hash = self.hash(&item.group_resource, item.namespace.as_deref(), &item.name);
        self.inner().taken.contains(&hash)
    }

    /// Whether anything in this namespace is taken.
    pub fn inhabits(&self, namespace: &str) -> bool {
        self.inner().namespaces.contains(namespace)
    }

    /// The group-resources of what is taken.
    pub fn kinds(&self) -> BTreeSet<String> {
        self.inner().kinds.clone()
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
    fn an_item_is_taken_once_and_no_longer_wanted_then() {
        let found = Found::default();
        found.want(ItemId::new("persistentvolumes", None, "a"), false);
        found.want(ItemId::new("persistentvolumes", None, "b"), false);
        assert!(found.take("persistentvolumes", None, "a") && !found.take("persistentvolumes", None, "a"));
        found.want(ItemId::new("persistentvolumes", None, "a"), true);
        assert_eq!(found.wanted(), BTreeMap::from([(ItemId::new("persistentvolumes", None, "b"), false)]));
        assert!(found.wanted().is_empty());
    }

    #[test]
    fn one_forced_request_forces_the_item() {
        let found = Found::default();
        found.want(ItemId::new("x", None, "a"), true);
        found.want(ItemId::new("x", None, "a"), false);
        assert_eq!(found.wanted(), BTreeMap::from([(ItemId::new("x", None, "a"), true)]));
    }

    #[test]
    fn a_namespace_is_inhabited_by_what_is_taken_in_it() {
        let found = Found::default();
        found.take("pods", Some("shop"), "a");
        assert!(found.inhabits("shop") && !found.inhabits("other"));
        assert_eq!(found.kinds(), BTreeSet::from(["pods".to_owned()]));
    }
}
