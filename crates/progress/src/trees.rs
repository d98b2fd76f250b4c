//! The trees of a process, registered under keys, for readers in the same process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::snapshot::Snapshot;

type SnapshotSource = Arc<dyn Fn() -> Option<Snapshot> + Send + Sync>;

/// Trees in this process's memory: its own operations, or replicas of another process's. Cheap to clone.
#[derive(Clone, Default)]
pub struct Trees {
    registered: Arc<Mutex<BTreeMap<String, (u64, SnapshotSource)>>>,
}

/// Keeps a tree registered for as long as this lives.
#[must_use = "the tree is registered only while this lives"]
#[derive(Debug)]
pub struct TreeRegistration {
    trees: Trees,
    key: String,
    generation: u64,
}

impl Trees {
    /// Registers a tree under a key. A later registration of the same key replaces it.
    pub fn register(
        &self,
        key: &str,
        source: impl Fn() -> Option<Snapshot> + Send + Sync + 'static,
    ) -> TreeRegistration {
        let mut registered = self.lock();
        let generation = registered.get(key).map_or(0, |(generation, _)| generation + 1);
        registered.insert(key.to_owned(), (generation, Arc::new(source)));
        TreeRegistration { trees: self.clone(), key: key.to_owned(), generation }
    }

    /// The current tree under a key.
    pub fn snapshot(&self, key: &str) -> Option<Snapshot> {
        // Without the lock: a snapshot takes time.
        let source = self.lock().get(key).map(|(_, source)| Arc::clone(source))?;
        source()
    }

    /// The keys of all trees.
    pub fn keys(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Whether there are no trees.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (u64, SnapshotSource)>> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Trees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock().keys()).finish()
    }
}

impl Drop for TreeRegistration {
    fn drop(&mut self) {
        let mut registered = self.trees.lock();
        if registered.get(&self.key).is_some_and(|(generation, _)| *generation == self.generation) {
            registered.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, Operation};

    #[test]
    fn a_tree_is_found_while_it_is_registered_and_its_end_does_not_remove_its_successor() {
        let trees = Trees::default();
        let operation = |name: &str| {
            let observer = Operation::new(name, Clock::system()).observer();
            move || Some(observer.snapshot())
        };
        let name = |trees: &Trees| trees.snapshot("uid").map(|tree| tree.operation.to_string());
        let first = trees.register("uid", operation("first"));
        assert_eq!(name(&trees).as_deref(), Some("first"));
        let second = trees.register("uid", operation("second"));
        drop(first);
        assert_eq!(name(&trees).as_deref(), Some("second"));
        drop(second);
        assert!(trees.is_empty() && name(&trees).is_none());
    }
}
