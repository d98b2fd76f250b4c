//! Subjects about which nothing is left to do.
//!
//! The end of any operation reconciles every subject of its kind, because some may wait for it, and so does the start of a server.
//! Most have ended long ago: asking for the Operation of each would cost a request for each object at each end, and at the start.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use kube::ResourceExt;
use kube::api::DynamicObject;

/// The most that are remembered: 8 MiB. Deleted subjects are not forgotten one by one.
const MAX_REMEMBERED: usize = 500_000;

/// Versions of subjects that have ended and whose Operation is closed.
pub(super) struct SettledSubjects {
    hasher: RandomState,
    known: Mutex<HashSet<u64>>,
    /// The names of the Operations that earlier leaders left open; `None` if they are not known.
    left_open: Option<HashSet<String>>,
    /// The uids of the subjects that this leader has seen before their end: their Operations are its own.
    unfinished: Mutex<HashSet<String>>,
}

impl SettledSubjects {
    /// None is known to be settled. `left_open` are the Operations that earlier leaders left open.
    pub fn new(left_open: Option<HashSet<String>>) -> Self {
        Self { hasher: RandomState::new(), known: Mutex::default(), left_open, unfinished: Mutex::default() }
    }

    /// Remembers that a subject has not ended.
    pub fn mark_unfinished(&self, uid: &str) {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        if !unfinished.contains(uid) {
            unfinished.insert(uid.to_owned());
        }
    }

    /// Whether the Operation of a subject that has ended is open, if that is known without asking for it.
    pub fn is_operation_open(&self, uid: &str, operation: &str) -> Option<bool> {
        let ended_here = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner).contains(uid);
        let left_open = self.left_open.as_ref()?.contains(operation);
        (!ended_here && !left_open).then_some(false)
    }

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
