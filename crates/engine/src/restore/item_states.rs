//! States of items: each item is restored once, in its own order or earlier as an additional item.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The result of an item, for the items that depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemResult {
    /// Restored.
    Restored,
    /// Skipped; `exists` says whether it is in the cluster.
    Skipped { exists: bool },
    /// Failed.
    Failed,
}

impl ItemResult {
    /// Whether the item is in the cluster.
    pub(super) fn exists(self) -> bool {
        matches!(self, Self::Restored | Self::Skipped { exists: true })
    }

    fn code(self) -> u8 {
        match self {
            Self::Restored => 2,
            Self::Skipped { exists: true } => 3,
            Self::Skipped { exists: false } => 4,
            Self::Failed => 5,
        }
    }

    fn of(code: u8) -> Option<Self> {
        match code {
            2 => Some(Self::Restored),
            3 => Some(Self::Skipped { exists: true }),
            4 => Some(Self::Skipped { exists: false }),
            5 => Some(Self::Failed),
            _ => None,
        }
    }
}

const PENDING: u8 = 0;
const STARTED: u8 = 1;

/// The states of all items, one byte each.
pub(super) struct ItemStates {
    states: Vec<AtomicU8>,
    /// The item that an item waits for: one at a time.
    waits: Mutex<HashMap<usize, usize>>,
    changed: Notify,
}

impl ItemStates {
    pub(super) fn new(items: usize) -> Self {
        Self {
            states: std::iter::repeat_with(|| AtomicU8::new(PENDING)).take(items).collect(),
            waits: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Starts an item. Returns `false` if it was started before.
    pub(super) fn try_start(&self, item: usize) -> bool {
        self.states[item].compare_exchange(PENDING, STARTED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Sets the result of an item.
    pub(super) fn set_result(&self, item: usize, result: ItemResult) {
        self.states[item].store(result.code(), Ordering::Release);
        self.changed.notify_waiters();
    }

    /// The result of an item, if it has ended.
    pub(super) fn result(&self, item: usize) -> Option<ItemResult> {
        ItemResult::of(self.states[item].load(Ordering::Acquire))
    }

    /// Waits for the result of an item.
    pub(super) async fn wait_for_result(&self, item: usize) -> ItemResult {
        loop {
            let notified = self.changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if let Some(result) = self.result(item) {
                return result;
            }
            notified.await;
        }
    }

    /// Registers that `parent` waits for `child` until the guard is dropped; `None` if that would be a cycle.
    pub(super) fn add_dependency(&self, parent: usize, child: usize) -> Option<DependencyGuard<'_>> {
        let mut waits = self.lock();
        let mut current = child;
        loop {
            if current == parent {
                return None;
            }
            match waits.get(&current) {
                Some(next) => current = *next,
                None => break,
            }
        }
        waits.insert(parent, child);
        Some(DependencyGuard { items: self, parent })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, usize>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A registered dependency.
pub(super) struct DependencyGuard<'a> {
    items: &'a ItemStates,
    parent: usize,
}

impl Drop for DependencyGuard<'_> {
    fn drop(&mut self) {
        self.items.lock().remove(&self.parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_item_is_started_once_and_others_get_its_result() {
        let items = ItemStates::new(1);
        assert!(items.try_start(0) && !items.try_start(0));
        let finish = async { items.set_result(0, ItemResult::Skipped { exists: true }) };
        let (result, ()) = tokio::join!(items.wait_for_result(0), finish);
        assert!(result.exists());
    }

    #[test]
    fn cycles_are_detected() {
        let items = ItemStates::new(3);
        let first = items.add_dependency(0, 1).unwrap();
        let _second = items.add_dependency(1, 2).unwrap();
        assert!(items.add_dependency(2, 0).is_none(), "2 would wait for 0, which waits for 1, which waits for 2");
        assert!(items.add_dependency(2, 2).is_none(), "an item cannot wait for itself");
        drop(first);
        assert!(items.add_dependency(2, 0).is_some());
    }
}
