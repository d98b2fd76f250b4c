//! Values by key, with the update in which each was last changed or removed.

use std::collections::{BTreeMap, VecDeque};

/// Removals that are kept for reconnecting readers.
const MAX_REMOVALS: usize = 4096;

/// Values by key, and their changes.
#[derive(Debug)]
pub struct ChangeLog<T> {
    entries: BTreeMap<String, Entry<T>>,
    removals: VecDeque<(u64, String)>,
    /// Removals up to this update are no longer kept.
    dropped_until: u64,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    sequence: u64,
}

impl<T> Default for ChangeLog<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), removals: VecDeque::new(), dropped_until: 0 }
    }
}

impl<T: Clone + PartialEq> ChangeLog<T> {
    /// Replaces all values; those that are missing are removed.
    pub fn replace_all(&mut self, sequence: u64, all: impl IntoIterator<Item = (String, T)>) {
        let mut left = std::mem::take(&mut self.entries);
        for (key, value) in all {
            let entry = match left.remove(&key) {
                Some(entry) if entry.value == value => entry,
                _ => Entry { value, sequence },
            };
            self.entries.insert(key, entry);
        }
        self.removals.extend(left.into_keys().map(|key| (sequence, key)));
        while self.removals.len() > MAX_REMOVALS {
            self.dropped_until = self.removals.pop_front().map_or(self.dropped_until, |(at, _)| at);
        }
    }

    /// Whether all changes since this update are still kept.
    pub fn covers(&self, sequence: u64) -> bool {
        sequence >= self.dropped_until
    }

    /// Values that are new or changed since this update.
    pub fn changed_since(&self, sequence: u64) -> Vec<T> {
        self.entries.values().filter(|entry| entry.sequence > sequence).map(|entry| entry.value.clone()).collect()
    }

    /// Keys that were removed since this update.
    pub fn removed_since(&self, sequence: u64) -> Vec<String> {
        self.removals.iter().filter(|(at, _)| *at > sequence).map(|(_, key)| key.clone()).collect()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.entries.get(key).map(|entry| &entry.value)
    }
}
