//! Read-ahead: fetches ranges of packs while the workers decode earlier ones, within a memory budget.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;

use crate::cancel::Cancel;
use crate::format::id::Id;
use crate::repository::Repository;
use crate::{RepositoryError, Result};

/// A range of a pack to read, with the caller's context.
pub(crate) struct ReadRequest<T> {
    pub pack: Id,
    pub bytes: Range<u64>,
    pub context: T,
}

/// A fetched range or its error. Its bytes count against the budget until it is dropped.
pub(crate) struct FetchedRange<T> {
    pub context: T,
    pub content: Result<Bytes>,
    _budget: BudgetShare<T>,
}

/// A share of the budget. Its reference is weak, because it is stored in the queue itself.
struct BudgetShare<T>(Weak<Shared<T>>, u64);

impl<T> Drop for BudgetShare<T> {
    fn drop(&mut self) {
        if let Some(queue) = self.0.upgrade().map(ReadAhead) {
            queue.state().used_bytes -= self.1;
            queue.0.freed.notify_one();
        }
    }
}

struct State<T> {
    fetched: VecDeque<FetchedRange<T>>,
    used_bytes: u64,
    in_flight: usize,
    /// No more ranges will be requested.
    closed: bool,
}

/// The queue between the store and the workers.
pub(crate) struct ReadAhead<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Workers wait for a range.
    fetched: Condvar,
    /// The one who requests ranges waits for room in the budget.
    freed: Condvar,
    /// The maximum number of bytes that are being fetched, waiting or being decoded.
    byte_budget: u64,
}

impl<T> Clone for ReadAhead<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> ReadAhead<T> {
    /// A queue that holds this many bytes, or one range.
    pub(crate) fn new(byte_budget: u64) -> Self {
        let state = Mutex::new(State { fetched: VecDeque::new(), used_bytes: 0, in_flight: 0, closed: false });
        Self(Arc::new(Shared { state, fetched: Condvar::new(), freed: Condvar::new(), byte_budget }))
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next fetched range; `None` when all are done.
    pub(crate) fn next(&self, cancel: &Cancel) -> Result<Option<FetchedRange<T>>> {
        let mut state = self.state();
        loop {
            if let Some(fetched) = state.fetched.pop_front() {
                return Ok(Some(fetched));
            }
            if cancel.is_cancelled() {
                return Err(RepositoryError::Cancelled);
            }
            if state.closed && state.in_flight == 0 {
                return Ok(None);
            }
            state = wait(&self.0.fetched, state);
        }
    }
}

fn wait<'s, S>(condition: &Condvar, state: MutexGuard<'s, S>) -> MutexGuard<'s, S> {
    condition.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner).0
}

impl<T: Send + 'static> ReadAhead<T> {
    /// Fetches all ranges in order, as fast as the budget allows.
    pub(crate) fn fetch_all(
        &self,
        repository: &Arc<Repository>,
        requests: impl Iterator<Item = ReadRequest<T>>,
        stopped: impl Fn() -> bool,
    ) {
        for request in requests {
            let size = request.bytes.end - request.bytes.start;
            let mut state = self.state();
            while state.used_bytes > 0 && state.used_bytes + size > self.0.byte_budget && !stopped() {
                state = wait(&self.0.freed, state);
            }
            if stopped() {
                break;
            }
            state.used_bytes += size;
            state.in_flight += 1;
            drop(state);
            self.fetch(repository, request, BudgetShare(Arc::downgrade(&self.0), size));
        }
        self.state().closed = true;
        self.0.fetched.notify_all();
    }

    fn fetch(&self, repository: &Arc<Repository>, request: ReadRequest<T>, budget: BudgetShare<T>) {
        let (queue, repository) = (self.clone(), repository.clone());
        let runtime = repository.runtime.clone();
        runtime.spawn(async move {
            let content = repository.read_pack_range(request.pack, request.bytes).await;
            let mut state = queue.state();
            state.in_flight -= 1;
            state.fetched.push_back(FetchedRange { context: request.context, content, _budget: budget });
            let is_last = state.closed && state.in_flight == 0;
            drop(state);
            // After the last one all workers may end.
            if is_last { queue.0.fetched.notify_all() } else { queue.0.fetched.notify_one() }
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
    fn unused_ranges_are_freed_after_a_cancel() {
        let (queue, freed) = (ReadAhead::<()>::new(100), Arc::new(AtomicBool::new(false)));
        let fetched = |queue: &ReadAhead<()>| FetchedRange {
            context: (),
            content: Ok(Bytes::from_owner(Content(freed.clone()))),
            _budget: BudgetShare(Arc::downgrade(&queue.0), 7),
        };
        queue.state().used_bytes = 14;
        drop(fetched(&queue));
        assert_eq!((queue.state().used_bytes, freed.swap(false, Ordering::SeqCst)), (7, true));
        let unused = fetched(&queue);
        queue.state().fetched.push_back(unused);
        drop(queue);
        assert!(freed.load(Ordering::SeqCst));
    }
}
