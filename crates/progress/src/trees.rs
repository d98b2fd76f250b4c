//! The trees of a process that others may look at, each under a key that both sides know.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::snapshot::Snapshot;

type Look = Arc<dyn Fn() -> Option<Snapshot> + Send + Sync>;

/// Trees that are live in this process: its own operations, or copies of another process's. Cheap to clone.
#[derive(Clone, Default)]
pub struct Trees {
    shown: Arc<Mutex<BTreeMap<String, (u64, Look)>>>,
}

/// A tree is shown for as long as this lives.
#[must_use = "the tree is shown only while this lives"]
#[derive(Debug)]
pub struct Shown {
    trees: Trees,
    key: String,
    turn: u64,
}

impl Trees {
    /// Shows a tree under a key. Whoever comes later under the same key is the one that is seen.
    pub fn show(&self, key: &str, look: impl Fn() -> Option<Snapshot> + Send + Sync + 'static) -> Shown {
        let mut shown = self.lock();
        let turn = shown.get(key).map_or(0, |(turn, _)| turn + 1);
        shown.insert(key.to_owned(), (turn, Arc::new(look)));
        Shown { trees: self.clone(), key: key.to_owned(), turn }
    }

    /// The tree under a key, as it is now.
    pub fn snapshot(&self, key: &str) -> Option<Snapshot> {
        // Looked at without the lock: a snapshot takes its time.
        let look = self.lock().get(key).map(|(_, look)| Arc::clone(look))?;
        look()
    }

    /// The keys of all trees.
    pub fn keys(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (u64, Look)>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Trees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock().keys()).finish()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let mut shown = self.trees.lock();
        if shown.get(&self.key).is_some_and(|(turn, _)| *turn == self.turn) {
            shown.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, Operation};

    #[test]
    fn a_tree_is_seen_while_it_is_shown_and_a_successor_is_not_taken_away_with_it() {
        let trees = Trees::default();
        let operation = |name: &str| {
            let observer = Operation::new(name, Clock::system()).observer();
            move || Some(observer.snapshot())
        };
        let name = |trees: &Trees| trees.snapshot("uid").map(|tree| tree.operation.to_string());
        let first = trees.show("uid", operation("first"));
        assert_eq!(name(&trees).as_deref(), Some("first"));
        let second = trees.show("uid", operation("second"));
        drop(first);
        assert_eq!(name(&trees).as_deref(), Some("second"));
        drop(second);
        assert!(trees.is_empty() && name(&trees).is_none());
    }
}
