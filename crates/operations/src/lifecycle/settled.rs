//! Subjects about which nothing is left to do.
//!
//! The end of any operation reconciles every subject of its kind, because some may wait for it. Most have ended long ago: asking
//! for the Operation of each would cost a request for each object at each end.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use kube::ResourceExt;
use kube::api::DynamicObject;

/// The most that are remembered: 8 MiB. Deleted subjects are not forgotten one by one.
const MAX_REMEMBERED: usize = 500_000;

/// Versions of subjects that have ended and whose Operation is closed.
#[derive(Default)]
pub(super) struct SettledSubjects {
    hasher: RandomState,
    known: Mutex<HashSet<u64>>,
}

impl SettledSubjects {
    /// Whether this version of the subject is known to be settled.
    pub fn contains(&self, object: &DynamicObject) -> bool {
        self.lock().contains(&self.hash(object))
    }

    /// Remembers this version of the subject.
    pub fn insert(&self, object: &DynamicObject) {
        let mut known = self.lock();
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        known.insert(self.hash(object));
    }

    fn hash(&self, object: &DynamicObject) -> u64 {
        self.hasher.hash_one((object.uid(), object.resource_version()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<u64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
