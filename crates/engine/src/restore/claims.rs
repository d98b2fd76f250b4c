//! Every item is restored once, whoever asks for it first: its own turn, or another item that needs it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// What became of an item, as far as others need to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It is in the cluster, by our doing.
    Restored,
    /// It was left alone; whether it is in the cluster all the same.
    Skipped { there: bool },
    /// It could not be restored.
    Failed,
}

impl Settled {
    /// Whether the item is in the cluster.
    pub(super) fn is_there(self) -> bool {
        matches!(self, Self::Restored | Self::Skipped { there: true })
    }

    fn code(self) -> u8 {
        match self {
            Self::Restored => 2,
            Self::Skipped { there: true } => 3,
            Self::Skipped { there: false } => 4,
            Self::Failed => 5,
        }
    }

    fn of(code: u8) -> Option<Self> {
        match code {
            2 => Some(Self::Restored),
            3 => Some(Self::Skipped { there: true }),
            4 => Some(Self::Skipped { there: false }),
            5 => Some(Self::Failed),
            _ => None,
        }
    }
}

const OPEN: u8 = 0;
const TAKEN: u8 = 1;

/// One byte for each item.
pub(super) struct Claims {
    states: Vec<AtomicU8>,
    /// Who waits for whom: an item waits for one other at a time.
    waits: Mutex<HashMap<usize, usize>>,
    settled: Notify,
}

impl Claims {
    pub(super) fn new(items: usize) -> Self {
        Self {
            states: std::iter::repeat_with(|| AtomicU8::new(OPEN)).take(items).collect(),
            waits: Mutex::default(),
            settled: Notify::new(),
        }
    }

    /// Takes an item, unless somebody has.
    pub(super) fn take(&self, item: usize) -> bool {
        self.states[item].compare_exchange(OPEN, TAKEN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Says what became of it.
    pub(super) fn settle(&self, item: usize, settled: Settled) {
        self.states[item].store(settled.code(), Ordering::Release);
        self.settled.notify_waiters();
    }

    /// What became of it, once that is known.
    pub(super) async fn outcome(&self, item: usize) -> Settled {
        loop {
            let notified = self.settled.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if let Some(settled) = Settled::of(self.states[item].load(Ordering::Acquire)) {
                return settled;
            }
            notified.await;
        }
    }

    /// `parent` waits for `child` until the result is dropped; nothing if that would be a circle.
    pub(super) fn wait_for(&self, parent: usize, child: usize) -> Option<Waiting<'_>> {
        let mut waits = self.lock();
        let mut at = child;
        loop {
            if at == parent {
                return None;
            }
            match waits.get(&at) {
                Some(next) => at = *next,
                None => break,
            }
        }
        waits.insert(parent, child);
        Some(Waiting { claims: self, parent })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, usize>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An item that waits for another.
pub(super) struct Waiting<'a> {
    claims: &'a Claims,
    parent: usize,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_item_is_taken_once_and_others_learn_what_became_of_it() {
        let claims = Claims::new(1);
        assert!(claims.take(0) && !claims.take(0));
        let settle = async { claims.settle(0, Settled::Skipped { there: true }) };
        let (settled, ()) = tokio::join!(claims.outcome(0), settle);
        assert!(settled.is_there());
    }

    #[test]
    fn nobody_waits_in_a_circle() {
        let claims = Claims::new(3);
        let first = claims.wait_for(0, 1).unwrap();
        let _second = claims.wait_for(1, 2).unwrap();
        assert!(claims.wait_for(2, 0).is_none(), "2 would wait for 0, which waits for 1, which waits for 2");
        assert!(claims.wait_for(2, 2).is_none(), "nor for itself");
        drop(first);
        assert!(claims.wait_for(2, 0).is_some());
    }
}
