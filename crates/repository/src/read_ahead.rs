//! Reading ahead: a few ranges of packs are on their way while the workers decode earlier ones, within a budget of bytes.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;

use crate::cancel::Cancel;
use crate::format::id::Id;
use crate::repository::Repository;
use crate::{RepositoryError, Result};

/// Bytes that may be on their way, waiting for a worker or in its hands. Half of it and more is on its way while workers keep
/// up: enough for a store that answers after 50 ms to send as fast as two processors decode.
const BUDGET: u64 = 64 * 1024 * 1024;

/// A part of a pack, and what it is for.
pub(crate) struct Wish<T> {
    pub pack: Id,
    pub bytes: Range<u64>,
    pub what: T,
}

/// A range that has arrived, or why it has not. Its bytes count until it is dropped.
pub(crate) struct Fetched<T> {
    pub what: T,
    pub content: Result<Bytes>,
    _held: Held<T>,
}

/// Bytes of the budget. It does not keep the queue, in which it lies: what nobody fetches from there goes with it.
struct Held<T>(Weak<Shared<T>>, u64);

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if let Some(queue) = self.0.upgrade().map(ReadAhead) {
            queue.state().spent -= self.1;
            queue.0.1.notify_all();
        }
    }
}

struct State<T> {
    arrived: VecDeque<Fetched<T>>,
    spent: u64,
    under_way: usize,
    /// No more ranges will be asked for.
    closed: bool,
}

/// The queue between the store and the workers.
pub(crate) struct ReadAhead<T>(Arc<Shared<T>>);

type Shared<T> = (Mutex<State<T>>, Condvar);

impl<T> Clone for ReadAhead<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for ReadAhead<T> {
    fn default() -> Self {
        let state = State { arrived: VecDeque::new(), spent: 0, under_way: 0, closed: false };
        Self(Arc::new((Mutex::new(state), Condvar::new())))
    }
}

impl<T> ReadAhead<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State<T>>) -> MutexGuard<'s, State<T>> {
        self.0.1.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner).0
    }

    /// The next range that arrived; nothing when all are done.
    pub(crate) fn next(&self, cancel: &Cancel) -> Result<Option<Fetched<T>>> {
        let mut state = self.state();
        loop {
            if let Some(fetched) = state.arrived.pop_front() {
                return Ok(Some(fetched));
            }
            if cancel.is_cancelled() {
                return Err(RepositoryError::Cancelled);
            }
            if state.closed && state.under_way == 0 {
                return Ok(None);
            }
            state = self.wait(state);
        }
    }
}

impl<T: Send + 'static> ReadAhead<T> {
    /// Asks for all of it in turn, no faster than the budget allows.
    pub(crate) fn fetch_all(
        &self,
        repository: &Arc<Repository>,
        wishes: impl Iterator<Item = Wish<T>>,
        stopped: impl Fn() -> bool,
    ) {
        for wish in wishes {
            let size = wish.bytes.end - wish.bytes.start;
            let mut state = self.state();
            while state.spent > 0 && state.spent + size > BUDGET && !stopped() {
                state = self.wait(state);
            }
            if stopped() {
                break;
            }
            state.spent += size;
            state.under_way += 1;
            drop(state);
            self.fetch(repository, wish, Held(Arc::downgrade(&self.0), size));
        }
        self.state().closed = true;
        self.0.1.notify_all();
    }

    fn fetch(&self, repository: &Arc<Repository>, wish: Wish<T>, held: Held<T>) {
        let (queue, repository) = (self.clone(), repository.clone());
        let runtime = repository.runtime.clone();
        runtime.spawn(async move {
            let content = repository.read_pack_range(wish.pack, wish.bytes).await;
            let mut state = queue.state();
            state.under_way -= 1;
            state.arrived.push_back(Fetched { what: wish.what, content, _held: held });
            drop(state);
            queue.0.1.notify_all();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    struct Content(Arc<AtomicBool>);

    impl AsRef<[u8]> for Content {
        fn as_ref(&self) -> &[u8] {
            b"content"
        }
    }

    impl Drop for Content {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_nobody_fetched_before_a_cancel_is_given_back() {
        let (queue, freed) = (ReadAhead::<()>::default(), Arc::new(AtomicBool::new(false)));
        let fetched = |queue: &ReadAhead<()>| Fetched {
            what: (),
            content: Ok(Bytes::from_owner(Content(freed.clone()))),
            _held: Held(Arc::downgrade(&queue.0), 7),
        };
        queue.state().spent = 14;
        drop(fetched(&queue));
        assert_eq!((queue.state().spent, freed.swap(false, Ordering::SeqCst)), (7, true));
        let left = fetched(&queue);
        queue.state().arrived.push_back(left);
        drop(queue);
        assert!(freed.load(Ordering::SeqCst));
    }
}
