//! Things by key, and when each of them last changed or went.

use std::collections::{BTreeMap, VecDeque};

/// So many removals are remembered for readers that come back.
const MOST_GONE: usize = 4096;

/// Things by key.
#[derive(Debug)]
pub struct Shelf<T> {
    kept: BTreeMap<String, Kept<T>>,
    gone: VecDeque<(u64, String)>,
    /// Removals up to here are forgotten.
    forgotten: u64,
}

#[derive(Debug)]
struct Kept<T> {
    value: T,
    sequence: u64,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { kept: BTreeMap::new(), gone: VecDeque::new(), forgotten: 0 }
    }
}

impl<T: Clone + PartialEq> Shelf<T> {
    /// Puts all of them in; what is not among them is gone.
    pub fn put(&mut self, sequence: u64, all: impl IntoIterator<Item = (String, T)>) {
        let mut left = std::mem::take(&mut self.kept);
        for (key, value) in all {
            let kept = match left.remove(&key) {
                Some(kept) if kept.value == value => kept,
                _ => Kept { value, sequence },
            };
            self.kept.insert(key, kept);
        }
        self.gone.extend(left.into_keys().map(|key| (sequence, key)));
        while self.gone.len() > MOST_GONE {
            self.forgotten = self.gone.pop_front().map_or(self.forgotten, |(at, _)| at);
        }
    }

    /// Whether it is known what has changed since this place.
    pub fn knows(&self, place: u64) -> bool {
        place >= self.forgotten
    }

    /// What is new or changed since this place.
    pub fn changed(&self, place: u64) -> Vec<T> {
        self.kept.values().filter(|kept| kept.sequence > place).map(|kept| kept.value.clone()).collect()
    }

    /// What went since this place.
    pub fn gone(&self, place: u64) -> Vec<String> {
        self.gone.iter().filter(|(at, _)| *at > place).map(|(_, key)| key.clone()).collect()
    }

    /// One of them.
    pub fn get(&self, key: &str) -> Option<&T> {
        self.kept.get(key).map(|kept| &kept.value)
    }
}
